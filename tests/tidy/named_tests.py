#!/usr/bin/env python3
"""Every test that a page names as `Suite.Name` exists. Prints page:line: what is missing.

usage: named_tests.py ROOT PAGE...
"""

import os
import re
import sys

from sources import cxx_files

DEFINED = re.compile(r"^TEST(?:_[FP])?\((\w+),\s*(\w+)\)", re.MULTILINE)
NAMED = re.compile(r"`([A-Z]\w+)\.([A-Z]\w+)`")


def defined_tests(root):
    for path in cxx_files(root):
        if path.startswith("tests/"):
            with open(os.path.join(root, path), encoding="utf-8") as source:
                yield from DEFINED.findall(source.read())


def main():
    root, pages = sys.argv[1], sys.argv[2:]
    defined = set(defined_tests(root))
    named = missing = 0
    for page in pages:
        with open(os.path.join(root, page), encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                for test in NAMED.findall(line):
                    named += 1
                    if test not in defined:
                        print(f"{page}:{number}: no test is called {'.'.join(test)}")
                        missing += 1
    print(f"{named} tests named, {missing} missing")
    return 1 if missing or not named else 0


if __name__ == "__main__":
    sys.exit(main())
