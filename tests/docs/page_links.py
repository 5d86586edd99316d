#!/usr/bin/env python3
"""Links between pages lead somewhere: the file exists, and the heading behind a '#'. docs/README.md leads to every page
of docs/ once, itself or through the index of a folder. Prints page:line: what does not.

usage: page_links.py ROOT
"""

import glob
import os
import re
import sys

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors_of(text):
    """As GitHub makes them of headings."""
    found = {}
    for heading in HEADING.findall(FENCED.sub("", text)):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def links_of(page):
    """Yields (line, link) of links to files of the repository."""
    text = FENCED.sub(lambda found: re.sub(r"[^\n]", " ", found.group(0)), read(page))
    for found in LINK.finditer(text):
        if not re.match(r"\w+:", found[1]):
            yield text.count("\n", 0, found.start()) + 1, found[1]


def problems(page):
    for line, link in links_of(page):
        file, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), file)) if file else page
        if not os.path.exists(path):
            yield line, f"there is no {link}"
        elif anchor and anchor not in anchors_of(read(path)):
            yield line, f"{file or 'this page'} has no heading #{anchor}"


def reached_from(index):
    """The pages that an index leads to; those of a folder with an index of its own through that."""
    reached = {os.path.normpath(os.path.join(os.path.dirname(index), link.split("#")[0])) for _, link in links_of(index)}
    for path in list(reached):
        if os.path.basename(path) == "README.md" and path != index and os.path.dirname(path).startswith(os.path.dirname(index)):
            reached |= reached_from(path)
    return reached


def main():
    root = os.path.abspath(sys.argv[1])
    pages = [path for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "tests/*.md", "pipeline/**/*.md")
             for path in sorted(glob.glob(os.path.join(root, pattern), recursive=True))]
    wrong = 0
    for page in pages:
        for line, problem in problems(page):
            print(f"{os.path.relpath(page, root)}:{line}: {problem}")
            wrong += 1
    index = os.path.join(root, "docs", "README.md")
    targets = [link for _, link in links_of(index)]
    for link in sorted({link for link in targets if targets.count(link) > 1}):
        print(f"docs/README.md: it leads to {link} twice")
        wrong += 1
    reached = reached_from(index)
    for page in pages:
        if page.startswith(os.path.join(root, "docs") + os.sep) and page != index and page not in reached:
            print(f"docs/README.md: it does not lead to {os.path.relpath(page, root)}")
            wrong += 1
    print(f"{len(pages)} pages, {wrong} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
