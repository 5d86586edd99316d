#!/usr/bin/env python3
"""Formats the C++ sources (--fix), or fails when clang-format 19 would change one.

usage: format.py [--fix] ROOT
"""

import shutil
import subprocess
import sys

from sources import cxx_files

SKIPPED = 77
FILES_PER_CALL = 64


def clang_format():
    """The one version whose output counts: others format differently."""
    for name in ("clang-format-19", "clang-format"):
        path = shutil.which(name)
        if path:
            version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
            if " 19." in version:
                return path
    return None


def main():
    fix = "--fix" in sys.argv
    root = sys.argv[-1]
    tool = clang_format()
    if tool is None:
        print("skipped: clang-format 19 is not installed (scripts/bootstrap --tests installs it)")
        return SKIPPED
    files = list(cxx_files(root))
    arguments = ["-i"] if fix else ["--dry-run", "-Werror"]
    status = 0
    for start in range(0, len(files), FILES_PER_CALL):
        call = [tool, *arguments, *files[start:start + FILES_PER_CALL]]
        status |= subprocess.run(call, cwd=root).returncode
    if status and not fix:
        print("Run make fmt to format.")
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main())
