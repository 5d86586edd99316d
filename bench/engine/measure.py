"""Runs one training program and says how fast it trained and how much of the machine others took meanwhile."""

import dataclasses
import json
import os
import pathlib
import resource
import subprocess
import time

WARMUP_STEPS = 1  # left out at the start
TIMEOUT_SECONDS = 900


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
    kind: str  # "reference", "swarm" or "eager"
    delay: int = 1
    codec: str = "none"


@dataclasses.dataclass
class Sample:
    tokens_per_second: float
    others: float  # share of the cores that other programs used while this one trained
    idle: float    # share of the cores that nobody used

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
    """CPU seconds of everybody, of this program's children, and of nobody, on the chosen cores."""

    def __init__(self, cores):
        self.cores = cores

    def read(self):
        hertz = os.sysconf("SC_CLK_TCK")
        busy = idle = 0
        for line in pathlib.Path("/proc/stat").read_text().splitlines():
            name, *ticks = line.split()
            if name.removeprefix("cpu").isdigit() and int(name.removeprefix("cpu")) in self.cores:
                user, nice, system, idle_, iowait, irq, softirq, steal = map(int, ticks[:8])
                busy += user + nice + system + irq + softirq + steal
                idle += idle_ + iowait
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return busy / hertz, used.ru_utime + used.ru_stime, idle / hertz

    def busy_share(self, seconds=1.0):
        before = self.read()
        time.sleep(seconds)
        after = self.read()
        return (after[0] - before[0]) / (seconds * len(self.cores))


def run(command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


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

    def step_ends_swarmline(self, variant, shape):
        config = self.config(variant, shape)
        folder = self.folder / "runs" / config.stem
        flags = ["--threads", "1"]
        if variant.kind == "reference":
            flags = ["--reference", "--threads", "2"]
            folder = folder.with_name(folder.name + "-reference")
        run(["rm", "-rf", folder], self.folder)
        run([self.swarmline, "launch", config, *flags], self.folder)
        lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
        ends = [line["wall_seconds"] for line in lines if line["kind"] == "step"]
        run(["rm", "-rf", folder], self.folder)
        return ends

    def step_ends_eager(self, shape):
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts/compare/torch_eager.py"
        out = json.loads(run([
            self.python, script, "--d-model", str(shape.width), "--layers", str(shape.layers),
            "--heads", str(shape.heads), "--vocab", str(shape.vocab), "--sequence", str(shape.sequence),
            "--batch", str(shape.batch), "--microbatch", str(shape.microbatch),
            "--steps", str(shape.all_steps), "--threads", "2"], self.folder))
        if out["parameters"] != self.parameters:
            raise SystemExit(f"PyTorch's model has {out['parameters']} parameters, ours {self.parameters}")
        ends, now = [], 0.0
        for seconds in out["seconds"]:
            now += seconds
            ends.append(now)
        return ends

    def sample(self, variant, shape):
        before = self.machine.read()
        start = time.monotonic()
        ends = self.step_ends_eager(shape) if variant.kind == "eager" else self.step_ends_swarmline(variant, shape)
        available = (time.monotonic() - start) * len(self.machine.cores)
        busy, own, idle = (b - a for a, b in zip(before, self.machine.read()))
        if len(ends) != shape.all_steps:
            raise SystemExit(f"{variant.name}: {len(ends)} steps were logged, not {shape.all_steps}")
        return Sample(rate(shape, ends), max(0.0, busy - own) / available, idle / available)
