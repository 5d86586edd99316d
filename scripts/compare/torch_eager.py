#!/usr/bin/env python3
"""Trains in plain PyTorch, eager or compiled, the model that `swarmline launch --reference` trains, to compare speeds.

The same shapes (GPT-2 blocks, learned positions, an untied head), AdamW on the same groups, clipping, microbatches whose
gradients are summed, F.scaled_dot_product_attention. Tokens are random: they cost what real ones cost.

Prints a line of JSON for every step, or appends it to --log, with the keys that Swarmline's log has.
    .deps/compare/bin/python scripts/compare/torch_eager.py --d-model 1024 --steps 5
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.o = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        rows, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(rows, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(rows, tokens, width))
        return x + self.down(F.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self, vocab, sequence, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.final_norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.final_norm(x))


def make_optimizer(model, adamw):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=adamw == "fused")


def train_step(model, optimizer, batch, microbatch, precision):
    optimizer.zero_grad()
    loss = 0.0
    for rows in batch.split(microbatch):
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = model(rows[:, :-1])
        summed = F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(), reduction="sum")
        part = summed / batch[:, 1:].numel()
        part.backward()
        loss += part.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("d-model", 256), ("layers", 4), ("heads", 4), ("vocab", 257), ("sequence", 256),
                          ("batch", 16), ("microbatch", 1), ("steps", 5), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--adamw", choices=("fused", "foreach"), default="fused",
                        help="fused is the fastest that PyTorch has on a CPU; foreach is its default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="of products and attention")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--parameters", type=int, help="refuse to run if the model has another number of them")
    parser.add_argument("--log", type=argparse.FileType("a"), default=sys.stdout)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = Transformer(options.vocab, options.sequence, options.layers, options.d_model, options.heads).to(options.device)
    optimizer = make_optimizer(model, options.adamw)
    parameters = sum(p.numel() for p in model.parameters())
    if options.parameters not in (None, parameters):
        raise SystemExit(f"this model has {parameters} parameters, not {options.parameters}")
    forward = torch.compile(model) if options.compile else model
    for step in range(options.steps):
        batch = torch.randint(options.vocab, (options.batch, options.sequence + 1)).to(options.device)
        start = time.perf_counter()
        loss = train_step(forward, optimizer, batch, options.microbatch, options.precision)
        line = {"kind": "step", "step": step, "loss": loss, "seconds": time.perf_counter() - start,
                "wall_seconds": time.time()}
        print(json.dumps(line), file=options.log, flush=True)


if __name__ == "__main__":
    main()
