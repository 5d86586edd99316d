"""What a page has for a reader to type, and how it is tried: fenced blocks, and marks in HTML comments.

A block whose language is sh or console is typed by the reader. It is run as it stands unless a mark before it says
otherwise; in a console block the lines that begin with "$ " are run, and what is below them is their output.

    <!-- test: skip REASON -->        the next block is not run
    <!-- test: slow -->               the next block is run by the slow test alone
    <!-- test: needs PROGRAM -->      it is run where there is such a program
    <!-- test: exit 3 -->             its last command ends with this exit code
    <!-- test: background TEXT -->    it goes on beside what follows, once it has printed TEXT
    <!-- test: on B -->               it is typed on the machine called B, in a folder of its own
    <!-- test: file NAME -->          the reader saves the next block under this name
    <!-- test: setup [on B] COMMANDS -->  commands that readers do not see
    <!-- test: start [on B] "TEXT" COMMANDS -->  the same, in the background, once it has printed TEXT
    <!-- test: finished quickstart -->    runs/quickstart and runs/quickstart-reference are there, finished
    <!-- test: replace LINE => LINE -->   from here on, a line of a block is run as another one; "=> skip: REASON": not
    <!-- test: wait -->               what runs in the background ends with exit code 0

COMMANDS, and several replacements, stand on lines of their own inside the comment.
"""

import dataclasses
import re

FENCE = re.compile(r"^(`{3,})([\w+-]*)(?: [^`]*)?$")
MARK = re.compile(r"^<!-- test: (\w+)(.*)$")
COMMAND = re.compile(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )?(?:sudo )?(?:swarmline [a-z-]+(?: |$)|make [a-z]|make$|build/|scripts/|bench/\w|"
                     r"cmake |ctest |ninja |python3 |pip3? |docker |podman |etcdctl |sqlite3 |apt-get |git clone|curl |ssh )")
TYPED = ("sh", "bash", "console")
OF_A_BLOCK = ("skip", "slow", "needs", "exit", "background", "on", "file")
STANDALONE = ("setup", "start", "finished", "replace", "wait")


@dataclasses.dataclass
class Block:
    line: int
    language: str
    lines: list
    marks: dict

    @property
    def is_typed(self):
        return self.language in TYPED


@dataclasses.dataclass
class Mark:
    line: int
    name: str
    text: str


class PageError(Exception):
    pass


def _read_mark(lines, at):
    """The mark that begins at lines[at], and the index behind it."""
    end = at
    while "-->" not in lines[end]:
        end += 1
        if end == len(lines):
            raise PageError(f"{at + 1}: this comment does not end")
    text = "\n".join(lines[at:end + 1])
    begun = MARK.match(text.split("\n")[0])
    body = text[begun.start(2):text.index("-->")].strip()
    return Mark(at + 1, begun[1], body), end + 1


def _check(mark):
    if mark.name not in OF_A_BLOCK + STANDALONE:
        raise PageError(f"{mark.line}: there is no mark \"{mark.name}\"; pages.py lists them")
    if mark.name == "skip" and len(mark.text) < 10:
        raise PageError(f"{mark.line}: say why the block is not run")
    if mark.name == "exit" and not mark.text.isdigit():
        raise PageError(f"{mark.line}: expected an exit code")
    if mark.name == "start" and not re.match(r'(on \w )?".+"\n', mark.text):
        raise PageError(f"{mark.line}: expected \"TEXT\" and commands on lines of their own")
    if mark.name == "replace":
        for line in mark.text.split("\n"):
            if "=>" not in line:
                raise PageError(f"{mark.line}: expected LINE => LINE, found {line}")


def _read_block(lines, at, marks):
    fence = FENCE.match(lines[at])
    end = at + 1
    while end < len(lines) and not lines[end].startswith(fence[1]):
        end += 1
    if end == len(lines):
        raise PageError(f"{at + 1}: this block does not end")
    block = Block(at + 1, fence[2], lines[at + 1:end], {mark.name: mark.text for mark in marks})
    if not any(line.strip() for line in block.lines):
        raise PageError(f"{at + 1}: this block is empty")
    if not block.language:
        for number, line in enumerate(block.lines, at + 2):
            if COMMAND.match(line):
                raise PageError(f"{number}: a block with commands says what it is: sh, console, or text if nobody types it")
    if marks and not block.is_typed and "file" not in block.marks:
        raise PageError(f"{marks[0].line}: this mark is for a block of sh or console")
    if block.language == "console" and not any(line.startswith("$ ") for line in block.lines):
        raise PageError(f"{at + 1}: commands of a console block begin with \"$ \"")
    return block, end + 1


def read_page(text):
    """The blocks and standalone marks of a page, in its order. Raises PageError."""
    lines = text.split("\n")
    items, waiting, at = [], [], 0
    while at < len(lines):
        line = lines[at]
        if MARK.match(line):
            mark, at = _read_mark(lines, at)
            _check(mark)
            (items if mark.name in STANDALONE else waiting).append(mark)
            continue
        if FENCE.match(line):
            block, at = _read_block(lines, at, waiting)
            items.append(block)
            waiting = []
            continue
        if waiting and line.strip():
            raise PageError(f"{waiting[0].line}: no block follows this mark")
        if line.startswith("    ") and COMMAND.match(line):
            raise PageError(f"{at + 1}: put commands between ``` fences")
        at += 1
    if waiting:
        raise PageError(f"{waiting[0].line}: no block follows this mark")
    return items


def commands_of(block):
    """The text that a reader types of a block; of a console block without its output."""
    if block.language != "console":
        return "\n".join(block.lines)
    typed, goes_on = [], False
    for line in block.lines:
        if line.startswith("$ ") or goes_on:
            typed.append(line[2:] if line.startswith("$ ") else line)
            goes_on = line.endswith("\\")
    return "\n".join(typed)


def output_of(block):
    """The lines that a console block shows as output."""
    shown, goes_on = [], False
    for line in block.lines if block.language == "console" else []:
        if line.startswith("$ ") or goes_on:
            goes_on = line.endswith("\\")
        elif line.strip():
            shown.append(line)
    return shown
