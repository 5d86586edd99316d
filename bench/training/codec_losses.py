#!/usr/bin/env python3
"""What codecs and the other ways to send less cost in loss: the quickstart model trained to its end with each of them.

Every run is `swarmline launch configs/quickstart.toml` with a few keys changed (variants.py): four stages, two peers
each. Finished runs are kept as one JSON file each under --out and never repeated, so the program may be stopped and
started again; run it later with more variants or seeds. --repeat trains the same seed again, which differs in
the order of floating-point sums alone: the noise that a difference has to be seen against.

    bench/training/codec_losses.py --variants none,h8,lin8 --seeds 1,2,3
    bench/training/codec_losses.py --table              the tables of what is there, without training
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from tables import load, tables
from variants import VARIANTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = 1
TRAIN_STEPS = 50              # the training loss is the mean over so many last steps
RUN_TIMEOUT_SECONDS = 3600
PROGRESS_SECONDS = 60
ATTEMPTS = 2                  # a run that failed is tried once more


def toml(value):
    return json.dumps(value) if isinstance(value, (bool, str)) else str(value)


def log_lines(folder):
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")]


def losses_of(lines, steps):
    """Held-out loss of the last evaluation and mean training loss of the last steps; None where the run is not whole."""
    trained = [line for line in lines if line["kind"] == "step"]
    evaluations = [line for line in lines if line["kind"] == "eval"]
    if len(trained) != steps or not evaluations or evaluations[-1]["version"] != steps:
        return None
    last = trained[-min(TRAIN_STEPS, steps):]
    if any(line["loss"] is None or line["skipped"] for line in last) or evaluations[-1]["loss"] is None:
        return None
    sent = {use: sum(b[f"{use}_bytes"] for line in trained for b in line["boundaries"])
            for use in ("forward", "backward")}
    return {"held_out_loss": evaluations[-1]["loss"],
            "train_loss": sum(line["loss"] for line in last) / len(last),
            "seconds": trained[-1]["wall_seconds"] - trained[0]["wall_seconds"] + trained[0]["seconds"],
            "forward_bytes": sent["forward"], "backward_bytes": sent["backward"],
            "averaging_bytes": sum(line["averaging_bytes"] for line in trained)}


class Trainer:
    def __init__(self, options):
        self.options = options
        self.program = hashlib.sha256(options.swarmline.read_bytes()).hexdigest()[:12]
        self.print_lock = threading.Lock()

    def say(self, text):
        with self.print_lock:
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    def result_path(self, name):
        return self.options.out / "runs" / f"{name}.json"

    def command(self, variant, seed, name):
        keys = variant.overrides() | {"run.seed": seed, "run.dir": str(self.options.out / "folders")}
        if self.options.steps:
            keys["run.steps"] = self.options.steps
        sets = [word for key, value in keys.items() for word in ("--set", f"{key}={toml(value)}")]
        return [self.options.swarmline, "launch", ROOT / "configs/quickstart.toml", "--name", name, "--fresh",
                "--threads", "1", *sets]

    def train(self, variant, seed, repeat):
        name = f"{variant.name}-s{seed}-r{repeat}"
        if self.result_path(name).exists():
            return True
        for _ in range(ATTEMPTS):
            result = self.attempt(variant, seed, repeat, name)
            if result is not None:
                self.keep(name, result)
                self.say(f"{name}: held-out {result['held_out_loss']:.4f}, training {result['train_loss']:.4f}, "
                         f"{result['seconds']:.0f} s")
                return True
        return False

    def attempt(self, variant, seed, repeat, name):
        folder = self.options.out / "folders" / name
        shutil.rmtree(folder, ignore_errors=True)
        output = self.options.out / "folders" / f"{name}.txt"
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("w") as sink:
            process = subprocess.Popen(self.command(variant, seed, name), stdout=sink, stderr=subprocess.STDOUT, cwd=ROOT)
            code = self.follow(process, folder, name)
        steps = self.options.steps or self.quickstart_steps()
        losses = losses_of(log_lines(folder), steps) if code == 0 else None
        if losses is None:
            self.say(f"{name} failed with exit code {code}:\n{output.read_text()[-2000:]}")
            return None
        shutil.rmtree(folder)
        output.unlink()
        return {"format": FORMAT, "kind": "training_run", "wall_seconds": time.time(), "program": self.program,
                "variant": variant.name, "seed": seed, "repeat": repeat, "steps": steps, "keys": variant.overrides(),
                **losses}

    def follow(self, process, folder, name):
        deadline = time.monotonic() + RUN_TIMEOUT_SECONDS
        while True:
            try:
                return process.wait(PROGRESS_SECONDS)
            except subprocess.TimeoutExpired:
                steps = [line for line in log_lines(folder) if line["kind"] == "step"]
                loss = f", loss {steps[-1]['loss']}" if steps else ""
                self.say(f"  {name}: {len(steps)} steps{loss}")
            if time.monotonic() > deadline:
                process.terminate()

    def keep(self, name, result):
        path = self.result_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".tmp")
        beside.write_text(json.dumps(result, indent=1) + "\n")
        os.replace(beside, path)

    @staticmethod
    def quickstart_steps():
        import tomllib
        return tomllib.loads((ROOT / "configs/quickstart.toml").read_text())["run"]["steps"]


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", type=pathlib.Path, default=ROOT / "build/release/swarmline")
    parser.add_argument("--variants", default="none,lin8,dyn8,h8,fp8", help=", ".join(VARIANTS))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each seed")
    parser.add_argument("--steps", type=int, default=0, help="0: the config's")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/training")
    parser.add_argument("--table", action="store_true", help="print the tables of what is there and train nothing")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.variants.split(",") if name not in VARIANTS]
    if unknown:
        parser.error(f"--variants {unknown[0]}: known are {', '.join(VARIANTS)}")
    options.out = options.out.resolve()
    return options


def main():
    options = parse(sys.argv[1:])
    if not options.table:
        options.swarmline = options.swarmline.resolve()
        trainer = Trainer(options)
        runs = [(VARIANTS[name], int(seed), repeat)
                for repeat in range(options.repeat)
                for name in options.variants.split(",") for seed in options.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            done = list(pool.map(lambda run: trainer.train(*run), runs))
        if not all(done):
            print(f"{done.count(False)} runs failed", file=sys.stderr)
    print(tables(load(options.out / "runs")))
    return 0 if options.table or all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
