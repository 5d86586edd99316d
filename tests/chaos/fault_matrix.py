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
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import chaos_runs

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
README = os.path.join(ROOT, "tests", "README.md")
FAILS = "**fails**"
BEGIN, END = "<!-- fault matrix: begin -->", "<!-- fault matrix: end -->"

KINDS = ("kill", "stop", "slow", "cut", "corrupt", "restart", "half-open", "isolate", "disk-full", "disk-slow",
         "journal-refused", "etcd-out")
PHASES = ("joining", "forward", "backward", "reduce", "commit", "download", "checkpoint", "start", "takeover",
          "last-checkpoint")
WHOM = ("peer", "stage", "coordinator")

# Each kind, phase and victim at least once, and those that broke something when they were new.
CI = (
    "kill/reduce/peer", "kill/download/peer", "kill/forward/stage",
    "stop/backward/peer", "stop/commit/coordinator",
    "slow/forward/peer",
    "cut/reduce/peer", "cut/checkpoint/coordinator",
    "corrupt/checkpoint/peer", "corrupt/joining/stage",
    "restart/commit/coordinator", "restart/reduce/stage", "restart/takeover/peer",
    "half-open/commit/coordinator", "isolate/reduce/peer",
    "disk-full/commit/coordinator", "disk-full/last-checkpoint/coordinator", "journal-refused/start/coordinator",
)


CELL_SECONDS_MAX = 150  # a cell takes seconds; a loaded machine included
STEPS = 14
FAULT_STEP = 4

# How long each lasts: longer than a process may be silent, so that it is found out; corruption shorter than a
# source goes on trying.
SECONDS = {"stop": 2.5, "cut": 2.5, "slow": 2, "corrupt": 0.3, "restart": 0.3, "kill": 1, "half-open": 2.5, "isolate": 2.5,
           "disk-full": 2.5, "disk-slow": 2.5, "journal-refused": 2.5, "etcd-out": 30}
PATIENCE = 30  # without a commit, before and after the fault
ETCD_LEASE_SECONDS = 3
# A takeover is one of a coordinator that was begun again here.
TAKEN_OVER = f"""[faults.before]
kind = "restart"
who = "coordinator"
at_phase = "commit"
at_step = {FAULT_STEP}
for_seconds = 0.3
"""


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

    def plan(self, etcd=None):
        newcomer = self.phase in ("joining", "download")
        who = {"peer": "newcomer" if newcomer else "one of stage 1",
               "stage": "stage of newcomer" if newcomer else "stage 1",
               "coordinator": "coordinator"}[self.whom]
        kind = self.kind if etcd is None else "command"
        return (f'chaos_format = 1\n[plan]\nname = "{self.name}"\n' +
                (TAKEN_OVER if self.phase == "takeover" else "") +
                f'[faults.one]\nkind = "{kind}"\n' +
                (f'command = "kill -STOP {etcd.pid}"\nundo = "kill -CONT {etcd.pid}"\n' if etcd else "") +
                f'who = "{who}"\nat_phase = "{self.phase}"\nat_step = {0 if self.phase == "start" else FAULT_STEP}\n'
                f"for_seconds = {SECONDS[self.kind]}\n")

    @property
    def exists(self):
        """Only the coordinator has a journal, in a file or in an etcd; peers write files where they write a checkpoint's parts; a run that has
        not begun waits for whoever is killed; the coordinator that takes over from one that is killed is a standby."""
        if self.kind in ("disk-slow", "journal-refused", "etcd-out"):
            return self.whom == "coordinator"
        if self.kind == "disk-full":
            return self.whom == "coordinator" or self.phase in ("checkpoint", "last-checkpoint")
        return self.name != "kill/takeover/coordinator" and (self.kind, self.phase) != ("kill", "start")


@dataclasses.dataclass
class Outcome:
    cell: Cell
    ok: bool = False
    why: str = ""
    seconds: float = 0
    noticed: float = None
    commit: float = None


ALL = [cell for kind in KINDS for phase in PHASES for whom in WHOM if (cell := Cell(kind, phase, whom)).exists]


def chosen(patterns):
    if patterns == ["all"]:
        return ALL
    wanted = CI if patterns == ["ci"] else patterns
    cells = [cell for cell in ALL if any(fnmatch.fnmatchcase(cell.name, pattern) for pattern in wanted)]
    if not cells:
        sys.exit(f"no cell is called {' or '.join(wanted)}; expected KIND/PHASE/WHOM")
    return cells


class Etcd:
    """One of its own, with its data in the folder; stopped, it answers nobody."""

    PROGRAMS = (os.path.join(ROOT, ".deps", "etcd", "usr", "bin", "etcd"), "/usr/bin/etcd")
    TRIES_MAX, ANSWER_SECONDS = 5, 10  # somebody else may take a port in between

    def __init__(self, folder):
        self.program = next((path for path in self.PROGRAMS if os.access(path, os.X_OK)), None)
        if self.program is None:
            sys.exit("there is no etcd: scripts/bootstrap --tests fetches one")
        for attempt in range(self.TRIES_MAX):
            self.start(f"{folder}-{attempt}")
            if self.answers():
                return
            self.end()
        sys.exit("etcd does not start")

    def start(self, folder):
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            other.bind(("127.0.0.1", 0))
            self.port, peers = one.getsockname()[1], other.getsockname()[1]
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peers}"
        self.child = subprocess.Popen(
            [self.program, "--data-dir", folder, "--listen-client-urls", client, "--advertise-client-urls", client,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
             "--initial-cluster", f"default={peer}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers(self):
        until = time.monotonic() + self.ANSWER_SECONDS
        while time.monotonic() < until and self.child.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1) as reply:
                    return b"true" in reply.read()
            except OSError:
                time.sleep(0.1)
        return False

    @property
    def pid(self):
        return self.child.pid

    def settings(self):
        return ["--set", f'run.etcd=["127.0.0.1:{self.port}"]', "--set", f"run.etcd_lease_seconds={ETCD_LEASE_SECONDS}"]

    def end(self):
        self.child.kill()
        self.child.wait()


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder
        chaos_runs.write_text(folder)
        self.peer = chaos_runs.write(folder, "peer.toml", chaos_runs.PEER.format(forward=8, backward=16))
        self.references = [self.reference(delay) for delay in (0, 1)]

    def config(self, name, delay):
        return chaos_runs.write(self.folder, name + ".toml", chaos_runs.CONFIG.format(
            folder=self.folder, steps=STEPS, batch=8, stages=2, peers=2, leases=0, delay=delay, checkpoint=3, heartbeat=0.2,
            hop_timeout=3, in_flight=8))

    def reference(self, delay):
        name = f"delay{delay}"
        subprocess.run([self.program, "launch", self.config(name, delay), "--reference", "--name", name],
                       check=True, stdout=subprocess.DEVNULL, timeout=CELL_SECONDS_MAX)
        return os.path.join(self.folder, name + "-reference")

    def run(self, cell):
        if cell.kind != "etcd-out":
            return self.run_with(cell, None)
        etcd = Etcd(os.path.join(self.folder, cell.name.replace("/", "-") + ".etcd"))
        try:
            return self.run_with(cell, etcd)
        finally:
            etcd.end()

    def run_with(self, cell, etcd):
        outcome = Outcome(cell)
        name = cell.name.replace("/", "-")
        plan = chaos_runs.write(self.folder, name + ".plan.toml", cell.plan(etcd))
        began = time.monotonic()
        try:
            code, result, said = chaos_runs.chaos(
                self.program, self.config(name, cell.delay), plan, self.peer, CELL_SECONDS_MAX,
                ["--name", name, "--patience", f"{PATIENCE + SECONDS[cell.kind]:.0f}", "--against",
                 self.references[cell.delay], *(etcd.settings() if etcd else ())])
        except subprocess.TimeoutExpired:
            outcome.why = f"not over after {CELL_SECONDS_MAX} s"
            return outcome
        outcome.seconds = time.monotonic() - began
        if result is None:
            outcome.why = said
            return outcome
        fault = next(fault for fault in result["faults"] if fault["name"] == "one")
        outcome.ok = code == 0
        outcome.noticed, outcome.commit = fault["noticed_seconds"], fault["commit_seconds"]
        if not outcome.ok:
            outcome.why = ("it never came to it; " if fault["at"] is None else f'{fault["what"]}: ') + (
                result["end"] if not result["finished"] else result["parameters"]["sentence"])
        return outcome


def run_cells(runner, cells, jobs):
    outcomes = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(runner.run, cells):
            outcomes[outcome.cell] = outcome
            print(f"{'ok' if outcome.ok else 'FAILED':6} {outcome.cell.name:32} {outcome.seconds:5.1f} s  "
                  f"noticed {seconds(outcome.noticed):>7}  next commit {seconds(outcome.commit):>7}  {outcome.why}",
                  flush=True)
    return outcomes


def seconds(number):
    return "-" if number is None else f"{number:.2f} s"


def shown(outcome):
    if not outcome.ok:
        return FAILS
    return "-" if outcome.commit is None else f"{outcome.commit:.1f} s"


def table(cells):
    """Markdown, of what is shown of each cell: a row for each kind and victim, a column for each phase."""
    lines = ["| fault | whom | " + " | ".join(PHASES) + " |", "|---" * (2 + len(PHASES)) + "|"]
    for kind in KINDS:
        for whom in WHOM:
            row = [cells.get(Cell(kind, phase, whom), "") for phase in PHASES]
            if any(row):
                lines.append(f"| {kind} | {whom} | " + " | ".join(row) + " |")
    passed = sum(text not in ("", FAILS) for text in cells.values())
    lines += ["", f"{passed} of {len(ALL)} cells pass; those left empty have nothing to hurt."]
    return "\n".join(lines) + "\n"


def cells_of(text):
    """What table() was made of."""
    cells = {}
    for line in text.splitlines():
        row = [part.strip() for part in line.strip("|").split("|")]
        if row[0] in KINDS and len(row) == 2 + len(PHASES):
            cells.update({Cell(row[0], phase, row[1]): part for phase, part in zip(PHASES, row[2:]) if part})
    return cells


def update(outcomes, path=README):
    """Cells that were not run stay as they were."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, rest = text.split(BEGIN, 1)
    old, tail = rest.split(END, 1)
    cells = cells_of(old) | {cell: shown(outcome) for cell, outcome in outcomes.items()}
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + table(cells) + END + tail)


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
