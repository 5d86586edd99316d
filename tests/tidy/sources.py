"""The source files that the tidy tests look at."""

import os

# Folders with code, relative to the repository's root.
FOLDERS = ("base", "kernels", "compression", "engine", "balancer", "pipeline", "sim", "console", "node", "tools", "cli", "tests", "bench",
           "cmake", "scripts")
CXX_SUFFIXES = (".h", ".cc", ".cu", ".cuh")


def cxx_files(root):
    """Yields the paths of C++ and CUDA files, relative to root, in a fixed order."""
    for folder in FOLDERS:
        for path, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            for name in sorted(names):
                if name.endswith(CXX_SUFFIXES):
                    yield os.path.relpath(os.path.join(path, name), root)
