"""Runs one training program and says how fast it trained and how much of the machine others took meanwhile."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

WARMUP_STEPS = 1  # left out at the start
TIMEOUT_SECONDS = 900
POLL_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Shape:
    width: int
    steps: int  # measured ones
    layers: int = 4
    heads: int = 4
    vocab: int = 257
    sequence: int = 128
    microbatch: int = 1
    microbatches: int = 64

    @property
    def batch(self):
        return self.microbatch * self.microbatches

    @property
    def all_steps(self):
        return WARMUP_STEPS + self.steps

    @property
    def step_tokens(self):
        return self.batch * self.sequence


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    kind: str  # "reference", "swarm", "eager" or "pipelining"
    delay: int = 1
    codec: str = "none"
    threads: int = 2  # in all
    schedule: str = ""  # of PyTorch's pipelining

    @property
    def is_ours(self):
        return self.kind in ("reference", "swarm")


@dataclasses.dataclass
class Sample:
    """All but the rate: shares of the cores, while the measured steps were under way."""

    tokens_per_second: float
    own: float     # used by this training, all its processes and the kernel's work for them
    others: float  # used by other programs
    idle: float    # used by nobody
    cpu_seconds: float  # used by this training, for all measured steps

    def to_json(self):
        return dataclasses.asdict(self)


CONFIG = """\
config_version = 1
[run]
name = "{name}"
dir = "{folder}"
steps = {shape.all_steps}
[model]
layers = {shape.layers}
d_model = {shape.width}
heads = {shape.heads}
positions = "learned"
activation = "gelu_tanh"
tied_embeddings = false
[data]
kind = "bytes"
files = ["/usr/include/c++/*/bits/*.h"]
held_out = 0.0
[batch]
batch = {shape.batch}
microbatch = {shape.microbatch}
sequence = {shape.sequence}
[optimizer]
schedule = "constant"
[pipeline]
stages = 2
peers = 1
layers = [{half}, {half}]
delay = {variant.delay}
recompute = "false"
[codec]
forward = "{variant.codec}"
backward = "{variant.codec}"
"""


class Machine:
    """Seconds that the chosen cores were busy and idle, and that one session of processes used."""

    def __init__(self, cores):
        self.cores = cores
        self.hertz = os.sysconf("SC_CLK_TCK")

    def read(self, session=None):
        busy = idle = 0
        for line in pathlib.Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name.removeprefix("cpu").isdigit() and int(name.removeprefix("cpu")) in self.cores:
                user, nice, system, idle_, iowait, irq, softirq, steal = map(int, ticks[:8])
                busy += user + nice + system + irq + softirq + steal
                idle += idle_ + iowait
        own = sum(self.session_ticks(session)) if session else 0
        return busy / self.hertz, own / self.hertz, idle / self.hertz

    def session_ticks(self, session):
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(")", 1)[1].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == session:
                yield int(fields[11]) + int(fields[12])

    def busy_share(self, seconds=1.0):
        before = self.read()
        time.sleep(seconds)
        after = self.read()
        return (after[0] - before[0]) / (seconds * len(self.cores))


class Training:
    """A training program under way, in a session of its own."""

    def __init__(self, command, cwd, ends):
        self.command, self.ends = command, ends
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, cwd=cwd, stdout=self.output, stderr=subprocess.STDOUT, text=True,
                                        start_new_session=True)

    def wait_for_step(self, count, poll_seconds=POLL_SECONDS):
        """Until `count` steps have ended, as its log says."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(self.ends()) < count:
            if self.process.poll() not in (None, 0):
                self.fail(f"ended with {self.process.returncode}")
            if time.monotonic() > deadline or (self.process.poll() == 0 and len(self.ends()) < count):
                self.fail(f"logged {len(self.ends())} steps, not {count}")
            time.sleep(poll_seconds)

    def finish(self):
        if self.process.wait(TIMEOUT_SECONDS) != 0:
            self.fail(f"ended with {self.process.returncode}")

    def fail(self, what):
        self.process.terminate()
        self.output.seek(0)
        raise SystemExit(f"{' '.join(map(str, self.command))} {what}:\n{self.output.read()}")


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def step_ends(log):
    """When each step ended, seconds since 1970; lines that are still being written wait for the next look."""
    if not log.exists():
        return []
    lines = [json.loads(line) for line in log.read_text().splitlines(True) if line.endswith("\n")]
    return [line["wall_seconds"] for line in lines if line["kind"] == "step"]


def rate(shape, ends):
    """Tokens per second from the times at which steps ended, without the warm-up."""
    return shape.steps * shape.step_tokens / (ends[-1] - ends[WARMUP_STEPS - 1])


class Bench:
    def __init__(self, swarmline, python, folder, cores):
        self.swarmline, self.python, self.folder = swarmline, python, folder
        self.parameters = None
        self.machine = Machine(cores)
        self.folder.mkdir(parents=True, exist_ok=True)

    def config(self, variant, shape):
        path = self.folder / f"{variant.name}-{shape.width}.toml"
        path.write_text(CONFIG.format(name=path.stem, folder=self.folder / "runs", shape=shape,
                                      variant=variant, half=shape.layers // 2))
        return path

    def describe(self, shape):
        """The shape, its parameters, and how evenly the two stages share the work."""
        path = self.config(Variant("check", "swarm"), shape)
        checked = json.loads(run([self.swarmline, "config", "check", path, "--json"], self.folder))
        self.parameters = checked["parameters"]
        return dataclasses.asdict(shape) | {
            "parameters": checked["parameters"],
            "stage_flops": [stage["flops_share"] for stage in checked["stages"]]}

    def command_swarmline(self, variant, shape):
        config = self.config(variant, shape)  # two stages, one peer each: a thread each
        folder = self.folder / "runs" / config.stem
        flags = ["--threads", "1"]
        if variant.kind == "reference":
            flags = ["--reference", "--threads", str(variant.threads)]
            folder = folder.with_name(folder.name + "-reference")
        return [self.swarmline, "launch", config, *flags], folder

    def command_torch(self, variant, shape):
        folder = self.folder / "runs" / f"{variant.name}-{shape.width}"
        flags = {"d-model": shape.width, "layers": shape.layers, "heads": shape.heads, "vocab": shape.vocab,
                 "sequence": shape.sequence, "batch": shape.batch, "microbatch": shape.microbatch,
                 "steps": shape.all_steps, "parameters": self.parameters, "log": folder / "log.jsonl"}
        if variant.kind == "eager":
            flags["threads"] = variant.threads
        else:
            flags["schedule"] = variant.schedule  # two processes, one thread each
        script = pathlib.Path(__file__).resolve().parents[2] / f"scripts/compare/torch_{variant.kind}.py"
        return [self.python, script, *(f"--{key}={value}" for key, value in flags.items())], folder

    def sample(self, variant, shape):
        of = self.command_swarmline if variant.is_ours else self.command_torch
        command, folder = of(variant, shape)
        shutil.rmtree(folder, ignore_errors=True)
        if not variant.is_ours:
            folder.mkdir(parents=True)
        training = Training(command, self.folder, lambda: step_ends(folder / "log.jsonl"))
        training.wait_for_step(WARMUP_STEPS)
        before, start = self.machine.read(training.process.pid), time.monotonic()
        training.wait_for_step(shape.all_steps)
        after, end = self.machine.read(training.process.pid), time.monotonic()
        training.finish()
        ends = training.ends()
        shutil.rmtree(folder)
        available = (end - start) * len(self.machine.cores)
        busy, own, idle = (b - a for a, b in zip(before, after))
        return Sample(rate(shape, ends), own / available, max(0.0, busy - own) / available, idle / available, own)
