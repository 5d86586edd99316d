"""Checkpoints in object storage, by Arrow's file systems; checkpoint_store.cc starts it, once for each request.

arguments: list | push NAME FOLDER | pull NAME FOLDER | digest NAME | remove NAME
input: STORE, which may hold secrets: s3://BUCKET/PATH or gs://BUCKET/PATH, with options of Arrow's after a question mark. A
checkpoint is STORE/NAME/FILE, and is there once its manifest.json is: that is written last and removed first.
output: one line of JSON for each checkpoint (list) or file (digest). Ends with 2 and a sentence for the user if something is wrong
that trying again does not mend, and with 1 and a sentence if it may.
"""

import sys

sys.path[:] = [folder for folder in sys.path if folder]  # not from the folder that it is started in

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import time

PYARROW_NEEDED = 14
MANIFEST = "manifest.json"
FILE = re.compile(r"manifest\.json|stage-\d{1,5}(-\d{1,3})?\.safetensors")
NAME = re.compile(r"step-\d{1,20}")
MANIFEST_BYTES_MAX = 4 << 20
CHECKPOINTS_MAX = 4096
CHUNK_BYTES = 8 << 20
FILES_AT_ONCE = 4
TRIES, PAUSE_SECONDS = 4, 0.5  # of a file; the pause doubles
GS_RETRY_SECONDS = 10  # of a request
EXIT_TRY_AGAIN, EXIT_USER_MISTAKE = 1, 2
# What S3 and GCS say where no second try helps.
FINAL = re.compile(r"ACCESS_DENIED|AccessDenied|NO_SUCH_BUCKET|NoSuchBucket|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|"
                   r"PERMISSION_DENIED|UNAUTHENTICATED|bucket does not exist|Permission denied|No credentials|\bHTTP status 40[13]\b",
                   re.IGNORECASE)


def fail(sentence, code=EXIT_USER_MISTAKE):
    print(sentence, file=sys.stderr)
    raise SystemExit(code)


def shown(url):
    return re.sub(r"//[^/@]*@", "//", url.split("?")[0])


def plain(error):
    return " ".join(str(error).split())[:300].rstrip(". ")


def open_store(url):
    try:
        import pyarrow
        import pyarrow.fs
    except ImportError:
        fail(f"found no pyarrow in {sys.executable}, which reaches {shown(url)}; run {sys.executable} -m pip install pyarrow, "
             "or name another Python by checkpoint.python")
    if int(pyarrow.__version__.split(".")[0]) < PYARROW_NEEDED:
        fail(f"found pyarrow {pyarrow.__version__} in {sys.executable}, expected {PYARROW_NEEDED} or newer; run {sys.executable} -m pip "
             "install --upgrade pyarrow, or name another Python by checkpoint.python")
    if url.startswith("gs://") and "retry_limit_seconds=" not in url:  # Arrow's own is 15 minutes
        url += ("&" if "?" in url else "?") + f"retry_limit_seconds={GS_RETRY_SECONDS}"
    try:
        return Store(pyarrow.fs, *pyarrow.fs.FileSystem.from_uri(url))
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        fail(f"{shown(url)} can't be opened: {plain(error)}", EXIT_TRY_AGAIN if isinstance(error, OSError) else EXIT_USER_MISTAKE)


class Store:
    def __init__(self, fs, system, root):
        self.fs, self.system, self.root = fs, system, root.rstrip("/")

    def at(self, *names):
        return "/".join((self.root, *names))

    def tried(self, work, *arguments):
        """Again after a pause, unless that can't help."""
        for number in range(TRIES):
            try:
                return work(*arguments)
            except OSError as error:
                if isinstance(error, (FileNotFoundError, PermissionError)) or FINAL.search(str(error)) or number + 1 == TRIES:
                    raise
                time.sleep(PAUSE_SECONDS * 2**number)

    def each(self, work, names):
        with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return list(pool.map(lambda name: self.tried(work, name), names))

    def files(self, name):
        """Of a checkpoint: file -> bytes."""
        selector = self.fs.FileSelector(self.at(name), allow_not_found=True)
        infos = self.tried(self.system.get_file_info, selector)
        return {info.base_name: info.size for info in infos if info.type == self.fs.FileType.File and FILE.fullmatch(info.base_name)}

    def read_manifest(self, name):
        with self.system.open_input_stream(self.at(name, MANIFEST)) as stream:
            return stream.read(MANIFEST_BYTES_MAX + 1)[:MANIFEST_BYTES_MAX].decode("utf-8", "replace")

    def check_bucket(self):
        """A list of nothing looks the same where there is no bucket."""
        bucket = self.root.split("/")[0]
        with contextlib.suppress(OSError):  # who may list need not be one who may ask
            if self.system.get_file_info(bucket).type == self.fs.FileType.NotFound:
                fail(f"found no bucket {bucket}, expected one that is there; make it, or name another")

    # ---- Requests ----

    def list(self):
        # All of it at once: GCS knows of no folders, and Arrow names none there that nobody made.
        selector = self.fs.FileSelector(self.root, allow_not_found=True, recursive=True)
        found, times = {}, {}
        for info in self.tried(self.system.get_file_info, selector):
            name, _, file = info.path[len(self.root) + 1:].partition("/")
            if info.type == self.fs.FileType.File and NAME.fullmatch(name) and FILE.fullmatch(file):
                found.setdefault(name, {})[file] = info.size
                times[name] = max(times.get(name, 0), info.mtime.timestamp() if info.mtime else 0)
        if not found:
            self.check_bucket()
        for name, files in sorted(found.items())[:CHECKPOINTS_MAX]:
            manifest = self.tried(self.read_manifest, name) if MANIFEST in files else ""
            print(json.dumps({"name": name, "wall_seconds": times.get(name, 0), "manifest": manifest,
                              "files": [{"file": file, "bytes": size} for file, size in sorted(files.items()) if file != MANIFEST]}))

    def push(self, name, folder):
        wanted = sorted(file for file in os.listdir(folder) if FILE.fullmatch(file) and file != MANIFEST)
        there = self.files(name)
        if MANIFEST in there:  # of another try at that step
            self.tried(self.system.delete_file, self.at(name, MANIFEST))

        def send(file):
            with open(os.path.join(folder, file), "rb") as source, self.system.open_output_stream(self.at(name, file)) as out:
                while chunk := source.read(CHUNK_BYTES):
                    out.write(chunk)

        self.each(send, wanted)
        self.tried(send, MANIFEST)
        for file in there:
            if file != MANIFEST and file not in wanted:
                self.tried(self.system.delete_file, self.at(name, file))

    def pull(self, name, folder):
        def fetch(file):
            with self.system.open_input_stream(self.at(name, file)) as source, open(os.path.join(folder, file), "wb") as out:
                while chunk := source.read(CHUNK_BYTES):
                    out.write(chunk)
                out.flush()
                os.fsync(out.fileno())

        self.each(fetch, sorted(self.files(name)))

    def digest(self, name):
        def sha256(file):
            hashed, size = hashlib.sha256(), 0
            with self.system.open_input_stream(self.at(name, file)) as source:
                while chunk := source.read(CHUNK_BYTES):
                    hashed.update(chunk)
                    size += len(chunk)
            return {"file": file, "bytes": size, "sha256": hashed.hexdigest()}

        for line in self.each(sha256, sorted(file for file in self.files(name) if file != MANIFEST)):
            print(json.dumps(line))

    def remove(self, name):
        there = self.files(name)
        for file in [MANIFEST] * (MANIFEST in there) + sorted(file for file in there if file != MANIFEST):
            self.tried(self.system.delete_file, self.at(name, file))


def main():
    request, names, url = sys.argv[1], sys.argv[2:], sys.stdin.read().strip()
    store = open_store(url)
    try:
        getattr(store, request)(*names)
        sys.stdout.flush()
    except OSError as error:
        final = isinstance(error, PermissionError) or FINAL.search(str(error))
        fail(f"{shown(url)}: {plain(error)}", EXIT_USER_MISTAKE if final else EXIT_TRY_AGAIN)


main()
