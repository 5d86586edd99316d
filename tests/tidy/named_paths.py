#!/usr/bin/env python3
"""Every path that a page names in backticks exists, and so do the functions named in brackets after a file.

usage: named_paths.py ROOT PAGE[#HEADING]...

HEADING: how the only section that counts begins. A path is looked for from the root, then from the page's folder; a
bare file name anywhere below the page's folder. `run/rulings` stands for run/rulings.h. Prints page:line: what is missing.
"""

import glob
import os
import re
import sys

SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".proto", ".py", ".md", ".toml", ".txt")
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
BRACKETS = re.compile(r"\s*\(([^)]*)\)")
FUNCTION = re.compile(r"`(?:\w+::)?(\w+)`")


def is_path(text):
    return bool(PATH.fullmatch(text)) and ("/" in text or text.endswith(SUFFIXES))


def section_of(text, heading):
    """The section's beginning and end in the text; the whole text without a heading."""
    if not heading:
        return 0, len(text)
    begin = re.search(rf"^(#+) {re.escape(heading)}", text, re.MULTILINE)
    if not begin:
        return 0, 0
    end = re.compile(rf"^#{{1,{len(begin[1])}}} ", re.MULTILINE).search(text, begin.end())
    return begin.start(), end.start() if end else len(text)


def find(root, folder, path):
    """The files and folders that the path may mean."""
    for base in (root, folder):
        for name in (path, path + ".h"):
            if os.path.exists(os.path.join(base, name)):
                return [os.path.join(base, name)]
    return [] if "/" in path else glob.glob(os.path.join(folder, "**", path), recursive=True)


def problems(root, page, heading):
    """Yields (line, problem) of a page; line 0: a path that is there."""
    with open(os.path.join(root, page), encoding="utf-8") as lines:
        text = lines.read()
    folder = os.path.dirname(os.path.join(root, page))
    begin, end = section_of(text, heading)
    for quoted in QUOTED.finditer(text, begin, end):
        path, line = quoted[1], text.count("\n", 0, quoted.start()) + 1
        if not is_path(path):
            continue
        found = find(root, folder, path)
        yield (0, path) if found else (line, f"there is no {path}")
        brackets = BRACKETS.match(text, quoted.end(), end)
        files = [file for file in found if os.path.isfile(file)]
        for name in FUNCTION.findall(brackets[1]) if brackets and files else []:
            if not any(re.search(rf"\b{name}\b", open(file, encoding="utf-8").read()) for file in files):
                yield line, f"{path} has no {name}"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root, pages = sys.argv[1], sys.argv[2:]
    missing = 0
    for page, _, heading in (name.partition("#") for name in pages):
        found = list(problems(root, page, heading))
        bad = [problem for problem in found if problem[0]]
        for line, problem in bad:
            print(f"{page}:{line}: {problem}")
        print(f"{page}: {len(found) - len(bad)} paths are there")
        missing += len(bad) or not found
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
