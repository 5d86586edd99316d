"""A headless Chromium, driven over its own pipe (Chrome DevTools Protocol), with nothing but the standard library.

Used by tests of the page and by scripts/pictures. Every wait has a bound; the browser ends with its `with`.
"""

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
START_SECONDS = 60
ANSWER_SECONDS = 60


UNPACKED = os.path.join(os.path.dirname(__file__), "..", "..", ".deps", "chromium")  # by scripts/bootstrap --tests
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def find_browser():
    """The path of a Chromium, or None."""
    unpacked = os.path.join(os.path.abspath(UNPACKED), "usr", "lib", "chromium", "chromium")
    return next((path for path in map(shutil.which, (*PROGRAMS, unpacked)) if path), None)


def environment_of(program):
    """One that is unpacked finds its libraries beside it."""
    root = os.path.abspath(UNPACKED)
    if not program.startswith(root):
        return None
    libraries = os.path.join(root, LIBRARIES)
    paths = [libraries, os.path.join(libraries, "pulseaudio"), os.environ.get("LD_LIBRARY_PATH")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}


class BrowserError(Exception):
    pass


class Browser:
    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory(prefix="swarmline-browser-")
        commands, self.out = os.pipe()
        self.into, answers = os.pipe()

        def give_pipes():
            for source, target in ((commands, 3), (answers, 4)):
                os.dup2(source, target)

        # Its sandbox needs what containers and root lack; it opens pages of this machine alone.
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--hide-scrollbars", "--mute-audio",
             "--force-color-profile=srgb", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}",
             "about:blank"],
            preexec_fn=give_pipes, pass_fds=(3, 4), start_new_session=True, env=environment_of(program),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.buffer, self.number, self.session = b"", 0, None
        self.problems = []  # what pages complained of
        target = self.call("Target.createTarget", {"url": "about:blank"}, START_SECONDS)["targetId"]
        self.session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.out)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # it and its helpers: they are a group of their own
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.into)
        self.profile.cleanup()

    def call(self, method, parameters=None, seconds=ANSWER_SECONDS):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters or {}}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self.receive(end - time.monotonic(), method)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def receive(self, seconds, what):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise BrowserError(f"{what}: no answer in time")
            more = os.read(self.into, 1 << 20)
            if not more:
                raise BrowserError(f"{what}: the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        self.note(message)
        return message

    def note(self, message):
        parameters = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.problems.append(f"{entry['text']} {entry.get('url', '')}")
        elif message.get("method") == "Runtime.consoleAPICalled" and parameters["type"] == "error":
            self.problems.append(" ".join(str(each.get("value")) for each in parameters["args"]))

    def size(self, width, height, mobile=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride",
                  {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile})

    def scheme(self, name):
        """light or dark, as the system would say."""
        self.call("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]})

    def open(self, url):
        answer = self.call("Page.navigate", {"url": url})
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")

    def value(self, expression):
        """Of JavaScript, on the page."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']['text']}")
        return answer["result"].get("value")

    def until(self, expression, seconds):
        """Waits until it is true, and returns whether it became so."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.value(expression):
                    return True
            except BrowserError:  # the page is not there yet
                self.process.poll()
                if self.process.returncode is not None:
                    raise
            time.sleep(0.1)
        return False

    def picture(self, path, whole=False):
        answer = self.call("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole})
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))
