"""Runs of `swarmline chaos` for the programs beside this file."""

import json
import os
import subprocess

CONFIG = """config_version = 1
[run]
name = "run"
dir = "{folder}"
steps = {steps}
[model]
layers = 4
d_model = 16
heads = 2
dtype = "fp64"
bias = false
[data]
files = ["{folder}/text.txt"]
held_out = 0.05
[batch]
batch = {batch}
microbatch = 1
sequence = 16
[pipeline]
stages = {stages}
peers = {peers}
delay = {delay}
in_flight = {leases}
[codec]
forward = "none"
backward = "none"
[checkpoint]
every_steps = {checkpoint}
[net]
heartbeat_seconds = {heartbeat}
[wiring]
hop_timeout_seconds = {hop_timeout}
in_flight_per_peer = {in_flight}
[eval]
sequences_max = 4
"""

PEER = """config_version = 1
[peer]
emulate = {{ forward_ms = {forward}, backward_ms = {backward} }}
join_patience_seconds = 120  # longer than any fault: who has no seat yet waits for a coordinator, too
"""


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def write_text(folder):
    """What runs train on: text.txt, 4000 words."""
    words = (f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(4000))
    return write(folder, "text.txt", "".join(words))


def chaos(program, config, plan, peer, timeout, more=()):
    """(exit code, result or None, what it said)."""
    command = [program, "chaos", config, "--plan", plan, "--peer-config", peer, "--json", *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    try:
        return ended.returncode, json.loads(ended.stdout), ended.stderr
    except ValueError:
        return ended.returncode, None, (ended.stderr or ended.stdout).strip()[-300:]
