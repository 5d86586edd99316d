#!/usr/bin/env python3
"""Peers whose machines go at random: eight real peers, each told by a metadata server like its cloud's 30 seconds before. Measures
how many of them leave with nothing computed twice, and compares the parameters with the reference's. Second tries because somebody is
late (wiring.hedge_share) are left off, unless --hedges: they would hide what a drain costs.

usage: random_notices.py --program SWARMLINE [--drains 60] [--seed 1] [--least 0.95] [--hedges] [--keep]
Exit code 1 when fewer drains than --least are clean, or something was lost; 77 where no namespaces can be made.
"""

import argparse
import os
import random
import sys
import tempfile
import time

import rented_fleet
from rented_fleet import Failed, Fleet, log_lines

STAGES, PEERS, BATCH, EMULATE = 2, 8, 16, (60, 120)
NOTICE_SECONDS = 30
GAP_SECONDS = 6  # between notices, on average
LEAVING_MAX = 3  # at a time
CLOUDS = {"east": "aws", "west": "gcp", "north": "azure"}
PRICES = {"east": 0.91, "west": 0.74, "north": 1.20}


class RandomNotices:
    def __init__(self, flags, folder):
        self.flags = flags
        self.draw = random.Random(flags.seed)
        self.fleet = Fleet(flags.program, folder, CLOUDS, PRICES, NOTICE_SECONDS, EMULATE)
        self.rented, self.lasted, self.killed = 0, [], []

    def rent(self):
        zone = list(CLOUDS)[self.rented % len(CLOUDS)]
        self.rented += 1
        return self.fleet.rent(zone, f"m{self.rented}", self.join)

    def start(self):
        fleet = self.fleet
        self.config = fleet.write("run.toml", rented_fleet.CONFIG.format(
            folder=fleet.folder, batch=BATCH, stages=STAGES, peers=[PEERS // STAGES] * STAGES, checkpoint="", run="", net="",
            listen=fleet.places.address["control-a"],
            money="" if self.flags.hedges else "[wiring]\nhedge_share = 0"))
        self.coordinator = fleet.start_coordinator("control-a", self.config)
        self.join = fleet.write("join", self.coordinator.wait_for("--join '(swarm1[^']*)'").group(1) + "\n")
        self.run = os.path.join(fleet.folder, "runs/fleet")
        self.alive = [self.rent() for _ in range(PEERS)]
        fleet.wait_for_status(self.run, lambda status: status["step"] >= 3)

    def collect(self, leaving):
        """Those that still leave. Who has gone is measured, whose time is up is taken."""
        still = []
        for machine in leaving:
            lasted = time.time() - machine.noticed
            if machine.peer.running() and lasted < NOTICE_SECONDS:
                still.append(machine)
                continue
            if machine.peer.running() or machine.peer.child.returncode != 0:
                self.killed.append(machine.name)
            self.lasted.append(lasted)
            self.fleet.take(machine)
        return still

    def train(self):
        self.start()
        leaving, given, next_notice = [], 0, time.time()
        while given < self.flags.drains or leaving:
            leaving = self.collect(leaving)
            if given < self.flags.drains and len(leaving) < LEAVING_MAX and time.time() >= next_notice:
                machine = self.alive.pop(self.draw.randrange(len(self.alive)))
                machine.give_notice()
                leaving.append(machine)
                given += 1
                self.alive.append(self.rent())  # the provider grants another one
                next_notice = time.time() + self.draw.expovariate(1 / GAP_SECONDS)
            time.sleep(0.2)
        self.fleet.command("stop", self.run)
        if self.coordinator.wait() != 0:
            raise Failed("the coordinator ended with an error:\n" + self.coordinator.text()[-2000:])
        for machine in self.alive:
            if machine.peer.wait() != 0:
                raise Failed(f"{machine.name} ended with an error:\n" + machine.peer.text()[-2000:])

    def judge(self):
        """Sentences that say what does not hold."""
        wrong = []
        status = self.fleet.status(self.run)
        steps, drains = status["step"], self.flags.drains
        left = sum(line["detail"].endswith("drained") for line in log_lines(self.run, "peer_left"))
        lost = log_lines(self.run, "peer_lost")
        # A microbatch crosses the boundary once each way, unless somebody computes it once more.
        boundary = status["boundaries"][0]
        sent_again = max(boundary["microbatches"], boundary["gradients"]) - steps * BATCH
        passes = busy = 0
        for line in log_lines(self.run, "step"):
            passes += sum(peer["microbatches"] for peer in line["peers"])
            busy += sum(peer["busy_seconds"] for peer in line["peers"])
        # Each may have been another drain's.
        dirty = max(0, sent_again) + status["second_tries"] + drains - left
        lasted = sorted(self.lasted)
        print(f"{steps} steps, {drains} notices of {NOTICE_SECONDS} s: {left} left drained, {len(lost)} lost; from the notice to the "
              f"end of the process {lasted[len(lasted) // 2]:.1f} s (median), {lasted[-1]:.1f} s at most")
        print(f"of {steps * BATCH} microbatches {sent_again} were sent once more and {status['second_tries']} tried twice; the devices "
              f"were busy for {1000 * busy / passes:.1f} ms a pass of {sum(EMULATE) / STAGES * 2:.0f} ms")
        print(f"nothing was computed twice in {100 * (drains - dirty) / drains:.1f} % of the drains, at least")
        if self.killed:
            wrong.append(f"not gone in time: {', '.join(self.killed)}")
        if lost:
            wrong.append("lost: " + "; ".join(line["detail"] for line in lost))
        if status["era"] != 0:
            wrong.append(f"the run went back: {status['era_sentence']}")
        if drains - dirty < self.flags.least * drains:
            wrong.append(f"fewer than {100 * self.flags.least:.0f} % of the drains are clean")
        difference = self.fleet.difference_from_reference(self.config, self.run, steps)
        print(f"parameters: at most {difference:.2g} of a tensor's peak from the reference's")
        if not difference < rented_fleet.DIFFERENCE_MAX:
            wrong.append("the parameters are not the reference's")
        return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--drains", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--least", type=float, default=0.95, help="share of drains in which nothing is computed twice")
    parser.add_argument("--hedges", action="store_true", help="with second tries because somebody is late; they count as computed twice")
    parser.add_argument("--keep", action="store_true", help="keep the run, and say where it is")
    flags = parser.parse_args()
    flags.program = os.path.abspath(flags.program)
    rented_fleet.enter_own_system()
    folder = tempfile.mkdtemp(prefix="swarmline-fleet-")
    notices = RandomNotices(flags, folder)
    return rented_fleet.exit_code_of(notices, folder, end=notices.fleet.end, keep=flags.keep)


if __name__ == "__main__":
    sys.exit(main())
