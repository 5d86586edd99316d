#!/usr/bin/env python3
"""The fault matrix: every kind of fault, in every phase, at a peer, at all of a stage and at the coordinator, on
real processes. Each cell is a run of `swarmline chaos` that must finish with the parameters of its reference.

usage: fault_matrix.py --program SWARMLINE [--cells ci|all|PATTERN ...] [--jobs N] [--update] [--keep]
PATTERN is KIND/PHASE/WHOM with * for any, e.g. kill/reduce/* or */commit/peer. Exit code 1 when a cell failed.
"""

import argparse
import concurrent.futures
import dataclasses
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README = os.path.join(ROOT, "tests", "README.md")
BEGIN, END = "<!-- fault matrix: begin -->", "<!-- fault matrix: end -->"

KINDS = ("kill", "stop", "slow", "cut", "corrupt", "restart")
PHASES = ("joining", "forward", "backward", "reduce", "commit", "download", "checkpoint")
WHOM = ("peer", "stage", "coordinator")

# One of each kind and of each phase at least, and those that broke something once.
CI = (
    "kill/forward/peer", "kill/reduce/peer", "kill/download/peer",
    "stop/backward/peer", "stop/commit/peer",
    "slow/forward/peer",
    "cut/reduce/peer", "cut/checkpoint/peer",
    "corrupt/backward/peer", "corrupt/checkpoint/peer",
    "restart/joining/peer", "restart/commit/peer",
)

# Without a standby nobody leads after a coordinator that never comes back.
IMPOSSIBLE = {
    ("kill", phase, "coordinator"): "nobody is left to lead: see restart" for phase in PHASES
}

CELL_SECONDS_MAX = 150  # a cell takes seconds; a loaded machine included
STEPS = 14
FAULT_STEP = 4

CONFIG = """config_version = 1
[run]
name = "cell"
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
batch = 8
microbatch = 1
sequence = 16
[pipeline]
stages = 2
peers = 2
delay = {delay}
[codec]
forward = "none"
backward = "none"
[checkpoint]
every_steps = 3
[net]
heartbeat_seconds = 0.2
[wiring]
hop_timeout_seconds = 3
[eval]
sequences_max = 4
"""

PEER = """config_version = 1
[peer]
emulate = { forward_ms = 8, backward_ms = 16 }
"""

# How long each lasts: longer than a process may be silent, so that it is found out; corruption shorter than a
# source goes on trying.
SECONDS = {"stop": 2.5, "cut": 2.5, "slow": 2, "corrupt": 0.3, "restart": 0.3, "kill": 1}


@dataclasses.dataclass(frozen=True)
class Cell:
    kind: str
    phase: str
    whom: str

    @property
    def name(self):
        return f"{self.kind}/{self.phase}/{self.whom}"

    @property
    def delay(self):
        """Both values over the table, always the same one for a cell."""
        return (KINDS.index(self.kind) + PHASES.index(self.phase)) % 2

    def plan(self):
        newcomer = self.phase in ("joining", "download")
        who = {"peer": "newcomer" if newcomer else "one of stage 1",
               "stage": "stage of newcomer" if newcomer else "stage 1",
               "coordinator": "coordinator"}[self.whom]
        return (f'chaos_format = 1\n[plan]\nname = "{self.name}"\n[faults.one]\nkind = "{self.kind}"\n'
                f'who = "{who}"\nat_phase = "{self.phase}"\nat_step = {FAULT_STEP}\n'
                f"for_seconds = {SECONDS[self.kind]}\n")


@dataclasses.dataclass
class Outcome:
    cell: Cell
    ok: bool = False
    why: str = ""
    seconds: float = 0
    noticed: float = None
    commit: float = None


ALL = [Cell(kind, phase, whom) for kind in KINDS for phase in PHASES for whom in WHOM]


def chosen(patterns):
    if patterns == ["all"]:
        return ALL
    wanted = CI if patterns == ["ci"] else patterns
    cells = [cell for cell in ALL if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in wanted)]
    if not cells:
        sys.exit(f"no cell is called {' or '.join(wanted)}; expected KIND/PHASE/WHOM")
    return cells


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder
        with open(os.path.join(folder, "text.txt"), "w") as text:
            for i in range(4000):
                text.write(f"word{i * 7919 % 97}" + (" " if i % 9 else "\n"))
        with open(os.path.join(folder, "peer.toml"), "w") as peer:
            peer.write(PEER)
        self.references = [self.reference(delay) for delay in (0, 1)]

    def config(self, name, delay):
        path = os.path.join(self.folder, name + ".toml")
        with open(path, "w") as file:
            file.write(CONFIG.format(folder=self.folder, steps=STEPS, delay=delay))
        return path

    def reference(self, delay):
        name = f"delay{delay}"
        subprocess.run([self.program, "launch", self.config(name, delay), "--reference", "--name", name],
                       check=True, stdout=subprocess.DEVNULL, timeout=CELL_SECONDS_MAX)
        return os.path.join(self.folder, name + "-reference")

    def run(self, cell):
        outcome = Outcome(cell)
        name = cell.name.replace("/", "-")
        plan = os.path.join(self.folder, name + ".plan.toml")
        with open(plan, "w") as file:
            file.write(cell.plan())
        command = [self.program, "chaos", self.config(name, cell.delay), "--plan", plan, "--name", name,
                   "--peer-config", os.path.join(self.folder, "peer.toml"), "--patience", "30",
                   "--against", self.references[cell.delay], "--json"]
        began = time.monotonic()
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=CELL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            outcome.why = f"not over after {CELL_SECONDS_MAX} s"
            return outcome
        outcome.seconds = time.monotonic() - began
        try:
            result = json.loads(ended.stdout)
        except ValueError:
            outcome.why = (ended.stderr or ended.stdout).strip()[-300:]
            return outcome
        fault = result["faults"][0]
        outcome.ok = ended.returncode == 0
        outcome.noticed, outcome.commit = fault["noticed_seconds"], fault["commit_seconds"]
        if not outcome.ok:
            outcome.why = ("it never came to it; " if fault["at"] is None else f'{fault["what"]}: ') + (
                result["end"] if not result["finished"] else result["parameters"]["sentence"])
        return outcome


def run_cells(runner, cells, jobs):
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        possible = [cell for cell in cells if (cell.kind, cell.phase, cell.whom) not in IMPOSSIBLE]
        for outcome in pool.map(runner.run, possible):
            outcomes[outcome.cell] = outcome
            print(f"{'ok' if outcome.ok else 'FAILED':6} {outcome.cell.name:32} {outcome.seconds:5.1f} s  "
                  f"noticed {seconds(outcome.noticed):>7}  next commit {seconds(outcome.commit):>7}  {outcome.why}",
                  flush=True)
    return outcomes


def seconds(number):
    return "-" if number is None else f"{number:.2f} s"


def shown(cell, outcomes):
    if (cell.kind, cell.phase, cell.whom) in IMPOSSIBLE:
        return "(1)"
    outcome = outcomes.get(cell)
    if outcome is None:
        return ""
    if not outcome.ok:
        return "**fails**"
    return "-" if outcome.commit is None else f"{outcome.commit:.1f} s"


def table(outcomes):
    """Markdown: a row for each kind and victim, a column for each phase."""
    lines = ["| fault | whom | " + " | ".join(PHASES) + " |", "|---" * (2 + len(PHASES)) + "|"]
    for kind in KINDS:
        for whom in WHOM:
            cells = [shown(Cell(kind, phase, whom), outcomes) for phase in PHASES]
            lines.append(f"| {kind} | {whom} | " + " | ".join(cells) + " |")
    passed = sum(outcome.ok for outcome in outcomes.values())
    lines += ["", f"{passed} of {len(outcomes)} cells pass, {len(IMPOSSIBLE)} are impossible. (1) " +
              next(iter(IMPOSSIBLE.values())) + "."]
    failed = [outcome for outcome in outcomes.values() if not outcome.ok]
    lines += [f"- {outcome.cell.name}: {outcome.why}" for outcome in failed]
    return "\n".join(lines) + "\n"


def update(outcomes, path=README):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, rest = text.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + table(outcomes) + END + tail)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cells", nargs="+", default=["all"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true", help="write the table into tests/README.md")
    parser.add_argument("--keep", action="store_true", help="keep the runs, and say where they are")
    flags = parser.parse_args()
    cells = chosen(flags.cells)
    folder = tempfile.mkdtemp(prefix="swarmline-chaos-")
    try:
        outcomes = run_cells(Runner(flags.program, folder), cells, flags.jobs)
    finally:
        if flags.keep:
            print("the runs are in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if flags.update:
        update(outcomes)
    failed = sum(not outcome.ok for outcome in outcomes.values())
    print(f"{len(outcomes) - failed} of {len(outcomes)} cells pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
