#!/usr/bin/env python3
"""What a run that lives loses to those who attack it: real processes with keys and TLS, one attacker on one core, each
attempt of attack_kinds.py in turn. None may get in, each must be counted in the log (but those that are answered
with a sentence, or not heard), and the run must go on with the same peers and end well. Prints a table of what the run lost meanwhile.

usage: attack_cost.py --program SWARMLINE [--attacks PATTERN ...] [--seconds 5] [--json FILE] [--update] [--keep]
Exit code 1 when an attempt got in, was not counted, or the run was hurt; 77 where something is missing.
"""

import argparse
import fnmatch
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

import attacked_run
from attack_kinds import ALL

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, "docs", "attacks.md")
BEGIN, END = "<!-- attack cost: begin -->", "<!-- attack cost: end -->"
THREADS = 8  # of an attacker, which waits for answers; all on one core
LINE_CONNECTIONS = 64
LINE_SECONDS = 1.2  # a log line says what happened since the one before it, at most once a second
SAMPLE_SECONDS = 0.2
ATTACKS_BETWEEN_QUIET = 3
QUIET_AT_FIRST = 3


class Attacker:
    """A process of its own: what it computes is not taken from who measures."""

    def __init__(self, attack, scene):
        self.attack, self.scene = attack, scene
        self.made = self.unmade = self.got_in = 0
        self.why = ""
        self.lock = threading.Lock()

    def run(self, seconds, say):
        self.until = time.monotonic() + seconds
        if self.attack.holds:
            self.hold()
        else:
            threads = [threading.Thread(target=self.repeat) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        say.send((self.made, self.unmade, self.got_in, self.why))
        if self.attack.control:
            return
        time.sleep(LINE_SECONDS)
        self.until = time.monotonic()
        self.hold(min(self.attack.holds, LINE_CONNECTIONS)) if self.attack.holds else self.once()
        say.send((self.made, self.unmade, self.got_in, self.why))

    def repeat(self):
        while time.monotonic() < self.until:
            self.once()

    def once(self):
        try:
            got_in = self.attack.attempt(self.scene)
            with self.lock:
                self.made += 1
                self.got_in += bool(got_in)
        except OSError as error:
            with self.lock:
                self.unmade += 1
                self.why = repr(error)

    def hold(self, count=None):
        held = []
        for number in range(count or self.attack.holds):
            if count is None and time.monotonic() > self.until:
                break
            try:
                held.append(self.attack.attempt(self.scene, number))
                self.made += 1
            except OSError as error:
                self.unmade += 1
                self.why = repr(error)
        at = 0
        while time.monotonic() < self.until:
            for link in held if at < len(self.attack.drip) else ():
                try:
                    link.send(self.attack.drip[at:at + 1])
                except OSError:
                    pass  # it was closed: as it should be
            at += 1
            time.sleep(max(0, min(1, self.until - time.monotonic())))
        for link in held:
            link.close()


class Watch:
    """Steps of the run, and CPU and memory of one of its processes, from its making to stop()."""

    def __init__(self, run, program):
        self.run, self.program = run, program
        self.began, self.cpu = time.time(), program.cpu_seconds()
        self.memory = self.most = program.memory_bytes()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.sample)
        self.thread.start()

    def sample(self):
        while not self.over.wait(SAMPLE_SECONDS):
            self.most = max(self.most, self.program.memory_bytes())

    def stop(self):
        seconds = time.time() - self.began
        cpu = self.program.cpu_seconds() - self.cpu
        self.over.set()
        self.thread.join()
        steps = self.run.steps_between(self.began, self.began + seconds)
        return {"steps_per_second": steps / seconds, "cpu_share": cpu / seconds,
                "memory_growth_bytes": self.most - self.memory}


def undisturbed(run, seconds):
    watch, peer = Watch(run, run.coordinator), Watch(run, run.target_peer)
    time.sleep(seconds)
    return {"coordinator": watch.stop(), "peer": peer.stop()}


def attacked(run, attack, seconds):
    program = run.target(attack)
    program.said_since_last()
    fork = multiprocessing.get_context("fork")
    hears, says = fork.Pipe(False)
    child = fork.Process(target=Attacker(attack, run.scene(attack)).run, args=(seconds, says))
    watch = Watch(run, program)
    child.start()
    hears.poll(seconds + 60)
    made = hears.recv()
    result = watch.stop()
    if not attack.control:
        hears.poll(60)
        made = hears.recv()
        time.sleep(0.3)
    child.join(60)
    counted, said = program.counted_since_last()
    return result | dict(zip(("attempts", "unmade", "got_in", "why_unmade"), made)) | {
        "name": attack.name, "row": attack.row, "at": attack.at, "control": attack.control, "counted": counted,
        "said": said, "problems": run.problems()}


def judge(result, attack):
    problems = list(result["problems"])
    if attack.control:
        return problems
    if result["got_in"]:
        problems.append(f'{result["got_in"]} got in')
    if not result["attempts"]:
        problems.append(f'no attempt could be made: {result["why_unmade"]}')
    elif not result["counted"] and not attack.quiet:
        problems.append("nothing of it was counted or told to the log")
    return problems


def run_attacks(run, attacks, seconds):
    quiet = [undisturbed(run, seconds) for _ in range(QUIET_AT_FIRST)]
    results = []
    for number, attack in enumerate(attacks):
        result = attacked(run, attack, seconds)
        result["problems"] = judge(result, attack)
        result["quiet"] = len(quiet)  # the first one after it
        results.append(result)
        print(f'{"FAILED" if result["problems"] else "ok":6} {attack.at:11} {attack.name:60} {result["attempts"]:7} made '
              f'{result["counted"]:7} counted {result["steps_per_second"]:5.1f} steps/s '
              f'{100 * result["cpu_share"]:4.0f} % CPU  {result["said"]} {"; ".join(result["problems"])} '
              f'{result["why_unmade"]}', flush=True)
        if number % ATTACKS_BETWEEN_QUIET == ATTACKS_BETWEEN_QUIET - 1 or number == len(attacks) - 1:
            quiet.append(undisturbed(run, seconds))
            print(f'       undisturbed {quiet[-1]["coordinator"]["steps_per_second"]:5.1f} steps/s', flush=True)
    for result in results:  # the machine has other work, too: compared is with what was near
        near = quiet[max(0, result["quiet"] - 1):result["quiet"] + 1]
        steps = statistics.mean(one["coordinator"]["steps_per_second"] for one in near)
        result["share_of_steps"] = result["steps_per_second"] / steps if steps else None
        result["cpu_share_undisturbed"] = statistics.mean(one["peer" if result["at"] == "peer" else "coordinator"]["cpu_share"] for one in near)
    return quiet, results


# ---- What is shown --------------------------------------------------------------------------------


def spread(numbers, form):
    return f"{form.format(statistics.mean(numbers))} ({form.format(min(numbers))} to {form.format(max(numbers))})"


def table(quiet, results, seconds):
    """Markdown."""
    steps = [one["coordinator"]["steps_per_second"] for one in quiet]
    cpu = [100 * one["coordinator"]["cpu_share"] for one in quiet]
    attempts = sum(result["attempts"] for result in results if not result["control"])
    lines = [
        f"Undisturbed, in {len(quiet)} windows of {seconds:g} s between the attacks: {spread(steps, '{:.1f}')} steps a second, "
        f"the coordinator at {spread(cpu, '{:.0f}')} % of a core. In all {attempts} attempts were made, of "
        f"{sum(not result['control'] for result in results)} kinds; {sum(result['got_in'] for result in results)} got in.", "",
        "| at | attempt | row above | made | got in | counted | the log's words | steps | CPU | memory |",
        "|---|---|---|--:|--:|--:|---|--:|--:|--:|"]
    for result in results:
        lines.append("| " + " | ".join((
            result["at"], result["name"], result["row"], str(result["attempts"]), "-" if result["control"] else str(result["got_in"]),
            str(result["counted"]) if result["counted"] else "-", result["said"].replace("|", "/"),
            f'{100 * result["share_of_steps"]:.0f} %',
            f'{100 * result["cpu_share_undisturbed"]:.0f} to {100 * result["cpu_share"]:.0f} %',
            f'{result["memory_growth_bytes"] / 2**20:.1f} MiB')) + " |")
    return "\n".join(lines) + "\n"


def update(text, path=PAGE):
    with open(path, encoding="utf-8") as file:
        head, rest = file.read().split(BEGIN, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + text + END + rest.split(END, 1)[1])


def check_rows(attacks, path=PAGE):
    """Each attack is of a row of the page."""
    with open(path, encoding="utf-8") as file:
        rows = [line[2:] for line in file if line.startswith("| ")]
    for attack in attacks:
        if not attack.control and not any(row.startswith(attack.row) for row in rows):
            sys.exit(f'no row of {path} begins with "{attack.row}", which "{attack.name}" is of')


def chosen(patterns):
    attacks = [attack for attack in ALL
               if any(fnmatch.fnmatch(f"{attack.at}/{attack.name}", pattern) for pattern in patterns)]
    if not attacks:
        sys.exit(f"no attack is called {' or '.join(patterns)}; expected coordinator/NAME or peer/NAME, with * for any")
    return attacks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--attacks", nargs="+", default=["*"], help="coordinator/NAME, peer/NAME; * for any")
    parser.add_argument("--seconds", type=float, default=5, help="for each")
    parser.add_argument("--json", help="the figures, for programs")
    parser.add_argument("--update", action="store_true", help="write the table into docs/attacks.md")
    parser.add_argument("--keep", action="store_true", help="keep the run, and say where it is")
    flags = parser.parse_args()
    attacks = chosen(flags.attacks)
    if flags.update and len(attacks) < len(ALL):
        parser.error("--update writes the whole table: leave --attacks away")
    check_rows(attacks)
    missing = attacked_run.missing()
    if missing:
        print("skipped:", missing)
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # whoever ends this leaves no processes behind
    folder = tempfile.mkdtemp(prefix="swarmline-attacks-")
    try:
        with attacked_run.AttackedRun(flags.program, folder) as run:
            quiet, results = run_attacks(run, attacks, flags.seconds)
            problems = run.end()
    finally:
        if flags.keep:
            print("the run is in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    text = table(quiet, results, flags.seconds)
    print(text)
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump({"format": 1, "seconds": flags.seconds, "undisturbed": quiet, "attacks": results,
                       "end": problems}, file, indent=1)
    if flags.update:
        update(text)
    for problem in problems:
        print("the run:", problem)
    return 1 if problems or any(result["problems"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
