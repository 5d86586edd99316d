#!/usr/bin/env python3
"""The shells complete the program's command line by the scripts that it prints. bash does so for real: with a line's
words in COMP_WORDS, as its Tab key has them. zsh and fish are tried where they are installed.

usage: completion_test.py PROGRAM
"""

import functools
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "swarmline"

# Of bash's own: splits the line at COMP_WORDBREAKS only where "=" parts an option and its value.
COMPLETE = r"""
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_swarmline
printf '%s\n' "${COMPREPLY[@]}"
"""


def run(*command, folder=None, check=True):
    return subprocess.run(command, cwd=folder, check=check, capture_output=True, text=True, timeout=60)


@functools.cache
def script_of(shell):
    return run(PROGRAM, "completion", shell).stdout


class WithFiles(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        self.folder = Path(self.temp.name)
        for run_folder in ("runs/first", "runs/second one", "elsewhere/third"):
            (self.folder / run_folder).mkdir(parents=True)
            (self.folder / run_folder / "config.toml").touch()
        (self.folder / "runs/no-run").mkdir()
        for name in ("run.toml", "rest.txt", "two words.toml"):
            (self.folder / name).touch()

    def script(self, shell):
        path = self.folder / f".completion.{shell}"
        path.write_text(script_of(shell))
        return str(path)


class Bash(WithFiles):
    def complete(self, *words):
        done = run("bash", "--norc", "-c", COMPLETE, "bash", self.script("bash"), "swarmline", *words, folder=self.folder)
        self.assertEqual(done.stderr, "")
        return [line for line in done.stdout.split("\n") if line]

    def test_commands_are_those_of_the_help(self):
        listed = run(PROGRAM, "--help").stdout.split("Subcommands:\n")[1].split("\n\n")[0]
        commands = re.findall(r"^  ([a-z-]+)", listed, re.M)
        self.assertGreater(len(commands), 10)
        self.assertEqual(self.complete(""), commands)
        self.assertEqual(self.complete("la"), ["launch"])
        self.assertEqual(self.complete("help", "la"), ["launch"])

    def test_commands_below_commands(self):
        self.assertEqual(self.complete("bench", "r"), ["ratio"])
        self.assertEqual(sorted(self.complete("checkpoint", "")), ["diff", "list", "now", "prune", "pull", "push", "verify"])

    def test_options_are_those_of_the_help(self):
        for command in (["launch"], ["peer"], ["bench", "ratio"]):
            shown = run(PROGRAM, *command, "--help").stdout.split("Options:\n")[1].split("\n\n")[0]
            options = re.findall(r"^  (?:-\w,)?(--[a-z-]+)", shown, re.M)
            self.assertGreater(len(options), 5)
            self.assertEqual(self.complete(*command, "--"), options)
        self.assertEqual(self.complete("launch", "--exa"), ["--example"])

    def test_values(self):
        self.assertEqual(self.complete("launch", "--example", "q"), ["quickstart"])
        self.assertEqual(self.complete("plot", "--what", "=", "th"), ["throughput"])
        self.assertEqual(self.complete("plot", "--what", "=")[0], "loss")
        self.assertEqual(self.complete("completion", ""), ["bash", "zsh", "fish"])
        self.assertEqual(self.complete("launch", "--name", ""), [])

    def test_config_files_and_folders_to_find_them_in(self):
        self.assertEqual(sorted(self.complete("config", "check", "")), ["elsewhere", "run.toml", "runs", "two words.toml"])
        self.assertEqual(self.complete("launch", "--set", "run.steps=5", "run.t"), ["run.toml"])
        self.assertEqual(self.complete("launch", "--fresh", "run.t"), ["run.toml"])

    def test_run_folders(self):
        self.assertEqual(self.complete("status", ""), ["runs/first", "runs/second one"])
        self.assertEqual(self.complete("checkpoint", "diff", "runs/first", "runs/s"), ["runs/second one"])
        self.assertEqual(self.complete("stop", "elsewhere/"), ["elsewhere/third"])
        self.assertEqual(self.complete("invite", ""), ["list", "revoke", "runs/first", "runs/second one"])


@unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
class Zsh(WithFiles):
    def test_the_script_registers_a_function_that_parses(self):
        script = self.script("zsh")
        run("zsh", "-n", script)
        done = run("zsh", "-f", "-c", f"autoload -U compinit; compinit -u -D; source {script}; "
                   "print $_comps[swarmline]; functions _swarmline_command_bench_ratio")
        self.assertEqual(done.stdout.split()[0], "_swarmline")
        self.assertIn("--layers-per-stage=[", done.stdout)

    def test_each_command_has_a_function(self):
        text = script_of("zsh")
        called = set(re.findall(r"\) (_swarmline_command_\w+) ;;", text))
        self.assertGreater(len(called), 20)
        self.assertEqual(called, set(re.findall(r"^(_swarmline_command_\w+)\(\)", text, re.M)))


@unittest.skipUnless(shutil.which("fish"), "fish is not installed")
class Fish(WithFiles):
    def complete(self, line):
        home = f"HOME={self.folder}"
        done = run("env", home, "fish", "--no-config", "-c", f"source {self.script('fish')}; complete -C '{line}'", folder=self.folder)
        return [text.split("\t")[0] for text in done.stdout.splitlines()]

    def test_completes(self):
        self.assertEqual(self.complete("swarmline la"), ["launch"])
        self.assertEqual(self.complete("swarmline bench r"), ["ratio"])
        self.assertIn("--example", self.complete("swarmline launch --ex"))
        self.assertEqual(self.complete("swarmline launch --example q"), ["quickstart"])
        self.assertIn("run.toml", self.complete("swarmline config check r"))
        self.assertIn("runs/first", self.complete("swarmline status ru"))


if __name__ == "__main__":
    unittest.main()
