"""Runs whose page is looked at: real swarms in a folder of their own, ended with the test whatever happens."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE_SECONDS = 120  # on a loaded machine
SKIPPED = 77            # ctest's exit code of a test that did not run

CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "tiny.toml")


def check(holds, *what):
    if not holds:
        print("FAILED:", *what, flush=True)
        sys.exit(1)


def wait_for(holds, what, seconds=PATIENCE_SECONDS):
    """What `holds` returns, once that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.05)
    check(False, "waited in vain for", what)


class Process:
    def __init__(self, folder, name, arguments):
        self.output = os.path.join(folder, f"{name}.out")
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(arguments, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def text(self):
        with open(self.output, encoding="utf-8", errors="replace") as output:
            return output.read()

    def wait(self, seconds=PATIENCE_SECONDS):
        return self.process.wait(seconds)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its children, too: they are a group of their own
        self.process.wait()


class Runs:
    """A folder with runs in it, and the processes that were started for them."""

    def __init__(self, program):
        self.program = os.path.abspath(program)
        self.processes = []

    def __enter__(self):
        self.temp = tempfile.TemporaryDirectory(prefix="swarmline-page-")
        self.folder = self.temp.name
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.end()
        self.temp.cleanup()

    def start(self, name, *arguments):
        process = Process(self.folder, name, [self.program, *arguments])
        self.processes.append(process)
        return process

    def run(self, *arguments):
        """(exit code, output)"""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS, check=False)
        return done.returncode, done.stdout.decode(errors="replace")

    def launch(self, name, *sets, more=()):
        return self.start(name, "launch", CONFIG, "--name", name, *more,
                          *[word for each in sets for word in ("--set", each)])

    def path(self, run, *names):
        return os.path.join(self.folder, "runs", run, *names)

    def read(self, run, name):
        try:
            with open(self.path(run, name), encoding="utf-8") as file:
                return file.read().strip()
        except FileNotFoundError:
            return ""

    def page_of(self, run, process):
        """(URL without a token, token), once there is one."""
        def served():
            check(process.process.poll() is None, "it ended:", process.text())
            return self.read(run, "page.url")
        return split_url(wait_for(served, f"the page of {run}"))


def split_url(url):
    base, token = url.split("?token=")
    return base, token


def ask(base, path, token=None, headers=None, context=None):
    """(status, text)"""
    request = urllib.request.Request(base.rstrip("/") + path, headers=headers or {})
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def ask_json(base, path, token, context=None):
    status, text = ask(base, path, token, context=context)
    check(status == 200, path, status, text)
    return json.loads(text)


def stream_of(base, token):
    """(event, data) until the server ends it."""
    request = urllib.request.Request(base + "api/stream", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        check(answer.headers["Content-Type"] == "text/event-stream", answer.headers)
        event = None
        for line in answer:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                yield event, json.loads(line[6:])


def all_steps(base, token):
    steps, evals, start = [], {}, 0
    while start is not None:
        part = ask_json(base, f"/api/steps?from={start}", token)
        steps += part["steps"]
        evals.update({each["step"]: each for each in part["evals"]})
        start = part["next"]
    return steps, evals
