#!/usr/bin/env python3
"""What crosses zones, as the machines' own counters say it: the same run with microbatches that stay inside a zone (bytes have a
price) and with wiring.stay_in_zone = false. Two stages of three peers, one of each in each zone; within a zone bytes pass the
loopback device alone.

usage: zone_traffic.py --program SWARMLINE [--steps 40] [--keep]
Exit code 1 when as much crosses zones as before, or parameters are not the reference's; 77 where no namespaces can be made.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import rented_fleet
from rented_fleet import Failed, Fleet

STAGES, PEERS, BATCH, EMULATE = 2, 6, 96, (5, 10)
CLOUDS = {"east": "aws", "west": "gcp", "north": "azure"}
PRICES = {"east": 0.91, "west": 0.74, "north": 1.20}
BEGIN_STEP = 5  # speeds are measured by then
# Most of what crosses are microbatches; averaging, heartbeats and status are left.
LESS_MIN = 0.5


class ZoneTraffic:
    def __init__(self, flags, folder, stays):
        self.flags, self.stays = flags, stays
        self.fleet = Fleet(flags.program, folder, CLOUDS, PRICES, 30, EMULATE)

    def crossed(self):
        """Bytes that left any zone, ever."""
        total = 0
        for zone in CLOUDS:
            said = subprocess.run(["ip", "-n", zone, "-s", "-j", "link", "show", "eth0"], capture_output=True, check=True)
            total += json.loads(said.stdout)[0]["stats64"]["tx"]["bytes"]
        return total

    def measure(self):
        fleet = self.fleet
        config = rented_fleet.CONFIG.format(
            folder=fleet.folder, batch=BATCH, stages=STAGES, peers=[PEERS // STAGES] * STAGES, checkpoint="", run="", net="",
            listen=fleet.places.address["control-a"],
            money="egress_price = 0.09\n[wiring]\nhedge_share = 0\nstay_in_zone = " + str(self.stays).lower())
        self.config = fleet.write("run.toml", config.replace("sequence = 16", "sequence = 128"))
        coordinator = fleet.start_coordinator("control-a", self.config)
        join = fleet.write("join", coordinator.wait_for("--join '(swarm1[^']*)'").group(1) + "\n")
        self.run = os.path.join(fleet.folder, "runs/fleet")
        peers = []
        for i in range(PEERS):  # one after the other, so that each stage gets one of each zone
            peers.append(fleet.rent(list(CLOUDS)[i % len(CLOUDS)], f"m{i}", join))
            peers[-1].peer.wait_for("seated at stage")
        status = fleet.wait_for_status(self.run, lambda status: status["step"] >= BEGIN_STEP)
        for stage in status["stages"]:
            if sorted(peer["zone"] for peer in stage["peers"]) != sorted(CLOUDS):
                raise Failed(f"stage {stage['stage']} is not in all zones")
        began, first, before = time.monotonic(), status["step"], self.crossed()
        status = fleet.wait_for_status(self.run, lambda status: status["step"] >= first + self.flags.steps, 300)
        steps = status["step"] - first
        self.step_bytes = (self.crossed() - before) / steps
        self.step_seconds = (time.monotonic() - began) / steps
        fleet.command("stop", self.run)
        if coordinator.wait() != 0 or any(machine.peer.wait() != 0 for machine in peers):
            raise Failed("somebody ended with an error")
        final = fleet.status(self.run)["step"]
        self.difference = fleet.difference_from_reference(self.config, self.run, final)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--steps", type=int, default=40, help="that are measured, each way")
    parser.add_argument("--stays", choices=("both", "true", "false"), default="both", help="used by the program itself")
    parser.add_argument("--keep", action="store_true", help="keep the runs, and say where they are")
    flags = parser.parse_args()
    flags.program = os.path.abspath(flags.program)
    if flags.stays == "both":
        return compare(flags)
    rented_fleet.enter_own_system()
    folder = tempfile.mkdtemp(prefix="swarmline-zones-")
    traffic = ZoneTraffic(flags, folder, flags.stays == "true")
    try:
        traffic.measure()
        print(json.dumps({"bytes": traffic.step_bytes, "seconds": traffic.step_seconds, "difference": traffic.difference}))
    except Failed as failure:
        print("FAILED:", failure)
        return 1
    finally:
        traffic.fleet.end()
        if flags.keep:
            print("the run is in", folder, file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def compare(flags):
    results = {}
    for stays in ("false", "true"):
        command = [sys.executable, sys.argv[0], "--program", flags.program, "--steps", str(flags.steps), "--stays", stays]
        ended = subprocess.run(command + (["--keep"] if flags.keep else []), stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode != 0:
            print(ended.stdout.strip())
            return ended.returncode
        results[stays] = json.loads(ended.stdout)
        print(f"stay_in_zone = {stays}: {results[stays]['bytes'] / 1e3:.0f} kB a step leave a zone, {results[stays]['seconds']:.2f} s a "
              f"step; parameters at most {results[stays]['difference']:.2g} of a tensor's peak from the reference's")
    wrong = []
    if results["true"]["bytes"] > (1 - LESS_MIN) * results["false"]["bytes"]:
        wrong.append("as much leaves a zone as before")
    if not all(result["difference"] < rented_fleet.DIFFERENCE_MAX for result in results.values()):
        wrong.append("the parameters are not the reference's")
    for sentence in wrong:
        print("FAILED:", sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
