"""Tables of finished training runs: differences to codec none at the same seed, and the noise beside them."""

import collections
import json
import statistics

from variants import VARIANTS

FORMAT = 1
BASE = "none"
GROUPS = {"codec": "Codecs of activations, their gradients and the averaging of parameter gradients",
          "delay": "delay = 1",
          "share": "share_layers = 2",
          "boundary": "Learned compression of stage boundaries",
          "optimizer": "Optimizer state"}


def load(folder):
    """Runs by variant and seed: {variant: {seed: [run of repeat 0, run of repeat 1, ...]}}."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        if run["format"] != FORMAT:
            raise SystemExit(f"{path}: format {run['format']}; this program reads format {FORMAT}")
        runs[run["variant"]][run["seed"]].append(run)
    return {name: {seed: sorted(same, key=lambda run: run["repeat"]) for seed, same in seeds.items()}
            for name, seeds in runs.items()}


def mean_at(seeds, seed, key):
    return statistics.fmean(run[key] for run in seeds[seed])


def differences(runs, name, key):
    """Per seed that both have: this variant's loss minus that of none, each the mean of its repeats."""
    base = runs.get(BASE, {})
    return {seed: mean_at(runs[name], seed, key) - mean_at(base, seed, key)
            for seed in sorted(runs[name]) if seed in base}


def repeat_spread(runs, key):
    """Standard deviation of runs of the same variant and seed, pooled; None where none was repeated."""
    squares, freedom = 0.0, 0
    for seeds in runs.values():
        for same in seeds.values():
            losses = [run[key] for run in same]
            squares += sum((loss - statistics.fmean(losses)) ** 2 for loss in losses)
            freedom += len(losses) - 1
    return ((squares / freedom) ** 0.5, freedom) if freedom else None


def signed(values):
    return ", ".join(f"{value:+.4f}" for value in values)


def row(runs, name):
    seeds = runs[name]
    cells = [f"`{name}`", VARIANTS[name].about, str(len(seeds))]
    for key in ("held_out_loss", "train_loss"):
        cells.append(f"{statistics.fmean(mean_at(seeds, seed, key) for seed in seeds):.4f}")
        apart = differences(runs, name, key)
        cells.append("" if name == BASE or not apart else
                     f"{statistics.fmean(apart.values()):+.4f} ({signed(apart.values())})" if len(apart) > 1 else
                     signed(apart.values()))
    cells.append(sent(runs, name, ("forward_bytes", "backward_bytes")))
    cells.append(sent(runs, name, ("averaging_bytes",)))
    return "| " + " | ".join(cells) + " |"


def sent(runs, name, keys):
    """Bytes sent, as a share of what none sends at the seeds that both have."""
    base = runs.get(BASE, {})
    shares = [sum(mean_at(runs[name], seed, key) for key in keys) / sum(mean_at(base, seed, key) for key in keys)
              for seed in runs[name] if seed in base]
    return f"{statistics.fmean(shares):.3f}" if shares else ""


HEAD = ("| variant | what | seeds | held-out loss | minus none, mean (each seed) | training loss | minus none, mean "
        "(each seed) | boundary bytes | averaging bytes |\n"
        "| --- | --- | ---: | ---: | --- | ---: | --- | ---: | ---: |")


def noise(runs):
    lines = []
    for key, what in (("held_out_loss", "held-out"), ("train_loss", "training")):
        if len(runs.get(BASE, {})) > 1:
            losses = [mean_at(runs[BASE], seed, key) for seed in runs[BASE]]
            lines.append(f"- {what} loss of none over {len(losses)} seeds: standard deviation "
                         f"{statistics.stdev(losses):.4f}")
        spread = repeat_spread(runs, key)
        if spread:
            lines.append(f"- {what} loss of the same variant and seed, trained again: standard deviation "
                         f"{spread[0]:.4f} ({spread[1]} degrees of freedom)")
    return "\n".join(lines)


def tables(runs):
    if not runs:
        return "no finished runs"
    parts = [noise(runs)] if noise(runs) else []
    for group, title in GROUPS.items():
        names = [name for name, variant in VARIANTS.items() if variant.group == group and name in runs]
        if names and names != [BASE]:
            head = [] if group == "codec" or BASE not in runs else [row(runs, BASE)]
            parts.append("\n".join([f"### {title}", "", HEAD, *head, *(row(runs, name) for name in names)]))
    return "\n\n".join(parts)
