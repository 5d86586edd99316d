#!/usr/bin/env python3
"""Trains the model of torch_eager.py as two stages of torch.distributed.pipelining, to compare speeds.

Two processes over gloo, one stage each, the blocks cut in the middle: embeddings go with the first half, the head with
the second. PyTorch's own schedules: 1F1B or GPipe. Clipping by the norm of both stages; all else as torch_eager.py does.

Prints a line of JSON for every step, or appends it to --log, with the keys that Swarmline's log has.
    .deps/compare/bin/python scripts/compare/torch_pipelining.py --d-model 1024 --steps 5 --schedule 1f1b
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from torch_eager import Transformer, make_optimizer

STAGES = 2
SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
PATIENCE = datetime.timedelta(seconds=120)  # for the other stage


class First(nn.Module):
    def __init__(self, whole, blocks):
        super().__init__()
        self.tokens, self.positions, self.blocks = whole.tokens, whole.positions, whole.blocks[:blocks]

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return x


class Last(nn.Module):
    def __init__(self, whole, blocks):
        super().__init__()
        self.blocks, self.final_norm, self.head = whole.blocks[blocks:], whole.final_norm, whole.head

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


def clip_over_stages(parameters, most):
    """What clip_grad_norm_ does, by the norm of all stages' gradients."""
    square = torch.stack([p.grad.square().sum() for p in parameters]).sum()
    dist.all_reduce(square)
    factor = (most / (square.sqrt() + 1e-6)).clamp(max=1.0)
    for p in parameters:
        p.grad.mul_(factor)


def check_parameters(model, expected):
    count = torch.tensor(sum(p.numel() for p in model.parameters()))
    dist.all_reduce(count)
    if expected not in (None, count.item()):
        raise SystemExit(f"this model has {count.item()} parameters, not {expected}")


def train(rank, options, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=STAGES, timeout=PATIENCE)
    torch.manual_seed(1)  # on both: the same model, of which each keeps its half, and the same tokens
    whole = Transformer(options.vocab, options.sequence, options.layers, options.d_model, options.heads)
    model = (First if rank == 0 else Last)(whole, options.layers // STAGES)
    check_parameters(model, options.parameters)
    optimizer = make_optimizer(model, options.adamw)
    tokens_a_step = options.batch * options.sequence

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), reduction="sum") / tokens_a_step

    stage = PipelineStage(model, rank, STAGES, torch.device("cpu"))
    schedule = SCHEDULES[options.schedule](stage, options.batch // options.microbatch, loss_fn=loss_of, scale_grads=False)
    log = open(options.log, "a") if options.log else sys.stdout
    for step in range(options.steps):
        batch = torch.randint(options.vocab, (options.batch, options.sequence + 1))
        start = time.perf_counter()
        optimizer.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(batch[:, :-1])
        else:
            schedule.step(target=batch[:, 1:], losses=losses)
        clip_over_stages(list(model.parameters()), 1.0)
        optimizer.step()
        if rank == STAGES - 1:
            line = {"kind": "step", "step": step, "loss": sum(loss.item() for loss in losses),
                    "seconds": time.perf_counter() - start, "wall_seconds": time.time()}
            print(json.dumps(line), file=log, flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("d-model", 256), ("layers", 4), ("heads", 4), ("vocab", 257), ("sequence", 256),
                          ("batch", 16), ("microbatch", 1), ("steps", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--adamw", choices=("fused", "foreach"), default="fused",
                        help="fused is the fastest that PyTorch has on a CPU; foreach is its default")
    parser.add_argument("--parameters", type=int, help="refuse to run if the model has another number of them")
    parser.add_argument("--log", help="file to append to (default: standard output)")
    options = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (options, os.path.join(folder, "meeting")), nprocs=STAGES)


if __name__ == "__main__":
    main()
