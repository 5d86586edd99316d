#!/usr/bin/env python3
"""Rules of this code base that a compiler does not check. Prints path:line: what, and what instead.

usage: lint.py ROOT
"""

import os
import re
import sys

import wording
from layers import TABLE, House, circles
from sources import cxx_files

LINE_COLUMNS_MAX = 100
FILE_LINES_MAX = 500


class Ban:
    """A construct that only some folders may use. allowed: path prefixes."""

    def __init__(self, pattern, allowed, instead):
        self.pattern = re.compile(pattern)
        self.allowed = allowed
        self.instead = instead


# tests/ and bench/ run real processes and measure real time: the doors are not closed to them.
OUTSIDE = ("tests/", "bench/")
BANS = (
    Ban(r"\b(steady_clock|system_clock|high_resolution_clock|clock_gettime|gettimeofday)\b",
        ("engine/runtime/", "engine/device/", *OUTSIDE), "take the time from the Runtime (engine/runtime)"),
    Ban(r"\bstd::(jthread|thread)\b(?!::id)",
        ("engine/runtime/", "engine/device/", "engine/fabric/", "engine/store/", "engine/net/", "tools/measure/", *OUTSIDE),
        "give the work to a device, the store or the runtime"),
    Ban(r"\bstd::async\b|\bpthread_create\b", OUTSIDE,
        "give the work to a device, the store or the runtime"),
    Ban(r"\bsleep_for\b|\bsleep_until\b|\bu?n?sleep\s*\(", ("engine/runtime/", *OUTSIDE),
        "set a timer of the Runtime"),
    Ban(r"\bstd::[io]?fstream\b|\bfopen\s*\(|\bmmap\s*\(|(?<![\w:>.])::open\s*\(",
        ("base/", "engine/config/", "engine/net/shm/", "engine/store/", "node/child_process.cc", "tools/measure/", "cmake/", *OUTSIDE),
        "read and write files by engine/store"),
    Ban(r"(?<![\w:>.])::(socket|connect|accept|bind)\s*\(",
        ("engine/net/", "tools/measure/link_yardstick.cc", "tools/measure/socket_member.cc", *OUTSIDE),
        "reach other machines by engine/net"),
    Ban(r"#\s*include\s*[<\"](torch|ATen|c10|caffe2)/",
        ("engine/model/", "tests/model/", "bench/", "cmake/"),
        "keep libtorch behind engine/model"),
    Ban(r"#\s*include\s*[<\"]toml\+\+", ("engine/config/",), "read configuration by engine/config"),
    Ban(r"#\s*include\s*[<\"]boost/(asio|beast|process)\b",
        ("engine/runtime/", "engine/net/", "engine/store/etcd_client.cc", "engine/store/etcd_tls.cc", "tools/chaos/", "tools/link_proxy/", "cmake/",
         *OUTSIDE),
        "keep Asio behind engine/runtime, engine/net and the etcd client"),
    Ban(r"#\s*include\s*[<\"]sqlite3", ("engine/store/", "tests/store/"),
        "keep SQLite behind engine/store"),
    Ban(r"\bco_(await|yield|return)\b", (), "write event handlers: logic has no coroutines"),
    Ban(r"\bstd::(random_device|mt19937(_64)?|default_random_engine|minstd_rand0?)\b"
        r"|\bs?rand\s*\(\s*\)", (), "use Rng (base)"),
    Ban(r"\bstd::\w+_distribution\b", (),
        "use Rng's own methods (base): std distributions differ between libraries"),
    Ban(r"\bstd::(shuffle|sample)\b", (), "use Rng's own methods (base)"),
    Ban(r"^\s*using namespace std\s*;", (), "name what is used"),
    Ban(r"\bstd::hash\s*<", ("base/",),
        "use xxHash or an ordered container: std::hash differs between libraries"),
)
# Assembled, so that this file passes its own rule.
MARKERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])'", re.S)


def blank_comments_and_strings(text):
    """Replaces comments and string bodies by spaces; keeps line numbers and include paths."""

    def blank(match):
        token = match.group(0)
        line_start = text.rfind("\n", 0, match.start()) + 1
        if token.startswith('"') and re.match(r"\s*#\s*include\s*$", text[line_start:match.start()]):
            return token
        return re.sub(r"[^\n]", " ", token)

    return TOKEN.sub(blank, text)


def includes_of(text):
    """(line number, path) of each include of this repository."""
    for number, line in enumerate(text.split("\n"), 1):
        include = INCLUDE.match(line)
        if include:
            yield number, include.group(1)


OPENS_NAMESPACE = re.compile(r"\bnamespace\b\s*([\w:]*)\s*\Z")
OPENS_CLASS = re.compile(r"\b(?:class|struct)\s+(?:alignas\([^)]*\)\s+)?(\w+)(?:\s+final)?(?:\s*:[^:;{}][^;{}]*)?\s*\Z")

CONSTANT = re.compile(r"\binline\s+constexpr\s[^=;{}]*?\b(\w+)\s*(?:\[\w*\])?\s*=")


def classes_of(blanked):
    """(line number, name with its namespaces) of each class, enum and constant that other files see."""
    spaces, opened, last = [], [], 0
    for mark in re.finditer(r"[{};]", blanked):
        before, last = blanked[last:mark.start()], mark.end()
        constant = CONSTANT.search(before)
        if constant and len(opened) == len(spaces) and "" not in spaces:
            yield blanked.count("\n", 0, mark.start()) + 1, "::".join(spaces + [constant[1]])
        if mark[0] == "{":
            space, defined = OPENS_NAMESPACE.search(before), OPENS_CLASS.search(before)
            if space:
                spaces.append(space[1])
            elif defined and len(opened) == len(spaces) and "" not in spaces:
                yield blanked.count("\n", 0, mark.start()) + 1, "::".join(spaces + [defined[1]])
            opened.append(bool(space))
        elif mark[0] == "}" and opened and opened.pop():
            spaces.pop()


def namesakes(classes):
    """`classes`: of each path what classes_of() yields. (path, line number, problem): the linker takes one
    destructor, and one of each inline function, for both; and of two constants a file may see both."""
    first = {}
    for path, found in classes.items():
        for number, name in found:
            if first.setdefault(name, path) != path:
                yield path, number, f"{name} is defined in {first[name]}, too: give one of them another name"


def lint_text(house, path, text):
    """Yields (line number, problem) for one file."""
    lines = text.split("\n")
    blanked = blank_comments_and_strings(text)
    code_lines = blanked.split("\n")
    if len(lines) - 1 > FILE_LINES_MAX:
        yield len(lines) - 1, f"file has more than {FILE_LINES_MAX} lines: one idea a file"
    if path.endswith((".h", ".cuh")):
        if not lines[0].startswith(("//", "/*")) and not (
                lines[0].startswith("#pragma once") and
                next((l for l in lines[1:] if l.strip()), "").startswith(("//", "/*"))):
            yield 1, "header without a leading comment: say what it is for"
        if not re.search(r"^#(pragma once|ifndef)", text, re.M):
            yield 1, "header without #pragma once"
    for number, (line, code) in enumerate(zip(lines, code_lines), 1):
        if len(line) > LINE_COLUMNS_MAX:
            yield number, f"line is longer than {LINE_COLUMNS_MAX} columns"
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        if MARKERS.search(line):
            yield number, "leftover marker: do it now, or drop it"
        for ban in BANS:
            found = ban.pattern.search(code)
            if found and not path.startswith(ban.allowed):
                yield number, f"{found.group(0).strip()} is not used here: {ban.instead}"
    if not path.startswith(OUTSIDE):
        for number, said in wording.said_by(text):
            for _, problem in wording.problems_in(said):
                yield number, problem
    for number, included in includes_of(blanked):
        problem = house.include_problem(path, included)
        if problem:
            yield number, problem


def pages_of(root):
    """The pages that users read."""
    for folder, _, names in os.walk(os.path.join(root, "docs")):
        for name in names:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), root)
    for name in ("README.md", "CHANGELOG.md"):
        if os.path.exists(os.path.join(root, name)):
            yield name


def main():
    root = sys.argv[1]
    house = House.read(root)
    problems, includes, classes = 0, {}, {}
    for path in cxx_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as source:
            text = source.read()
        for number, problem in lint_text(house, path, text):
            print(f"{path}:{number}: {problem}")
            problems += 1
        blanked = blank_comments_and_strings(text)
        includes[path] = [included for _, included in includes_of(blanked)]
        classes[path] = list(classes_of(blanked))
    for path, number, problem in namesakes(classes):
        print(f"{path}:{number}: {problem}")
        problems += 1
    for path in sorted(pages_of(root)):
        with open(os.path.join(root, path), encoding="utf-8") as page:
            text = page.read()
        for offset, problem in wording.problems_in(text):
            print(f"{path}:{text.count(chr(10), 0, offset) + 1}: {problem}")
            problems += 1
    for problem in house.table_problems(root, includes):
        print(f"{TABLE}: {problem}")
        problems += 1
    for circle in circles(house, includes):
        print(f"{circle[0]}: its parts know each other in a circle: {' -> '.join(circle + circle[:1])}")
        problems += 1
    files = len(includes)
    print(f"{files} files, {problems} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
