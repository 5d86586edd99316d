"""Where commands of a page are typed: a folder for each machine, with what a checkout has there.

With root and ip(8) the machines may be network namespaces behind one bridge; else all of them are this one.
"""

import os
import re
import shutil
import signal
import subprocess

# What makes the long example short: a few small steps on little text.
SHORT = {
    "quickstart.toml": (("steps = 400 ", "steps = 8 "), ("batch = 32 ", "batch = 8 "), ("microbatch = 4 ", "microbatch = 2 "),
                        ("sequence = 128 ", "sequence = 32 "), ("peers = 2 ", "peers = 1 "), ("d_model = 128 ", "d_model = 32 "),
                        ("every_steps = 100 ", "every_steps = 4 "), ("sequences_max = 64 ", "sequences_max = 8 "),
                        ('kind = "bytes" ', 'bytes_max = 400000\nkind = "bytes" ')),
}
IP = "/usr/sbin/ip"


def copy_configs(root, folder, short):
    shutil.copytree(os.path.join(root, "configs"), os.path.join(folder, "configs"))
    for name, edits in SHORT.items() if short else ():
        path = os.path.join(folder, "configs", name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for old, new in edits:
            if old not in text:
                raise SystemExit(f"{name} has no \"{old}\" any more: mend SHORT in machines.py")
            text = text.replace(old, new)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Machines:
    """Folders and, if wanted, network namespaces; a context manager."""

    def __init__(self, folder, root, program, short, separate=False):
        self.folder, self.root, self.program, self.short, self.separate = folder, root, program, short, separate
        self.namespaces = {}

    def __enter__(self):
        if self.separate:
            self._join_namespaces("ABC")
        return self

    def __exit__(self, *_):
        for name in self.namespaces.values():
            subprocess.run([IP, "netns", "del", name], check=False)

    def _join_namespaces(self, machines):
        def ip(arguments):
            subprocess.run([IP, *arguments.split()], check=True, stdout=subprocess.DEVNULL)

        for number, machine in enumerate(machines, 1):
            name = self.namespaces[machine] = f"swarmline-docs-{os.getpid()}-{machine}"
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
            first = self.namespaces["A"]
            if machine == "A":
                ip(f"-n {first} link add br0 type bridge")
                ip(f"-n {first} addr add 192.0.2.7/24 dev br0")
                ip(f"-n {first} link set br0 up")
                continue
            ip(f"-n {first} link add port{number} type veth peer name eth0 netns {name}")
            ip(f"-n {first} link set port{number} master br0 up")
            ip(f"-n {name} addr add 192.0.2.{6 + number}/24 dev eth0")
            ip(f"-n {name} link set eth0 up")

    def folder_of(self, machine):
        folder = os.path.join(self.folder, machine)
        if not os.path.isdir(folder):
            os.makedirs(os.path.join(folder, ".home"))
            copy_configs(self.root, folder, self.short)
        return folder

    def start(self, machine, script, output):
        """A bash that runs the script on a machine; its process group is its own."""
        folder = self.folder_of(machine)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SWARMLINE_")}
        environment.update(PATH=f"{os.path.dirname(self.program)}:{environment['PATH']}", HOME=os.path.join(folder, ".home"),
                           XDG_CACHE_HOME=os.path.join(folder, ".home", "cache"), TERM="dumb", NO_COLOR="1",
                           COLUMNS="100", LC_ALL="C.UTF-8")
        command = ["bash", "-eu", "-o", "pipefail", "-c", self._as_possible_here(script)]
        if machine in self.namespaces:
            command = [IP, "netns", "exec", self.namespaces[machine], *command]
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def _as_possible_here(self, script):
        """A join string is the one that a coordinator printed last. On one machine a port is any free one."""
        if "swarm1..." in script:
            script = re.sub(r"swarm1\.\.\.(?:@[\w.:-]+)?", self._newest("keys/join"), script)
        if not self.namespaces:
            script = re.sub(r"(net\.listen=\"?[\w.]+):7400", r"\1:0", script)
            script = re.sub(r"(--listen [\w.]+):74\d\d", r"\1:0", script)
            if ":7400" in script:
                script = re.sub(r"(?<![\w.@])[\w.-]+:7400", self._newest("coordinator.address"), script)
        return script

    def _newest(self, file):
        found = []
        for folder, folders, _ in os.walk(self.folder):
            folders[:] = [name for name in folders if name not in (".home", "configs", "checkpoints")]
            if os.path.exists(os.path.join(folder, file)):
                found.append(os.path.join(folder, file))
        if not found:
            return "no-run-has-printed-one"
        with open(max(found, key=os.path.getmtime), encoding="utf-8") as text:
            return text.read().strip()


def end(process):
    """Ends a process that start() began, and its children."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            pass
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    return process.returncode


class FinishedRun:
    """runs/quickstart and its reference, trained once, for all pages that look at a finished run."""

    def __init__(self, folder, root, program):
        self.folder, self.root, self.program = folder, root, program

    def give(self, folder):
        made = os.path.join(self.folder, "A", "runs")
        if not os.path.isdir(made):
            self._train()
        shutil.copytree(made, os.path.join(folder, "runs"), dirs_exist_ok=True)

    def _train(self):
        launch = "swarmline launch configs/quickstart.toml"
        log = os.path.join(self.folder, "log")
        with Machines(self.folder, self.root, self.program, short=True) as where, open(log, "wb") as output:
            if where.start("A", f"{launch}; {launch} --reference", output).wait() != 0:
                with open(log, encoding="utf-8", errors="replace") as said:
                    raise SystemExit(f"the quickstart did not train:\n{said.read()}")
