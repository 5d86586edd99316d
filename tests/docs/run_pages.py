#!/usr/bin/env python3
"""Types what README.md and the pages say, each page from an empty folder with a checkout's configs/, and compares what
is printed with what they show. pages.py has the marks that pages use.

usage: run_pages.py --program SWARMLINE [--root ROOT] [--slow] [--machines] [--without PAGE]... [PAGE...]

--slow      also what is marked slow, and the long examples at their length
--machines  only pages that say on which machine something is typed; each machine is a network namespace (root, ip)
PAGE        from the root, or a folder of pages; default: README.md and all below docs/

Exit code 77: skipped.
"""

import argparse
import glob
import os
import resource
import shutil
import sys
import tempfile
import time

import machines
from output import first_missing
from pages import Block, PageError, commands_of, output_of, read_page

PATIENCE_SECONDS = 240
PATIENCE_SLOW_SECONDS = 1800
SHOWN_LINES = 40


class Failure(Exception):
    pass


def tail(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-SHOWN_LINES:])


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def machine_of(text):
    """("B", the rest) of "on B the rest"; else ("A", all of it)."""
    return (text[3], text[4:].lstrip(" ")) if text.startswith("on ") else ("A", text)


class PageRun:
    """One page, typed from top to bottom."""

    def __init__(self, page, items, where, prepared, slow):
        self.page, self.items, self.where, self.prepared, self.slow = page, items, where, prepared, slow
        self.patience = PATIENCE_SLOW_SECONDS if slow else PATIENCE_SECONDS
        self.replacements, self.background, self.ran, self.skipped = {}, [], 0, 0

    def run(self):
        try:
            for number, item in enumerate(self.items):
                try:
                    self._do(item, number)
                except Failure as failure:
                    raise Failure(f"{self.page}:{item.line}: {failure}") from None
        finally:
            for _, process, _ in self.background:
                machines.end(process)

    def _do(self, item, number):
        if isinstance(item, Block):
            if "file" in item.marks:
                self._save(item)
            elif item.is_typed:
                self._type(item, number)
        elif item.name == "replace":
            for line in item.text.split("\n"):
                old, new = line.split("=>", 1)
                self.replacements[old.strip()] = new.strip()
        elif item.name == "wait":
            self._wait()
        elif item.name == "finished":
            self.prepared.give(self.where.folder_of("A"))
        elif item.name == "start":
            machine, rest = machine_of(item.text)
            wanted, text = rest.split("\n", 1)
            self._start(machine, text, number, Block(item.line, "sh", [], {"background": wanted.strip('"')}))
        else:
            self._run(*machine_of(item.text), number, 0)

    def _save(self, block):
        path = os.path.join(self.where.folder_of(block.marks.get("on", "A")), block.marks["file"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(block.lines) + "\n")

    def _replaced(self, text):
        lines = []
        for line in text.split("\n"):
            bare = line.split(" # ")[0].strip()
            new = self.replacements.get(bare, line)
            if not new.startswith("skip: "):
                lines.append(new)
        return "\n".join(lines)

    def _type(self, block, number):
        lacks = "needs" in block.marks and not shutil.which(block.marks["needs"])
        if lacks or "skip" in block.marks or ("slow" in block.marks and not self.slow):
            self.skipped += 1
            return
        text = self._replaced(commands_of(block))
        if not text.strip():
            self.skipped += 1
            return
        self.ran += 1
        machine = block.marks.get("on", "A")
        if "background" in block.marks:
            self._start(machine, text, number, block)
            return
        printed = self._run(machine, text, number, int(block.marks.get("exit", "0")))
        self._compare(block, printed)

    def _compare(self, block, printed):
        missing = first_missing(output_of(block), printed)
        if missing is not None:
            raise Failure(f"the page shows a line that is not printed there: {missing}\nprinted:\n{printed[-6000:]}")

    def _output(self, number):
        return os.path.join(self.where.folder, f"output-{number}")

    def _run(self, machine, text, number, expected):
        path = self._output(number)
        with open(path, "wb") as output:
            process = self.where.start(machine, text, output)
        try:
            code = process.wait(self.patience)
        except machines.subprocess.TimeoutExpired:
            machines.end(process)
            raise Failure(f"not done after {self.patience} s:\n{text}\nprinted:\n{tail(path)}") from None
        if code != expected:
            raise Failure(f"exit code {code}, expected {expected}:\n{text}\nprinted:\n{tail(path)}")
        return read(path)

    def _start(self, machine, text, number, block):
        path = self._output(number)
        with open(path, "wb") as output:
            process = self.where.start(machine, "exec " + text.strip() if "\n" not in text.strip() else text, output)
        self.background.append((block.line, process, path))
        wanted, give_up = block.marks["background"], time.monotonic() + self.patience
        while wanted not in read(path) or first_missing(output_of(block), read(path)) is not None:
            if process.poll() not in (None, 0) or time.monotonic() > give_up:
                raise Failure(f"it did not print \"{wanted}\" and what the page shows:\n{text}\nprinted:\n{tail(path)}")
            time.sleep(0.1)

    def _wait(self):
        give_up = time.monotonic() + self.patience
        while self.background:
            line, process, path = self.background.pop()
            try:
                code = process.wait(max(0.1, give_up - time.monotonic()))
            except machines.subprocess.TimeoutExpired:
                machines.end(process)
                code = "none yet"
            if code != 0:
                raise Failure(f"what line {line} began ended with exit code {code}:\n{tail(path)}")


def pages_of(root, named, without):
    """The pages' paths from the root; those of folders with them."""
    def paths(name):
        full = os.path.join(root, name)
        found = sorted(glob.glob(full + "/**/*.md", recursive=True)) if os.path.isdir(full) else [full]
        return [os.path.relpath(path, root) for path in found]

    out = {page for name in without for page in paths(name)}
    return [page for name in named or ("README.md", "docs") for page in paths(name) if page not in out]


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_page(page, items, prepared, arguments):
    used = cpu_seconds()
    with tempfile.TemporaryDirectory(prefix="swarmline-docs-") as folder:
        with machines.Machines(folder, arguments.root, arguments.program, not arguments.slow, arguments.machines) as where:
            run = PageRun(page, items, where, prepared, arguments.slow)
            run.run()
    print(f"{page}: {run.ran} blocks run, {run.skipped} not, {cpu_seconds() - used:.1f} s of CPU", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser.add_argument("--program", required=True)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--machines", action="store_true")
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("pages", nargs="*")
    arguments = parser.parse_args()
    arguments.root = os.path.abspath(arguments.root)
    arguments.program = os.path.abspath(arguments.program)
    if arguments.machines and (os.geteuid() != 0 or not os.access(machines.IP, os.X_OK)):
        print("machines of their own take root and ip(8)")
        return 77
    with tempfile.TemporaryDirectory(prefix="swarmline-docs-") as folder:
        return run_all(machines.FinishedRun(folder, arguments.root, arguments.program), arguments)


def run_all(prepared, arguments):
    failures = 0
    for page in pages_of(arguments.root, arguments.pages, arguments.without):
        try:
            items = read_page(read(os.path.join(arguments.root, page)))
            typed = [item for item in items if isinstance(item, Block)]
            wanted = not arguments.machines or any("on" in block.marks for block in typed)
            if wanted and any(block.is_typed for block in typed):
                run_page(page, items, prepared, arguments)
        except PageError as error:
            failures += 1
            print(f"{page}:{error}")
        except Failure as failure:
            failures += 1
            print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
