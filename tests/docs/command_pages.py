#!/usr/bin/env python3
"""docs/commands/ has a page for each command of the program, and each page the command's options, sentences and
examples as "swarmline help --markdown" prints them: none is missing and none invented. What stands around that part of
a page is written by hand. SWARMLINE_UPDATE_GOLDEN=1 in the environment writes those parts anew, and pages that lack.

usage: command_pages.py --program SWARMLINE [--root ROOT]
"""

import argparse
import os
import re
import subprocess
import sys

BEGIN = '<!-- as "swarmline help --markdown" prints it: begin -->'
END = "<!-- as printed: end -->"
PAGE = f"# swarmline {{name}}\n\n{BEGIN}\n{END}\n"
INDEX = f"# Commands\n\n{BEGIN}\n{END}\n"
INSIDE = re.compile(re.escape(BEGIN) + "\n.*?" + re.escape(END), re.DOTALL)


def parts_of(reference):
    """{command: its part}: what is below "## swarmline NAME", and below its own commands."""
    parts = {}
    for section in re.split(r"^(?=## swarmline )", reference, flags=re.MULTILINE):
        if section:
            name = section.split("\n", 1)[0].split()[2]
            parts[name] = parts.get(name, "") + section.rstrip("\n") + "\n\n"
    return {name: part.rstrip("\n") + "\n" for name, part in parts.items()}


def index_of(reference):
    rows = ["| command | what it does |", "|---|---|"]
    for full, sentence in re.findall(r"^## swarmline (.+)\n\n(.+)$", reference, flags=re.MULTILINE):
        page, cell = full.split()[0], sentence.replace("|", r"\|")
        rows.append(f"| [`{full}`]({page}.md) | {cell} |")
    return "\n".join(rows) + "\n"


def wanted_pages(reference):
    """{file: (its generated part, the page if there is none yet)}"""
    pages = {f"{name}.md": (part, PAGE.format(name=name)) for name, part in parts_of(reference).items()}
    pages["README.md"] = (index_of(reference), INDEX)
    return pages


def check(folder, reference, update):
    """Prints what is wrong. Returns how many pages are."""
    wanted, wrong = wanted_pages(reference), 0
    os.makedirs(folder, exist_ok=True)
    for file in sorted(set(os.listdir(folder)) - set(wanted)):
        print(f"docs/commands/{file}: there is no such command")
        wrong += 1
    for file, (part, new) in wanted.items():
        path = os.path.join(folder, file)
        page = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as text:
                page = text.read()
        if page is not None and not INSIDE.search(page):
            print(f"docs/commands/{file}: it lacks the lines {BEGIN} and {END}")
            wrong += 1
            continue
        right = INSIDE.sub(lambda _: f"{BEGIN}\n{part}{END}", page if page is not None else new)
        if right == page:
            continue
        if update:
            with open(path, "w", encoding="utf-8") as text:
                text.write(right)
            continue
        print(f"docs/commands/{file} is not what --help says: run command_pages.py with SWARMLINE_UPDATE_GOLDEN=1")
        wrong += 1
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser.add_argument("--program", required=True)
    arguments = parser.parse_args()
    printed = subprocess.run([arguments.program, "help", "--markdown"], check=True, capture_output=True, text=True).stdout
    update = os.environ.get("SWARMLINE_UPDATE_GOLDEN") == "1"
    wrong = check(os.path.join(arguments.root, "docs", "commands"), printed, update)
    print(f"{len(wanted_pages(printed))} pages, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
