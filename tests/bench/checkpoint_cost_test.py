"""Tests bench/engine/checkpoint_cost.py without training: what counts as measured, and the ratio."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/engine"))

import checkpoint_cost  # noqa: E402


def log(seconds, checkpoints=()):
    """Steps of these durations, the first from 0 on, and checkpoints written at those times."""
    lines, now = [], 0.0
    for duration in seconds:
        now += duration
        lines.append({"kind": "step", "seconds": duration, "wall_seconds": now})
    return lines + [{"kind": "checkpoint", "wall_seconds": at} for at in checkpoints]


class Summary(unittest.TestCase):
    def test_the_warm_up_and_what_follows_the_last_step_do_not_count(self):
        warm = [9.0] * checkpoint_cost.WARMUP_STEPS
        begun = sum(warm)
        lines = log(warm + [2.0, 4.0, 3.0], [begun - 1, begun + 1, begun + 5, begun + 10])
        lines += [{"kind": "peer_lost", "wall_seconds": at} for at in (begun - 2, begun + 3)]
        found = checkpoint_cost.summary(lines, 3.0, 1.0, 10.0)
        self.assertEqual(found["step_seconds"], 3.0)
        self.assertEqual((found["median_step_seconds"], found["slowest_step_seconds"]), (3.0, 4.0))
        self.assertEqual((found["checkpoints"], found["peers_lost"]), (2, 1))
        self.assertEqual((found["cpu_seconds_per_step"], found["own"], found["others"]), (1.0, 0.3, 0.1))

    def test_the_ratio_is_that_of_throughputs_within_a_round(self):
        def sample(seconds):
            return checkpoint_cost.summary(log([1.0] * checkpoint_cost.WARMUP_STEPS + seconds), 1.0, 0.0, 10.0)
        rounds = [{"without": sample([2.0, 2.0]), "with": sample([2.0, 3.0])},
                  {"without": sample([1.0]), "with": sample([1.0])},
                  {"without": sample([3.0]), "with": sample([4.0])}]
        shown, ratio = checkpoint_cost.table(rounds)
        self.assertAlmostEqual(ratio, 0.8)
        self.assertIn("0.800 of that without (median; 0.750 to 1.000)", shown)


if __name__ == "__main__":
    unittest.main()
