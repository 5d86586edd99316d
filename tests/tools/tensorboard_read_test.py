"""TensorBoard itself reads what a run wrote for it, over a restart. Skips without the package tensorboard (PyPI).

    tensorboard_read_test.py SWARMLINE
"""
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print(f"skipped: {error}; pip install tensorboard")
    sys.exit(SKIPPED)

CONFIG = """config_version = 1
[run]
name = "small"
steps = 6
[model]
layers = 2
d_model = 16
heads = 2
[data]
files = ["text.txt"]
held_out = 0.05
[batch]
batch = 4
microbatch = 2
sequence = 16
[pipeline]
stages = 2
peers = 1
[checkpoint]
every_steps = 2
[eval]
every_steps = 2
sequences_max = 4
[log]
tensorboard = true
"""


def launch(program, folder, steps):
    ran = subprocess.run([program, "launch", "run.toml", "--set", f"run.steps={steps}"], cwd=folder,
                         capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "run.toml").write_text(CONFIG)
        (folder / "text.txt").write_text("".join(f"word{i * 7919 % 97} " for i in range(4000)))
        launch(sys.argv[1], folder, 6)
        launch(sys.argv[1], folder, 10)
        files = sorted((folder / "runs/small/tensorboard").iterdir())
        assert len(files) == 2, files
        events = EventAccumulator(str(folder / "runs/small/tensorboard"))
        events.Reload()
        assert events.file_version == 2.0, events.file_version
        for tag in ("loss/train", "optimizer/learning_rate", "optimizer/gradient_norm", "swarm/peers",
                    "speed/tokens_per_second"):
            steps = [point.step for point in events.Scalars(tag)]
            assert steps == list(range(1, 11)), f"{tag}: {steps}"
        held_out = [point.step for point in events.Scalars("loss/held_out")]
        # Where it goes on, what it goes on from is evaluated once more.
        assert held_out == sorted(held_out) and set(held_out) == {2, 4, 6, 8, 10}, held_out
        assert {point.value for point in events.Scalars("swarm/peers")} == {2.0}


main()
