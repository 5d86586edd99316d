#!/usr/bin/env python3
"""What swarmline data prepare makes of Parquet is what it makes of the same texts as JSONL.

usage: parquet_prepare.py SWARMLINE

Ends with 77 (skipped) where Python has no pyarrow (scripts/compare-env installs it).
"""

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
ROWS = 3000
WORDS = ["a", "word", "of", "text", "é", "漢字", "😀", "\n", "  ", "<|x|>"]


class Mistake(AssertionError):
    pass


def expect(condition, what):
    if not condition:
        raise Mistake(what)


class Preparing:
    def __init__(self, program, folder):
        self.program, self.folder = program, pathlib.Path(folder)

    def command(self, inputs, out, *flags):
        python = () if "--python" in flags else ("--python", sys.executable)
        return [self.program, "data", "prepare", *map(str, inputs), "--out", str(self.folder / out), "--tokenizer", "bytes",
                *python, *flags]

    def run(self, inputs, out, *flags):
        return subprocess.run(self.command(inputs, out, *flags), capture_output=True, text=True, check=False)

    def tokens(self, inputs, out, *flags):
        done = self.run(inputs, out, *flags)
        expect(done.returncode == 0, f"{inputs}: ended with {done.returncode}: {done.stderr}")
        return self.content(out)

    def content(self, out):
        return b"".join(path.read_bytes() for path in sorted((self.folder / out).glob("tokens-*.bin")))

    def refusal(self, inputs, out, *flags):
        done = self.run(inputs, out, *flags)
        lines = done.stderr.strip().splitlines()
        expect(done.returncode == 2, f"{inputs}: ended with {done.returncode}, expected 2: {done.stderr}")
        expect(len(lines) == 1, f"{inputs}: expected one line, found {lines}")
        return lines[0]


def texts_of(draw, rows=ROWS):
    texts = [" ".join(draw.choices(WORDS, k=draw.randrange(0, 300))) for _ in range(rows)]
    texts[5], texts[7] = "", "x" * 700_000  # longer than a block
    return texts


def check_kinds_of_columns(pa, preparing, texts):
    expected = preparing.tokens([write_jsonl(preparing.folder / "a.jsonl", texts)], "jsonl")
    kinds = {"string": pa.string(), "large": pa.large_string(), "binary": pa.binary()}
    columns = {name: pa.array(texts, pa.string()).cast(kind) for name, kind in kinds.items()}
    columns["dictionary"] = pa.array(texts).dictionary_encode()
    for name, column in columns.items():
        path = preparing.folder / f"{name}.parquet"
        table = pa.table({"id": list(range(len(texts))), "text": column, "text.more": ["other"] * len(texts)})
        pa.parquet.write_table(table, path, row_group_size=700, compression="zstd" if name == "large" else "snappy")
        for threads in ("1", "3"):
            found = preparing.tokens([path], f"{name}{threads}", "--threads", threads)
            expect(found == expected, f"{name}, {threads} threads: other tokens than of JSONL")
    other = preparing.folder / "other.parquet"
    pa.parquet.write_table(pa.table({"content": texts}), other)
    expect(preparing.tokens([other], "other", "--text-column", "content") == expected, "another column: other tokens")


def write_jsonl(path, texts):
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return path


def check_nulls(pa, preparing):
    path = preparing.folder / "null.parquet"
    pa.parquet.write_table(pa.table({"text": ["one", None, "", "two"]}), path)
    expect("null.parquet: row 2: found no text" in preparing.refusal([path], "null"), "a null is not named")
    same = write_jsonl(preparing.folder / "null.jsonl", ["one", "", "two"])
    expect(preparing.tokens([path], "skipped", "--skip-bad-lines") == preparing.tokens([same], "same"), "nulls are not left out")


def check_mistakes(pa, preparing, texts):
    path = preparing.folder / "m.parquet"
    pa.parquet.write_table(pa.table({"id": list(range(len(texts))), "body": texts}), path, row_group_size=500)
    said = preparing.refusal([path], "m1")
    expect(said.endswith('found no column "text" among id, body; name the column of the text by --text-column'), said)
    said = preparing.refusal([path], "m2", "--text-column", "id")
    expect('found int64 in the column "id", expected text' in said, said)
    content = path.read_bytes()
    cut = preparing.folder / "cut.parquet"
    cut.write_bytes(content[:len(content) // 2])
    said = preparing.refusal([cut], "m3", "--text-column", "body")
    expect("cut.parquet: " in said and said.endswith("the file is damaged or was cut short; get it anew"), said)
    pa.parquet.write_table(pa.table({"body": texts}), path, row_group_size=500, write_page_checksum=True)
    changed = bytearray(path.read_bytes())
    changed[len(changed) // 2] ^= 0x10
    damaged = preparing.folder / "damaged.parquet"
    damaged.write_bytes(changed)
    said = preparing.refusal([damaged], "m4", "--text-column", "body")
    expect(said.endswith("the file is damaged or was cut short; get it anew"), said)
    said = preparing.refusal([path], "m5", "--text-column", "body", "--python", "/nonexistent/python")
    expect("found no program /nonexistent/python" in said, said)
    bare = preparing.folder / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    said = preparing.refusal([path], "m6", "--text-column", "body", "--python", str(bare))
    expect("found no pyarrow in" in said and "-m pip install pyarrow" in said, said)


def check_killed(pa, preparing, texts, draw):
    """Killed at any time, the same command goes on and ends with the same bytes."""
    path = preparing.folder / "k.parquet"
    pa.parquet.write_table(pa.table({"text": texts * 4}), path, row_group_size=900)
    flags = ("--shard-tokens", "100000", "--threads", "2")
    expected = preparing.tokens([path], "whole", *flags)
    went_on = 0
    for number in range(6):
        out = f"killed{number}"
        command = preparing.command([path], out, *flags)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        wanted = draw.randrange(1, 12)
        while process.poll() is None and time.monotonic() < deadline:
            if len(list((preparing.folder / out).glob("tokens-*.bin"))) >= wanted:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(0.001)
        process.wait()
        done = preparing.run([path], out, *flags)
        expect(done.returncode == 0, done.stderr)
        went_on += "were there from before" in done.stdout
        expect(preparing.content(out) == expected, f"killed after {wanted} files: other tokens")
    expect(went_on > 0, "no run went on behind a whole file")


def main():
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError:
        print("Python has no pyarrow: nothing reads Parquet")
        return SKIPPED
    draw = random.Random(3)
    texts = texts_of(draw)
    with tempfile.TemporaryDirectory() as folder:
        preparing = Preparing(sys.argv[1], folder)
        check_kinds_of_columns(pa, preparing, texts)
        check_nulls(pa, preparing)
        check_mistakes(pa, preparing, texts)
        check_killed(pa, preparing, texts, draw)
    print("Parquet: the same tokens as of JSONL, killed or not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
