"""What a program draws on a terminal of a given size, and a picture of it. For scripts/pictures."""

import fcntl
import html
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import unicodedata

FRAME = re.compile("\x1b\\[\\?2026h(.*?)\x1b\\[\\?2026l", re.S)
STYLE = re.compile("\x1b\\[([0-9;]*)m")
ESCAPE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
FILLS = {"31": "#f47067", "32": "#57ab5a", "33": "#c69026", "2": "#768390"}
INK, PAPER = "#d5dbe3", "#1c2128"
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8.4, 18, 12


def first_frame(arguments, columns, rows, seconds, folder):
    """The lines of the first whole frame that it draws, with their styles; then it is ended. None: there was none in time."""
    control, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(arguments, cwd=folder, env=environment, stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    drawn, end = b"", time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            if not select.select([control], [], [], 1)[0]:
                continue
            try:
                drawn += os.read(control, 1 << 16)
            except OSError:  # it has ended
                return None
            found = FRAME.search(drawn.decode(errors="replace").replace("\r", ""))
            if found:
                return [line.replace("\x1b[K", "") for line in found.group(1).replace("\x1b[J", "").rstrip("\n").split("\n")]
        return None
    finally:
        process.kill()
        process.wait()
        os.close(control)


def plain(line):
    return ESCAPE.sub("", line)


def columns_of(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain(line))


def spans(line):
    """Yields (codes, text)."""
    codes, at = "", 0
    for found in STYLE.finditer(line):
        if found.start() > at:
            yield codes, ESCAPE.sub("", line[at:found.start()])
        codes, at = found.group(1), found.end()
    if at < len(line):
        yield codes, ESCAPE.sub("", line[at:])


def svg(lines, columns, rows):
    """Each span stands in its own columns, whatever font there is."""
    width, height = columns * CELL_WIDTH + 2 * MARGIN, rows * CELL_HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">',
           f'<rect width="100%" height="100%" rx="6" fill="{PAPER}"/>',
           f'<g font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="14" fill="{INK}" xml:space="preserve">']
    for row, line in enumerate(lines):
        column = 0
        for codes, text in spans(line):
            if text.strip():
                fill = "".join(f' fill="{FILLS[code]}"' for code in codes.split(";") if code in FILLS)
                bold = ' font-weight="bold"' if "1" in codes.split(";") else ""
                out.append(f'<text x="{MARGIN + column * CELL_WIDTH:.1f}" y="{MARGIN + row * CELL_HEIGHT + 13}" '
                           f'textLength="{len(text) * CELL_WIDTH:.1f}" lengthAdjust="spacingAndGlyphs"{fill}{bold}>{html.escape(text)}</text>')
            column += len(text)
    return "\n".join([*out, "</g>", "</svg>", ""])
