#!/usr/bin/env python3
"""Every rule of lint.py finds its offender and leaves its neighbour alone."""

import os
import subprocess
import tempfile
import unittest

from layers import House, circle_of, circles
from lint import FILE_LINES_MAX, blank_comments_and_strings, classes_of, lint_text, namesakes

# A small house.
TABLE = """
# words
layer base      # what everybody may use
  base          parts
layer engine
  engine/net
  engine/data
  engine/model
layer roles
  pipeline/stage   parts
  pipeline/wiring
"""
CMAKE_LISTS = {
    "base": "swarmline_library(NAME base SOURCES ids.cc HEADERS ids.h)",
    "engine/net": "swarmline_library(\n  NAME net\n  SOURCES frame.cc\n  HEADERS frame.h  # words\n  DEPS base)",
    "engine/data": "swarmline_library(NAME data HEADERS tokens.h DEPS base net)",
    "engine/model": "swarmline_library(NAME model_spec SOURCES spec.cc HEADERS spec.h DEPS base)\n"
                    "swarmline_library(NAME model SOURCES model.cc HEADERS model.h DEPS base data model_spec)",
    "pipeline/stage": "swarmline_proto(NAME words PROTOS words.proto)\n"
                      "swarmline_library(NAME stage SOURCES stage.cc DEPS wiring words)",
    "pipeline/wiring": "swarmline_library(NAME wiring SOURCES wiring.cc)",
}
HOUSE = House(TABLE, CMAKE_LISTS)


def problems(path, text):
    return [problem for _, problem in lint_text(HOUSE, path, text)]


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

    def test_what_is_printed_is_english(self):
        self.assert_bad("cli/a.cc", 'say("codecs, parted "\n    "by commas");\n', "separated by")
        self.assert_good("cli/a.cc", 'say("codecs, separated by commas");  // not parted by\n')
        self.assert_good("tests/cli/a.cc", 'expect("parted by");\n')

    def test_thread_id_is_not_a_thread(self):
        self.assert_good("base/a.cc", "std::thread::id id;\n")

    def test_includes_go_down(self):
        stage, net = '#include "pipeline/stage/stage.h"\n', '#include "engine/net/tcp/socket.h"\n'
        self.assert_bad("base/ids.cc", net, "only lower layers")
        self.assert_bad("engine/net/frame.cc", stage, "only lower layers")
        self.assert_bad("engine/net/tcp/socket.cc", stage, "only lower layers")
        self.assert_good("pipeline/stage/stage.cc", net)
        self.assert_good("tests/x/a.cc", stage)
        self.assert_bad("base/a.cc", '#include "tests/helper.h"\n', "no tests")
        self.assert_bad("base/a.cc", '#include "bench/helper.h"\n', "no tests")

    def test_a_library_names_what_it_uses_of_its_layer(self):
        net, spec = '#include "engine/net/frame.h"\n', '#include "engine/model/spec.h"\n'
        self.assert_good("engine/data/tokens.cc", net)
        self.assert_bad("engine/model/model.cc", net, "the DEPS of model do not name")
        self.assert_bad("engine/net/frame.cc", '#include "engine/data/tokens.h"\n', "the DEPS of net do not name")
        # Of two libraries in one folder each has DEPS of its own.
        self.assert_good("engine/model/model.cc", spec)
        self.assert_good("engine/model/model.cc", '#include "engine/data/tokens.h"\n')
        self.assert_bad("engine/model/spec.cc", '#include "engine/data/tokens.h"\n', "the DEPS of model_spec")
        self.assert_bad("engine/model/spec.cc", '#include "engine/model/model.h"\n', "the DEPS of model_spec")
        # Files that no list names: of the library of their part, or of their folder.
        self.assert_bad("engine/model/spec_impl.h", HEADER + '#include "engine/model/model.h"\n', "model_spec")
        self.assert_bad("engine/net/tcp/socket.cc", '#include "engine/data/tokens.h"\n', "the DEPS of net")
        self.assert_good("pipeline/stage/stage.cc", '#include "pipeline/stage/words.pb.h"\n')
        self.assert_good("pipeline/stage/stage.cc", '#include "pipeline/wiring/wiring.h"\n')
        self.assert_bad("pipeline/wiring/wiring.cc", '#include "pipeline/stage/words.pb.h"\n', "the DEPS of wiring")

    def test_parts_know_each_other_in_no_circle(self):
        def found(*includes):
            return circles(HOUSE, {path: others for path, *others in includes})

        a, b, c = (f"pipeline/stage/{part}" for part in "abc")
        self.assertEqual(found((a + ".cc", a + ".h", b + ".h"), (b + ".cc", b + ".h", c + ".h")), [])
        self.assertEqual(found((a + ".cc", a + ".h", b + ".h"), (b + ".cc", b + ".h", a + ".h")), [[a, b]])
        self.assertEqual(found((a + ".h", b + ".h"), (b + ".cc", c + ".h"), (c + ".cc", a + ".h")), [[a, b, c]])
        # What a part is made of is in it.
        self.assertEqual(found((a + ".cc", a + "_impl.h"), (a + "_impl.h", a + ".h", b + ".h"), (b + ".cc", b + ".h")),
                         [])
        self.assertEqual(found((a + "_impl.h", b + ".h"), (b + ".cc", a + ".h")), [[a, b]])
        # Not asked of this folder, and not of two folders.
        self.assertEqual(found(("engine/net/a.cc", "engine/net/b.h"), ("engine/net/b.cc", "engine/net/a.h")), [])
        self.assertEqual(found((a + ".cc", "base/x.h"), ("base/x.h", a + ".h")), [])
        self.assertEqual(circle_of({"x": {"x"}}), ["x"])

    def test_the_table_names_the_folders_that_are_there(self):
        with tempfile.TemporaryDirectory() as root:
            for row in HOUSE.rows:
                os.makedirs(os.path.join(root, row))
            paths = ["base/ids.h", "engine/net/tcp/socket.h", "tests/x/a.cc", "bench/a.cc"]
            self.assertEqual(list(HOUSE.table_problems(root, paths)), [])
            self.assertEqual(list(HOUSE.table_problems(root, paths + ["engine/new/a.h"])),
                             ["engine/new has no row: which layer is it in?"])
            os.rmdir(os.path.join(root, "engine/data"))
            self.assertEqual(list(HOUSE.table_problems(root, paths)), ["engine/data has a row and is no folder"])

    def test_cmake_reads_the_same_table(self):
        def configure(command):
            with tempfile.TemporaryDirectory() as root:
                with open(os.path.join(root, "layers.txt"), "w", encoding="utf-8") as table:
                    table.write(TABLE)
                with open(os.path.join(root, "script.cmake"), "w", encoding="utf-8") as script:
                    layers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../cmake/Layers.cmake")
                    script.write(f'set(SWARMLINE_LAYERS_FILE {root}/layers.txt)\ninclude("{layers}")\n{command}\n')
                ran = subprocess.run(["cmake", "-P", script.name], capture_output=True, text=True, check=False)
                return ran.returncode, " ".join(ran.stderr.split())

        self.assertEqual(configure("swarmline_check_layers(stage roles net engine)"), (0, ""))
        self.assertEqual(configure("swarmline_check_layers(data engine net engine)"), (0, ""))
        code, said = configure("swarmline_check_layers(net engine stage roles)")
        self.assertNotEqual(code, 0)
        self.assertIn("net (engine) depends on stage (roles)", said)
        for folder, layer in (("engine/net", "engine"), ("engine/net/tcp", "engine"), ("pipeline/stage", "roles")):
            self.assertEqual(configure(f"swarmline_layer_of(layer {folder})\nmessage(WARNING ${{layer}})")[0], 0)
            self.assertIn(layer, configure(f"swarmline_layer_of(layer {folder})\nmessage(WARNING ${{layer}})")[1])
        code, said = configure("swarmline_layer_of(layer engine/new)")
        self.assertNotEqual(code, 0)
        self.assertIn("engine/new is in no layer", said)

    def test_shape(self):
        self.assert_bad("sim/a.cc", "//" + "x" * 99 + "\n", "100 columns")
        self.assert_good("sim/a.cc", "//" + "x" * 98 + "\n")
        self.assert_bad("sim/a.cc", "\n" * (FILE_LINES_MAX + 1), "lines")
        self.assert_good("sim/a.cc", "\n" * FILE_LINES_MAX)
        self.assert_bad("sim/a.cc", "int x; \n", "white space")
        self.assert_bad("sim/a.cc", "// TO" + "DO later\n", "marker")

    def test_two_classes_have_two_names(self):
        def said(**texts):
            return [problem[2] for problem in namesakes({path: list(classes_of(text)) for path, text in texts.items()})]

        order = "namespace a {\nclass Order final : public Base {\n  struct Part {};\n};\n}\n"
        self.assertEqual(said(one=order, two="namespace a {\nstruct Order {\n};\n}\n"),
                         ["a::Order is defined in one, too: give one of them another name"])
        self.assertEqual(len(said(one=order, two="namespace a {\nenum class Order : int { kA };\n}\n")), 1)
        limit = "namespace a {\ninline constexpr int kLimit = 3;\n}\n"
        self.assertEqual(said(one=limit, two="namespace a {\ninline constexpr int kLimit[] = {1, 2};\n}\n"),
                         ["a::kLimit is defined in one, too: give one of them another name"])
        self.assertEqual(said(one=limit, two="namespace a {\nstruct Part {\n  static constexpr int kLimit = 3;\n};\n}\n"), [])
        for other in ("namespace b {\nclass Order {\n};\n}\n", "namespace a {\nnamespace {\nclass Order {\n};\n}\n}\n",
                      "namespace a {\nclass Order;\nvoid f(Order) {\n}\nstruct Part {\n};\n}\n"):
            self.assertEqual(said(one=order, two=other), [])

    def test_headers(self):
        self.assert_good("sim/a.h", HEADER)
        self.assert_good("sim/a.h", "#pragma once\n\n// What it is for.\n")
        self.assert_bad("sim/a.h", "#pragma once\nint x;\n", "leading comment")
        self.assert_bad("sim/a.h", "// What it is for.\nint x;\n", "#pragma once")

    def test_line_numbers_survive_blanking(self):
        text = "/* a\n b */ int x; // c\n\"d\"\n"
        self.assertEqual(blank_comments_and_strings(text).count("\n"), text.count("\n"))
        self.assertEqual([n for n, _ in lint_text(HOUSE, "sim/a.cc", "/*\n*/\nco_await x;\n")], [3])


if __name__ == "__main__":
    unittest.main()
