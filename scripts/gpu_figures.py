"""What gpu-check reads of its programs' output, and how it prints it."""

import json
import signal

TAIL_LINES = 25  # of a failed program's output, on the screen
# What a figure may have, and its unit in the table.
UNITS = (("us", "us"), ("gb_per_s", "GB/s"), ("tflops", "TFLOP/s"), ("ratio", "x"), ("seconds", "s"), ("eval_loss", "loss"),
         ("tokens_per_second", "tokens/s"), ("of_eager", "of eager"))


def no_number(text):
    raise ValueError(text)


def json_lines(text):
    """(objects, lines that should be one and are not): a program that was killed leaves half a line."""
    lines, broken = [], []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            lines.append(json.loads(line, parse_constant=no_number))
        except ValueError:
            broken.append(line)
    return lines, broken


def first_failures(text):
    """What GoogleTest says of its first failures, else the end."""
    at = text.find(": Failure\n")
    return "\n".join(text[max(0, text.rfind("\n", 0, at)):].splitlines()[:TAIL_LINES]) if at >= 0 else text


def how_it_ended(code, text):
    signal_name = signal.Signals(-code).name if code < 0 else ""
    return f"ended by {signal_name}: {last_failure(text)}" if signal_name else f"exit code {code}: {last_failure(text)}"


def last_failure(text):
    lines = [line for line in text.splitlines() if line.strip()]
    failures = [line for line in lines if "[  FAILED  ]" in line or "Failure" in line or "error" in line.lower()]
    return (failures or lines or ["no output"])[-1][:160]


def meets_goal(figure):
    """None without a goal."""
    if figure.get("goal"):
        return figure["share"] >= figure["goal"]
    if figure.get("goal_us"):
        return figure["us"] <= figure["goal_us"]
    if figure.get("goal_ratio"):
        return figure["ratio"] <= figure["goal_ratio"]
    return None


def figure_line(figure):
    name = " ".join(str(figure[key]) for key in ("op", "format", "dtype", "shape", "form") if key in figure)
    block = figure.get("block", "")
    values = [f"{figure[key]:g} {unit}" for key, unit in UNITS if isinstance(figure.get(key), (int, float))]
    share = f"{100 * figure['share']:.0f} % of copy" if "share" in figure else ""
    goal = {True: "met", False: "MISSED", None: ""}[meets_goal(figure)]
    return name, str(block), " ".join(values), share, goal


def print_table(check, version):
    print(f"\ngpu-check: {check.gpu or 'no GPU'}, PyTorch {check.torch or 'not installed'}, pack {version}\n")
    lines = [figure_line(figure) for figure in check.figures]
    if lines:
        print(f"  {'figure':60} {'block':>6} {'':>28} {'':>14} goal")
    for name, block, values, share, goal in lines:
        print(f"  {name:60} {block:>6} {values:>28} {share:>14} {goal}")
    print()
    for row in check.rows:
        print(f"  {row['part']:13} {row['what']:44} {row['state']:8} {row['detail'][:120]}")
