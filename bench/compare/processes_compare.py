#!/usr/bin/env python3
"""GPipe, 1F1B and Swarmline as real processes: 4 stages of 4 peers whose devices hold for emulated service times, every
peer and the coordinator behind a link-proxy. Prints a table (docs/comparison.md).

    bench/compare/processes_compare.py --swarmline build/release/swarmline
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time

STAGES, PEERS = 4, 4
FORWARD_MS, BACKWARD_MS = 80, 160
RULES = {
    "swarmline": [],
    "swarmline, delay = 1": ["pipeline.delay=1"],
    "GPipe": ["pipeline.wiring=static", "pipeline.order=gpipe", "wiring.in_flight_per_peer=64"],
    "1F1B": ["pipeline.wiring=static", "pipeline.order=1f1b"],
}
SHAPES = {"0": "delay=0ms jitter=0ms", "100 +- 50 ms": "delay=100ms jitter=50ms"}
START_SECONDS = 120  # for processes to load
STEP_SECONDS = 120


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def config_text(folder, microbatches, steps):
    return f"""config_version = 1
[run]
name = "compare"
dir = "{folder}"
steps = {steps}
[model]
layers = {STAGES}
d_model = 32
heads = 2
[data]
files = ["{pathlib.Path(__file__).resolve()}"]
[batch]
batch = {microbatches}
microbatch = 1
sequence = 16
[pipeline]
stages = {STAGES}
peers = {PEERS}
[wiring]
hop_timeout_seconds = 600
[eval]
sequences_max = 1
"""


class Swarm:
    """Proxies that stay, and one run after the other behind them."""

    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)
        self.inner = free_ports(STAGES * PEERS + 1)  # where they listen; the last: the coordinator
        self.outer = free_ports(STAGES * PEERS + 1)  # where others reach them
        self.control = free_ports(STAGES * PEERS + 1)
        self.proxies = [
            self.start(f"proxy-{i}", "link-proxy", "--listen", f"127.0.0.1:{self.outer[i]}", "--to",
                       f"127.0.0.1:{self.inner[i]}", "--control", f"127.0.0.1:{self.control[i]}", "--seed", str(i))
            for i in range(STAGES * PEERS + 1)
        ]

    def start(self, name, *words):
        log = open(self.folder / f"{name}.log", "ab")
        return subprocess.Popen([self.program, *words], stdout=log, stderr=log, start_new_session=True)

    def shape(self, text):
        for port in self.control:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                        line.sendall(f"set both {text}\n".encode())
                        line.recv(200)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)

    def run(self, sets, microbatches, steps):
        """Seconds of each step but the first."""
        config = self.folder / "compare.toml"
        config.write_text(config_text(self.folder, microbatches, steps))
        words = [f"net.listen=127.0.0.1:{self.inner[-1]}", *sets]
        coordinator = self.start("coordinator", "coordinator", str(config), "--fresh",
                                 *[word for one in words for word in ("--set", one)])
        peers = []
        try:
            address = self.folder / "compare/coordinator.address"
            deadline = time.monotonic() + START_SECONDS
            while not address.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            for i in range(STAGES * PEERS):
                peers.append(self.start(
                    f"peer-{i}", "peer", "--join", f"127.0.0.1:{self.outer[-1]}", "--name", f"peer-{i}",
                    "--listen", f"127.0.0.1:{self.inner[i]}", "--advertise", f"127.0.0.1:{self.outer[i]}",
                    "--emulate-forward-ms", str(FORWARD_MS), "--emulate-backward-ms", str(BACKWARD_MS), "--data-root", "/"))
            if coordinator.wait(timeout=START_SECONDS + STEP_SECONDS * steps) != 0:
                raise SystemExit((self.folder / "coordinator.log").read_text()[-2000:])
            for peer in peers:
                peer.wait(timeout=START_SECONDS)
        finally:
            for process in [coordinator, *peers]:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        lines = [json.loads(line) for line in (self.folder / "compare/log.jsonl").read_text().splitlines()]
        address.unlink(missing_ok=True)
        return [line["seconds"] for line in lines if line["kind"] == "step"][1:]

    def close(self):
        for proxy in self.proxies:
            os.killpg(proxy.pid, signal.SIGKILL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", default="build/release/swarmline")
    parser.add_argument("--microbatches", type=int, default=128, help="of a step")
    parser.add_argument("--steps", type=int, default=5, help="of which the first is left out")
    parser.add_argument("--latency", choices=list(SHAPES), help="only this one")
    options = parser.parse_args()
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        swarm = Swarm(pathlib.Path(options.swarmline).resolve(), folder)
        try:
            for latency, shape in SHAPES.items():
                if options.latency and latency != options.latency:
                    continue
                swarm.shape(shape)
                for rule, sets in RULES.items():
                    busy = os.times()
                    start = time.monotonic()
                    seconds = swarm.run(sets, options.microbatches, options.steps)
                    rates[rule, latency] = options.microbatches / statistics.mean(seconds)
                    now = os.times()
                    cores = (now.children_user + now.children_system - busy.children_user -
                             busy.children_system) / (time.monotonic() - start)
                    print(f"{rule}, {latency}: {rates[rule, latency]:.2f} microbatches/s, steps "
                          f"{', '.join(f'{one:.2f}' for one in seconds)} s; {cores:.2f} cores busy", flush=True)
        finally:
            swarm.close()
    if options.latency:
        return
    print("\n| system | microbatches/s at 0 | at 100 +- 50 ms | slowdown |\n| --- | ---: | ---: | ---: |")
    for rule in RULES:
        near, far = (rates[rule, latency] for latency in SHAPES)
        print(f"| {rule} | {near:.2f} | {far:.2f} | {100 * (near / far - 1):+.0f} % |")


if __name__ == "__main__":
    main()
