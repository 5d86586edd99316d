#!/usr/bin/env python3
"""What `swarmline fleet init --target slurm` writes, on a Slurm cluster of this machine's: the coordinator's job and the array of
peers are submitted, one task is queued again by Slurm in the middle, and the run ends with the parameters of its reference.

usage: slurm_cluster.py --program SWARMLINE [--keep]
Exit code 1 when something of that does not hold; 77 where Slurm is not installed (Debian: slurmctld slurmd slurm-client munge) or
no namespaces can be made.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import rented_fleet
from rented_fleet import Failed

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scontrol", "squeue")
PEERS = 3
NODES = ("rack-a-1", "rack-b-1")  # each under a switch of its own

SLURM = """ClusterName=fleet
SlurmctldHost={host}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort=6817
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
ReturnToService=2
KillWait=30
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName={nodes[0]} NodeHostname={host} NodeAddr={address} Port=6818 CPUs=8 RealMemory=200000
NodeName={nodes[1]} NodeHostname={host} NodeAddr={address} Port=6819 CPUs=8 RealMemory=200000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
TOPOLOGY = """SwitchName=rack-a Nodes={nodes[0]}
SwitchName=rack-b Nodes={nodes[1]}
SwitchName=spine Switches=rack-a,rack-b
"""


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        host = os.uname().nodename.split(".")[0]
        os.makedirs(os.path.join(folder, "state"))
        self.write("slurm.conf", SLURM.format(folder=folder, host=host, nodes=NODES, address=rented_fleet.HUB))
        self.write("topology.conf", TOPOLOGY.format(nodes=NODES))
        self.environment = {**os.environ, "SLURM_CONF": os.path.join(folder, "slurm.conf")}
        rented_fleet.Places([])  # Slurm looks its own addresses up, and loopback does not count for it

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def daemon(self, name, *command):
        with open(os.path.join(self.folder, name + ".out"), "wb") as out:
            # pylint: disable=consider-using-with
            child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self.environment,
                                     cwd=self.folder)
        process = rented_fleet.Process(name, out.name, child)
        self.processes.append(process)
        return process

    def start(self):
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as file:
            file.write(os.urandom(128))
        os.chmod(key, 0o600)
        self.daemon("munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                    f"--log-file={self.folder}/munge.log", f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed")
        self.until(lambda: os.path.exists(self.folder + "/munge.socket"), "munged does not start")
        self.daemon("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.daemon("slurmd-" + node, "slurmd", "-D", "-N", node)
        self.until(lambda: self.said("sinfo", "--noheader", "--format=%T").split().count("idle") == 1, "no node is idle")

    def said(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False, cwd=self.folder).stdout

    @staticmethod
    def until(holds, otherwise, seconds=rented_fleet.PATIENCE_SECONDS):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise Failed(otherwise)
            time.sleep(0.5)

    def end(self):
        subprocess.run(["scancel", "--user=root"], env=self.environment, capture_output=True, check=False)
        for process in reversed(self.processes):
            process.kill()


class SlurmRun:
    def __init__(self, flags, folder):
        self.flags, self.folder = flags, folder
        self.cluster = Cluster(folder)

    def command(self, *arguments):
        ended = subprocess.run([self.flags.program, *arguments], capture_output=True, text=True, check=False, cwd=self.jobs)
        if ended.returncode != 0:
            raise Failed(f"swarmline {arguments[0]}: {(ended.stderr or ended.stdout).strip()[-1000:]}")
        return ended.stdout

    def write_files(self):
        self.jobs = os.path.join(self.folder, "jobs")
        words = (f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(4000))
        self.cluster.write("text.txt", "".join(words))
        config = self.cluster.write("run.toml", rented_fleet.CONFIG.format(
            folder=self.folder, run="", batch=64, stages=2, peers="[2, 1]", checkpoint="", listen="127.0.0.1", net="", money="")
            .replace(f'dir = "{self.folder}/runs"\n', ""))
        prices = self.cluster.write("prices.toml", f"fleet_format = 1\n[devices.node]\ncount = {PEERS}\ntflops = 1\nprice = 0.5\n"
                                                   "bandwidth = 1e9\nlatency_ms = 1\n")
        subprocess.run([self.flags.program, "fleet", "init", config, "--target", "slurm", "--prices", prices, "--out", self.jobs,
                        "--device", "cpu"], check=True, capture_output=True)
        # The jobs find the program as users' jobs do.
        os.makedirs(self.folder + "/bin")
        os.symlink(self.flags.program, self.folder + "/bin/swarmline")
        self.cluster.environment["PATH"] = f"{self.folder}/bin:{os.environ['PATH']}"
        self.run = os.path.join(self.jobs, "runs/fleet")

    def submit(self, name):
        ended = subprocess.run(["sbatch", name], capture_output=True, text=True, env=self.cluster.environment, check=False, cwd=self.jobs)
        found = re.search(r"Submitted batch job (\d+)", ended.stdout)
        if not found:
            raise Failed(f"sbatch {name}: {ended.stderr}")
        return found.group(1)

    def status(self):
        ended = subprocess.run([self.flags.program, "status", self.run, "--json"], capture_output=True, text=True, check=False)
        return rented_fleet.json.loads(ended.stdout) if ended.returncode == 0 and ended.stdout else None

    def step(self):
        status = self.status()
        return status["step"] if status else 0

    def kinds(self, kind):
        return rented_fleet.log_lines(self.run, kind)

    def train(self):
        self.write_files()
        self.cluster.start()
        coordinator = self.submit("coordinator.sbatch")
        array = self.submit("peers-node.sbatch")
        self.cluster.until(lambda: self.step() >= 3, "the run does not train: " + self.cluster.said("squeue"), 120)
        self.zones = sorted(peer["zone"] for stage in self.status()["stages"] for peer in stage["peers"])
        before = len(self.kinds("peer_joined"))
        subprocess.run(["scontrol", "requeue", f"{array}_1"], env=self.cluster.environment, check=True)
        self.cluster.until(lambda: self.kinds("peer_left") or self.kinds("peer_lost"), "the task that is queued again does not leave")
        # Slurm lets a job that is queued again wait for two minutes.
        self.cluster.until(lambda: len(self.kinds("peer_joined")) > before, "the task that was queued again does not join", 240)
        step = self.step()
        self.cluster.until(lambda: self.step() >= step + 3, "the run does not go on")
        self.command("stop", self.run)
        self.cluster.until(lambda: not self.cluster.said("squeue", "--noheader", f"--jobs={coordinator}").strip(), "its job does not end")

    def judge(self):
        wrong = []
        status = self.status()
        print(f"{status['step']} steps; zones {self.zones}; the task that was queued again: "
              f"{[line['detail'] for line in self.kinds('peer_left') + self.kinds('peer_lost')][:1]}")
        if self.kinds("peer_lost"):
            wrong.append("the task that was queued again was lost, it did not leave")
        if not set(self.zones) <= {"spine.rack-a", "spine.rack-b"}:
            wrong.append(f"the zones are not the racks: {self.zones}")
        self.command("launch", self.folder + "/run.toml", "--reference", "--set", f"run.steps={status['step']}")
        diff = rented_fleet.json.loads(self.command("checkpoint", "diff", self.run, self.run + "-reference", "--json"))
        difference = max(tensor["max_rel_to_peak"] for tensor in diff["tensors"])
        print(f"parameters: at most {difference:.2g} of a tensor's peak from the reference's")
        if not difference < rented_fleet.DIFFERENCE_MAX:
            wrong.append("the parameters are not the reference's")
        return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--keep", action="store_true", help="keep the run, and say where it is")
    flags = parser.parse_args()
    flags.program = os.path.abspath(flags.program)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [program for program in PROGRAMS if not shutil.which(program)]
    if missing:
        rented_fleet.skip(f"Slurm is not installed: no {', '.join(missing)}")
    rented_fleet.enter_own_system()
    folder = tempfile.mkdtemp(prefix="swarmline-slurm-")
    os.chmod(folder, 0o755)  # of munge's socket
    slurm = SlurmRun(flags, folder)
    return rented_fleet.exit_code_of(slurm, folder, end=slurm.cluster.end, keep=flags.keep)


if __name__ == "__main__":
    sys.exit(main())
