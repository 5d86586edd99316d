#!/usr/bin/env python3
"""scripts/gpu-check on a machine without a GPU: with the programs of a build folder, and with programs that fail, which it must
say. Cards are made up by an nvidia-smi of the test's own.

usage: gpu_check_test.py [--whole] [TEST] BUILD SOURCE     --whole: all parts on the CPU, to the end (minutes); of the build it needs
                                            swarmline, oracle_process_test and stage_bench
"""

import concurrent.futures
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from pathlib import Path

WHOLE = "--whole" in sys.argv
sys.argv = [argument for argument in sys.argv if argument != "--whole"]
SOURCE = Path(sys.argv.pop()).resolve() if len(sys.argv) > 2 else Path(".").resolve()
BUILD = Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 else Path("build/ci").resolve()
WHOLE_SECONDS = 3000

GOOD_PROGRAM = """#!/bin/sh
case "$1" in
  doctor) echo '{'; echo '"checks": [{"check": "libtorch", "verdict": "ok", "what": ""}]}' ;;
esac
"""
PASSES = "#!/bin/sh\necho '[  PASSED  ] 3 tests.'\n"
SKIPS = "#!/bin/sh\nprintf 'a_test.cc:1: Skipped\\nno CUDA device\\n[  PASSED  ] 0 tests.\\n[  SKIPPED ] 2 tests, listed below:\\n'\n"
FIGURE = '{"op": "stage", "us": 1}'


class Packs(unittest.TestCase):
    """Runs gpu-check in a folder of its own."""

    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="gpu_check_test.")
        self.addCleanup(temp.cleanup)
        self.folder = Path(temp.name).resolve()
        self.pack = self.folder / "pack"

    def make_pack(self, programs, **about):
        (self.pack / "bin").mkdir(parents=True)
        (self.pack / "lib").mkdir()
        about = {"version": "test", "movable": False, "architectures": ["90-real"], **about}
        (self.pack / "pack.json").write_text(json.dumps(about))
        for name, text in {"swarmline": GOOD_PROGRAM, **programs}.items():
            self.make_program(self.pack / "bin" / name, text)

    def make_program(self, path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make_card(self, compute="9.0"):
        self.make_program(self.folder / "path" / "nvidia-smi", "#!/bin/sh\ncase \"$*\" in\n"
                          f"  *compute_cap*) echo {compute} ;;\n  *name*) echo 'A card, 580.1, 81920 MiB' ;;\n  *) sleep 1 ;;\nesac\n")

    def make_torch(self, version):
        """A PyTorch of this version, for the check's Python."""
        (self.folder / "python/torch/lib").mkdir(parents=True)
        (self.folder / "python/torch/__init__.py").write_text("")
        (self.folder / "python/torch/version.py").write_text(f"__version__ = '{version}'\n")
        (self.folder / "python/torch/lib/libtorch_cuda.so").write_text("")

    def check(self, *arguments, seconds=100, name="gpu-check", environment=None):
        """(exit code, rows by what they are of, the whole JSON or None, what it printed)"""
        results = self.folder / f"{name}.json"
        path = f"{self.folder / 'path'}:{os.environ['PATH']}"
        done = subprocess.run([sys.executable, SOURCE / "scripts/gpu-check", "--pack", self.pack, "--json", results, "--logs",
                               self.folder / name, *arguments], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds, check=False,
                              env={**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "python"), **(environment or {})})
        said = json.loads(results.read_text()) if results.exists() else None
        rows = {row["what"]: row for row in said["rows"]} if said else {}
        return done.returncode, rows, said, done.stdout

    def assert_failed(self, rows, what, *words):
        self.assertEqual(rows[what]["state"], "failed", rows[what])
        for word in words:
            self.assertIn(word, rows[what]["detail"])


class BuiltPrograms(Packs):
    def setUp(self):
        super().setUp()
        subprocess.run([SOURCE / "scripts/gpu-pack", "--from", BUILD, "--folder-only", "--out", self.pack], check=True,
                       stdout=subprocess.DEVNULL)

    def test_probe_and_unit_tests_run_without_a_gpu(self):
        code, rows, said, output = self.check("--only", "probe,unit", "--quick", "--device", "cpu")
        self.assertEqual(code, 0, output)
        self.assertEqual(said["device"], "cpu")
        for what in ("libraries of all programs", "swarmline loads libtorch"):
            self.assertEqual(rows[what]["state"], "passed", output)
        self.assertLessEqual({row["state"] for row in said["rows"]}, {"passed", "skipped"}, output)
        for row in said["rows"]:
            self.assertTrue(row["state"] == "passed" or row["detail"], row)
        self.assertEqual(sum(row["part"] == "unit" for row in said["rows"]), 10, output)

    def test_the_check_knows_which_programs_load_libtorch(self):
        check = {}
        source = (SOURCE / "scripts/gpu-check").read_text()
        exec(next(line for line in source.splitlines() if line.startswith("WITH_TORCH = ")), check)  # pylint: disable=exec-used
        for program in (self.pack / "bin").iterdir():
            with self.subTest(program.name):
                said = subprocess.run(["ldd", program], text=True, stdout=subprocess.PIPE, check=True).stdout
                self.assertEqual("libtorch" in said, program.name in check["WITH_TORCH"])

    @unittest.skipUnless(WHOLE, "--whole")
    def test_all_parts_run_on_the_cpu(self):
        code, rows, said, output = self.check("--device", "cpu", "--quick", "--budget", str(WHOLE_SECONDS), seconds=WHOLE_SECONDS + 60)
        self.assertEqual(code, 0, output)
        passed = {row["part"] for row in said["rows"] if row["state"] == "passed"}
        self.assertLessEqual({"probe", "unit", "quickstart", "oracle", "faults", "stage", "training"}, passed, output)
        self.assertIn("ProductionOracle.LossesAreNearTheReferences", rows, output)
        for name in ("quickstart", "training"):
            self.assertTrue(any(figure["op"].startswith(name) and figure["tokens_per_second"] > 0 for figure in said["figures"]), name)


class ProgramsOfABuild(Packs):
    def test_a_pack_leads_to_what_the_build_makes_not_to_copies_that_lie_there(self):
        build = self.folder / "build"
        (build / "CMakeFiles").mkdir(parents=True)
        (build / "CMakeCache.txt").write_text("")
        targets = {"swarmline": "cli", "stage_bench": "bench", "cuda_topk_test": "tests"}
        (build / "CMakeFiles/TargetDirectories.txt").write_text(
            "".join(f"{build}/{folder}/CMakeFiles/{name}.dir\n" for name, folder in targets.items()))
        made = (build / "swarmline", build / "bench/stage_bench")
        for path in (*made, build / "an_installed_tree/swarmline", build / "an_installed_tree/cuda_topk_test"):
            self.make_program(path, PASSES)
        subprocess.run([SOURCE / "scripts/gpu-pack", "--from", build, "--folder-only", "--out", self.pack], check=True)
        self.assertEqual({path.name: path.resolve() for path in (self.pack / "bin").iterdir()}, {path.name: path for path in made})


class FailingPrograms(Packs):
    def test_a_crash_has_failed_and_the_others_are_run(self):
        self.make_pack({"cuda_topk_test": "#!/bin/sh\necho 'about to'\nkill -SEGV $$\n", "cuda_codec_test": PASSES,
                        "cuda_model_test": "#!/bin/sh\nprintf '[  FAILED  ] Model.Adds (3 ms)\\n'; exit 1\n"})
        code, rows, _, output = self.check("--only", "unit", "--device", "cpu")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "cuda_topk_test", "SIGSEGV", "about to")
        self.assert_failed(rows, "cuda_model_test", "Model.Adds")
        self.assertEqual(rows["cuda_codec_test"]["state"], "passed")

    def test_a_hang_ends_with_the_budget_and_what_was_printed_is_kept(self):
        self.make_pack({"cuda_topk_test": "#!/bin/sh\necho 'waits'\nexec sleep 1000\n", "cuda_codec_test": PASSES,
                        "stage_bench": f"#!/bin/sh\necho '{FIGURE}'\nexec sleep 1000\n"})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            unit, stage = pool.map(lambda part: self.check("--only", part, "--device", "cpu", "--budget", "7", name=part),
                                   ("unit", "stage"))
        code, rows, _, output = unit
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "cuda_topk_test", "not done after")
        self.assertEqual(rows["cuda_codec_test"]["state"], "passed", output)
        self.assertIn("| waits", output)
        code, rows, said, output = stage
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "stage_bench", "not done after")
        self.assertEqual(len(said["figures"]), 1)

    def test_a_program_that_hangs_leaves_time_to_those_behind_it(self):
        self.make_pack({"swarmline": "#!/bin/sh\nexec sleep 1000\n", "stage_bench": f"#!/bin/sh\necho '{FIGURE}'\n"})
        code, rows, _, output = self.check("--only", "faults,stage", "--device", "cpu", "--budget", "14")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "chaos", "not done after 7 s")
        self.assertEqual(rows["a stage in parts"]["state"], "passed", output)

    def test_what_was_found_is_there_while_the_next_program_runs(self):
        self.make_pack({"swarmline": "#!/bin/sh\n[ $1 = chaos ] || exit 0\nmkdir -p runs/a/peers\necho lost >runs/a/peers/1.log\n"
                                     "exec sleep 1000\n", "cuda_topk_test": PASSES, "stage_bench": "#!/bin/sh\nexec sleep 1000\n"})
        results = self.folder / "results"
        with subprocess.Popen([sys.executable, SOURCE / "scripts/gpu-check", "--pack", self.pack, "--only", "unit,faults,stage",
                               "--device", "cpu", "--budget", "12", "--results", results],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as check:
            deadline = time.monotonic() + 60
            rows, names = {}, []
            while time.monotonic() < deadline and not ("chaos" in rows and "runs/a/peers/1.log" in names):
                time.sleep(0.1)
                if (results / "gpu-check.json").exists():
                    rows = {row["what"]: row for row in json.loads((results / "gpu-check.json").read_text())["rows"]}
                if (results / "logs.tar.gz").exists():
                    with tarfile.open(results / "logs.tar.gz") as tar:
                        names = tar.getnames()
            check.kill()
        self.assertEqual(rows["cuda_topk_test"]["state"], "passed")
        self.assert_failed(rows, "chaos", "not done after")
        self.assertLessEqual({"logs/unit-cuda_topk_test.log", "logs/faults-chaos.log", "runs/a/peers/1.log"}, set(names))
        self.assertEqual({path.name for path in results.iterdir()}, {"gpu-check.json", "logs.tar.gz"})

    def test_figures_that_are_cut_have_failed(self):
        for text in (FIGURE[:-3], '{"op": "stage", "us": nan}', '{"op": "stage", "us": NaN}'):
            with self.subTest(text):
                self.setUp()
                self.make_pack({"stage_bench": f"#!/bin/sh\necho '{FIGURE}'\nprintf '%s' '{text}'\n"})
                code, rows, said, output = self.check("--only", "stage", "--device", "cpu")
                self.assertEqual(code, 1, output)
                self.assert_failed(rows, "a stage in parts", "1 figures are cut")
                self.assertEqual(len(said["figures"]), 1)  # what could be read is kept

    def test_a_benchmark_that_prints_nothing_or_fails_has_failed(self):
        for text in ("#!/bin/sh\n", f"#!/bin/sh\necho '{FIGURE}'\nexit 1\n"):
            with self.subTest(text):
                self.setUp()
                self.make_pack({"stage_bench": text})
                code, rows, _, output = self.check("--only", "stage", "--device", "cpu")
                self.assertEqual(code, 1, output)
                self.assertEqual(rows["a stage in parts"]["state"], "failed")

    def test_an_oracle_that_crashes_after_a_case_has_failed(self):
        self.make_pack({"oracle_process_test": "#!/bin/sh\necho '[       OK ] ProductionOracle.Losses (9 ms)'\nkill -ABRT $$\n"})
        code, rows, _, output = self.check("--only", "oracle", "--device", "cpu")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "shard 0", "SIGABRT")

    def test_a_run_whose_log_is_cut_has_failed(self):
        log = '{"kind": "step", "loss": 1, "seconds": 1}\\n{"kind": "st'
        self.make_pack({"swarmline": f"#!/bin/sh\nmkdir -p runs/quickstart\nprintf '{log}' >runs/quickstart/log.jsonl\n"})
        code, rows, _, output = self.check("--only", "quickstart", "--device", "cpu")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "quickstart", "cut")


class Cards(Packs):
    def test_what_is_skipped_where_a_card_is_has_failed(self):
        self.make_card()
        self.make_pack({"cuda_topk_test": SKIPS, "stage_bench": "#!/bin/sh\necho '{\"skipped\": \"no CUDA device\"}'\n"})
        code, rows, _, output = self.check("--only", "unit,stage")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "cuda_topk_test", "skipped: no CUDA device")
        self.assert_failed(rows, "a stage in parts", "skipped: no CUDA device")
        self.assertEqual(rows["cuda_codec_test"]["state"], "skipped")  # it is not in the pack
        code, rows, _, output = self.check("--only", "unit", "--device", "cpu")
        self.assertEqual((code, rows["cuda_topk_test"]["state"]), (0, "skipped"), output)

    def test_sums_that_go_over_links_on_one_card_have_failed(self):
        self.make_card()
        for sent, log, why in ((0, "well", None), (8, "well", "took 8 bytes over links"),
                               (8, "W s0: an average of step 3 could not go from GPU to GPU: CUDA: no", "CUDA: no")):
            with self.subTest(sent=sent, log=log):
                shutil.rmtree(self.pack, ignore_errors=True)
                self.make_pack({"swarmline": "#!/bin/sh\nfor a; do case $a in run.name=*) r=runs/${a#run.name=} ;; esac; done\n"
                                "mkdir -p $r/logs\n"
                                'echo \'{"state": "done", "held_out_loss": 1, "unigram_entropy": 2}\' >$r/status.json\n'
                                f'echo \'{{"kind": "step", "averaging_bytes": {sent}}}\' >$r/log.jsonl\necho "{log}" >$r/logs/peer-1.log\n'})
                code, rows, _, output = self.check("--only", "quickstart")
                self.assertEqual(rows["quickstart: 4 stages x 2 peers"]["state"], "passed", output)
                self.assertEqual(code, 1 if why else 0, output)
                if why:
                    self.assert_failed(rows, "quickstart-islands: sums go from GPU to GPU", why)

    def test_what_failed_is_run_again_by_itself(self):
        self.make_card()
        fails = "#!/bin/sh\necho \"[ RUN      ] Topk.$1$CUDA_LAUNCH_BLOCKING\"\n"
        self.make_pack({"cuda_topk_test": fails + "kill -SEGV $$\n", "cuda_codec_test": PASSES,
                        "cuda_optimizer_test": f"{fails}echo '[  FAILED  ] Adam.Steps (1 ms)'\necho '[  FAILED  ] Adam.Ends (1 ms)'\nexit 1\n"})
        _, rows, _, output = self.check("--only", "unit", name="alone")
        self.assert_failed(rows, "cuda_topk_test again", "--gtest_filter=Topk.1")
        self.assertIn("[ RUN      ] Topk.--gtest_filter=Adam.Steps:Adam.Ends1", (self.folder / "alone/again-cuda_optimizer_test_again.log").read_text())
        self.assertNotIn("cuda_codec_test again", rows)
        self.make_program(self.folder / "path/compute-sanitizer", "#!/bin/sh\necho \"ERROR SUMMARY: 1 error in $*\"\nexit 9\n")
        _, rows, _, output = self.check("--only", "unit", name="checked")
        self.assert_failed(rows, "cuda_topk_test again", "ERROR SUMMARY: 1 error", "memcheck", "--gtest_filter=Topk.")
        _, rows, _, output = self.check("--only", "unit", "--device", "cpu", name="cpu")
        self.assertNotIn("cuda_topk_test again", rows)

    def test_a_card_that_the_pack_has_no_code_for_is_named(self):
        self.make_card("12.0")
        self.make_pack({"cuda_topk_test": PASSES})
        code, rows, _, output = self.check("--only", "probe,unit")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "the pack has code for this card", "of architecture 120", "90-real alone",
                           "scripts/gpu-pack --architecture 120")
        self.assert_failed(rows, "all of it", "not begun")
        self.assertNotIn("cuda_topk_test", rows)

    def test_which_cards_a_pack_has_code_for(self):
        sys.path.insert(0, str(SOURCE / "scripts"))
        from gpu_machine import needed_architecture  # pylint: disable=import-outside-toplevel

        for architectures, card, needed in (
                (["90-real"], (9, 0), None), (["90-real"], (8, 9), "89"), (["90-real"], (10, 0), "100"),
                (["80-real"], (8, 6), None), (["86-real"], (8, 0), "80"), (["75-real", "80-real", "90"], (12, 0), None),
                (["75-real", "80-real", "90"], (7, 0), "70"), (["90-virtual"], (8, 9), "89"), (["90-virtual"], (10, 3), None),
                ([], (9, 0), None), (["90-real"], None, None)):
            with self.subTest(architectures=architectures, card=card):
                self.assertEqual(needed_architecture(architectures, card), needed)


class Machines(Packs):
    """With a card, and a pack that can be moved."""

    def setUp(self):
        super().setUp()
        self.make_card()
        self.make_pack({"cuda_topk_test": PASSES, "cuda_model_test": PASSES, "stage_bench": f"#!/bin/sh\necho '{FIGURE}'\n",
                        "cuda_quantize_bench": f"#!/bin/sh\necho '{FIGURE}'\n"}, movable=True)
        self.make_program(self.folder / "path" / "ldd", "#!/bin/sh\n")

    def assert_all_but_torchs(self, word):
        code, rows, said, output = self.check("--only", "probe,unit,quickstart,stage,kernels,training")
        self.assertEqual(code, 1, output)
        for what in ("swarmline loads libtorch", "PyTorch computes on the device", "cuda_model_test", "stage_bench", "swarmline"):
            self.assert_failed(rows, what, word)
        self.assertEqual(rows["cuda_topk_test"]["state"], "passed", output)
        self.assertEqual(rows["quantization kernels"]["state"], "passed", output)
        self.assertIsNone(said["torch"])

    def test_without_pytorch_the_kernels_are_checked_all_the_same(self):
        self.assert_all_but_torchs("this Python has no PyTorch")

    def test_without_pytorch_cuda_is_that_of_wheels(self):
        wheel = self.folder / "python/nvidia/cu13/lib"
        wheel.mkdir(parents=True)
        self.make_program(self.pack / "bin/cuda_topk_test", "#!/bin/sh\necho \"[  FAILED  ] Error $LD_LIBRARY_PATH (1 ms)\"\nexit 1\n")
        _, _, _, output = self.check("--only", "unit")
        self.assertIn(f"Error {self.pack / 'lib'}:{wheel}", output)

    def test_with_another_pytorch_the_kernels_are_checked_all_the_same(self):
        self.make_torch("2.12.1")
        self.assert_all_but_torchs("this Python has PyTorch 2.12.1; the pack's programs need 2.11.")

    def test_a_system_that_is_too_old_is_named(self):
        self.make_torch("2.11.0")
        self.make_program(self.folder / "path" / "ldd", "#!/bin/sh\necho \"$1: /lib/libc.so.6: version \\`GLIBC_2.34' not found "
                          "(required by $1)\"\n")
        code, rows, _, output = self.check("--only", "probe")
        self.assertEqual(code, 1, output)
        self.assert_failed(rows, "libraries of all programs", "GLIBC_2.34")

    def test_programs_of_others_have_their_own_libraries(self):
        self.make_torch("2.11.0")
        (self.folder / "python/torch/__init__.py").write_text("import os\nraise ImportError(os.environ.get('LD_LIBRARY_PATH'))\n")
        self.make_program(self.pack / "bin/cuda_topk_test", "#!/bin/sh\necho \"[  FAILED  ] Error $LD_LIBRARY_PATH (1 ms)\"\nexit 1\n")
        _, rows, _, output = self.check("--only", "probe,unit", environment={"LD_LIBRARY_PATH": "/of/theirs"})
        self.assert_failed(rows, "PyTorch computes on the device", "ImportError: /of/theirs")
        self.assertIn(f"Error {self.pack / 'lib'}:{self.folder / 'python/torch/lib'}:/of/theirs", output)


class MemoryChecker(unittest.TestCase):
    def test_each_pattern_names_tests_that_there_are(self):
        sys.path.insert(0, str(SOURCE / "scripts"))
        from gpu_sanitizer import SANITIZED  # pylint: disable=import-outside-toplevel

        sources = [*(SOURCE / "tests").rglob("cuda_*test.cc"), *(SOURCE / "tests").rglob("device_gradients_suite.h")]
        names = [f"{suite}.{name}/" for source in sources
                 for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", source.read_text(), re.MULTILINE)]
        self.assertGreater(len(names), 50)
        for _, program, patterns in SANITIZED:
            for pattern in re.split("[:-]", patterns):
                with self.subTest(program, pattern=pattern):
                    self.assertTrue(any(fnmatch.fnmatchcase(name, pattern) for name in names))


class Archives(Packs):
    def test_an_archive_lies_beside_the_script_alone(self):
        self.make_pack({"cuda_topk_test": PASSES})
        (self.pack / "scripts").mkdir()
        for name in ("gpu_figures.py", "gpu_machine.py", "gpu_results.py"):
            shutil.copy(SOURCE / "scripts" / name, self.pack / "scripts")
        brought = self.folder / "brought"
        brought.mkdir()
        with tarfile.open(brought / "pack.tar.gz", "w:gz") as tar:
            tar.add(self.pack, "pack")
        shutil.copy(SOURCE / "scripts/gpu-check", brought)
        done = subprocess.run([sys.executable, "gpu-check", "--pack", "pack.tar.gz", "--only", "unit", "--device", "cpu"], cwd=brought,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        said = json.loads((brought / "gpu-check-results/gpu-check.json").read_text())
        self.assertIn("cuda_topk_test", [row["what"] for row in said["rows"] if row["state"] == "passed"])

    def test_one_that_is_cut_is_a_mistake_in_a_sentence(self):
        self.pack = self.folder / "pack.tar.gz"
        self.pack.write_bytes(b"\x1f\x8b\x08 and no more")
        code, _, said, output = self.check("--device", "cpu")
        self.assertEqual((code, said), (2, None), output)
        self.assertIn("can't be unpacked", output)


class Mistakes(Packs):
    def test_they_are_a_sentence(self):
        code, _, said, output = self.check("--only", "unit", "--device", "cpu")
        self.assertEqual((code, said), (2, None))
        self.assertIn("is no pack: it has no pack.json", output)

    def test_a_place_that_cannot_be_written_is_named_before_anything_runs(self):
        self.make_pack({"cuda_topk_test": PASSES})
        (self.folder / "a_file").write_text("")
        for option in ("--results", "--logs"):
            code, _, _, output = self.check("--only", "unit", "--device", "cpu", option, str(self.folder / "a_file/in_it"))
            self.assertEqual(code, 2, output)
            self.assertIn(f"a_file/in_it (not a directory): name another place with {option}.", output)
            self.assertNotIn("Traceback", output)


if __name__ == "__main__":
    unittest.main()
