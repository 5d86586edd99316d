"""The parts of gpu-check that run other people's programs beside ours: PyTorch, eager and compiled, bitsandbytes, torchao."""

import importlib.util
import json
import random
import re
import shutil
import statistics
import subprocess
import sys

TRAINING = {"model.dropout": 0, "model.layers": 12, "model.d_model": 768, "model.heads": 12, "model.vocab": 50304,
            "model.tied_embeddings": "false", "data.held_out": 0, "batch.batch": 256, "batch.microbatch": 8,
            "batch.sequence": 1024, "run.steps": 6, "pipeline.recompute": "false", "eval.every_steps": 0,
            "optimizer.warmup_steps": 2, "data.files": '["tokens.bin"]'}
SMALL = {"model.layers": 4, "model.d_model": 64, "model.heads": 4, "batch.batch": 16, "batch.microbatch": 2,
         "batch.sequence": 64, "run.steps": 4}  # --device cpu: that it runs
ENDING_SECONDS = 10  # of nvidia-smi
FORMS = (("whole model, one process", 1, ("--reference",), {}), ("1 stage", 1, (), {}), ("4 stages", 4, (), {}),
         ("4 stages, 12 in flight", 4, (), {"pipeline.in_flight": 12}))


class Utilization:
    """Shares of time that a kernel ran, as nvidia-smi has them, while the block runs."""

    def __enter__(self):
        self.values, self.process = [], None
        if shutil.which("nvidia-smi"):
            self.process = subprocess.Popen(["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits",
                                             "-lms", "250"], stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            try:
                self.values = [int(v) for v in self.process.communicate(timeout=ENDING_SECONDS)[0].split() if v.isdigit()]
            except subprocess.TimeoutExpired:
                self.process.kill()

    def upper_quartile(self):  # starting and ending are not training
        return statistics.quantiles(self.values, n=4)[2] if len(self.values) > 3 else None


def training(check, gpu_check):
    """Tokens/s of GPT-2's smaller shape beside plain PyTorch, eager and compiled, of the same model."""
    if check.needs("training", "swarmline") is None:
        return
    shape = {**TRAINING, **(SMALL if check.options.device == "cpu" else {})}
    generator = random.Random(1)
    tokens = b"".join(generator.randrange(shape["model.vocab"]).to_bytes(2, "little") for _ in range(1 << 16))
    (check.pack / "tokens.bin").write_bytes(tokens * 32)
    rates = {}
    for name, stages, more, sets in FORMS:
        with Utilization() as used:
            ran = gpu_check.launch(check, "training", "train-" + re.sub(r"\W+", "-", name), "configs/gpt2_small.toml",
                         {**shape, "pipeline.stages": stages, "pipeline.peers": 1, **sets}, more)
        if ran is None:
            continue
        rates[name] = step_rate(check, name, ran[1], shape, used.upper_quartile())
    for name, more in rivals_of_training(check):
        options = {"d-model": "model.d_model", "layers": "model.layers", "heads": "model.heads", "vocab": "model.vocab",
                   "sequence": "batch.sequence", "batch": "batch.batch", "microbatch": "batch.microbatch", "steps": "run.steps"}
        arguments = [sys.executable, "scripts/torch_eager.py", "--device", check.options.device, "--precision", "bf16", *more]
        for option, key in options.items():
            arguments += [f"--{option}", str(shape[key])]
        with Utilization() as used:
            done = check.run("training", arguments, name=name)
        if done is None:
            continue
        if done[0] != 0:
            check.add("training", name, "failed", check.read.how_it_ended(*done), done[1])
            continue
        steps = [json.loads(line) for line in done[1].splitlines() if line.startswith("{")]
        rates[name] = step_rate(check, name, steps, shape, used.upper_quartile())
    for figure in check.figures:
        if figure["op"] == "training" and rates.get("PyTorch eager") and rates.get(figure["form"]):
            figure["of_eager"] = round(rates[figure["form"]] / rates["PyTorch eager"], 3)


def rivals_of_training(check):
    if check.torch is None or importlib.util.find_spec("torch") is None:
        check.add("training", "PyTorch", "skipped", "not installed here")
        return ()
    eager = (("PyTorch eager", ()),)
    # The CPU's compiler takes longer than all of the small training.
    return eager if check.options.device == "cpu" else (*eager, ("PyTorch compiled", ("--compile",)))


def step_rate(check, name, steps, shape, used):
    """Tokens a second: of the median step among the last half, since the first measure, choose and warm up."""
    seconds = [step["seconds"] for step in steps[len(steps) // 2:]]
    if not seconds:
        check.add("training", name, "failed", "no step in its log")
        return None
    rate = shape["batch.batch"] * shape["batch.sequence"] / statistics.median(seconds)
    check.figures.append({"op": "training", "form": name, "tokens_per_second": round(rate), "utilization": used,
                          "seconds": round(statistics.median(seconds), 4), "loss": steps[-1].get("loss")})
    check.add("training", name, "passed", f"{rate:.0f} tokens/s, loss {steps[-1].get('loss')}" +
              ("" if used is None else f", device busy {used:.0f} %"))
    return rate


BITSANDBYTES = """
import json, statistics, torch
import bitsandbytes.functional as F
n = {n} << 20
copy_from = torch.empty(7 * n, dtype=torch.uint8, device="cuda"); copy_to = torch.empty_like(copy_from)
def timed(call):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record(); call(); b.record(); b.synchronize()
    return 1e3 * a.elapsed_time(b)
for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)):
    x = torch.randn(n, device="cuda").to(dtype)
    for block in (64, 256, 4096):
        codes, state = F.quantize_blockwise(x, blocksize=block)
        moved = n * (x.element_size() + 1 + 4 / block)
        half = int(moved / 2)
        for op, call in (("quantize", lambda: F.quantize_blockwise(x, blocksize=block)),
                         ("dequantize", lambda: F.dequantize_blockwise(codes, state))):
            times, copies = [], []
            for i in range(18):
                times.append(timed(call)); copies.append(timed(lambda: copy_to[:half].copy_(copy_from[:half])))
            us, copy_us = statistics.median(times[3:]), statistics.median(copies[3:])
            print(json.dumps(dict(op=op, format="bitsandbytes dyn8", dtype=name, block=block, us=round(us, 2),
                                  copy_us=round(copy_us, 2), gb_per_s=round(moved / us / 1e3), share=round(copy_us / us, 3))))
"""


# The step that cuda_optimizer_bench times as "adamw 8bit": 12 bytes of fp32 a parameter and four of coded moments, read and
# written. Its first steps compile it. LAMB it has none.
TORCHAO = """
import json, statistics, torch
from torchao.optim import AdamW8bit, AdamWFp8
n = {n} << 20
moved = {"8bit": 12 + 4 * (1 + 4 / 256), "fp8": 12 + 4 * (1 + 4 / 256)}
half = int(moved["8bit"] * n / 2)
copy_from = torch.empty(half, dtype=torch.uint8, device="cuda"); copy_to = torch.empty_like(copy_from)
def timed(call):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record(); call(); b.record(); b.synchronize()
    return 1e3 * a.elapsed_time(b)
for name, kind in (("8bit", AdamW8bit), ("fp8", AdamWFp8)):
    weights = torch.nn.Parameter(torch.randn(n // 4096, 4096, device="cuda"))
    weights.grad = torch.randn_like(weights)
    optimizer = kind([weights], lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, block_size=256)
    before = weights.detach().clone()
    times, copies = [], []
    for i in range(20):
        times.append(timed(optimizer.step)); copies.append(timed(lambda: copy_to.copy_(copy_from)))
    assert torch.isfinite(weights).all() and not torch.equal(weights, before), "the step did nothing"
    us, copy_us = statistics.median(times[5:]), statistics.median(copies[5:])
    print(json.dumps(dict(op="adamw", format=f"torchao {name}", dtype="fp32", block=256, us=round(us, 2), copy_us=round(copy_us, 2),
                          gb_per_s=round(moved[name] * n / us / 1e3), share=round(copy_us / us, 3))))
"""


def rival_figures(check, gpu_check, part, what, code):
    """A program of theirs, run with the libraries that their wheels bring."""
    if importlib.util.find_spec(part) is None:
        check.add(part, what, "skipped", "not installed here")
        return
    if check.gpu is None:
        check.add(part, what, "skipped", "no GPU here")
        return
    done = check.run(part, [sys.executable, "-c", code.replace("{n}", gpu_check.BENCH_MEBI_ELEMENTS[check.options.quick])],
                     name=what)
    if done is None:
        return
    lines, broken = check.read.json_lines(done[1])
    check.figures += lines
    fine = done[0] == 0 and lines and not broken
    check.add(part, what, "passed" if fine else "failed", f"{len(lines)} figures" if fine else check.read.how_it_ended(*done), done[1])


def bitsandbytes(check, gpu_check):
    rival_figures(check, gpu_check, "bitsandbytes", "its CUDA kernels", BITSANDBYTES)


def torchao(check, gpu_check):
    rival_figures(check, gpu_check, "torchao", "its 8-bit optimizers", TORCHAO)
