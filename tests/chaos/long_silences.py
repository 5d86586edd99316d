#!/usr/bin/env python3
"""Processes that stand still for 0.1 to 120 s, each in turn, and a stage's last peer that is cut off for 13 s beside
a living coordinator, on real processes. Each run must finish with the parameters of its reference, and none goes back
(the last one would have to make more again than the silence costs).

usage: long_silences.py --program SWARMLINE [--longest SECONDS] [--jobs N] [--keep]
Exit code 1 when a run failed.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
import time

import chaos_runs

SECONDS = (0.1, 1.5, 20, 120)
PROCESSES = ("coordinator", "peer-1", "peer-2", "peer-3", "peer-4")
LAST_PEER_SECONDS = 13
LAST_PEER_STEP = 150  # a run without a checkpoint would have to make more than 13 s of steps again
STEPS_MIN = 20
STEPS_PER_SECOND = 12  # so that the run does not end meanwhile
FAULT_STEP = 4


@dataclasses.dataclass(frozen=True)
class Silence:
    kind: str
    who: str
    seconds: float
    peers: str = "2"

    @property
    def name(self):
        return f"{self.kind}-{self.who.replace(' ', '-')}-{self.seconds}s"

    @property
    def steps(self):
        # While nobody can go on, no steps pass.
        waits = self.who == "coordinator" or self.peers != "2"
        return STEPS_MIN + (self.at_step if waits else int(STEPS_PER_SECOND * self.seconds))

    @property
    def at_step(self):
        return FAULT_STEP if self.peers == "2" else LAST_PEER_STEP

    @property
    def plan(self):
        return (f'chaos_format = 1\n[plan]\nname = "{self.name}"\n[faults.one]\nkind = "{self.kind}"\nwho = "{self.who}"\n'
                f"at_step = {self.at_step}\nfor_seconds = {self.seconds}\n")


ALL = [Silence("stop", who, seconds) for seconds in SECONDS for who in PROCESSES]
ALL.append(Silence("cut", "one of stage 1", LAST_PEER_SECONDS, "[2, 1]"))


def run(program, folder, peer, silence):
    """A sentence that says what is wrong, or nothing; and how long it took."""
    began = time.monotonic()
    config = chaos_runs.write(folder, silence.name + ".toml", chaos_runs.CONFIG.format(
        folder=folder, steps=silence.steps, batch=8, stages=2, peers=silence.peers, leases=0, delay=0, checkpoint=10**6,
        heartbeat=0.2, hop_timeout=3, in_flight=8))
    plan = chaos_runs.write(folder, silence.name + ".plan.toml", silence.plan)
    longest = 4 * silence.seconds + 240
    try:
        code, result, said = chaos_runs.chaos(program, config, plan, peer, longest,
                                              ["--name", silence.name, "--patience", str(silence.seconds + 60)])
    except subprocess.TimeoutExpired:
        return f"not over after {longest:.0f} s", time.monotonic() - began
    why = ""
    if result is None:
        why = said
    elif code != 0:
        why = result["end"] if not result["finished"] else result["parameters"]["sentence"]
    elif result["steps_again"] != 0:
        why = f'it went back: {result["steps_again"]} steps were made again'
    return why, time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--longest", type=float, default=max(SECONDS), help="leave longer silences out")
    parser.add_argument("--only", default="", help="silences whose names contain this")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep the runs, and say where they are")
    flags = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="swarmline-silences-")
    chaos_runs.write_text(folder)
    peer = chaos_runs.write(folder, "peer.toml", chaos_runs.PEER.format(forward=8, backward=16))
    silences = [silence for silence in ALL if silence.seconds <= flags.longest and flags.only in silence.name]
    failed = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
            outcomes = pool.map(lambda silence: run(os.path.abspath(flags.program), folder, peer, silence), silences)
            for silence, (why, seconds) in zip(silences, outcomes):
                failed += why != ""
                print(f"{'FAILED' if why else 'ok':6} {silence.name:32} {seconds:6.1f} s  {why}", flush=True)
    finally:
        if flags.keep:
            print("the runs are in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(silences) - failed} of {len(silences)} silences are outlasted")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
