"""Whether a program printed what a page shows, but for its numbers."""

import re

DURATION = re.compile(r"\b(?:\d+h )?(?:\d+m )?\d+(?:\.\d+)?m?s\b")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
UNIT = re.compile(r"#\s*(?:[KMGT]i?B?|B|m?s)\b")
NOTHING = re.compile(r"(?<=\s)-(?=\s|$)")  # a cell without a number
PICTURE = re.compile("[▁▂▃▄▅▆▇█━─]+")


def without_numbers(line):
    """"held-out 2.1" and "held-out  17.25" are the same; so are 3 KiB, 4.5 GiB, 2.1 s and a cell that is "-"."""
    line = PICTURE.sub("~", line)
    line = DURATION.sub("#", line)
    line = NUMBER.sub("#", line)
    line = NOTHING.sub("#", UNIT.sub("#", line))
    return re.sub(r"\s+", " ", line).strip()


def first_missing(shown, printed):
    """The first line of `shown` that `printed` lacks behind the ones before it; None: it has all of them. A line "..."
    stands for any lines, "..." at the end of a line for its rest."""
    actual = [without_numbers(line) for line in printed.splitlines()]
    at = 0
    for line in shown:
        if line.strip() == "...":
            continue
        begins = line.rstrip().endswith("...")
        wanted = without_numbers(line.rstrip()[:-3] if begins else line)
        while at < len(actual) and not (actual[at].startswith(wanted) if begins else actual[at] == wanted):
            at += 1
        if at == len(actual):
            return line
        at += 1
    return None
