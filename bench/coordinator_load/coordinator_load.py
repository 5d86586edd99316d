#!/usr/bin/env python3
"""What one coordinator bears: a real one (`swarmline coordinator`) on one core, and a program on another that plays its
peers, each over a connection of its own, and checks that every step counts each microbatch once in each stage.

    bench/coordinator_load/coordinator_load.py                    1 000 peers, half a minute
    bench/coordinator_load/coordinator_load.py --peers 10000 --microbatches 40000
It times the start (until every peer has a seat and has heard of the first step), contributions accepted a second, memory
a peer, and how long a coordinator that is killed with SIGKILL and begun again takes until it accepts contributions.
Results: a table beside the goals, and JSON with --out (docs/formats/bench.md).
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = 1
WAIT_SECONDS = 180   # for the next thing to happen
GOALS = {  # name: (goal, unit, more is better)
    "contributions_per_second": (50_000, "/s", True),
    "start_seconds": (10, "s", False),
    "takeover_seconds": (5, "s", False),
    "peer_bytes": (16 * 1024, "B", False),
}
CONFIG = """\
config_version = 1
[run]
name = "load"
dir = "{folder}"
steps = 1000000
[model]
layers = {shape.stages}
d_model = 8
heads = 1
tied_embeddings = false
[data]
kind = "bytes"
files = ["{folder}/text.txt"]
held_out = 0.0
[batch]
batch = {shape.microbatches}
microbatch = 1
sequence = 8
[pipeline]
stages = {shape.stages}
peers = {shape.peers_per_stage}
layers = {layers}
delay = 0
[codec]
forward = "none"
backward = "none"
[balance]
shadows = 0
moves = false
[checkpoint]
every_minutes = 0
[net]
heartbeat_seconds = {shape.heartbeat}
[log]
level = "warn"
"""


@dataclasses.dataclass(frozen=True)
class Shape:
    peers: int
    stages: int
    microbatches: int
    steps: int
    rate: float
    heartbeat: float

    @property
    def peers_per_stage(self):
        return self.peers // self.stages


class Wrong(Exception):
    pass


class Process:
    """A child on a core of its own, and what the system says of it."""

    def __init__(self, command, core, **more):
        self.started = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], **more)
        with contextlib.suppress(OSError):  # one core only: they share it
            os.sched_setaffinity(self.process.pid, {core})

    def cpu_seconds(self):
        # The CPU clock of that process as clock_getcpuclockid(3) names it: /proc/PID/stat
        # counts ticks of 10 ms, of which a short step may take none.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise Wrong("the coordinator is gone")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Peers:
    """The program that plays them; what it says, in order."""

    def __init__(self, program, shape, address_file, core):
        self.child = Process([program, "--address-file", address_file, "--stages", shape.stages,
                              "--peers-per-stage", shape.peers_per_stage, "--microbatches", shape.microbatches,
                              "--steps", shape.steps, "--rate", shape.rate], core, stdout=subprocess.PIPE, text=True)
        self.lines, self.news = [], threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.process.stdout:
            with self.news:
                self.lines.append(json.loads(line))
                self.news.notify()
        with self.news:
            self.lines.append({"event": "wrong", "what": f"the program that plays the peers has ended: {self.child.process.wait()}"})
            self.news.notify()

    def wait_for(self, event, step=None):
        """The next such line; those before it are passed over."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self.news:
            while True:
                while self.lines:
                    line = self.lines.pop(0)
                    if line["event"] == "wrong":
                        raise Wrong(line["what"])
                    if line["event"] == event and (step is None or line["step"] == step):
                        return line
                if not self.news.wait(deadline - time.monotonic()):
                    raise Wrong(f"nothing said \"{event}\" for {WAIT_SECONDS} s")


class Load:
    def __init__(self, swarmline, program, shape, folder):
        self.swarmline, self.program, self.shape, self.folder = swarmline, program, shape, folder
        self.run_folder = folder / "load"
        cores = sorted(os.sched_getaffinity(0))
        self.core, self.other_core = cores[0], cores[-1]
        (folder / "text.txt").write_text("All work and no play makes a dull swarm.\n" *
                                         (8 * shape.microbatches // 40 + 100))
        self.config = folder / "load.toml"
        self.config.write_text(CONFIG.format(folder=folder, shape=shape, layers=[1] * shape.stages))

    def coordinator(self):
        return Process([self.swarmline, "coordinator", self.config], self.core, stdout=subprocess.DEVNULL)

    def measure(self):
        coordinator, peers = self.coordinator(), None
        try:
            address = self.run_folder / "coordinator.address"
            while not address.exists():
                if coordinator.process.poll() is not None:
                    raise Wrong("the coordinator ended at its start")
                time.sleep(0.01)
            alone = coordinator.resident_bytes()
            peers = Peers(self.program, self.shape, address, self.other_core)
            listening = time.monotonic()
            opened = peers.wait_for("open")
            result = {"start_seconds": opened["t"] - coordinator.started,
                      "listening_seconds": listening - coordinator.started,
                      "seated_peer_bytes": (coordinator.resident_bytes() - alone) / self.shape.peers}
            result |= self.steps(coordinator, peers, opened, alone)
            peers.wait_for("open", self.middle)
            time.sleep(0.3 * result["step_seconds"])
            killed = time.monotonic()
            coordinator.kill()
            coordinator = self.coordinator()
            result |= self.takeover(peers, killed)
            peers.wait_for("done")
            return result
        finally:
            coordinator.kill()
            if peers:
                peers.child.kill()

    @property
    def middle(self):
        return self.shape.steps - 1  # the step in which the coordinator is killed

    def steps(self, coordinator, peers, opened, alone):
        cpu, before, resident = coordinator.cpu_seconds(), opened, 0
        began = cpu
        for step in range(self.middle):
            line = peers.wait_for("step", step)
            resident = max(resident, coordinator.resident_bytes())
            now = coordinator.cpu_seconds()
            print(f"  step {step}: {line['t'] - before['t']:.2f} s, coordinator {now - cpu:.2f} CPU s, "
                  f"{resident / 1e6:.0f} MB", file=sys.stderr, flush=True)
            cpu, before = now, line
        seconds, count = before["t"] - opened["t"], before["contributions"]
        return {"contributions": count, "step_seconds": seconds / self.middle, "wall_contributions_per_second": count / seconds,
                "contributions_per_second": count / (cpu - began), "core_share": (cpu - began) / seconds,
                "contributions_per_report": count / before["reports"], "heartbeats": before["heartbeats"],
                "refused": before["refused"], "peer_bytes": (resident - alone) / self.shape.peers}

    def takeover(self, peers, killed):
        seated, accepted = peers.wait_for("seated"), None
        accepted = peers.wait_for("accepted")
        done = peers.wait_for("step", self.middle)
        return {"takeover_seated_seconds": seated["t"] - killed, "takeover_seconds": accepted["t"] - killed,
                "takeover_step_seconds": done["t"] - killed}


def rows(result):
    for name, (goal, unit, more) in GOALS.items():
        value = result[name]
        yield name, value, unit, goal, value / goal if more else goal / value


def table(result):
    shape = result["shape"]
    lines = [f"{shape['peers']} peers in {shape['stages']} stages, {shape['microbatches']} microbatches a step, "
             f"{result['contributions']} contributions checked; {result['contributions_per_report']:.2f} a report.", "",
             "| | measured | goal | times as good |", "| --- | ---: | ---: | ---: |"]
    for name, value, unit, goal, ratio in rows(result):
        lines.append(f"| {name} | {value:.4g} {unit} | {goal} {unit} | **{ratio:.3g}** |")
    lines.append(f"\nContributions are for a second of the coordinator's CPU time; by the clock "
                 f"{result['wall_contributions_per_second']:.4g}/s, with {result['core_share']:.0%} of a core.")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--stages", type=int, default=40)
    parser.add_argument("--microbatches", type=int, default=4000, help="of a step")
    parser.add_argument("--steps", type=int, default=4, help="the coordinator is killed in the last one")
    parser.add_argument("--rate", type=float, default=60_000, help="contributions that all devices end in a second")
    parser.add_argument("--heartbeat", type=float, default=0.5)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--folder", type=pathlib.Path, help="where the run is kept; default: a temporary one")
    options = parser.parse_args()
    shape = Shape(options.peers, options.stages, options.microbatches, options.steps, options.rate, options.heartbeat)
    if shape.peers % shape.stages or shape.steps < 2:
        parser.error("as many peers at each stage, and two steps at least")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    build = options.build.resolve()
    with tempfile.TemporaryDirectory(prefix="swarmline-load-") as temporary:
        folder = (options.folder or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        load = Load(build / "swarmline", build / "bench/coordinator_load/coordinator_load", shape, folder)
        try:
            measured = load.measure()
        except Wrong as wrong:
            raise SystemExit(f"coordinator_load: {wrong}") from wrong
    result = {"format": FORMAT, "kind": "coordinator_load", "wall_seconds": time.time(),
              "shape": dataclasses.asdict(shape)} | measured
    result["goals"] = {name: {"goal": goal, "ratio": ratio} for name, _, _, goal, ratio in rows(result)}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
