"""Where gpu-check's results go, so that they outlive it: each file is whole at any moment."""

import io
import os
import tarfile

ARCHIVED_BYTES = 1 << 20   # of a file, its end
ARCHIVED_FILES = 400
OF_A_RUN = (".log", ".jsonl", ".json", ".txt")


def write(path, text):
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def archive(folder, logs, runs):
    """All logs, and what runs say of themselves, into one file: a failed run's peers have logs of their own."""
    of_runs = (path for path in sorted(runs.rglob("*")) if path.suffix in OF_A_RUN)
    chosen = [path for path in (*sorted(logs.rglob("*")), *of_runs) if path.is_file() and not path.is_symlink()]
    part = folder / "logs.tar.gz.part"
    with tarfile.open(part, "w:gz") as tar:
        for path in chosen[:ARCHIVED_FILES]:
            root = logs.parent if logs in path.parents else runs.parent
            info = tarfile.TarInfo(str(path.relative_to(root)))
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - ARCHIVED_BYTES))
                end = file.read(ARCHIVED_BYTES)
            info.size, info.mtime = len(end), int(path.stat().st_mtime)
            tar.addfile(info, io.BytesIO(end))
    os.replace(part, folder / "logs.tar.gz")
