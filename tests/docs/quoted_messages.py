#!/usr/bin/env python3
"""Every message that docs/troubleshooting.md quotes is one that the program can print: what is fixed of it occurs in a
string literal of the sources. Prints page:line: what does not.

usage: quoted_messages.py ROOT [PAGE]
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tidy"))

from sources import cxx_files  # noqa: E402
from wording import said_by  # noqa: E402

QUOTED = re.compile(r"`([^`]+)`")
FIXED_CHARACTERS_MIN = 12
# Of a number in {} or %d: what stands for it in a quotation is a number or "...".
HOLE = re.compile(r"\{[^{}]*\}|%[-+ 0-9.*]*[a-zA-Z]+")


def literals_of(root):
    """What sources print: each literal as the list of its fixed parts."""
    for path in cxx_files(root):
        if path.startswith(("tests/", "bench/")):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as source:
            for _, text in said_by(source.read()):
                yield re.sub(r"\\n", " ", text.replace('\\"', '"'))


def parts_of(message):
    """What is fixed of a quoted message."""
    return [part for part in (piece.strip() for piece in re.split(r"\.\.\.(?!@)|\b\d+\b", message)) if len(part.strip(";:,. ")) > 2]


def says(literal, parts):
    at = 0
    plain = HOLE.sub("\0", literal)
    for part in parts:
        at = plain.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def quoted_in(text):
    """Yields (line, message) of headings of the third level."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("### "):
            found = QUOTED.findall(line)
            yield from ((number, message) for message in found or [line])


def problems(text, literals):
    for number, message in quoted_in(text):
        parts = parts_of(message)
        if sum(map(len, parts)) < FIXED_CHARACTERS_MIN:
            yield number, f"quote more of \"{message}\""
        elif not any(says(literal, parts) for literal in literals):
            yield number, f"nothing prints \"{message}\""


def main():
    root = sys.argv[1]
    page = sys.argv[2] if len(sys.argv) > 2 else "docs/troubleshooting.md"
    with open(os.path.join(root, page), encoding="utf-8") as file:
        text = file.read()
    wrong = list(problems(text, list(literals_of(root))))
    for number, problem in wrong:
        print(f"{page}:{number}: {problem}")
    count = len(list(quoted_in(text)))
    print(f"{page}: {count} messages, {len(wrong)} that nothing prints")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
