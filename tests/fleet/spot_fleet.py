#!/usr/bin/env python3
"""A spot fleet on this machine: peers in network namespaces as zones, rented and taken as a trace of real machines says, in
less time. Each machine is told by a metadata server like its cloud's that it goes; in the middle the coordinator's machine is lost
and its standby takes the run over from etcd; later a whole zone is cut off and killed at once. The run must end with the
parameters of its reference, without going back, and its cost must be the trace's.

usage: spot_fleet.py --program SWARMLINE [--minutes 15] [--notice 30] [--keep]
Exit code 1 when something of that does not hold; 77 where no namespaces can be made, or there is no etcd.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time

import rented_fleet
from rented_fleet import Failed, Fleet, log_lines

TRACE = os.path.join(rented_fleet.SOURCES, "configs/fleets/aws-p3.fleet")
EVERY, PEERS = 4, 8  # of the trace's 32 machines
STAGES, BATCH, EMULATE = 2, 16, (60, 120)
CLOUDS = {"east": "aws", "west": "gcp", "north": "azure"}
PRICES = {"east": 0.91, "west": 0.74, "north": 1.20}  # an hour of the trace
COORDINATOR_PRICE = 0.10
AGAIN = "-again"  # in the name of a machine that is granted anew after its zone was lost
COORDINATOR_LOST, ZONE_LOST, ZONE_LOST_FOR = 0.4, 0.62, 0.06  # shares of the run's length
# What may lie between the trace's moment and the seat's: a process that starts and is seated; the cloud's answer (EC2 is asked every
# five seconds) and the end of an open step; a silence until a peer counts as lost.
SEATED_SECONDS, LEFT_SECONDS = 5.0, 8.0
LOGS_MAX = 0.05  # share; a process ends a little after its seat


class SpotFleet:
    def __init__(self, flags, folder):
        self.flags = flags
        self.lives, trace_seconds = rented_fleet.machines_of_trace(TRACE, EVERY, PEERS, list(CLOUDS))
        self.seconds = 60 * flags.minutes
        self.speed = trace_seconds / self.seconds
        # An hour of the trace costs what it says.
        prices = {zone: price * self.speed for zone, price in PRICES.items()}
        self.fleet = Fleet(flags.program, folder, CLOUDS, prices, flags.notice, EMULATE)
        self.late, self.unfinished = [], []  # machines that did not leave in time; that could not hand in all they held
        self.rented = []  # (zone, from, to)
        self.began = 0.0

    def address(self, place):
        return self.fleet.places.address[place] + ":7400"

    def config(self):
        at_first = sum(at == 0 for _, _, at, _ in self.lives)
        first = [(at_first + STAGES - 1 - stage) // STAGES for stage in range(STAGES)]
        return self.fleet.write("run.toml", rented_fleet.CONFIG.format(
            folder=self.fleet.folder, batch=BATCH, stages=STAGES, peers=first, checkpoint="",
            listen=self.fleet.places.address["control-a"],
            run=f'etcd = ["{rented_fleet.HUB}:2379"]\netcd_lease_seconds = 3',
            net=f'standby = ["{self.address("control-b")}"]',
            money=f"coordinator_price = {COORDINATOR_PRICE * self.speed}"))

    def start_control(self):
        fleet = self.fleet
        fleet.start_etcd()
        self.config_file = self.config()
        self.coordinator = fleet.start_coordinator("control-a", self.config_file)
        self.join = fleet.write("join", self.coordinator.wait_for("--join '(swarm1[^']*)'").group(1) + "\n")
        os.chmod(self.join, 0o600)
        self.run = os.path.join(fleet.folder, "runs/fleet")
        self.run_elsewhere = os.path.join(fleet.folder, "elsewhere/fleet")
        os.makedirs(self.run_elsewhere)
        shutil.copytree(os.path.join(self.run, "keys"), os.path.join(self.run_elsewhere, "keys"))
        self.standby = fleet.start_coordinator(
            "control-b", self.config_file, "--standby", "--set", f'net.listen="{self.address("control-b")}"',
            "--set", f'run.dir="{fleet.folder}/elsewhere"')

    def timeline(self):
        """(second, what) in order."""
        events = []
        for name, zone, at, to in self.lives:
            at, to = at / self.speed, to / self.speed
            events.append((at, lambda name=name, zone=zone, to=to: self.grant(name, zone, to)))
            if to < self.seconds:
                events.append((to, lambda name=name: self.notify(name)))
                events.append((to + self.flags.notice, lambda name=name: self.take(name)))
        events.append((COORDINATOR_LOST * self.seconds, self.lose_coordinator))
        events.append((ZONE_LOST * self.seconds, self.lose_zone))
        events.append(((ZONE_LOST + ZONE_LOST_FOR) * self.seconds, self.zone_is_back))
        return sorted((event for event in events if event[0] < self.seconds), key=lambda event: event[0])

    def now(self):
        return time.monotonic() - self.began

    def say(self, text):
        print(f"{self.now():7.1f} s  {text}", flush=True)

    # ---- Events ----

    def grant(self, name, zone, to):
        if zone == self.dark:
            self.waiting.append((name, zone, to))
            return
        self.alive[name] = self.fleet.rent(zone, name, self.join)
        self.granted[name] = (zone, self.now(), to)

    def close(self, name, at):
        zone, since, _ = self.granted.pop(name)
        self.rented.append((zone, since, at))

    def notify(self, name):
        self.waiting = [life for life in self.waiting if life[0] != name]
        if name in self.alive:
            self.alive[name].give_notice()
            self.close(name, self.now())

    def take(self, name):
        machine = self.alive.pop(name, None)
        if machine is None:
            return
        if machine.peer.running():
            self.late.append(name)
        elif machine.peer.child.returncode != 0:
            self.unfinished.append(name)
        self.fleet.take(machine)

    def lose_coordinator(self):
        self.say(f"the coordinator's machine is lost ({len(self.alive)} peers live)")
        self.fleet.places.plug("control-a", False)
        self.coordinator.kill()
        self.lost_at, self.lost_with = time.time(), {name: self.granted[name][0] for name in self.granted}

    def lose_zone(self):
        zones = [machine.zone for machine in self.alive.values() if not machine.noticed]
        self.dark = max(CLOUDS, key=zones.count)
        self.say(f"zone {self.dark} is lost with {zones.count(self.dark)} of {len(zones)} peers")
        self.zone_lost = (self.dark, zones.count(self.dark))
        self.fleet.places.plug(self.dark, False)
        for name, machine in list(self.alive.items()):
            if machine.zone != self.dark:
                continue
            del self.alive[name]
            self.fleet.take(machine)
            if name in self.granted:
                self.waiting.append((name + AGAIN, self.dark, self.granted[name][2]))
                self.close(name, self.now())

    def zone_is_back(self):
        self.fleet.places.plug(self.dark, True)
        self.dark = None
        again, self.waiting = self.waiting, []
        self.say(f"the zone is back, and {len(again)} machines with it")
        for name, zone, to in again:
            if to > self.now() + 1:
                self.grant(name, zone, to)
                if name.endswith(AGAIN) and to < self.seconds:
                    self.more += [(to, lambda name=name: self.notify(name)),
                                  (to + self.flags.notice, lambda name=name: self.take(name))]

    # ---- The whole ----

    def train(self):
        self.start_control()
        self.alive, self.granted, self.waiting, self.dark, self.more = {}, {}, [], None, []
        events = self.timeline()
        self.began = time.monotonic()
        self.began_wall = time.time()
        next_look = 60.0
        while events:
            events = sorted(events + self.more, key=lambda event: event[0])
            self.more = []
            at, what = events.pop(0)
            while self.now() < at:
                time.sleep(min(0.5, max(0.0, at - self.now())))
                for machine in self.alive.values():
                    machine.look()
                if self.now() > next_look:
                    next_look += 60
                    self.look()
            what()
        time.sleep(max(0.0, self.seconds - self.now()))
        self.fleet.command("stop", self.run_elsewhere)
        for name in list(self.granted):
            self.close(name, self.now())
        self.ended_wall = time.time()
        if self.standby.wait() != 0:
            raise Failed("the standby ended with an error:\n" + self.standby.text()[-2000:])
        for machine in self.alive.values():
            if machine.peer.wait() != 0:
                self.late.append(machine.name)
            self.fleet.take(machine)

    def look(self):
        run = self.run_elsewhere if self.now() > COORDINATOR_LOST * self.seconds + 20 else self.run
        status = self.fleet.status(run)
        if status:
            stages = " + ".join(str(sum(peer["state"] == "ready" for peer in stage["peers"])) for stage in status["stages"])
            self.say(f"step {status['step']}, peers {stages}, {status['cost']['total']:.2f} {status['cost']['currency']}")

    def hours(self, seconds):
        return seconds * self.speed / 3600

    def trace_cost(self, away):
        """By the trace and the prices alone: machines, coordinator. While no coordinator is there nobody counts."""
        machines = sum(PRICES[zone] * self.hours(to - since) for zone, since, to in self.rented)
        machines -= sum(PRICES[zone] * self.hours(away) for zone in self.lost_with.values())
        return machines, COORDINATOR_PRICE * self.hours(self.ended_wall - self.began_wall - away)

    def cost_by_logs(self, away):
        """From each peer's first seat, as its own log has it, to the end of its process."""
        cost = 0.0
        for machine in self.fleet.machines:
            seated = machine.seated()
            if seated is not None:
                cost += PRICES[machine.zone] * self.hours(max(0.0, machine.ended - seated))
        return cost - sum(PRICES[zone] * self.hours(away) for zone in self.lost_with.values())

    def judge(self):
        """Sentences that say what does not hold."""
        wrong = []
        status = self.fleet.status(self.run_elsewhere)
        begun = log_lines(self.run_elsewhere, "begun_again")
        steps = [line["step"] for line in log_lines(self.run, "step") + log_lines(self.run_elsewhere, "step")]
        if not begun:
            raise Failed("the standby did not take over")
        away = begun[0]["wall_seconds"] - self.lost_at
        machines, coordinator = self.trace_cost(away)
        by_logs = self.cost_by_logs(away)
        cost = status["cost"]
        # A machine is paid from its seat to its seat's end.
        price = max(PRICES.values())
        slack = price * self.hours(SEATED_SECONDS + LEFT_SECONDS) * len(self.rented)
        print(f"{status['step']} steps in {self.seconds:.0f} s, {len(self.rented)} machines, {self.speed:.1f} times the trace's pace; "
              f"{status['second_tries']} microbatches tried twice")
        print(f"the coordinator was away for {away:.1f} s; zone {self.zone_lost[0]} was lost with {self.zone_lost[1]} peers")
        print(f"cost by the status {cost['machines']:.2f} (peers) + {cost['coordinator']:.2f} (coordinator), by the trace "
              f"{machines:.2f} + {coordinator:.2f}: {100 * (cost['machines'] / machines - 1):+.1f} %, at most {slack:.2f} apart")
        print(f"by the peers' own logs, from seat to end, {by_logs:.2f}: {100 * (cost['machines'] / by_logs - 1):+.2f} %")
        print(f"{len(self.unfinished)} peers left before all they held was handed in {self.unfinished}")
        print("of it: " + ", ".join(f"{name} {cost[name]:.2f}" for name in ("idle", "waiting", "joining", "again")))
        if abs(cost["machines"] - machines) > slack:
            wrong.append("the peers' cost is not the trace's")
        if abs(cost["machines"] / by_logs - 1) > LOGS_MAX:
            wrong.append("the peers' cost is not that of their seats")
        if abs(cost["coordinator"] - coordinator) > COORDINATOR_PRICE * self.hours(LEFT_SECONDS):
            wrong.append("the coordinator's cost is not the trace's")
        if status["era"] != 0:
            wrong.append(f"the run went back: {status['era_sentence']}")
        if len(steps) != len(set(steps)):
            wrong.append("a step was committed twice")
        if status["step"] - len(steps) > 1:  # the one whose line the coordinator had no time to write
            wrong.append(f"{status['step'] - len(steps)} steps are in no log")
        if self.late:
            wrong.append(f"not gone in time: {', '.join(self.late)}")
        difference = self.fleet.difference_from_reference(self.config_file, self.run_elsewhere, status["step"])
        print(f"parameters: at most {difference:.2g} of a tensor's peak from the reference's")
        if not difference < rented_fleet.DIFFERENCE_MAX:
            wrong.append("the parameters are not the reference's")
        print(f"{self.fleet.cpu_seconds():.0f} s of processor time")
        return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--minutes", type=float, default=15, help="that the trace's 11.4 hours are to take")
    parser.add_argument("--notice", type=float, default=30, help="seconds from a machine's notice to its end")
    parser.add_argument("--keep", action="store_true", help="keep the run, and say where it is")
    flags = parser.parse_args()
    flags.program = os.path.abspath(flags.program)
    if not rented_fleet.etcd_program():
        rented_fleet.skip("no etcd is installed: scripts/bootstrap --tests fetches one")
    rented_fleet.enter_own_system()
    folder = tempfile.mkdtemp(prefix="swarmline-fleet-")
    spot = SpotFleet(flags, folder)
    return rented_fleet.exit_code_of(spot, folder, end=spot.fleet.end, keep=flags.keep)


if __name__ == "__main__":
    sys.exit(main())
