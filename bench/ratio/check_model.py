#!/usr/bin/env python3
"""Is the square-cube model true? Runs real swarms of two stages over a shaped link and compares how busy their devices
were with what `swarmline bench ratio` says of the same stage and link.

Each point is a coordinator and two peers with one compute thread each; the peers reach each other through
`swarmline link-proxy`. Measured: device seconds of a step's microbatches over the step's seconds, mean of both peers
(log.jsonl), in the step after the first. Modelled: `many_in_flight` of a chain of two stages with steps of as many
microbatches. The devices are emulated: they compute, and are held for a set time that grows with the square of the
hidden size, so that two cores can stand for two machines. With --real they are not, and nothing else may run."""

import argparse
import dataclasses
import itertools
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 120
POLL_SECONDS = 0.02
STEPS = 2  # the first one warms up

LAYERS, SEQUENCE, MICROBATCHES, CODEC = 1, 256, 32, "fp16"
HIDDEN = (256, 384)
FORWARD_MS, BACKWARD_MS = 12, 24  # of an emulated device at the first hidden size
BANDWIDTHS = ("50M", "200M")
RTTS_MS = (0, 100)
IN_FLIGHT = (1, 4)

CONFIG = """\
config_version = 1
[run]
name = "point"
dir = "{folder}"
steps = {steps}
[model]
layers = {layers}
d_model = {point.hidden}
heads = {heads}
tied_embeddings = false
[data]
files = ["/usr/include/c++/*/bits/*.h"]
held_out = 0.0
[batch]
batch = {microbatches}
microbatch = 1
sequence = {sequence}
[pipeline]
stages = 2
peers = 1
recompute = false
in_flight = {point.in_flight}
[codec]
forward = "{codec}"
backward = "{codec}"
"""


@dataclasses.dataclass(frozen=True)
class Point:
    hidden: int
    bandwidth: str
    rtt_ms: float
    in_flight: int


@dataclasses.dataclass(frozen=True)
class Busy:
    share: float
    seconds: float  # of a microbatch


def grid():
    return [Point(*values) for values in itertools.product(HIDDEN, BANDWIDTHS, RTTS_MS, IN_FLIGHT)]


def bits_per_second(word):
    return float(word[:-1]) * {"K": 1e3, "M": 1e6, "G": 1e9}[word[-1]]


def device_flags(hidden, real):
    square = (hidden / HIDDEN[0]) ** 2
    return [] if real else ["--emulate-forward-ms", f"{FORWARD_MS * square:g}",
                            "--emulate-backward-ms", f"{BACKWARD_MS * square:g}"]


def modelled(swarmline, points, folder, real):
    """Busy share and busy seconds of a microbatch by point, from a `bench ratio` for each stage and number in flight."""
    expected = {}
    for hidden, in_flight in sorted({(point.hidden, point.in_flight) for point in points}):
        mine = [point for point in points if (point.hidden, point.in_flight) == (hidden, in_flight)]
        out = folder / f"ratio-{hidden}-{in_flight}.json"
        words = lambda name: ",".join(str(value) for value in sorted({getattr(p, name) for p in mine}))
        subprocess.run(
            [swarmline, "bench", "ratio", "--threads", "1", "--hidden", str(hidden), "--layers-per-stage",
             str(LAYERS), "--seq", str(SEQUENCE), "--codec", CODEC, "--bandwidth", words("bandwidth"), "--rtt",
             words("rtt_ms"), "--stages", "2", "--in-flight", str(in_flight), "--microbatches", str(MICROBATCHES),
             "--json", out, *device_flags(hidden, real)], check=True, stdout=subprocess.DEVNULL, timeout=TIMEOUT_SECONDS)
        [stage] = json.loads(out.read_text())["stages"]
        [wire] = stage["wires"]
        seconds = stage["forward_seconds"] + stage["backward_seconds"] + wire["codec_seconds"]
        for point, link in itertools.product(mine, wire["links"]):
            if (bits_per_second(point.bandwidth), round(point.rtt_ms, 6)) == (
                    link["bits_per_second"], round(1e3 * link["rtt_seconds"], 6)):
                expected[point] = Busy(link["many_in_flight"], seconds)
    return expected


class Processes:
    """The programs of one swarm; none outlives the with block."""

    def __init__(self, swarmline, folder):
        self.swarmline, self.folder, self.running = swarmline, folder, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()

    def start(self, name, *words):
        output = (self.folder / f"{name}.out").open("w")
        process = subprocess.Popen([self.swarmline, *words], stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
        self.running.append(process)
        return process

    def wait_for(self, name, pattern):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            text = (self.folder / f"{name}.out").read_text()
            if match := re.search(pattern, text):
                return match.group(1)
            time.sleep(POLL_SECONDS)
        sys.exit(f"check_model: {name} did not say {pattern!r} but:\n{text}")


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def start_peer(processes, name, coordinator, point, real):
    listen = free_address()
    link = processes.start(f"{name}-link", "link-proxy", "--to", listen, "--both",
                           f"rate={point.bandwidth} delay={point.rtt_ms / 2}ms")
    advertised = processes.wait_for(f"{name}-link", r"link: (\S+) ->")
    processes.start(name, "peer", "--join", coordinator, "--listen", listen, "--advertise", advertised, "--threads", "1", "--data-root", "/",
                    *device_flags(point.hidden, real))
    return link


def measured(swarmline, point, folder, real):
    """How busy both stages were."""
    folder.mkdir()
    config = folder / "config.toml"
    config.write_text(CONFIG.format(folder=folder, steps=STEPS, layers=2 * LAYERS, heads=point.hidden // 64, point=point,
                                    microbatches=MICROBATCHES, sequence=SEQUENCE, codec=CODEC))
    with Processes(swarmline, folder) as processes:
        coordinator = processes.start("coordinator", "coordinator", str(config))
        address = processes.wait_for("coordinator", r"swarmline peer --join (\S+)")
        links = [start_peer(processes, name, address, point, real) for name in ("first", "second")]
        if code := coordinator.wait(TIMEOUT_SECONDS):
            sys.exit(f"check_model: the swarm ended with {code}:\n" + "".join(f.read_text() for f in sorted(folder.glob("*.out"))))
        for link in links:
            link.send_signal(signal.SIGTERM)
    lines = [json.loads(line) for line in (folder / "point/log.jsonl").read_text().splitlines()]
    step = [line for line in lines if line["kind"] == "step"][-1]
    return [Busy(peer["busy_seconds"] / step["seconds"], peer["busy_seconds"] / MICROBATCHES)
            for peer in sorted(step["peers"], key=lambda peer: peer["stage"])]


HEAD = "hidden  rate rtt ms in flight  busy ms:model stage 0 stage 1  percent:model  mean stage 0 stage 1  difference"


def table_line(point, model, stages):
    mean = sum(stage.share for stage in stages) / len(stages)
    seconds = [1e3 * one.seconds for one in (model, *stages)]
    shares = [100 * one for one in (model.share, mean, *(stage.share for stage in stages))]
    return (f"{point.hidden:6} {point.bandwidth:>5} {point.rtt_ms:>6g} {point.in_flight:>9} {seconds[0]:14.1f} "
            f"{seconds[1]:7.1f} {seconds[2]:7.1f} {shares[0]:14.1f} {shares[1]:5.1f} {shares[2]:7.1f} {shares[3]:7.1f} "
            f"{shares[1] - shares[0]:+11.1f}"), abs(shares[1] - shares[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swarmline", default=str(ROOT / "build/release/swarmline"), help="the program")
    parser.add_argument("--points", default=":", metavar="FROM:TO", help="part of the grid, e.g. 0:6")
    parser.add_argument("--real", action="store_true", help="devices are as fast as they are")
    parser.add_argument("--within", type=float, default=5, help="points of a hundred that are near enough")
    arguments = parser.parse_args()
    first, last = (int(word) if word else None for word in arguments.points.split(":"))
    points = grid()[first:last]
    print(f"{LAYERS} layer a stage, {SEQUENCE} tokens, {CODEC}, steps of {MICROBATCHES} microbatches; percent busy")
    print(HEAD)
    worst = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expected = modelled(arguments.swarmline, points, folder, arguments.real)
        for number, point in enumerate(points):
            line, difference = table_line(point, expected[point],
                                          measured(arguments.swarmline, point, folder / str(number), arguments.real))
            print(line, flush=True)
            worst = max(worst, difference)
    print(f"{len(points)} points, the largest difference is {worst:.1f} of a hundred")
    sys.exit(worst > arguments.within)


if __name__ == "__main__":
    main()
