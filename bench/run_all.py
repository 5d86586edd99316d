#!/usr/bin/env python3
"""Runs every benchmark of a build once, briefly, and writes build/bench/results.json and build/bench/results.md.

    bench/run_all.py --build build/release                      all, some ten minutes
    bench/run_all.py --build build/release --only pipeline_bench,net_bench
The figures in bench/README.md take longer runs on a quiet machine; the page says which.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FORMAT = 1
MIN_TIME_SECONDS = 0.1  # for each Google Benchmark case


def suites(build):
    """Google Benchmark programs. Those that time a device print lines of their own; make gpu-check runs them."""
    return [program for program in sorted((build / "bench").glob("*_bench")) if not program.name.startswith("cu")]


def run_suite(program, folder):
    out = folder / f"{program.name}.json"
    subprocess.run([program, f"--benchmark_out={out}", "--benchmark_out_format=json",
                    f"--benchmark_min_time={MIN_TIME_SECONDS}"], check=True, stdout=subprocess.DEVNULL)
    return json.loads(out.read_text())


def run_engine(build, folder, widths):
    out = folder / "engine_overhead.json"
    done = subprocess.run([sys.executable, ROOT / "bench/engine/engine_overhead.py", "--swarmline", build / "swarmline",
                           "--out", out, "--widths", widths, "--repeats", "1", "--others-max", "1"],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.read_text()), done.stdout


def run_load(build, folder, peers, microbatches):
    out = folder / "coordinator_load.json"
    done = subprocess.run([sys.executable, ROOT / "bench/coordinator_load/coordinator_load.py", "--build", build,
                           "--out", out, "--peers", str(peers), "--microbatches", str(microbatches)],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(out.read_text()), done.stdout


def rate_of(case):
    for key, unit in (("bytes_per_second", "B/s"), ("items_per_second", "/s")):
        if key in case:
            return f"{case[key] / 1e9:.2f} G{unit}" if case[key] >= 1e9 else f"{case[key] / 1e6:.2f} M{unit}"
    return ""


KNOWN_KEYS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
              "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "bytes_per_second",
              "items_per_second", "label", "aggregate_name"}


def time_of(case):
    """CPU time, which other programs disturb least, but for cases that time themselves."""
    name, manual, _ = case["name"].partition("/manual_time")
    return name, case["real_time"] if manual else case["cpu_time"]


def suite_table(name, suite):
    lines = [f"## {name}", "", "| case | time | rate | more |", "| --- | ---: | ---: | --- |"]
    for case in suite["benchmarks"]:
        more = ", ".join(f"{key} {value:.3g}" for key, value in case.items()
                         if key not in KNOWN_KEYS and isinstance(value, (int, float)))
        more = ", ".join(filter(None, [case.get("label", ""), more]))
        label, duration = time_of(case)
        lines.append(f"| {label} | {duration:.3g} {case['time_unit']} | {rate_of(case)} | {more} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench")
    parser.add_argument("--widths", default="256", help="of the engine overhead; 256,512,1024 is all")
    parser.add_argument("--load-peers", type=int, default=1000, help="of the coordinator's load; 10000 is all")
    parser.add_argument("--load-microbatches", type=int, default=4000, help="of a step there; 40000 is all")
    parser.add_argument("--only", help="programs of bench/, engine_overhead and coordinator_load")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    build = options.build.resolve()

    results = {"format": FORMAT, "kind": "all", "wall_seconds": time.time(), "suites": {}, "engine_overhead": None,
               "coordinator_load": None}
    page = []
    only = options.only.split(",") if options.only else None
    for program in suites(build):
        if only and program.name not in only:
            continue
        print(f"== {program.name}", flush=True)
        suite = run_suite(program, options.out)
        results["suites"][program.name] = suite
        page.append(suite_table(program.name, suite))
        print(page[-1], flush=True)
    if not only or "engine_overhead" in only:
        print("== engine overhead", flush=True)
        results["engine_overhead"], table = run_engine(build, options.out, options.widths)
        page.append(f"## Engine overhead\n\n{table}")
        print(table)
    if not only or "coordinator_load" in only:
        print("== coordinator load", flush=True)
        results["coordinator_load"], table = run_load(build, options.out, options.load_peers, options.load_microbatches)
        page.append(f"## A coordinator under load\n\n{table}")
        print(table)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "results.md").write_text("\n".join(page))
    print(f"written: {options.out}/results.json and results.md")


if __name__ == "__main__":
    main()
