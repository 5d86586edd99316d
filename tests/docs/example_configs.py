#!/usr/bin/env python3
"""The examples in configs/ agree with docs/config.md: each key is there, and what a comment says of a key in double
quotes is one of its values. Runs that are examples also set nothing that does nothing beside their other keys. So do
the blocks of TOML in pages. Prints file:line: what is wrong.

usage: example_configs.py --program SWARMLINE --root ROOT
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

SECTION = re.compile(r"^## \[(\w+)\]$")
ROW = re.compile(r"^\| `([\w.]+)` \| (.+?) \| `")
KEY = re.compile(r"^(\w+)\s*=\s*(.*)$")
TABLE = re.compile(r"^\[([\w.]+)\]")
BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)

# (key, needed: a key and the values one of which it must have somewhere in the file, for the first to do anything)
NEEDS = (
    ("codec.block", ("codec.forward", "codec.backward", "codec.averaging"), ("lin8", "dyn8")),
    ("codec.topk", ("codec.averaging",), ("topk",)),
    ("codec.error_budget", ("codec.forward", "codec.backward"), ("auto",)),
    ("model.rope_theta", ("model.positions",), ("rotary",)),
    ("model.boundary_factor", ("model.boundary",), ("bottleneck", "maxout")),
    ("data.token_format", ("data.kind",), ("tokens",)),
    ("pipeline.order", ("pipeline.wiring",), ("static",)),
)


def documented_keys(page):
    """{section.key: its values as docs/config.md has them}"""
    keys, section = {}, None
    for line in page.split("\n"):
        if found := SECTION.match(line):
            section = found[1]
        elif found := ROW.match(line):
            keys[f"{section}.{found[1]}"] = found[2]
    return keys


def entries_of(text):
    """Yields (line, section.key, value, comment)."""
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        bare, _, comment = line.partition(" #")
        if found := TABLE.match(bare):
            section = found[1]
        elif found := KEY.match(bare):
            yield number, f"{section}.{found[1]}".lstrip("."), found[2].strip(), comment.strip()


def is_run(text):
    return re.search(r"^config_version", text, re.MULTILINE) is not None


def problems_of_run(text, keys):
    entries = list(entries_of(text))
    values = {key: value for _, key, value, _ in entries}
    for line, key, _, comment in entries:
        if key == "config_version" or key.split(".")[0] == "peer":
            continue
        if key not in keys:
            yield line, f"docs/config.md has no {key}"
            continue
        for word in re.findall(r'"([^"]+)"', comment):
            if f'"{word}"' not in keys[key]:
                yield line, f"the comment names \"{word}\", which docs/config.md does not give as a value of {key}"
        for needing, needed, sufficient in NEEDS:
            if key == needing and not any(values.get(other, "").strip('"') in sufficient for other in needed):
                yield line, f"{key} does nothing here: it takes {' or '.join(needed)} = {' or '.join(sufficient)}"


def check(program, text):
    """What `config check` says against a config; None: nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        ran = subprocess.run([program, "config", "check", path], capture_output=True, text=True, cwd=folder, check=False)
        return None if ran.returncode == 0 else ran.stderr.strip().replace(path, "run.toml")


def whole_run(block):
    """A block that shows some keys of a run, made a config; None: it shows something else."""
    if re.search(r"^(scenario_format|fleet_format|chaos_format|invites)", block, re.MULTILINE):
        return None
    sections = set(re.findall(r"^\[(\w+)", block, re.MULTILINE))
    if not sections or not sections <= {"run", "model", "data", "batch", "optimizer", "pipeline", "codec", "wiring", "balance",
                                        "checkpoint", "eval", "net", "security", "log"}:
        return None
    text = block if is_run(block) else "config_version = 1\n" + block
    if "[data]" not in text:
        text += '\n[data]\nfiles = ["texts/*.txt"]\n'
    return text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--program", required=True)
    arguments = parser.parse_args()
    root = arguments.root
    with open(os.path.join(root, "docs/config.md"), encoding="utf-8") as page:
        keys = documented_keys(page.read())
    wrong = looked = 0

    def say(file, line, problem):
        nonlocal wrong
        wrong += 1
        print(f"{os.path.relpath(file, root)}:{line}: {problem}")

    for file in sorted(glob.glob(os.path.join(root, "configs/**/*.toml"), recursive=True)):
        with open(file, encoding="utf-8") as text:
            config = text.read()
        if is_run(config):
            looked += 1
            for line, problem in problems_of_run(config, keys):
                say(file, line, problem)
            if problem := check(arguments.program, config):
                say(file, 1, problem)
    for file in [os.path.join(root, "README.md"), *sorted(glob.glob(os.path.join(root, "docs/**/*.md"), recursive=True))]:
        with open(file, encoding="utf-8") as text:
            page = text.read()
        for block in BLOCK.finditer(page):
            if config := whole_run(block[1]):
                looked += 1
                if problem := check(arguments.program, config):
                    say(file, page.count("\n", 0, block.start()) + 1, problem)
    print(f"{looked} configs, {wrong} problems")
    return 1 if wrong or not keys or not looked else 0


if __name__ == "__main__":
    sys.exit(main())
