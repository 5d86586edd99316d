"""Tests bench/training without training: which losses count, what is skipped, and the arithmetic of the tables."""

import json
import pathlib
import stat
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench/training"))

import codec_losses  # noqa: E402
import tables  # noqa: E402
from variants import VARIANTS  # noqa: E402

# Stands for swarmline: leaves the log that a run would, with a loss that depends on codec and seed.
FAKE = """#!{python}
import json, pathlib, sys
keys = dict(word.split("=", 1) for word in sys.argv if "=" in word)
name = sys.argv[sys.argv.index("--name") + 1]
folder = pathlib.Path(json.loads(keys["run.dir"])) / name
folder.mkdir(parents=True)
if "h4" in name:
    sys.exit(1)
loss = 1 + int(keys["run.seed"]) / 10 + (0.01 if json.loads(keys["codec.forward"]) == "h8" else 0)
lines = [dict(kind="start")]
for step in range(int(keys["run.steps"])):
    lines.append(dict(kind="step", step=step, loss=loss + 1, skipped=False, seconds=2, wall_seconds=2 * step,
                      averaging_bytes=10, boundaries=[dict(forward_bytes=3, backward_bytes=4)]))
lines.append(dict(kind="eval", version=int(keys["run.steps"]), loss=loss))
(folder / "log.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
with (folder.parent / "calls").open("a") as calls:
    calls.write(name + "\\n")
"""


def step(loss, number=0, skipped=False):
    return {"kind": "step", "loss": loss, "skipped": skipped, "seconds": 2.0, "wall_seconds": 10.0 + 2 * number,
            "averaging_bytes": 5, "boundaries": [{"forward_bytes": 1, "backward_bytes": 2},
                                                 {"forward_bytes": 3, "backward_bytes": 4}]}


class Losses(unittest.TestCase):
    def test_the_last_evaluation_and_the_last_steps_count(self):
        lines = [step(100.0 if i < 10 else 3.0, i) for i in range(60)]
        lines += [{"kind": "eval", "version": 30, "loss": 9.0}, {"kind": "eval", "version": 60, "loss": 2.5}]
        losses = codec_losses.losses_of(lines, 60)
        self.assertEqual(losses["held_out_loss"], 2.5)
        self.assertEqual(losses["train_loss"], 3.0)
        self.assertEqual(losses["forward_bytes"], 60 * 4)
        self.assertEqual(losses["backward_bytes"], 60 * 6)
        self.assertEqual(losses["averaging_bytes"], 60 * 5)
        self.assertEqual(losses["seconds"], 120.0)

    def test_a_run_that_is_not_whole_has_none(self):
        whole = [step(3.0), step(3.0), {"kind": "eval", "version": 2, "loss": 2.5}]
        self.assertIsNotNone(codec_losses.losses_of(whole, 2))
        self.assertIsNone(codec_losses.losses_of(whole, 3))
        self.assertIsNone(codec_losses.losses_of(whole[:2], 2))
        self.assertIsNone(codec_losses.losses_of([step(3.0), step(None), whole[2]], 2))
        self.assertIsNone(codec_losses.losses_of([step(3.0), step(3.0, skipped=True), whole[2]], 2))
        self.assertIsNone(codec_losses.losses_of([*whole[:2], {"kind": "eval", "version": 1, "loss": 2.5}], 2))


class Runs(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.program = self.folder / "swarmline"
        self.program.write_text(FAKE.format(python=sys.executable))
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def trainer(self):
        return codec_losses.Trainer(codec_losses.parse(
            ["--swarmline", str(self.program), "--steps", "3", "--out", str(self.folder / "out")]))

    def calls(self):
        return (self.folder / "out/folders/calls").read_text().split()

    def test_finished_runs_are_kept_and_not_repeated(self):
        for _ in range(2):
            self.assertTrue(self.trainer().train(VARIANTS["none"], 1, 0))
        self.assertEqual(self.calls(), ["none-s1-r0"])
        self.assertTrue(self.trainer().train(VARIANTS["none"], 1, 1))
        self.assertTrue(self.trainer().train(VARIANTS["h8"], 2, 0))
        runs = tables.load(self.folder / "out/runs")
        self.assertEqual([run["repeat"] for run in runs["none"][1]], [0, 1])
        self.assertAlmostEqual(runs["h8"][2][0]["held_out_loss"], 1.21)
        self.assertFalse((self.folder / "out/folders/none-s1-r0").exists())

    def test_a_failed_run_leaves_nothing(self):
        trainer = self.trainer()
        trainer.say = lambda text: None
        self.assertFalse(trainer.train(VARIANTS["h4"], 1, 0))
        self.assertFalse((self.folder / "out/runs").exists())


def run(variant, seed, repeat, held_out, sent=100):
    return {"format": 1, "kind": "training_run", "variant": variant, "seed": seed, "repeat": repeat,
            "held_out_loss": held_out, "train_loss": held_out + 0.5, "forward_bytes": sent, "backward_bytes": sent,
            "averaging_bytes": sent}


class Tables(unittest.TestCase):
    def setUp(self):
        self.runs = {"none": {1: [run("none", 1, 0, 1.0), run("none", 1, 1, 1.2)], 2: [run("none", 2, 0, 1.3)]},
                     "h8": {1: [run("h8", 1, 0, 1.15, 27)], 2: [run("h8", 2, 0, 1.29, 27)], 3: [run("h8", 3, 0, 7.0)]}}

    def test_differences_are_taken_at_the_same_seed(self):
        apart = tables.differences(self.runs, "h8", "held_out_loss")
        self.assertEqual(sorted(apart), [1, 2])
        self.assertAlmostEqual(apart[1], 0.05)
        self.assertAlmostEqual(apart[2], -0.01)

    def test_noise_is_that_of_repeated_runs(self):
        spread, freedom = tables.repeat_spread(self.runs, "held_out_loss")
        self.assertAlmostEqual(spread, 0.02 ** 0.5)
        self.assertEqual(freedom, 1)

    def test_the_page_has_them(self):
        page = tables.tables(self.runs)
        self.assertIn("+0.0200 (+0.0500, -0.0100)", page)
        self.assertIn("0.270", page)
        self.assertNotIn("delay = 1", page)
        self.assertEqual(tables.tables({}), "no finished runs")

    def test_another_format_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "x.json").write_text(json.dumps(run("none", 1, 0, 1.0) | {"format": 2}))
            with self.assertRaises(SystemExit):
                tables.load(pathlib.Path(folder))


if __name__ == "__main__":
    unittest.main()
