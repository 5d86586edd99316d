#!/usr/bin/env python3
"""The page of real runs as a program sees it: while they train, when they are over, and from other machines.

usage: page_of_a_run.py SWARMLINE
"""

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys

from served_run import PATIENCE_SECONDS, Runs, all_steps, ask, ask_json, check, split_url, stream_of, wait_for

STEPS = 100
# A step takes long enough for all of it to be looked at, on a busy machine, too.
EMULATED = [word for seat in ("0:0", "0:1", "1:0", "1:1") for word in ("--emulate", f"{seat}=8/16")]


def metrics_of(text):
    """{name: value} of the series without labels."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        # page_test parses it strictly; here every line has its form.
        line = re.compile(r'# (HELP|TYPE) swarmline_\w+ .+|swarmline_\w+(\{(\w+="[^"]*",?)*\})? \S+')
        for each in text.splitlines():
            check(line.fullmatch(each), "a line that is none:", each)
        names = dict(re.findall(r"^(swarmline_\w+) (\S+)$", text, re.M))
    else:
        names = {sample.name: sample.value for family in text_string_to_metric_families(text)
                 for sample in family.samples if not sample.labels}
    check(float(names["swarmline_journal_up"]) == 1, names)
    return {name: float(value) for name, value in names.items()}


def while_it_trains(runs):
    launch = runs.launch("tiny", f"run.steps={STEPS}", "eval.every_steps=50", more=EMULATED)
    base, token = runs.page_of("tiny", launch)
    check(base.startswith("http://127.0.0.1:"), base)
    for name in ("page.url", "page.token"):
        mode = stat.S_IMODE(os.stat(runs.path("tiny", name)).st_mode)
        check(mode == 0o600, name, oct(mode))
    status, page = ask(base, "/")
    check(status == 200 and "<title>Swarmline</title>" in page, status, page)
    for headers, expected in (({}, 401), ({"Authorization": "Bearer " + "0" * 32}, 401),
                              ({"Authorization": f"Bearer {token}", "Host": "evil.example"}, 403),
                              ({"Authorization": f"Bearer {token}", "Origin": "http://evil.example"}, 403)):
        status, text = ask(base, "/api/status", headers=headers)
        check(status == expected and "training" not in text, headers, status, text)
    told, last = {}, None
    evals, events = {}, []
    for event, data in stream_of(base, token):
        if event == "step":
            told[data["step"]] = data["loss"]
            if data["step"] == 20:
                # The status, and what is made of it, may be a little older than the stream.
                wait_for(lambda: metrics_of(ask(base, "/metrics", token)[1])["swarmline_step"] >= 20, "the step")
                command = json.loads(runs.run("status", "--json", "runs/tiny")[1])
                check(list(command) == list(ask_json(base, "/api/status", token)), "one schema for all")
                check(command["page"] == base, command["page"])
                text = runs.run("status", "runs/tiny")[1]
                check(f"page {base}?token={token}\n" in text, text)
                for step in all_steps(base, token)[0]:  # what was before the stream began
                    told.setdefault(step["step"], step["loss"])
        elif event == "eval":
            evals[data["step"]] = data["loss"]
        elif event == "event":
            events.append(data["kind"])
        else:
            last = (event, data if event == "end" else last)
            if event == "status":
                last = (event, data)
                newest = data
    check(last[0] == "end", "the stream ended with", last)
    check(newest["state"] == "done" and newest["step"] == STEPS, newest["state"], newest["step"])
    check(sorted(told) == list(range(1, STEPS + 1)), "steps that were told:", sorted(told))
    check(set(evals) >= {50, STEPS}, "evaluations that were told:", evals)
    check("end" in events, events)
    check(launch.wait() == 0, launch.text())
    check(f"its page: {base}?token={token}\n" in launch.text(), launch.text())
    for log in os.listdir(runs.path("tiny", "logs")):
        check(token not in runs.read("tiny", f"logs/{log}"), "others may read", log)
    check(not runs.read("tiny", "page.url"), "the page is gone with its coordinator")
    return told, newest


def when_it_is_over(runs, told, newest):
    show = runs.start("show", "show", "runs/tiny")
    said = wait_for(lambda: re.search(r"http://\S+", show.text()), "the URL that show prints")
    base, token = split_url(said.group(0))
    check(base.startswith("http://127.0.0.1:"), base)
    steps, evals = all_steps(base, token)
    check({step["step"]: step["loss"] for step in steps} == told, "the same steps, read from the folder")
    check(set(evals) >= {50, STEPS}, evals)
    status = wait_for(lambda: json.loads(ask(base, "/api/status", token)[1]), "a status")
    check(status["step"] == STEPS and status["loss"] == newest["loss"], status)
    check(status["page"] == "", status["page"])
    check([event for event, _ in stream_of(base, token)] == ["status", "end"], "a stream of what is over")
    check(ask(base, "/api/status", "0" * 32)[0] == 401, "another token")
    show.interrupt()
    check(show.wait() == 0, show.text())
    code, text = runs.run("show", "runs/nowhere")
    check(code == 2 and "runs/nowhere" in text, code, text)


def ends_as_soon_as_it_says_so(runs):
    """Whoever reads how to end it may do so at once: what it prints waits here, in a pipe that is full."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writing, b"\n"):
            pass
    os.set_blocking(writing, True)
    with subprocess.Popen([runs.program, "show", "runs/tiny"], cwd=runs.folder, stdin=subprocess.DEVNULL, stdout=writing) as show:
        os.close(writing)
        try:
            wait_for(lambda: catches(show.pid, signal.SIGINT), "show to catch a signal before it says that it does", 20)
            show.send_signal(signal.SIGINT)
            with open(reading, "rb") as said:
                said.read()  # so that it goes on; what the signal interrupted may be lost
            check(show.wait(PATIENCE_SECONDS) == 0, show.returncode)
        finally:
            show.kill()


def catches(pid, signal_number):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status.read(), re.MULTILINE)
    return int(caught.group(1), 16) >> (signal_number - 1) & 1


def what_users_get_wrong(runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, text = runs.run("launch", "--name", "taken", "--set", f"net.page=127.0.0.1:{port}", *config())
        check(code == 2 and f"net.page: cannot listen on 127.0.0.1:{port}" in text, code, text)
        check(not os.path.exists(runs.path("taken")), "nothing was begun")
        code, text = runs.run("show", "runs/tiny", "--port", str(port))
        check(code == 2 and "--port" in text, code, text)
    code, text = runs.run("launch", "--name", "none", "--set", "net.page=none", "--set", "run.steps=2", *config())
    check(code == 0 and "its page" not in text, code, text)


def config():
    return (os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "tiny.toml"),)


def from_other_machines(runs):
    coordinator = runs.start("coordinator", "coordinator", *config(), "--name", "far", "--set", "net.listen=0.0.0.0:0",
                             "--set", "net.page=0.0.0.0:0", "--set", "net.advertise=127.0.0.1:0")
    wait_for(lambda: "its page: https://" in coordinator.text(), "the page of the coordinator")
    base, token = runs.page_of("far", coordinator)
    pem = runs.path("far", "keys", "page.pem")
    check(stat.S_IMODE(os.stat(pem).st_mode) == 0o600, pem)
    trusting = ssl.create_default_context(cafile=pem)
    check(ask_json(base, "/api/status", token, trusting)["state"] == "waiting", base)
    code, text = runs.run("invite", "runs/far", "--scope", "observer", "--ttl", "1h")
    url = next((line for line in text.splitlines() if line.startswith("https://")), None)
    check(code == 0 and url, code, text)
    _, invited = split_url(url)
    check(invited != token, "a token of its own")
    wait_for(lambda: ask(base, "/api/status", invited, context=trusting)[0] == 200, "the invite to be known")
    code, text = runs.run("invite", "revoke", invited[:16], "runs/far")
    check(code == 0, text)
    wait_for(lambda: ask(base, "/api/status", invited, context=trusting)[0] == 401, "the invite to be revoked")
    check(ask(base, "/api/status", token, context=trusting)[0] == 200, "the owner's token stays")
    coordinator.interrupt()
    coordinator.wait()


def main():
    with Runs(sys.argv[1]) as runs:
        told, newest = while_it_trains(runs)
        when_it_is_over(runs, told, newest)
        ends_as_soon_as_it_says_so(runs)
        what_users_get_wrong(runs)
        from_other_machines(runs)
    print("ok")


if __name__ == "__main__":
    main()
