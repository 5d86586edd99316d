#!/usr/bin/env python3
"""What looks at the pages finds what is wrong with them: each rule of the programs beside this file, broken once."""

import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import command_pages  # noqa: E402
import example_configs  # noqa: E402
import page_links  # noqa: E402
import quoted_messages  # noqa: E402
from output import first_missing  # noqa: E402
from pages import PageError, commands_of, output_of, read_page  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
FENCE = "```"


def block(language, *lines, mark=""):
    return "\n".join([mark, f"{FENCE}{language}", *lines, FENCE])


class Pages(unittest.TestCase):
    def refuses(self, text, why):
        with self.assertRaisesRegex(PageError, why):
            read_page(text)

    def test_commands_need_a_language(self):
        self.refuses(block("", "swarmline status"), "says what it is")
        self.refuses("text\n\n    swarmline status\n", "between ``` fences")
        self.assertFalse(read_page(block("", "[run]"))[0].is_typed)
        self.assertFalse(read_page(block("python wandb", "import wandb"))[0].is_typed)
        self.assertTrue(read_page(block("sh", "swarmline status"))[0].is_typed)

    def test_blocks_are_whole(self):
        self.refuses(block("text"), "is empty")
        self.refuses(f"{FENCE}sh\nswarmline status\n", "does not end")

    def test_a_skipped_block_says_why(self):
        self.refuses(block("sh", "swarmline status", mark="<!-- test: skip -->"), "say why")
        self.assertIn("skip", read_page(block("sh", "x", mark="<!-- test: skip it takes a GPU -->"))[0].marks)

    def test_marks_are_known_and_stand_before_a_block(self):
        self.refuses(block("sh", "x", mark="<!-- test: ignore -->"), "no mark \"ignore\"")
        self.refuses("<!-- test: slow -->\nsome text\n", "no block follows")
        self.refuses("<!-- test: slow -->", "no block follows")
        self.refuses(block("text", "x", mark="<!-- test: slow -->"), "for a block of sh")
        self.refuses("<!-- test: setup\nls", "does not end")
        self.refuses("<!-- test: replace\nls\n-->", "LINE => LINE")

    def test_console_blocks_are_commands_and_output(self):
        page = read_page(block("console", "$ cat a \\", "  b", "out", "$ ls", "c"))[0]
        self.assertEqual(commands_of(page), "cat a \\\n  b\nls")
        self.assertEqual(output_of(page), ["out", "c"])
        self.refuses(block("console", "ls"), "begin with")


class Output(unittest.TestCase):
    def test_numbers_may_differ_and_words_may_not(self):
        printed = "finished 12 steps\n  loss   3.25\n  data 7 KiB in 1m 2s\n"
        self.assertIsNone(first_missing(["finished 400 steps", "...", "  data 1.5 GiB in 30s"], printed))
        self.assertIsNone(first_missing(["fini..."], printed))
        self.assertIsNone(first_missing(["  a  1  -  0.5 s", "  b  2  0.1 s  -"], "  a  1  2.5 s  -\n  b  2  -  3 s\n"))
        self.assertEqual(first_missing(["finished 400 steps", "  lost 3.25"], printed), "  lost 3.25")
        self.assertEqual(first_missing(["  loss 1.0", "finished 1 steps"], printed), "finished 1 steps", "in their order")


class Run(unittest.TestCase):
    """The whole program, over a page and a program that are made up."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.makedirs(self.at("configs"))
        with open(os.path.join(HERE, "../../configs/quickstart.toml"), encoding="utf-8") as example:
            self.write("configs/quickstart.toml", example.read())
        self.write("bin/swarmline", "#!/bin/sh\necho \"did $*\"\nexit ${CODE:-0}\n")
        os.chmod(self.at("bin/swarmline"), 0o755)

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_page(self, text, *arguments):
        self.write("README.md", text)
        return subprocess.run([sys.executable, os.path.join(HERE, "run_pages.py"), "--root", self.folder.name, "--program",
                               self.at("bin/swarmline"), *arguments, "README.md"], capture_output=True, text=True, check=False)

    def test_a_page_is_typed_from_top_to_bottom(self):
        ran = self.run_page(block("sh", "swarmline launch >a") + block("console", "$ cat a", "did launch"))
        self.assertEqual((ran.returncode, ran.stdout.split(",")[0]), (0, "README.md: 2 blocks run"), ran.stdout)

    def test_what_fails_or_prints_something_else_is_named(self):
        ran = self.run_page("\n\n" + block("sh", "CODE=3 swarmline stop"))
        self.assertEqual(ran.returncode, 1)
        self.assertIn("README.md:4: exit code 3, expected 0", ran.stdout)
        self.assertEqual(self.run_page(block("sh", "CODE=3 swarmline stop", mark="<!-- test: exit 3 -->")).returncode, 0)
        ran = self.run_page(block("console", "$ swarmline stop", "undid stop"))
        self.assertIn("a line that is not printed there: undid stop", ran.stdout)

    def test_lines_are_replaced_and_skipped(self):
        marks = "<!-- test: replace\nswarmline a => swarmline c\nswarmline b => skip: it takes a GPU\n-->\n"
        ran = self.run_page(marks + block("console", "$ swarmline a", "$ swarmline b", "did c"))
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_slow_blocks_run_in_the_slow_test_alone(self):
        page = block("sh", "CODE=1 swarmline launch", mark="<!-- test: slow -->")
        self.assertEqual(self.run_page(page).returncode, 0)
        self.assertEqual(self.run_page(page, "--slow").returncode, 1)

    def test_a_join_string_is_the_one_that_was_printed(self):
        setup = "<!-- test: setup\nmkdir -p runs/x/keys; echo 'swarm1abc@127.0.0.1:1' >runs/x/keys/join\n-->\n"
        ran = self.run_page(setup + block("console", "$ swarmline peer --join 'swarm1...@192.0.2.7:7400'",
                                          "did peer --join swarm1abc@127.0.0.1:1", mark="<!-- test: on B -->"))
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_what_runs_in_the_background_must_end_well(self):
        self.write("bin/swarmline", "#!/bin/sh\necho ready\nexit 5\n")
        ran = self.run_page(block("sh", "swarmline launch", mark="<!-- test: background ready -->") + "\n<!-- test: wait -->\n")
        self.assertEqual(ran.returncode, 1, ran.stdout)


class CommandPages(unittest.TestCase):
    REFERENCE = "## swarmline a\n\nDoes a.\n\n## swarmline a b\n\nDoes b.\n\n## swarmline c\n\nDoes c.\n"

    def test_pages_are_made_and_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(command_pages.check(folder, self.REFERENCE, update=False), 3)
            self.assertEqual(command_pages.check(folder, self.REFERENCE, update=True), 0)
            self.assertEqual(sorted(os.listdir(folder)), ["README.md", "a.md", "c.md"])
            path = os.path.join(folder, "a.md")
            with open(path, encoding="utf-8") as file:
                page = file.read()
            with open(path, "w", encoding="utf-8") as file:
                file.write(page.replace("# swarmline a\n", "# swarmline a\n\nBy hand.\n", 1).replace("Does b.", "Does d."))
            self.assertEqual(command_pages.check(folder, self.REFERENCE, update=False), 1, "a row is invented")
            self.assertEqual(command_pages.check(folder, self.REFERENCE, update=True), 0)
            with open(path, encoding="utf-8") as file:
                page = file.read()
            self.assertIn("By hand.", page)
            self.assertIn("Does b.", page)
            os.rename(path, os.path.join(folder, "z.md"))
            self.assertEqual(command_pages.check(folder, self.REFERENCE, update=False), 2)


class Messages(unittest.TestCase):
    LITERALS = ('no coordinator answers at {} ({}); is the run over?', "%s ended with code %d")

    def found(self, heading):
        return [problem for _, problem in quoted_messages.problems(f"### {heading}\n", self.LITERALS)]

    def test_fixed_parts_must_be_printed(self):
        self.assertEqual(self.found("`no coordinator answers at ... (...); is the run over?`"), [])
        self.assertEqual(self.found("`ended with code 137`"), [])
        self.assertIn("nothing prints", self.found("`no coordinator replies at ...`")[0])
        self.assertIn("nothing prints", self.found("`is the run over? ... no coordinator answers`")[0])
        self.assertIn("quote more", self.found("`... (...)`")[0])


class Links(unittest.TestCase):
    def test_files_and_headings_must_be_there(self):
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "a.md")
            with open(page, "w", encoding="utf-8") as file:
                file.write("# A b, c!\n[x](a.md#a-b-c) [y](a.md#d) [z](none.md) [w](https://example.org/none)\n")
            self.assertEqual(list(page_links.problems(page)), [(2, "a.md has no heading #d"), (2, "there is no none.md")])


class Examples(unittest.TestCase):
    KEYS = {"codec.block": "an integer", "codec.forward": '"none" or "lin8"', "run.name": "text"}

    def found(self, text):
        return [problem for _, problem in example_configs.problems_of_run("config_version = 1\n" + text, self.KEYS)]

    def test_keys_comments_and_combinations(self):
        self.assertEqual(self.found('[codec]\nforward = "lin8"  # or "none"\nblock = 256\n'), [])
        self.assertIn("no codec.forwards", self.found('[codec]\nforwards = "none"\n')[0])
        self.assertIn('names "h9"', self.found('[codec]\nforward = "none"  # or "h9"\n')[0])
        self.assertIn("does nothing here", self.found('[codec]\nforward = "none"\nblock = 256\n')[0])


if __name__ == "__main__":
    unittest.main()
