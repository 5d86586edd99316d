"""Phrases that an English-speaking reader stumbles over, and what to write instead. lint.py looks for them in what
the program prints (string literals outside tests) and in the pages.
"""

import re

PHRASES = (
    (r"machines? that one does not have", "hardware you don't have"),
    (r"\bparted by\b", "separated by"),
    (r"shows? what can be said", "lists the options"),
    (r"\bMay listen beyond\b", "Allow listening on"),
    (r"\bTries so long\b", "Keep retrying for this long"),
    (r"\bHold the device so long\b", "Make each pass take this long"),
    (r"\bOf its network\b", "Network bandwidth"),
    (r"\bHurt a real run\b", "Inject faults into a real run"),
    (r"\bmay be repeated\b", "repeatable"),
    (r"\bbegun again\b", "restarted"),
    (r"\bleased a second time\b", "handed to a second peer"),
    (r"\bgoes on from\b", "resumes from"),
    (r"\bWhere to\b", "Output file"),
    (r"\bWhat computes\b", "Compute device"),
    (r"\bkeep \S+( \S+)? to oneself\b", "keep it private"),
    (r"\bas bad as one's own\b", "like a real slow one"),
)
COMPILED = tuple((re.compile(phrase), instead) for phrase, instead in PHRASES)

LITERALS = re.compile(r'(?:"(?:\\.|[^"\\\n])*"\s*)+|R"([^(\s]*)\((.*?)\)\1"', re.S)
PIECE = re.compile(r'"((?:\\.|[^"\\\n])*)"')
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def problems_in(text):
    """Yields (offset, problem)."""
    for phrase, instead in COMPILED:
        for found in phrase.finditer(text):
            yield found.start(), f'"{found.group(0)}" is no English of ours: write "{instead}" or the like'


def said_by(source):
    """Yields (line, text) of what C++ source may print: literals side by side are one text."""
    bare = COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), source) if '"//' not in source else source
    for found in LITERALS.finditer(bare):
        text = found.group(2) if found.group(2) is not None else "".join(PIECE.findall(found.group(0)))
        yield bare.count("\n", 0, found.start()) + 1, text
