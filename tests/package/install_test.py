#!/usr/bin/env python3
"""cmake --install makes a tree that runs from wherever it is moved to, without the checkout.

usage: install_test.py BUILD SOURCE
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import installed

SOURCE = Path(sys.argv.pop()) if len(sys.argv) > 2 else Path(".")
BUILD = Path(sys.argv.pop()) if len(sys.argv) > 1 else Path("build/ci")
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def can_hide_folders():
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


class InstalledTree(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory(dir=BUILD, prefix="install_test.")
        cls.addClassCleanup(cls.temp.cleanup)
        first = Path(cls.temp.name).resolve() / "first"
        subprocess.run(["cmake", "--install", BUILD, "--prefix", first], check=True, capture_output=True)
        cls.tree = first.parent / "elsewhere" / "moved tree"
        cls.tree.parent.mkdir()
        shutil.move(first, cls.tree)
        cls.program = cls.tree / "bin" / "swarmline"

    def run_program(self, *arguments, before=(), folder=None):
        done = subprocess.run([*before, self.program, *arguments], cwd=folder or self.temp.name, env=ENVIRONMENT,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_it_links_what_is_declared_and_names_no_absolute_path(self):
        paths = installed.runpaths(self.program)
        self.assertTrue(paths)
        for path in paths:
            self.assertTrue(path.startswith("$ORIGIN/"), paths)
        self.assertLessEqual(installed.needed(self.program), installed.DECLARED)

    def test_its_libraries_are_its_own_or_the_systems(self):
        found = installed.loaded(self.program, ENVIRONMENT)
        self.assertIn("libtorch_cpu.so", found)
        for name, path in found.items():
            self.assertIsNotNone(path, name)
            own = path.is_relative_to(self.tree.resolve())
            self.assertTrue(own or path.is_relative_to("/usr") or path.is_relative_to("/lib"), f"{name}: {path}")
            self.assertTrue(own or not name.startswith(("libtorch", "libc10")), f"{name}: {path}")

    def test_it_has_what_users_look_for(self):
        share = self.tree / "share"
        self.assertEqual((share / "swarmline/LICENSE").read_bytes(), (SOURCE / "LICENSE").read_bytes())
        self.assertTrue((share / "swarmline/docs/install.md").exists())
        self.assertTrue((share / "swarmline/configs/scenarios/cloud.toml").exists())
        self.assertGreater((share / "swarmline/text/swarmline.txt").stat().st_size, 1 << 20)
        for shell, path in (("bash", "bash-completion/completions/swarmline"), ("zsh", "zsh/site-functions/_swarmline"),
                            ("fish", "fish/vendor_completions.d/swarmline.fish")):
            self.assertEqual((share / path).read_text(), self.run_program("completion", shell).stdout)

    def test_examples_are_those_of_the_checkout(self):
        listed = self.run_program("launch", "--example", "list").stdout
        for config in (SOURCE / "configs").glob("*.toml"):
            self.assertIn(config.stem, listed)
            self.assertEqual(self.run_program("config", "example", config.stem).stdout, config.read_text())

    def test_it_trains_an_example(self):
        done = self.run_program("launch", "--example", "tiny", "--set", "run.steps=2", "--name", "here")
        self.assertIn("finished 2 steps", done.stdout)

    @unittest.skipUnless(can_hide_folders(), "needs root, to hide the C++ headers that the example names")
    def test_an_example_brings_the_text_that_the_machine_lacks(self):
        empty = self.tree.parent / "empty"
        empty.mkdir()
        hide = ["unshare", "--mount", "sh", "-c", f"mount --bind '{empty}' /usr/include && exec \"$0\" \"$@\""]
        done = self.run_program("launch", "--example", "tiny", "--set", "run.steps=2", "--name", "bare", before=hide)
        self.assertIn("finished 2 steps", done.stdout)
        self.assertIn("which matches nothing here; it takes", done.stderr)
        self.assertIn(str(self.tree / "share/swarmline/text/swarmline.txt"),
                      (Path(self.temp.name) / "runs/bare/config.toml").read_text())


if __name__ == "__main__":
    unittest.main()
