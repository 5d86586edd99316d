#!/usr/bin/env python3
"""What `swarmline fleet init --target systemd` writes, by a systemd of this test's own, in a root of its own: the coordinator's
unit and instances of the peers' are installed as their README says, one peer is stopped and started again, one is killed and started
again by systemd, and the run ends with the parameters of its reference.

usage: systemd_units.py --program SWARMLINE
Exit code 1 when something of that does not hold; 77 where systemd is not installed, or does not start in namespaces.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

import rented_fleet
from rented_fleet import Failed

SYSTEMD = "/lib/systemd/systemd"
UNITS = "/etc/systemd/system"
RUN = "/var/lib/swarmline/runs/fleet"
OUTPUT = "/run/units.out"
READY_SECONDS = 30
# Beside ours nothing is started.
TARGET = """[Unit]
Description=The units of the test
DefaultDependencies=no
"""


def enter_own_root(program):
    """A root of this test's own: an overlay over the machine's, so that whatever systemd does at a start (it empties /tmp, for one) is
    done to nothing that is there. The checkout is read-only, devices are a few harmless ones, and kernel settings can't be changed."""
    base = "/mnt"
    mount("-t", "tmpfs", "tmpfs", base)
    root = base + "/root"
    for name in ("upper", "work", "root"):
        os.makedirs(f"{base}/{name}")
    mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={base}/upper,workdir={base}/work", root)
    for place in ("/run", "/tmp", "/var/tmp", "/var/lib", "/dev", UNITS):
        mount("-t", "tmpfs", "tmpfs", root + place)
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        with open(f"{root}/dev/{device}", "w", encoding="utf-8"):
            pass
        mount("--bind", "/dev/" + device, f"{root}/dev/{device}")
    mount("-t", "proc", "proc", root + "/proc")
    mount("--bind", root + "/proc/sys", root + "/proc/sys")
    mount("-o", "remount,bind,ro", root + "/proc/sys")
    mount("-t", "sysfs", "-o", "ro", "sysfs", root + "/sys")
    mount("-t", "cgroup2", "cgroup2", root + "/sys/fs/cgroup")
    mount("--bind", rented_fleet.SOURCES, root + rented_fleet.SOURCES)
    mount("-o", "remount,bind,ro", root + rented_fleet.SOURCES)
    shutil.copy(program, root + "/usr/local/bin/swarmline")
    os.chdir(root)
    run("pivot_root", ".", "mnt")
    os.chdir("/")
    run("umount", "--lazy", "/mnt")
    mount("--make-rshared", "/")  # units' own mounts, as of their credentials, come from namespaces below this one
    os.makedirs("/run/lock")
    with open(UNITS + "/fleet.target", "w", encoding="utf-8") as file:
        file.write(TARGET)


def run(*command):
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        rented_fleet.skip(f"{' '.join(command)}: {ended.stderr.strip()}")


def mount(*arguments):
    run("mount", *arguments)


class Units:
    def __init__(self, flags, folder):
        self.flags, self.folder = flags, folder
        self.files = os.path.join(folder, "files")

    def command(self, *arguments):
        ended = subprocess.run([self.flags.program, *arguments], capture_output=True, text=True, check=False, cwd=self.folder)
        if ended.returncode != 0:
            raise Failed(f"swarmline {arguments[0]}: {(ended.stderr or ended.stdout).strip()[-1000:]}")
        return ended.stdout

    @staticmethod
    def systemctl(*arguments, check=True):
        ended = subprocess.run(["systemctl", "--no-pager", *arguments], capture_output=True, text=True, check=False)
        if check and ended.returncode != 0:
            raise Failed(f"systemctl {' '.join(arguments)}: {ended.stderr.strip()}")
        return ended.stdout.strip()

    @staticmethod
    def until(holds, otherwise, seconds=rented_fleet.PATIENCE_SECONDS):
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise Failed(otherwise() if callable(otherwise) else otherwise)
            time.sleep(0.5)

    def write_files(self):
        words = (f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(4000))
        with open(os.path.join(self.folder, "text.txt"), "w", encoding="utf-8") as file:
            file.write("".join(words))
        config = os.path.join(self.folder, "run.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(rented_fleet.CONFIG.format(folder=self.folder, run="", batch=64, stages=2, peers="[2, 1]", checkpoint="",
                                                  listen="127.0.0.1", net="", money=""))
        self.command("fleet", "init", config, "--target", "systemd", "--out", self.files, "--device", "cpu")

    def install(self, name, to, mode=0o644):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy(os.path.join(self.files, name), to)
        os.chmod(to, mode)

    def as_coordinator(self, *arguments):
        """As the units' README says: the run is its user's alone."""
        pid = self.systemctl("show", "--property=MainPID", "--value", "swarmline-coordinator")
        owner = os.stat("/proc/" + pid)
        ended = subprocess.run(["nsenter", "--target", pid, "--mount", "--setuid", str(owner.st_uid), "--setgid", str(owner.st_gid),
                                "/usr/local/bin/swarmline", *arguments], capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise Failed(f"swarmline {arguments[0]} in the coordinator's place: {ended.stderr.strip()}")
        return ended.stdout

    def step(self):
        return max((line["step"] for line in self.kinds("step")), default=0)

    def kinds(self, kind):
        return rented_fleet.log_lines(RUN, kind) if os.path.exists(RUN + "/log.jsonl") else []

    def trouble(self):
        with open(OUTPUT, encoding="utf-8", errors="replace") as file:
            return "the units wrote:\n" + file.read()[-2000:]

    def train(self):
        self.write_files()
        self.until(lambda: os.path.exists("/run/systemd/private"), "systemd does not start", READY_SECONDS)
        self.install("run.toml", "/etc/swarmline/run.toml")
        self.install("swarmline-coordinator.service", UNITS + "/swarmline-coordinator.service")
        self.install("swarmline-peer@.service", UNITS + "/swarmline-peer@.service")
        for name in ("swarmline-coordinator", "swarmline-peer@"):  # of a machine's own start there is nothing here
            os.makedirs(f"{UNITS}/{name}.service.d")
            with open(f"{UNITS}/{name}.service.d/alone.conf", "w", encoding="utf-8") as file:
                file.write(f"[Unit]\nDefaultDependencies=no\n[Service]\nStandardOutput=append:{OUTPUT}\nStandardError=append:{OUTPUT}\n")
        self.systemctl("daemon-reload")
        self.systemctl("start", "swarmline-coordinator")
        self.until(lambda: os.path.exists(RUN + "/keys/join"), self.trouble)
        shutil.copy(RUN + "/keys/join", "/etc/swarmline/join")
        os.chmod("/etc/swarmline/join", 0o600)
        for instance in range(3):
            self.systemctl("start", f"swarmline-peer@{instance}")
        self.until(lambda: self.step() >= 3, self.trouble)
        self.peers = [len(stage["peers"]) for stage in rented_fleet.json.loads(self.as_coordinator("status", RUN, "--json"))["stages"]]

        self.systemctl("stop", "swarmline-peer@0")
        self.until(lambda: self.kinds("peer_left"), "the peer that was stopped did not leave")
        self.systemctl("start", "swarmline-peer@0")
        self.until(lambda: len(self.kinds("peer_joined")) >= 4, self.trouble)
        self.systemctl("kill", "--signal=KILL", "swarmline-peer@1")
        self.until(lambda: len(self.kinds("peer_joined")) >= 5, "systemd does not start again who was killed")
        step = self.step()
        self.until(lambda: self.step() >= step + 3, self.trouble)
        self.restarts = self.systemctl("show", "--property=NRestarts", "--value", "swarmline-peer@1")
        self.users = self.systemctl("show", "--property=DynamicUser", "--value", "swarmline-peer@1")
        self.as_coordinator("stop", RUN)
        names = ["swarmline-coordinator"] + [f"swarmline-peer@{instance}" for instance in range(3)]
        self.until(lambda: all(self.systemctl("show", "--property=ActiveState", "--value", name) == "inactive" for name in names),
                   self.trouble)

    def judge(self):
        wrong = []
        steps = self.step()
        lost = [line["detail"] for line in self.kinds("peer_lost")]
        print(f"{steps} steps, peers {self.peers}; left: {[line['detail'] for line in self.kinds('peer_left')][:1]}; lost: {lost}; "
              f"systemd started {self.restarts} again")
        if len(lost) != 1:
            wrong.append("one was killed, and others were lost")
        if self.restarts != "1" or self.users != "yes":
            wrong.append("systemd did not do what the units say")
        reference = ["--set", f"run.steps={steps}", "--set", f'run.dir="{self.folder}/runs"']
        self.command("launch", self.folder + "/run.toml", "--reference", *reference)
        diff = rented_fleet.json.loads(self.command("checkpoint", "diff", RUN, self.folder + "/runs/fleet-reference", "--json"))
        difference = max(tensor["max_rel_to_peak"] for tensor in diff["tensors"])
        print(f"parameters: at most {difference:.2g} of a tensor's peak from the reference's")
        if not difference < rented_fleet.DIFFERENCE_MAX:
            wrong.append("the parameters are not the reference's")
        return wrong


def drive(flags):
    folder = tempfile.mkdtemp(prefix="swarmline-systemd-", dir="/srv")  # units have a /tmp of their own
    os.chmod(folder, 0o755)  # for users that systemd makes up
    units = Units(flags, folder)
    return rented_fleet.exit_code_of(units, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    flags = parser.parse_args()
    flags.program = os.path.abspath(flags.program)
    if not os.access(SYSTEMD, os.X_OK):
        rented_fleet.skip("systemd is not installed")
    rented_fleet.enter_own_system("--cgroup", "--uts", "--ipc")
    rented_fleet.Places([])
    enter_own_root(flags.program)
    if os.fork() == 0:
        code = 1
        try:
            code = drive(flags)
        finally:
            sys.stdout.flush()
            subprocess.run(["systemctl", "exit", str(code)], check=False, capture_output=True)
            os._exit(code)
    # The first process of the namespaces is systemd from here on; its exit code is the driver's.
    os.environ["container"] = "swarmline"
    os.execv(SYSTEMD, [SYSTEMD, "--system", "--unit=fleet.target", "--show-status=no", "--log-target=null"])


if __name__ == "__main__":
    sys.exit(main())
