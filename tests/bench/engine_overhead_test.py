"""Tests bench/engine without training: which steps count, which samples are paired, and the file it writes."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/engine"))

import engine_overhead as bench  # noqa: E402
import measure  # noqa: E402

GOLDEN = ROOT / "tests/golden/bench/engine_overhead.json"
SHAPE = measure.Shape(width=256, steps=2, sequence=10, microbatch=2, microbatches=5)
SWARM, REFERENCE, EAGER, PIPELINING = (
    next(v for v in bench.VARIANTS if v.name == name)
    for name in ("swarm-delay0", "reference-delay0", "eager", "pipelining-1f1b"))


def sample_of(rate, others):
    return measure.Sample(rate, own=1 - others, others=others, idle=0.0, cpu_seconds=0.5)


def round_of(swarm, reference, eager, pipelining=50):
    return {"swarm-delay0": sample_of(swarm, 0.01),
            "reference-delay0": sample_of(reference, 0.03),
            "eager": sample_of(eager, 0.0),
            "pipelining-1f1b": sample_of(pipelining, 0.0)}


class FakeBench:
    """Gives samples from a list; `others` is what other programs took."""

    def __init__(self, samples):
        self.samples = iter(samples)
        self.machine = types.SimpleNamespace(busy_share=lambda: 0.0)

    def sample(self, variant, shape):
        return next(self.samples)


class Rate(unittest.TestCase):
    def test_warm_up_does_not_count(self):
        # 100 tokens a step; the first step took 50 s, the measured two 4 s in all.
        self.assertEqual(measure.rate(SHAPE, [50.0, 52.0, 54.0]), 50.0)

    def test_a_line_that_is_being_written_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log.jsonl"
            self.assertEqual(measure.step_ends(log), [])
            log.write_text('{"kind":"start"}\n{"kind":"step","wall_seconds":1.5}\n{"kind":"step","wall_sec')
            self.assertEqual(measure.step_ends(log), [1.5])

    def test_the_cpu_time_of_a_session_is_its_own(self):
        machine = measure.Machine(sorted(os.sched_getaffinity(0)))
        spin = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        try:
            while machine.read(spin.pid)[1] < 0.05:  # ctest's limit ends it if that never comes
                time.sleep(0.01)
        finally:
            spin.kill()
            spin.wait()
        self.assertEqual(machine.read(spin.pid)[1], 0)

    def test_config_is_cut_in_two_equal_stages(self):
        text = measure.CONFIG.format(name="n", folder="f", shape=SHAPE, variant=SWARM, half=2)
        self.assertIn("layers = [2, 2]", text)
        self.assertIn("steps = 3\n", text)
        self.assertIn("batch = 10\n", text)


class Rows(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        # The machine was half as fast in the second round: no variant looks worse for it.
        rounds = [round_of(98, 100, 80), round_of(49, 50, 40)]
        row = bench.row_of(SWARM, SHAPE, rounds)
        self.assertEqual(row["ratios"], [0.98, 0.98])
        self.assertEqual(row["baseline"], "reference-delay0")
        self.assertEqual(bench.row_of(REFERENCE, SHAPE, rounds)["ratio"], 1.25)
        self.assertIsNone(bench.row_of(EAGER, SHAPE, rounds)["ratio"])

    def test_without_its_baseline_there_is_no_ratio(self):
        row = bench.row_of(SWARM, SHAPE, [{"swarm-delay0": sample_of(98, 0.0)}])
        self.assertIsNone(row["ratio"])
        self.assertIn("| 98 |", bench.table([row]))

    def test_cpu_ratio_is_tokens_per_cpu_second(self):
        costs = {"swarm-delay0": 4.0, "reference-one-thread": 3.0}
        rounds = [{name: measure.Sample(1, 1, 0, 0, cost) for name, cost in costs.items()}]
        row = bench.row_of(SWARM, SHAPE, rounds)
        self.assertEqual((row["cpu_baseline"], row["cpu_ratio"]), ("reference-one-thread", 0.75))
        self.assertIn("**0.750** of reference-one-thread", bench.table([row]))

    def test_each_baseline_is_a_variant(self):
        names = {variant.name for variant in bench.VARIANTS}
        for variant in bench.VARIANTS:
            self.assertIn(bench.baseline_of(variant) or "eager", names)
            self.assertIn(bench.cpu_baseline_of(variant) or "eager", names)

    def test_a_swarm_is_compared_with_whoever_has_stages_too(self):
        rounds = [round_of(98, 100, 80, 49), round_of(60, 100, 80, 40)]
        row = bench.row_of(SWARM, SHAPE, rounds)
        self.assertEqual(row["rivals"], {"pipelining-1f1b": {"ratio": 1.75, "ratios": [2.0, 1.5]}})
        self.assertIn("**1.750** (1.500 to 2.000) of 1f1b", bench.table([row]))
        self.assertNotIn("rivals", bench.row_of(REFERENCE, SHAPE, rounds))
        self.assertNotIn("rivals", bench.row_of(PIPELINING, SHAPE, rounds))

    def test_golden_file(self):
        rounds = [round_of(98, 100, 80), round_of(97, 100, 90), round_of(99, 100, 100)]
        shapes = [vars(SHAPE) | {"parameters": 12, "stage_flops": [0.5, 0.5]}]
        rows = [bench.row_of(variant, SHAPE, rounds) for variant in (SWARM, REFERENCE, EAGER, PIPELINING)]
        text = bench.to_json(shapes, rows, "a machine", 1.5)
        if os.environ.get("SWARMLINE_UPDATE_GOLDEN") == "1":
            GOLDEN.parent.mkdir(parents=True, exist_ok=True)
            GOLDEN.write_text(text)
        self.assertEqual(text, GOLDEN.read_text())
        self.assertEqual(json.loads(text)["format"], bench.FORMAT)


class Quiet(unittest.TestCase):
    def sample(self, samples):
        with contextlib.redirect_stderr(io.StringIO()):
            return bench.quiet_sample(FakeBench(samples), SWARM, SHAPE, others_max=0.05)

    def test_a_disturbed_sample_is_repeated(self):
        loud, quiet = sample_of(50, 0.4), sample_of(100, 0.01)
        self.assertEqual(self.sample([loud, quiet]), quiet)

    def test_when_all_are_disturbed_the_least_is_kept(self):
        samples = [sample_of(50, others) for others in (0.4, 0.2, 0.3)]
        self.assertEqual(self.sample(samples), samples[1])


if __name__ == "__main__":
    unittest.main()
