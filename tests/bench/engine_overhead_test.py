"""Tests bench/engine without training: which steps count, which samples are paired, and the file it writes."""

import contextlib
import io
import json
import os
import pathlib
import sys
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/engine"))

import engine_overhead as bench  # noqa: E402
import measure  # noqa: E402

GOLDEN = ROOT / "tests/golden/bench/engine_overhead.json"
SHAPE = measure.Shape(width=256, steps=2, sequence=10, microbatch=2, microbatches=5)
SWARM, REFERENCE, EAGER = (next(v for v in bench.VARIANTS if v.name == name)
                           for name in ("swarm-delay0", "reference-delay0", "eager"))


def round_of(swarm, reference, eager):
    return {"swarm-delay0": measure.Sample(swarm, 0.01, 0.02),
            "reference-delay0": measure.Sample(reference, 0.03, 0.0),
            "eager": measure.Sample(eager, 0.0, 0.0)}


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
        row = bench.row_of(SWARM, SHAPE, [{"swarm-delay0": measure.Sample(98, 0.0, 0.0)}])
        self.assertIsNone(row["ratio"])
        self.assertIn("| 98 |", bench.table([row]))

    def test_each_baseline_is_a_variant(self):
        names = {variant.name for variant in bench.VARIANTS}
        for variant in bench.VARIANTS:
            self.assertIn(bench.baseline_of(variant) or "eager", names)

    def test_golden_file(self):
        rounds = [round_of(98, 100, 80), round_of(97, 100, 90), round_of(99, 100, 100)]
        shapes = [vars(SHAPE) | {"parameters": 12, "stage_flops": [0.5, 0.5]}]
        rows = [bench.row_of(variant, SHAPE, rounds) for variant in (SWARM, REFERENCE, EAGER)]
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
        loud, quiet = measure.Sample(50, 0.4, 0.0), measure.Sample(100, 0.01, 0.0)
        self.assertEqual(self.sample([loud, quiet]), quiet)

    def test_when_all_are_disturbed_the_least_is_kept(self):
        samples = [measure.Sample(50, others, 0.0) for others in (0.4, 0.2, 0.3)]
        self.assertEqual(self.sample(samples), samples[1])


if __name__ == "__main__":
    unittest.main()
