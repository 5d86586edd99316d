#!/usr/bin/env python3
"""Every coverage mark of a list is one of the code, and a test expects it: by its name, or with all of its library.

usage: named_marks.py ROOT LIST
"""

import os
import re
import sys

from sources import cxx_files

MARK = re.compile(r'SWARMLINE_MARK\("([^"]+)"\)')
EXPECTED = re.compile(r'\("([a-z0-9_]+\.[a-z0-9_]+)"\)')
ALL_EXPECTED = re.compile(r'expect_all_marks\("([^"]+)"\)')


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, page = sys.argv[1], sys.argv[2]
    marks, expected, libraries = set(), set(), []
    for path in cxx_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as source:
            text = source.read()
        if path.startswith("tests/"):
            if path.endswith(".cc"):
                expected.update(EXPECTED.findall(text))
                libraries += ALL_EXPECTED.findall(text)
        else:
            marks.update(MARK.findall(text))
    problems = named = 0
    with open(os.path.join(root, page), encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            mark = line.strip()
            if not mark or mark.startswith("#"):
                continue
            named += 1
            if mark not in marks:
                print(f"{page}:{number}: no line has the mark {mark}")
                problems += 1
            elif mark not in expected and not mark.startswith(tuple(libraries)):
                print(f"{page}:{number}: no test expects the mark {mark}")
                problems += 1
    print(f"{named} marks named, {problems} problems")
    return 1 if problems or not named else 0


if __name__ == "__main__":
    sys.exit(main())
