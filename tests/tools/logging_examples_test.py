"""The examples of docs/logging.md run, against modules that only look like W&B and MLflow."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/logging.md"
LINES = [
    {"format": 2, "kind": "start", "level": "info", "detail": "4 peers"},
    {"format": 2, "kind": "step", "step": 1, "version": 1, "loss": 5.5, "learning_rate": 0.1, "seconds": 0.5},
    {"format": 2, "kind": "step", "step": 2, "version": 2, "loss": None, "learning_rate": 0.1, "seconds": 0.25},
    {"format": 2, "kind": "eval", "version": 2, "loss": 5.25, "sequences": 4},
    {"format": 2, "kind": "peer_lost", "level": "warn", "detail": "gpu-box (peer 3, stage 1): closed"},
]
FAKES = {
    "wandb": """
import json
class Run:
    def log(self, values, step):
        print(json.dumps([values, step]))
def init(project, resume):
    return Run()
""",
    "mlflow": """
import json
def set_experiment(name):
    pass
def log_metric(name, value, step):
    print(json.dumps([{name: value}, step]))
""",
}
EXPECTED = {
    "wandb": [[{"step/loss": 5.5, "step/learning_rate": 0.1, "step/seconds": 0.5}, 1],
              [{"step/loss": None, "step/learning_rate": 0.1, "step/seconds": 0.25}, 2], [{"eval/loss": 5.25}, 2]],
    "mlflow": [[{"step_loss": 5.5}, 1], [{"eval_loss": 5.25}, 2]],
}


def logged_by(name, example, folder):
    (folder / f"{name}.py").write_text(FAKES[name])
    (folder / f"to_{name}.py").write_text(example)
    ran = subprocess.run([sys.executable, f"to_{name}.py"], cwd=folder, capture_output=True, text=True, timeout=50,
                         input="".join(json.dumps(line) + "\n" for line in LINES))
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def main():
    examples = dict(re.findall(r"```python (\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert sorted(examples) == sorted(FAKES), f"examples of {sorted(examples)}"
    with tempfile.TemporaryDirectory() as folder:
        for name, example in examples.items():
            assert len(example.splitlines()) == 5, f"{name} has no five lines"
            logged = logged_by(name, example, pathlib.Path(folder))
            assert logged == EXPECTED[name], f"{name} logged {logged}"


main()
