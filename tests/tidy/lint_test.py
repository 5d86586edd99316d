#!/usr/bin/env python3
"""Every rule of lint.py finds its offender and leaves its neighbour alone."""

import unittest

from lint import FILE_LINES_MAX, blank_comments_and_strings, lint_text


def problems(path, text):
    return [problem for _, problem in lint_text(path, text)]


HEADER = "// What it is for.\n#pragma once\n"


class LintTest(unittest.TestCase):
    def assert_bad(self, path, text, part):
        found = problems(path, text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])

    def assert_good(self, path, text):
        self.assertEqual(problems(path, text), [])

    def test_doors_are_closed_to_logic(self):
        for code, part, open_path in (
                ("auto t = std::chrono::steady_clock::now();\n", "Runtime", "engine/runtime/a.cc"),
                ("std::thread worker;\n", "device", "engine/device/a.cc"),
                ("std::this_thread::sleep_for(1s);\n", "timer", "tests/net/a.cc"),
                ("#include <torch/torch.h>\n", "engine/model", "engine/model/a.cc"),
                ("#include <ATen/ATen.h>\n", "engine/model", "tests/model/a.cc"),
                ("#include <toml++/toml.h>\n", "engine/config", "engine/config/a.cc"),
                ("#include <boost/asio.hpp>\n", "Asio", "engine/net/a.cc"),
                ("std::ifstream in(path);\n", "engine/store", "engine/store/a.cc"),
                ("int s = ::socket(a, b, c);\n", "engine/net", "engine/net/a.cc"),
                ("#include <sqlite3.h>\n", "SQLite", "engine/store/a.cc")):
            with self.subTest(code=code):
                self.assert_bad("pipeline/wiring/a.cc", code, part)
                self.assert_good(open_path, code)

    def test_never_allowed(self):
        for code in ("co_await x;\n", "std::random_device d;\n", "std::mt19937 g;\n",
                     "std::uniform_int_distribution<int> d;\n", "std::shuffle(a, b, g);\n",
                     "using namespace std;\n", "int x = rand();\n"):
            with self.subTest(code=code):
                self.assertEqual(len(problems("balancer/a.cc", code)), 1)

    def test_comments_and_strings_may_name_anything(self):
        self.assert_good("balancer/a.cc", "// not a steady_clock\nconst char* s = \"std::thread\";\n"
                         "/* co_await\n co_await */\nauto r = R\"x(co_await)x\";\n")

    def test_thread_id_is_not_a_thread(self):
        self.assert_good("base/a.cc", "std::thread::id id;\n")

    def test_includes_go_down(self):
        up = '#include "pipeline/ledger/ledger.h"\n'
        self.assert_bad("balancer/plan.cc", up, "only lower layers")
        self.assert_bad("engine/data/a.cc", '#include "engine/model/stage.h"\n', "only lower layers")
        self.assert_bad("base/a.cc", '#include "tests/helper.h"\n', "no tests")
        self.assert_good("pipeline/wiring/a.cc", up)
        self.assert_good("sim/a.cc", up)
        self.assert_good("tests/x/a.cc", up)
        self.assert_bad("cli/status.cc", '#include "sim/world.h"\n', "only lower layers")
        self.assert_good("cli/simulate.cc", '#include "sim/world.h"\n')

    def test_shape(self):
        self.assert_bad("sim/a.cc", "//" + "x" * 99 + "\n", "100 columns")
        self.assert_good("sim/a.cc", "//" + "x" * 98 + "\n")
        self.assert_bad("sim/a.cc", "\n" * (FILE_LINES_MAX + 1), "lines")
        self.assert_good("sim/a.cc", "\n" * FILE_LINES_MAX)
        self.assert_bad("sim/a.cc", "int x; \n", "white space")
        self.assert_bad("sim/a.cc", "// TO" + "DO later\n", "marker")

    def test_headers(self):
        self.assert_good("sim/a.h", HEADER)
        self.assert_good("sim/a.h", "#pragma once\n\n// What it is for.\n")
        self.assert_bad("sim/a.h", "#pragma once\nint x;\n", "leading comment")
        self.assert_bad("sim/a.h", "// What it is for.\nint x;\n", "#pragma once")

    def test_line_numbers_survive_blanking(self):
        text = "/* a\n b */ int x; // c\n\"d\"\n"
        self.assertEqual(blank_comments_and_strings(text).count("\n"), text.count("\n"))
        self.assertEqual([n for n, _ in lint_text("sim/a.cc", "/*\n*/\nco_await x;\n")], [3])


if __name__ == "__main__":
    unittest.main()
