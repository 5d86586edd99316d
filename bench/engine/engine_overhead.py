#!/usr/bin/env python3
"""What the engine costs: tokens/s of a swarm of two stages with one thread each, against --reference with two threads,
against plain PyTorch eager with two threads and PyTorch's own pipelining with two stages of one thread each, on the same
two cores and the same model.

The variants take turns (A B C A B C ...) so that a drifting machine hits all of them alike; ratios are taken within a
round, and their median is shown. While one trains, the cores are watched: a sample of which others took more than
--others-max is repeated. Results: a table, and JSON (docs/formats/bench.md).

    bench/engine/engine_overhead.py                     everything, some 45 minutes
    bench/engine/engine_overhead.py --widths 256 --repeats 1 --variants swarm-delay1,reference-delay1
PyTorch takes part where .deps/compare is there (make compare-env).
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time

from measure import Bench, Shape, Variant

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMAT = 1
CORES = 2
MEASURED_STEPS = {256: 8, 512: 3, 1024: 2}
VARIANTS = [
    Variant("reference-delay1", "reference", delay=1),
    Variant("swarm-delay1", "swarm", delay=1),
    Variant("swarm-delay1-bf16", "swarm", delay=1, codec="bf16"),
    Variant("reference-delay0", "reference", delay=0),
    Variant("swarm-delay0", "swarm", delay=0),
    Variant("eager", "eager", delay=0),
    Variant("pipelining-1f1b", "pipelining", delay=0, schedule="1f1b"),
    Variant("pipelining-gpipe", "pipelining", delay=0, schedule="gpipe"),
    # No second thread to wait for: the least CPU time that this training takes.
    Variant("reference-one-thread", "reference", delay=1, threads=1),
    Variant("eager-one-thread", "eager", delay=0, threads=1),
]
QUIET_WAIT_SECONDS = 120  # for the cores to be free, before each sample
ATTEMPTS = 3              # at a sample that others disturbed


def baseline_of(variant):
    """Eager is what the reference is measured against, the reference what a swarm is measured against."""
    if variant.kind == "swarm":
        return f"reference-delay{variant.delay}"
    return "eager" if variant.name == "reference-delay0" else None


def cpu_baseline_of(variant):
    """CPU time is hardly disturbed by other programs, where no thread spins while it waits for another."""
    if variant.kind == "swarm":
        return "reference-one-thread"
    return "eager-one-thread" if variant.name == "reference-one-thread" else None


def rivals_of(variant):
    """Who cuts the model into two stages as well."""
    return [v.name for v in VARIANTS if v.kind == "pipelining"] if variant.kind == "swarm" else []


def wait_until_quiet(bench, others_max):
    for _ in range(QUIET_WAIT_SECONDS):
        if bench.machine.busy_share() <= others_max:
            return
    print("the cores are still busy; measuring all the same", file=sys.stderr)


def quiet_sample(bench, variant, shape, others_max):
    best = None
    for _ in range(ATTEMPTS):
        wait_until_quiet(bench, others_max)
        sample = bench.sample(variant, shape)
        if best is None or sample.others < best.others:
            best = sample
        if best.others <= others_max:
            break
    print(f"  d={shape.width:<5}{variant.name:<20}{best.tokens_per_second:>9.0f} tokens/s   cores: own "
          f"{best.own:.1%}, others {best.others:.1%}, idle {best.idle:.1%}; {best.cpu_seconds:.2f} CPU s", file=sys.stderr, flush=True)
    return best


def measure_shape(bench, variants, shape, options):
    rounds = []
    for number in range(options.repeats):
        order = variants if number % 2 == 0 else variants[::-1]
        rounds.append({v.name: quiet_sample(bench, v, shape, options.others_max) for v in order})
    return rounds


def row_of(variant, shape, rounds):
    rates = [r[variant.name].tokens_per_second for r in rounds]
    row = {
        "d_model": shape.width,
        "variant": variant.name,
        "tokens_per_second": statistics.median(rates),
        "cpu_seconds_per_1000_tokens": statistics.median(
            r[variant.name].cpu_seconds * 1000 / (shape.steps * shape.step_tokens) for r in rounds),
        "samples": [r[variant.name].to_json() for r in rounds],
        "baseline": None,
        "ratio": None,
        "cpu_baseline": None,
        "cpu_ratio": None,
    }
    baseline = baseline_of(variant)
    if baseline in rounds[0]:
        ratios = [r[variant.name].tokens_per_second / r[baseline].tokens_per_second for r in rounds]
        row |= {"baseline": baseline, "ratio": statistics.median(ratios), "ratios": ratios}
    baseline = cpu_baseline_of(variant)
    if baseline in rounds[0]:
        ratios = [r[baseline].cpu_seconds / r[variant.name].cpu_seconds for r in rounds]
        row |= {"cpu_baseline": baseline, "cpu_ratio": statistics.median(ratios), "cpu_ratios": ratios}
    for rival in rivals_of(variant):
        if rival in rounds[0]:
            ratios = [r[variant.name].tokens_per_second / r[rival].tokens_per_second for r in rounds]
            row.setdefault("rivals", {})[rival] = {"ratio": statistics.median(ratios), "ratios": ratios}
    return row


def ratio_text(row, prefix):
    if row[f"{prefix}ratio"] is None:
        return ""
    ratios = row[f"{prefix}ratios"]
    return f"**{row[f'{prefix}ratio']:.3f}**{spread_text(ratios)} of {row[f'{prefix}baseline']}"


def spread_text(ratios):
    return f" ({min(ratios):.3f} to {max(ratios):.3f})" if len(ratios) > 1 else ""


def rivals_text(row):
    return ", ".join(f"**{one['ratio']:.3f}**{spread_text(one['ratios'])} of {name.removeprefix('pipelining-')}"
                     for name, one in row.get("rivals", {}).items())


def table(rows):
    """One line a row; of the shares of the cores, those of the sample that others disturbed most."""
    lines = ["| d | variant | tokens/s | speed | of PyTorch's pipelining | CPU s per 1000 tokens | tokens per CPU s | own | "
             "others | idle |",
             "| ---: | --- | ---: | --- | --- | ---: | --- | ---: | ---: | ---: |"]
    for row in rows:
        worst = max(row["samples"], key=lambda sample: sample["others"])
        lines.append(f"| {row['d_model']} | {row['variant']} | {row['tokens_per_second']:.0f} | "
                     f"{ratio_text(row, '')} | {rivals_text(row)} | {row['cpu_seconds_per_1000_tokens']:.3f} | "
                     f"{ratio_text(row, 'cpu_')} | "
                     f"{worst['own']:.1%} | {worst['others']:.1%} | {worst['idle']:.1%} |")
    return "\n".join(lines)


def to_json(shapes, rows, machine, wall_seconds):
    result = {"format": FORMAT, "kind": "engine_overhead", "wall_seconds": wall_seconds,
              "machine": machine, "cores": CORES, "shapes": shapes, "rows": rows}
    return json.dumps(result, indent=1) + "\n"


def machine_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swarmline", type=pathlib.Path, default=ROOT / "build/release/swarmline")
    parser.add_argument("--python", type=pathlib.Path, default=ROOT / ".deps/compare/bin/python")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench/engine_overhead.json")
    parser.add_argument("--widths", default="256,512,1024", help="d_model, separated by commas")
    parser.add_argument("--variants", default="all", help="names, separated by commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, help="measured steps of each run (default: by width)")
    parser.add_argument("--microbatches", type=int, default=64, help="per step")
    parser.add_argument("--others-max", type=float, default=0.05)
    return parser.parse_args()


def main():
    options = parse()
    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES:
        raise SystemExit(f"this benchmark needs {CORES} cores and may use {len(cores)}")
    os.sched_setaffinity(0, cores)  # and everything that is started from here
    if not options.swarmline.exists():
        raise SystemExit(f"{options.swarmline} is not there: make bench builds it, --swarmline names another")
    variants = [v for v in VARIANTS if options.variants == "all" or v.name in options.variants.split(",")]
    if not options.python.exists():
        print(f"{options.python} is not there (make compare-env): without PyTorch", file=sys.stderr)
        variants = [v for v in variants if v.is_ours]

    options.out.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.swarmline.resolve(), options.python.absolute(), options.out.parent.resolve() / "engine", cores)
    shapes, rows = [], []
    for width in map(int, options.widths.split(",")):
        steps = options.steps or MEASURED_STEPS.get(width, 4)
        shape = Shape(width, steps, microbatches=options.microbatches)
        shapes.append(bench.describe(shape))
        rounds = measure_shape(bench, variants, shape, options)
        rows += [row_of(v, shape, rounds) for v in variants]
        options.out.write_text(to_json(shapes, rows, machine_name(), time.time()))
    print(table(rows))


if __name__ == "__main__":
    main()
