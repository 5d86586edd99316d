"""As much of pyarrow.fs as checkpoint_store.py asks for, over a folder.

While there is a file $SWARMLINE_STORE_ROOT/failing, each request fails with the error that it holds (a builtin's name, then what
it says), and adds a line to the file "failures".
"""

import builtins
import dataclasses
import datetime
import enum
import os
import pathlib


class FileType(enum.Enum):
    NotFound = 0
    File = 2
    Directory = 3


@dataclasses.dataclass
class FileSelector:
    base_dir: str
    allow_not_found: bool = False
    recursive: bool = False


@dataclasses.dataclass
class FileInfo:
    path: str
    type: FileType
    size: int = 0
    mtime: object = None

    @property
    def base_name(self):
        return os.path.basename(self.path)


class FileSystem:
    def __init__(self, root):
        self.root = pathlib.Path(root)

    @staticmethod
    def from_uri(url):
        place = url.split("://")[1].split("?")[0]
        return FileSystem(os.environ["SWARMLINE_STORE_ROOT"]), place.split("@")[-1]

    def place(self, path):
        failing = self.root / "failing"
        if failing.exists():
            with (self.root / "failures").open("a") as failures:
                failures.write(path + "\n")
            name, says = failing.read_text().split(" ", 1)
            raise getattr(builtins, name)(says)
        return self.root / path

    def info(self, place):
        path = str(place.relative_to(self.root))
        if not place.exists():
            return FileInfo(path, FileType.NotFound)
        if place.is_dir():
            return FileInfo(path, FileType.Directory)
        status = place.stat()
        return FileInfo(path, FileType.File, status.st_size, datetime.datetime.fromtimestamp(status.st_mtime, datetime.timezone.utc))

    def get_file_info(self, what):
        if not isinstance(what, FileSelector):
            return self.info(self.place(what))
        base = self.place(what.base_dir)
        if not base.is_dir():
            if what.allow_not_found:
                return []
            raise FileNotFoundError(what.base_dir)
        return [self.info(place) for place in sorted(base.rglob("*") if what.recursive else base.iterdir())]

    def open_input_stream(self, path):
        return self.place(path).open("rb")

    def open_output_stream(self, path):
        place = self.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.open("wb")

    def delete_file(self, path):
        self.place(path).unlink()
