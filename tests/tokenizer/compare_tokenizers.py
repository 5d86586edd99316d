#!/usr/bin/env python3
"""Compares tokens with those of PyPI's tokenizers: on every character of Unicode and on random hard texts.

usage: compare_tokenizers.py ENCODE_LINES FIXTURES

Vocabularies as small as the fixtures' join few bytes, so that most texts have the same tokens however they are cut into
words. So each fixture's rules are compared with a vocabulary, too, that joins any two bytes of a word.
Ends with 77 (skipped) where Python has no tokenizers (scripts/compare-env installs it).
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

KINDS = ("gpt2", "llama3", "qwen2")
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


def joining_any_two(path, folder):
    """The same rules with a vocabulary of all bytes and pairs of bytes, which join in a random order."""
    with open(path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    model = tokenizer["model"]
    single = sorted(token for token in model["vocab"] if len(token) == 1)
    assert len(single) == 256
    pairs = [[one, other] for one in single for other in single]
    random.Random(2).shuffle(pairs)
    tokens = single + ["".join(pair) for pair in pairs]
    model["vocab"] = {token: number for number, token in enumerate(tokens)}
    model["merges"] = pairs
    for number, added in enumerate(tokenizer["added_tokens"]):
        added["id"] = len(tokens) + number
        model["vocab"].pop(added["content"], None)
    out = pathlib.Path(folder) / path.name
    out.write_text(json.dumps(tokenizer), encoding="utf-8")
    return out


def count_differing(name, program, tokenizer, path, texts):
    got = ours(program, path, texts)
    assert len(got) == len(texts)
    differing = [(text, one, tokenizer.encode(text, add_special_tokens=False).ids) for text, one in zip(texts, got)]
    differing = [(text, one, other) for text, one, other in differing if one != other]
    for text, one, other in differing[:5]:
        print(f"{name}: {first_difference(text, one, other)}")
    print(f"{name}: {len(texts)} texts, {len(differing)} differ")
    return len(differing)


def blind_kinds(rules, texts):
    """Pairs of kinds whose words that vocabulary does not tell apart in these texts: there are none."""
    tokens = {kind: [rule.encode(text, add_special_tokens=False).ids for text in texts] for kind, rule in rules.items()}
    return [(one, other) for one in KINDS for other in KINDS if one < other and tokens[one] == tokens[other]]


def main():
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("Python has no tokenizers: nothing to compare with")
        return SKIPPED
    program, fixtures = sys.argv[1], pathlib.Path(sys.argv[2])
    with open(fixtures / "cases.json", encoding="utf-8") as file:
        hard = [case["text"] for case in json.load(file) if "text" in case]
    unusual = list(random_texts(hard)) + hard
    characters = list(every_character())
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: joining_any_two(fixtures / f"{kind}.json", folder) for kind in KINDS}
        rules = {kind: Tokenizer.from_file(str(path)) for kind, path in paths.items()}
        for one, other in blind_kinds(rules, unusual):
            print(f"{one} and {other} have the same tokens: their words are not compared")
            failed += 1
        for kind in KINDS:
            path = fixtures / f"{kind}.json"
            failed += count_differing(kind, program, Tokenizer.from_file(str(path)), path, unusual)
            failed += count_differing(f"{kind}'s words", program, rules[kind], paths[kind], characters + unusual)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
