#!/usr/bin/env python3
"""What checkpoints cost a run that trains: its throughput with one a minute (checkpoint.every_minutes = 1), against the same
run without any.

Two stages of two peers each, and 151 MB of state a stage (parameters and AdamW's moments: GPT-2 small has some 370 MB in each of
four stages). Devices are emulated: they compute, and are held for a set time, so that cores are idle most of the time and
what a checkpoint takes of them is not taken from the model. What remains is what a run would see: state that is
frozen, hashed and written beside the steps. The two variants take turns (A B B A ...), and ratios are taken within a round.

    bench/engine/checkpoint_cost.py                     three rounds, some 30 minutes
    bench/engine/checkpoint_cost.py --rounds 1 --minutes 3 --every 0.5
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

from measure import Machine, Training, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = 1
WARMUP_STEPS = 3      # left out at the start
FORWARD_MS, BACKWARD_MS = 240, 480  # several times what the processes compute, so that a busy machine holds them up little
MICROBATCHES = 16     # of a step; each stage's two peers take half of them
STEP_SECONDS = MICROBATCHES / 2 * (FORWARD_MS + BACKWARD_MS) / 1000  # at the least
POLL_SECONDS = 0.25   # a run is long: what looks on takes little of the cores
NEVER = 0
CONFIG = """\
config_version = 1
[run]
name = "{name}"
dir = "{folder}"
steps = {steps}
[model]
layers = 2
d_model = 1024
heads = 16
activation = "gelu_tanh"
tied_embeddings = false
[data]
kind = "bytes"
files = ["/usr/include/c++/*/bits/*.h"]
held_out = 0.0
[batch]
batch = {microbatches}
microbatch = 1
sequence = 8
[optimizer]
schedule = "constant"
[pipeline]
stages = 2
peers = 2
layers = [1, 1]
[codec]
averaging = "bf16"
[wiring]
hop_timeout_seconds = 300.0
[net]
peer_silence_seconds = 120.0
[checkpoint]
every_steps = 0
every_minutes = {every_minutes}
keep = 2
"""
PEER = f"""\
config_version = 1
[peer]
emulate = {{ forward_ms = {FORWARD_MS}.0, backward_ms = {BACKWARD_MS}.0 }}
"""


def log_lines(folder):
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(True) if line.endswith("\n")]


class Bench:
    def __init__(self, swarmline, folder, steps):
        self.swarmline, self.folder, self.steps = swarmline, folder, steps
        self.machine = Machine(sorted(os.sched_getaffinity(0)))
        (folder / "peer.toml").write_text(PEER)

    def config(self, every_minutes):
        path = self.folder / f"every-{every_minutes}.toml"
        path.write_text(CONFIG.format(name=path.stem, folder=self.folder / "runs", steps=WARMUP_STEPS + self.steps,
                                      microbatches=MICROBATCHES, every_minutes=float(every_minutes)))
        return path

    def describe(self):
        checked = json.loads(run([self.swarmline, "config", "check", self.config(NEVER), "--json"], self.folder))
        return {"parameters": checked["parameters"], "forward_ms": FORWARD_MS, "backward_ms": BACKWARD_MS,
                "microbatches": MICROBATCHES, "steps": self.steps}

    def sample(self, every_minutes):
        config = self.config(every_minutes)
        folder = self.folder / "runs" / config.stem
        shutil.rmtree(folder, ignore_errors=True)

        def ends():
            return [line["wall_seconds"] for line in log_lines(folder) if line["kind"] == "step"]
        training = Training([self.swarmline, "launch", config, "--peer-config", self.folder / "peer.toml", "--threads", "1"],
                            self.folder, ends)
        training.wait_for_step(WARMUP_STEPS, POLL_SECONDS)
        before, begun = self.machine.read(training.process.pid), time.monotonic()
        training.wait_for_step(WARMUP_STEPS + self.steps, POLL_SECONDS)
        after, took = self.machine.read(training.process.pid), time.monotonic() - begun
        training.finish()
        lines = log_lines(folder)
        shutil.rmtree(folder)
        busy, own, _ = (b - a for a, b in zip(before, after))
        return summary(lines, own, busy - own, took * len(self.machine.cores))


def summary(lines, own, others, available):
    steps = [line for line in lines if line["kind"] == "step"][WARMUP_STEPS:]
    seconds = [line["seconds"] for line in steps]
    first, last = steps[0]["wall_seconds"] - seconds[0], steps[-1]["wall_seconds"]
    written = [line["wall_seconds"] for line in lines if line["kind"] == "checkpoint" and first < line["wall_seconds"] < last]
    return {"step_seconds": statistics.fmean(seconds), "median_step_seconds": statistics.median(seconds),
            "slowest_step_seconds": max(seconds), "checkpoints": len(written), "cpu_seconds_per_step": own / len(steps),
            "own": own / available, "others": max(0.0, others) / available,
            "peers_lost": sum(line["kind"] == "peer_lost" and first < line["wall_seconds"] < last for line in lines)}


def measure(bench, options):
    rounds = []
    for number in range(options.rounds):
        order = [NEVER, options.every] if number % 2 == 0 else [options.every, NEVER]
        samples = {}
        for every in order:
            sample = samples["with" if every else "without"] = bench.sample(every)
            print(f"  {'a checkpoint every %g min' % every if every else 'none':<28}{sample['step_seconds']:.3f} s a step (median "
                  f"{sample['median_step_seconds']:.3f}, slowest {sample['slowest_step_seconds']:.3f}); {sample['checkpoints']} "
                  f"checkpoints; {sample['peers_lost']} peers lost; cores: own {sample['own']:.1%}, others {sample['others']:.1%}", file=sys.stderr, flush=True)
        rounds.append(samples)
    return rounds


def table(rounds):
    ratios = [r["without"]["step_seconds"] / r["with"]["step_seconds"] for r in rounds]
    lines = ["| round | s a step, none | s a step, with | checkpoints | throughput | CPU s a step, none | CPU s a step, with | others took |",
             "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for number, (ratio, r) in enumerate(zip(ratios, rounds), 1):
        without, with_ = r["without"], r["with"]
        lines.append(f"| {number} | {without['step_seconds']:.3f} | {with_['step_seconds']:.3f} | {with_['checkpoints']} | **{ratio:.3f}** | "
                     f"{without['cpu_seconds_per_step']:.2f} | {with_['cpu_seconds_per_step']:.2f} | "
                     f"{without['others']:.0%}, {with_['others']:.0%} |")
    lines += ["", f"throughput with checkpoints: {statistics.median(ratios):.3f} of that without (median; {min(ratios):.3f} to {max(ratios):.3f})"]
    return "\n".join(lines), statistics.median(ratios)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", type=pathlib.Path, default=ROOT / "build/release/swarmline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=4, help="of each run, at the least")
    parser.add_argument("--every", type=float, default=1, help="minutes between checkpoints")
    parser.add_argument("--json", type=pathlib.Path, help="results, for programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="swarmline-checkpoint-cost-", dir=os.environ.get("TMPDIR")) as folder:
        bench = Bench(options.swarmline.resolve(), pathlib.Path(folder), max(4, round(options.minutes * 60 / STEP_SECONDS)))
        shape = bench.describe()
        rounds = measure(bench, options)
    shown, ratio = table(rounds)
    print(shown)
    if options.json:
        options.json.write_text(json.dumps(
            {"format": FORMAT, "kind": "checkpoint_cost", "wall_seconds": time.time(), "every_minutes": options.every,
             "shape": shape, "throughput": ratio, "rounds": rounds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
