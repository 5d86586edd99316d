"""A run of real processes that other machines reach, for attack_cost.py: a coordinator and four peers with keys, and what
an attacker of it has."""

import fcntl
import json
import multiprocessing
import os
import re
import secrets
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import time

import attack_wire as wire
from attack_kinds import Scene

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "chaos"))
import chaos_runs  # noqa: E402

PATIENCE = 60  # to start, and to end
WORDS_MAX = 90  # of a log line, that are shown
STEPS_FIRST = 10
STAGES, PEERS = 2, 2
FORWARD_MS, BACKWARD_MS = 4, 8
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# What says that the run goes on as it was. Refusals and steps are what an attack may leave.
HARMLESS = ("step", "eval", "start", "checkpoint", "peer_refused", "unprotected")


def missing():
    """What this machine lacks; empty: nothing."""
    if shutil.which("openssl") is None:
        return "there is no program openssl, which makes the attackers' keys"
    if not ssl.HAS_TLSv1_3:
        return "this Python's TLS is older than 1.3"
    return ""


class Program:
    """One process, and what it has said since it was asked last."""

    COUNTED = re.compile(r"\((\d+) such")
    CAUSES = (("a link was not taken", "not taken"), ("bad bytes from", "bad bytes"), ("closed a link", "link closed"),
              ("was refused", "refused"), ("refused a", "refused"), ("closing ", "closed"))

    def __init__(self, folder, name, arguments):
        self.path, self.at = os.path.join(folder, name + ".err"), 0
        with open(self.path, "wb") as err:
            self.child = subprocess.Popen(arguments, stdout=err, stderr=err, cwd=folder)

    def text(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def said_since_last(self):
        text = self.text()
        said, self.at = text[self.at:], len(text)
        return said.splitlines()

    def counted_since_last(self):
        """(how many, the words of the cause that was named most)."""
        counted, words = 0, {}
        for line in self.said_since_last():
            for begins, cause in self.CAUSES:
                if begins in line:
                    number = self.COUNTED.search(line)
                    times = int(number[1]) if number else 1
                    counted += times
                    why = cause + ": " + self.why(line, begins)
                    words[why] = words.get(why, 0) + times
                    break
        return counted, max(words, key=words.get) if words else ""

    @staticmethod
    def why(line, begins):
        text = line[line.index(begins) + len(begins):]
        text = re.sub(r"\S*\d+\.\d+\.\d+\.\d+(:\d+)?", "ADDRESS", text)
        text = re.sub(r" *\(\d+ such[^)]*\)", "", text).replace("; the connection is closed", "")
        return re.sub(r"^[ :]*(from )?(ADDRESS:)? *", "", text)[:WORDS_MAX]

    def cpu_seconds(self):
        with open(f"/proc/{self.child.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self):
        with open(f"/proc/{self.child.pid}/statm", encoding="utf-8") as file:
            return int(file.read().split()[1]) * PAGE_BYTES

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


def takes_and_closes(said, identity):
    """What a process does that wants nothing of whoever connects, but speaks TLS to who begins it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    context.set_alpn_protocols([wire.ALPN])
    with socket.create_server(("0.0.0.0", 0), backlog=1024) as door:
        said.send(door.getsockname()[1])
        while True:
            link, _ = door.accept()
            link.settimeout(0.2)
            try:
                if link.recv(1, socket.MSG_PEEK) == b"\x16":
                    link = context.wrap_socket(link, server_side=True)
                link.recv(4096)
            except OSError:
                pass
            link.close()


class AttackedRun:
    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder
        self.run = os.path.join(folder, "run")
        self.log, self.log_at, self.steps = os.path.join(self.run, "log.jsonl"), 0, []
        self.events, self.programs, self.nobody = [], [], None

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.end()
        if self.nobody:
            self.nobody.kill()
            self.nobody.join()

    def start(self, name, *arguments):
        self.programs.append(Program(self.folder, name, [self.program, *arguments]))
        return self.programs[-1]

    def begin(self):
        chaos_runs.write_text(self.folder)
        config = chaos_runs.write(self.folder, "run.toml", chaos_runs.CONFIG.format(
            folder=self.folder, steps=10_000_000, batch=8, stages=STAGES, peers=PEERS, leases=0, delay=1, checkpoint=0,
            heartbeat=0.5, hop_timeout=10, in_flight=8) + "every_steps = 0\n")
        peer = chaos_runs.write(self.folder, "peer.toml",
                                chaos_runs.PEER.format(forward=FORWARD_MS, backward=BACKWARD_MS))
        # As other machines reach it: that is what asks for keys.
        self.coordinator = self.start("coordinator", "coordinator", config, "--set", 'net.listen="0.0.0.0:0"')
        join = os.path.join(self.run, "keys", "join")
        self.wait(lambda: os.path.exists(join) and os.path.exists(os.path.join(self.run, "coordinator.address")))
        for number in range(STAGES * PEERS):
            self.start(f"peer{number}", "peer", "--join", join, "--config", peer, "--name", f"peer{number}",
                       "--threads", "1")
        self.wait(lambda: self.read_log() or len(self.steps) >= STEPS_FIRST)
        self.target_peer = self.programs[1]
        self.members = self.seats()
        self.arm(join)
        self.events.clear()

    def wait(self, holds):
        until = time.monotonic() + PATIENCE
        while not holds():
            dead = [program for program in self.programs if program.child.poll() is not None]
            if dead or time.monotonic() > until:
                sys.exit("the run does not begin:\n" + "\n".join(program.text()[-2000:] for program in dead or self.programs))
            time.sleep(0.1)

    # ---- What the attacker has ----

    def arm(self, join):
        folder = os.path.join(self.folder, "attacker")
        os.mkdir(folder)
        with open(join, encoding="utf-8") as file:
            join = file.read().strip()
        own = wire.Identity.make(folder, "stranger")
        identities = {"stranger": own, "other": wire.Identity.make(folder, "other"),
                      "p256": wire.Identity.make(folder, "p256", ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")),
                      "long": wire.Identity.make(folder, "long", more=("-addext", "nsComment=" + 60_000 * "x"))}
        run_key = os.path.join(self.run, "keys", "run.key")
        with sqlite3.connect(f"file:{self.run}/journal.sqlite?mode=ro", uri=True) as journal:
            run_id = journal.execute("SELECT value FROM meta WHERE key = 'run_id'").fetchone()[0]

        def certificate(signer=run_key, run=run_id, key=own.hash, seconds=3600):
            return wire.seat_certificate(signer, folder, run, 4000, 0, key, seconds)

        status = self.status()
        name, target = next((f"peer{number}", peer) for number in (0,) for stage in status["stages"]
                            for peer in stage["peers"] if peer["name"] == f"peer{number}")
        stage = next(stage["stage"] for stage in status["stages"] if target in stage["peers"])
        host, port = join.rsplit("@", 1)[1].split(",")[0].rsplit(":", 1)
        fork = multiprocessing.get_context("fork")
        hears, said = fork.Pipe(False)
        self.nobody = fork.Process(target=takes_and_closes, args=(said, identities["other"]), daemon=True)
        self.nobody.start()
        host = host.strip("[]")
        self.addresses = {"nobody": (host, hears.recv()), "coordinator": (host, int(port)),
                          "peer": (host, int(target["address"].rsplit(":", 1)[1]))}
        self.shared = {
            "folder": folder, "identities": identities, "invites": self.invites(join), "run_id": run_id,
            "seat": wire.seat(target["peer"], stage, 1),
            "certificates": {"over": certificate(), "expired": certificate(seconds=-3600),
                             "forged": certificate(signer=own.key), "another's": certificate(key=identities["other"].hash),
                             "another run's": certificate(run="another-0123456789abcdef")}}
        link = self.scene_at("coordinator").link(secrets=True)
        self.shared["replayed"] = link.opening(self.shared["invites"]["peer"])
        link.close()
        self.check_means()

    def check_means(self):
        """What is refused later must be refused for what it is, not since it was said wrongly."""
        link = self.scene_at("coordinator").invited("observer")
        link.socket.sendall(wire.frame(wire.STATUS_REQUEST, request=1))
        status = link.answer()
        link.close()
        link = self.scene_at("peer").link()
        link.says(self.shared["certificates"]["over"])
        shown = link.is_admitted()
        link.close()
        if status != (wire.STATUS_REPLY, False) or shown is not True:
            sys.exit(f"the attackers' means are wrong: a status was answered by {status}, a seat by {shown}")

    def invites(self, join):
        """Those that are over are written as the coordinator writes them."""
        now, given = time.time(), {"peer": wire.Invite.of(join)}
        lines = []
        for name, changes in (("observer", {"scope": "observer"}), ("admin", {"scope": "admin"}),
                              ("expired", {"expires": now - 3600}),
                              ("revoked", {}), ("used up", {"uses": 1}), ("early", {"made": now + 7200})):
            invite = given[name] = wire.Invite(secrets.token_bytes(8), secrets.token_bytes(16))
            lines.append({"format": 1, "invite": invite.id.hex(), "secret": invite.secret.hex(), "scope": "peer",
                          "made": now - 7200, "expires": now + 86400, "uses": 0} | changes)
        lines.append({"format": 1, "revoked": given["revoked"].id.hex(), "at": now})
        lines.append({"format": 1, "admitted": secrets.token_hex(32), "by": given["used up"].id.hex(), "at": now})
        with open(os.path.join(self.run, "keys", "invites.jsonl"), "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(json.dumps(line) + "\n" for line in lines))
        for name in ("nobody's", "another run's"):
            given[name] = wire.Invite(secrets.token_bytes(8), secrets.token_bytes(16))
        return given

    def scene_at(self, where):
        return Scene(address=self.addresses[where], **self.shared)

    def scene(self, attack):
        return self.scene_at(attack.at)

    def target(self, attack):
        return self.target_peer if attack.at == "peer" else self.coordinator

    # ---- How it is ----

    def status(self):
        ended = subprocess.run([self.program, "status", self.run, "--json"], capture_output=True, text=True,
                               timeout=PATIENCE, check=True)
        return json.loads(ended.stdout)

    def seats(self):
        with sqlite3.connect(f"file:{self.run}/journal.sqlite?mode=ro", uri=True) as journal:
            return sorted(map(str, journal.execute("SELECT * FROM seats")))

    def read_log(self):
        if not os.path.exists(self.log):
            return
        with open(self.log, "rb") as file:
            file.seek(self.log_at)
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.log_at += len(text)
        for line in map(json.loads, text.splitlines()):
            if line["kind"] == "step":
                self.steps.append(line["wall_seconds"])
            else:
                self.events.append(line)

    def steps_between(self, begin, end):
        self.read_log()
        return sum(begin <= at < end for at in self.steps)

    def problems(self):
        """What has happened to the run since it was asked last, beside steps."""
        self.read_log()
        found = [f'{event["kind"]}: {event.get("detail", "")}' for event in self.events
                 if event["kind"] not in HARMLESS]
        self.events.clear()
        found += [f"{os.path.basename(program.path)} ended with {program.child.poll()}" for program in self.programs
                  if program.child.poll() is not None]
        if self.seats() != self.members:
            found.append("seats were given or taken")
        return found

    def end(self):
        """Stops it in order, by the frame that others were refused with; what did not go as it should."""
        found = self.problems()
        link = self.scene_at("coordinator").invited("admin")
        link.socket.sendall(wire.frame(wire.STOP_REQUEST, wire.message(f1=0), request=1))
        answer = link.answer()
        link.close()
        if answer != (wire.STOP_REPLY, False):
            found.append(f"an admin's StopRequest was answered by {answer}")
        for program in self.programs:
            try:
                if program.child.wait(PATIENCE) != 0:
                    found.append(f"{os.path.basename(program.path)} ended with {program.child.returncode}: "
                                 f"{program.text()[-300:]}")
            except subprocess.TimeoutExpired:
                found.append(f"{os.path.basename(program.path)} did not end within {PATIENCE} s")
        with open(os.path.join(self.run, "status.json"), encoding="utf-8") as file:
            status = json.load(file)
        if status["state"] != "done" or not os.path.exists(status["checkpoint"] or "-"):
            found.append(f'it is {status["state"]}, its checkpoint "{status["checkpoint"]}": {status["sentence"]}')
        return found
