"""Fleets of real peers on this machine for the programs beside this file: machines of zones, each zone a network namespace
at one bridge, with a metadata server for each machine, an etcd, a coordinator and its standby.

enter_own_system() puts the program into namespaces of its own (network, mounts, processes): nothing that it starts is seen
outside, and all of it ends with the program, whatever ends it.
"""

import dataclasses
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
METADATA_SERVER = os.path.join(SOURCES, "tests/swarm/fake_metadata_server.py")
ETCDS = (os.path.join(SOURCES, ".deps/etcd/usr/bin/etcd"), "/usr/bin/etcd")
SKIPPED = 77  # the exit code that says so
INSIDE = "SWARMLINE_FLEET_INSIDE"
HUB = "10.77.0.1"
PATIENCE_SECONDS = 60
LOOK_SECONDS = 0.1
# Of a tensor's peak: what rounding makes of another order of sums in float64 stays below it.
DIFFERENCE_MAX = 1e-9

CONFIG = """config_version = 1
[run]
name = "fleet"
dir = "{folder}/runs"
steps = 1000000
{run}
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
[optimizer]
lr = 1e-5
schedule = "constant"
[pipeline]
stages = {stages}
peers = {peers}
[codec]
forward = "none"
backward = "none"
[balance]
shadows = "auto"
[checkpoint]
every_steps = 100
{checkpoint}
[net]
listen = "{listen}:7400"
heartbeat_seconds = 0.3
{net}
[eval]
sequences_max = 4
[money]
{money}
"""


class Failed(Exception):
    """What went wrong, as a sentence."""


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def enter_own_system(*more):
    """The program again, as the first process of its own namespaces; there it returns. `more`: flags of unshare(1)."""
    if os.environ.get(INSIDE):
        # Names of network namespaces, too, are this program's alone.
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
        return
    if os.geteuid() != 0:
        skip("only root makes namespaces")
    for program in ("unshare", "ip", "mount"):
        if not shutil.which(program):
            skip(f"there is no {program}")
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *more]
    if subprocess.run(unshare + ["true"], capture_output=True, check=False).returncode != 0:
        skip("namespaces can't be made here")
    os.environ[INSIDE] = "1"
    os.execvp(unshare[0], unshare + [sys.executable] + sys.argv)


def exit_code_of(trial, folder, end=lambda: None, keep=False):
    """Of trial.train() and trial.judge(), which gives sentences on what is wrong; then `end` is called and the folder removed."""
    try:
        trial.train()
        wrong = trial.judge()
    except Failed as failure:
        wrong = [str(failure)]
    finally:
        end()
        if keep:
            print("the run is in", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    for sentence in wrong:
        print("FAILED:", sentence)
    return 1 if wrong else 0


def etcd_program():
    found = [path for path in ETCDS if os.access(path, os.X_OK)]
    return found[0] if found else None


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Places:
    """Hosts of one network: this one is the hub, the others are namespaces by name."""

    def __init__(self, names):
        self.address = {"hub": HUB}
        ip("link", "set", "lo", "up")
        ip("link", "add", "br0", "type", "bridge")
        ip("link", "set", "br0", "up")
        ip("addr", "add", HUB + "/24", "dev", "br0")
        for number, name in enumerate(names):
            self.address[name] = f"10.77.0.{number + 2}"
            ip("netns", "add", name)
            ip("link", "add", f"port{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"port{number}", "master", "br0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", self.address[name] + "/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    @staticmethod
    def plug(name, plugged):
        ip("-n", name, "link", "set", "eth0", "up" if plugged else "down")


@dataclasses.dataclass
class Process:
    name: str
    output: str
    child: subprocess.Popen

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as file:
            return file.read()

    def running(self):
        return self.child.poll() is None

    def wait_for(self, pattern, seconds=PATIENCE_SECONDS):
        """The match in what it has written."""
        until = time.monotonic() + seconds
        while True:
            over = not self.running() or time.monotonic() > until
            found = re.search(pattern, self.text())
            if found:
                return found
            if over:
                raise Failed(f"{self.name} did not write {pattern!r} but:\n{self.text()[-2000:]}")
            time.sleep(LOOK_SECONDS)

    def wait(self, seconds=PATIENCE_SECONDS):
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end within {seconds} s; it wrote:\n{self.text()[-2000:]}") from None

    def kill(self):
        if self.running():
            self.child.send_signal(signal.SIGKILL)
        self.child.wait()


@dataclasses.dataclass
class Machine:
    """One that is rented in a zone, with the peer that its start-up script joins."""
    name: str
    zone: str
    metadata: Process
    folder: str
    peer: Process
    began: float
    noticed: float = 0.0  # 0: not yet
    ended: float = 0.0

    def look(self):
        """Notices when its peer has ended."""
        if not self.ended and not self.peer.running():
            self.ended = time.time()

    def seated(self):
        """When its peer had its first seat, by the peer's own log; None: it never had."""
        found = re.search(r"(?m)^(\w+ +\d+ [\d:.]+) .*: seated at stage", self.peer.text())
        if not found:
            return None
        at = datetime.datetime.strptime(f"{time.gmtime(self.began).tm_year} {found.group(1)}", "%Y %b %d %H:%M:%S.%f")
        return at.timestamp()

    def give_notice(self):
        self.noticed = time.time()
        with open(os.path.join(self.folder, "notice"), "w", encoding="utf-8"):
            pass


class Fleet:
    """A run's processes. `clouds`: zone -> its cloud; `prices`: zone -> an hour's price."""

    def __init__(self, program, folder, clouds, prices, notice_seconds, emulate):
        self.program, self.folder, self.clouds, self.prices = program, folder, clouds, prices
        self.notice_seconds, self.emulate = notice_seconds, emulate
        self.places = Places(["control-a", "control-b", *clouds])
        self.processes, self.machines = [], []
        words = (f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(4000))
        self.write("text.txt", "".join(words))

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def start(self, place, name, command):
        output = os.path.join(self.folder, name + ".out")
        within = [] if place == "hub" else ["ip", "netns", "exec", place]
        with open(output, "wb") as out:
            # pylint: disable=consider-using-with
            child = subprocess.Popen(within + command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     cwd=self.folder)
        process = Process(name, output, child)
        self.processes.append(process)
        return process

    def start_etcd(self):
        client, peer = f"http://{HUB}:2379", f"http://{HUB}:2380"
        etcd = self.start("hub", "etcd", [
            etcd_program(), "--name=fleet", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=fleet={peer}"])
        etcd.wait_for("ready to serve client requests")

    def start_coordinator(self, place, config, *more):
        return self.start(place, "coordinator-" + place, [self.program, "coordinator", config, *more])

    def rent(self, zone, name, join):
        """A machine is granted: its script joins."""
        folder = os.path.join(self.folder, "metadata-" + name)
        os.makedirs(folder)
        metadata = self.start("hub", "metadata-of-" + name, [
            sys.executable, METADATA_SERVER, self.clouds[zone], folder, "--address", HUB, "--seconds", str(self.notice_seconds)])
        port = metadata.wait_for(r"port (\d+)").group(1)
        forward, backward = self.emulate
        peer = self.start(zone, name, [
            self.program, "peer", "--join", join, "--name", name, "--zone", zone, "--price", str(self.prices[zone]),
            "--listen", self.places.address[zone] + ":0", "--threads", "1", "--data-root", "/", "--join-patience", "120",
            "--notices", self.clouds[zone], "--notice-url", f"http://{HUB}:{port}",
            "--emulate-forward-ms", str(forward), "--emulate-backward-ms", str(backward)])
        machine = Machine(name, zone, metadata, folder, peer, time.time())
        self.machines.append(machine)
        return machine

    def take(self, machine):
        """The provider takes it: whatever still runs there ends."""
        machine.look()
        machine.peer.kill()
        machine.metadata.kill()
        machine.look()

    def status(self, run):
        ended = subprocess.run([self.program, "status", run, "--json"], capture_output=True, text=True, check=False)
        try:
            return json.loads(ended.stdout)
        except ValueError:
            return None

    def wait_for_status(self, run, holds, seconds=PATIENCE_SECONDS):
        until = time.monotonic() + seconds
        status = None
        while time.monotonic() < until:
            status = self.status(run) or status
            if status and holds(status):
                return status
            time.sleep(3 * LOOK_SECONDS)
        raise Failed(f"the run is {status and (status['state'], status['step'], status['sentence'])}")

    def command(self, *arguments):
        ended = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, cwd=self.folder)
        if ended.returncode != 0:
            raise Failed(f"swarmline {arguments[0]}: {(ended.stderr or ended.stdout).strip()[-1000:]}")
        return ended.stdout

    def difference_from_reference(self, config, run, steps):
        """Of the run's newest checkpoint from the same steps in one process; of a tensor's peak."""
        self.command("launch", config, "--reference", "--set", f"run.steps={steps}", "--set", "run.etcd=[]")
        diff = json.loads(self.command("checkpoint", "diff", run, os.path.join(self.folder, "runs/fleet-reference"), "--json"))
        return max(tensor["max_rel_to_peak"] for tensor in diff["tensors"])

    def cpu_seconds(self):
        """Of all processes below this one that have ended and been waited for."""
        times = os.times()
        return times.children_user + times.children_system

    def end(self):
        for process in self.processes:
            process.kill()


def log_lines(run, kind):
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if line["kind"] == kind]


def machines_of_trace(path, every, limit, zones):
    """(name, zone, from, to) of the lives of every so many of a fleet trace's machines, `limit` at a time, in seconds of the
    trace; how long it is."""
    lives, open_at, seconds = [], {}, 0.0
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("# seconds:"):
                seconds = float(line.split(":")[1])
            if line.startswith("#") or not line.strip():
                continue
            at, what, name = line.split()
            number = int(name[1:])
            if number % every != 0:
                continue
            if what == "add" and len(open_at) < limit:
                open_at[number] = float(at)
            elif what == "remove" and number in open_at:
                lives.append((number, open_at.pop(number), float(at)))
    lives += [(number, at, seconds) for number, at in open_at.items()]
    lives.sort(key=lambda life: (life[1], life[0]))
    return [(f"n{number}-{int(at)}", zones[i % len(zones)], at, to) for i, (number, at, to) in enumerate(lives)], seconds
