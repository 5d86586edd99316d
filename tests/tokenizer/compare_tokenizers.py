#!/usr/bin/env python3
"""Compares tokens with those of PyPI's tokenizers: on every character of Unicode and on random hard texts.

usage: compare_tokenizers.py ENCODE_LINES FIXTURES

Ends with 77 (skipped) where Python has no tokenizers (scripts/compare-env installs it).
"""

import json
import pathlib
import random
import subprocess
import sys

SKIPPED = 77
CHARACTERS_A_TEXT = 256
RANDOM_TEXTS = 3000


def every_character():
    """Each character beside letters, blanks and itself."""
    for first in range(0, 0x110000, CHARACTERS_A_TEXT):
        characters = [chr(point) for point in range(first, first + CHARACTERS_A_TEXT) if not 0xD800 <= point < 0xE000]
        yield "".join(f"a{c}b {c} {c}{c}\n{c}1'{c}" for c in characters)


def random_texts(hard):
    draw = random.Random(1)
    pieces = hard + list("ab 1\n\t'.") + ["'s", "'LL", "  ", "\r\n", "\u00a0", "\u3000", "é", "e\u0301", "漢", "😀", "\u200d"]
    for _ in range(RANDOM_TEXTS):
        yield "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 12)))


def ours(program, tokenizer, texts):
    lines = "\n".join(text.encode("utf-8").hex() for text in texts) + "\n"
    done = subprocess.run([program, str(tokenizer)], input=lines, capture_output=True, text=True, check=True)
    return [[int(token) for token in line.split()] for line in done.stdout.split("\n")[:-1]]


def first_difference(text, one, other):
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return f"{text[:60]!r}: from token {at} on {one[at:at + 8]}, expected {other[at:at + 8]}"


def main():
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("Python has no tokenizers: nothing to compare with")
        return SKIPPED
    program, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
    with open(fixtures / "cases.json", encoding="utf-8") as file:
        hard = [case["text"] for case in json.load(file) if "text" in case]
    texts = list(every_character()) + list(random_texts(hard)) + hard
    failed = 0
    for kind in ("gpt2", "llama3", "qwen2"):
        path = fixtures / f"{kind}.json"
        theirs = Tokenizer.from_file(str(path))
        got = ours(program, path, texts)
        assert len(got) == len(texts)
        differing = [(text, one, theirs.encode(text, add_special_tokens=False).ids) for text, one in zip(texts, got)]
        differing = [(text, one, other) for text, one, other in differing if one != other]
        for text, one, other in differing[:5]:
            print(f"{kind}: {first_difference(text, one, other)}")
        print(f"{kind}: {len(texts)} texts, {len(differing)} differ")
        failed += len(differing)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
