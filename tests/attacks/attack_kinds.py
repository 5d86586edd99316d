"""The attempts that attack_cost.py makes on a living run: what an attacker says, and whether it got in.

A way in is an answer that only members or invited get: a link that is admitted and should not be, a Welcome, a
StopReply, a piece of a state. Each attempt is a function of a Scene; `holds` ones give sockets that stay open."""

import dataclasses
import os
import random
import socket
import ssl
import struct
import time
from typing import Callable

import attack_wire as wire

GIGABYTE = 1 << 30
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 10)]  # of the attacker, beside its own


@dataclasses.dataclass
class Scene:
    """One target, and what the attacker has: keys, invites that are over, an invite that lets it look."""

    address: tuple
    folder: str
    identities: dict  # by name
    invites: dict  # by name
    certificates: dict  # seat certificates by name, as bytes
    run_id: str
    seat: bytes  # of the peer that is attacked
    client_hellos: dict = dataclasses.field(default_factory=dict)
    replayed: bytes = b""

    def plain(self, source=None):
        return wire.connect(self.address, source)

    def link(self, who="stranger", secrets=False, **more):
        identity = self.identities[who] if who else None
        return wire.Link(self.plain(), identity, self.folder if secrets else None, **more)

    def invited(self, by="observer", who="stranger"):
        """A link that is admitted: its attacker has a right to something else."""
        link = self.link(who, secrets=True)
        link.says(link.opening(self.invites[by]))
        if link.is_admitted() is not True:
            link.close()
            raise ConnectionError("not admitted")
        return link

    def hello_bytes(self, kind, **more):
        if kind not in self.client_hellos:
            self.client_hellos[kind] = wire.client_hello(**more)
        return self.client_hellos[kind]


@dataclasses.dataclass(frozen=True)
class Attack:
    name: str
    row: str  # of docs/attacks.md: what it begins with
    attempt: Callable  # of a Scene: True: it got in; of one that holds, of a Scene and a number: a socket
    at: str = "coordinator"  # or "peer", or "nobody": a process of nobody's that takes connections and closes them
    holds: int = 0  # so many connections stay open
    drip: bytes = b""  # a byte a second over each of these
    quiet: bool = False  # it is answered or left unheard, and nothing is counted

    @property
    def control(self):
        """What this machine loses by such a process or such connections, whoever they are for."""
        return self.at == "nobody"


# ---- Bytes before any TLS -----------------------------------------------------------------------


def says(*texts):
    """Connects, says one of these and goes."""
    def attempt(scene):
        with scene.plain() as link:
            text = random.choice(texts)
            link.sendall(text() if callable(text) else text)
        return False
    return attempt


def resets(scene):
    with scene.plain() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def some_bytes():
    return os.urandom(random.choice((1, 2, 5, 39, 40, 41, 300, 4096, 65536)))


def stop_in_clear(scene):
    """Waits for what comes: any frame would be an answer."""
    with scene.plain() as link:
        link.sendall(wire.frame(wire.STOP_REQUEST, wire.message(f1=1), request=1))
        return hears_a_frame(link)


def hears_a_frame(link):
    link.settimeout(wire.PATIENCE)
    try:
        return link.recv(40).startswith(b"SWRM")
    except OSError:
        return False


def greets(kind="good", cut=None, then=b"", waits=True, **more):
    """A ClientHello made once: the other end computes, this one does not."""
    def attempt(scene):
        with scene.plain() as link:
            link.sendall(scene.hello_bytes(kind, **more)[:cut] + then)
            if cut is None and waits:
                link.settimeout(0.2)
                try:
                    link.recv(1)
                except OSError:
                    pass
        return False
    return attempt


# ---- Handshakes ---------------------------------------------------------------------------------


def old_tls(context):
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2


def shakes(who="stranger", opening=b"", head=None, **more):
    """A handshake with something wrong in it, and an opening that is none."""
    def attempt(scene):
        try:
            link = scene.link(who, **more)
        except OSError:
            return False
        try:
            if head is not None:
                link.socket.sendall(head)
            else:
                link.says(opening(scene) if callable(opening) else opening)
            return link.is_admitted() is True
        except OSError:
            return False
        finally:
            link.close()
    return attempt


def claims(invite, bad_secret=False):
    """The proof of an invite that does not let it in."""
    def attempt(scene):
        given = scene.invites[invite]
        if bad_secret:
            given = wire.Invite(given.id, os.urandom(16))
        try:
            link = scene.link(secrets=True)
        except OSError:
            return False
        try:
            link.says(link.opening(given))
            return link.is_admitted() is True
        except OSError:
            return False
        finally:
            link.close()
    return attempt


# ---- Behind the door ----------------------------------------------------------------------------


def frames(*texts, by="observer", bad=(wire.WELCOME, wire.RELAY_WELCOME, wire.STOP_REPLY), answers=None):
    """Over a link that may look, or that may join: as many answers as frames, or `answers`."""
    def attempt(scene):
        link = scene.invited(by)
        try:
            for text in texts:
                link.socket.sendall(text(scene) if callable(text) else text)
            heard = [link.answer() for _ in range(len(texts) if answers is None else answers)]
            return any(one and one[0] in bad and not one[1] for one in heard)
        except OSError:
            return False
        finally:
            link.close()
    return attempt


def unread(scene):
    """Asks, and reads nothing of what it is told."""
    link = scene.invited()
    try:
        link.socket.setblocking(False)
        text = b"".join(wire.frame(wire.STATUS_REQUEST, b"", request=number) for number in range(1, 400))
        until = time.monotonic() + 1
        while time.monotonic() < until:
            try:
                link.socket.send(text)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                time.sleep(0.01)
    except OSError:
        pass
    finally:
        link.close()
    return False


# ---- Between peers ------------------------------------------------------------------------------


def member(certificate, *texts):
    """Shows a seat; says frames as that seat. An answer to them is a way in."""
    def attempt(scene):
        link = scene.link()
        try:
            link.says(scene.certificates[certificate])
            admitted = link.is_admitted()
            if not texts or not admitted:
                return bool(admitted)
            for text in texts:
                link.socket.sendall(text(scene) if callable(text) else text)
            return link.answer() is not None
        except OSError:
            return False
        finally:
            link.close()
    return attempt


def link_hello(run=None, proof=os.urandom(32)):
    return lambda scene: wire.frame(wire.LINK_HELLO, wire.message(
        f3=run or scene.run_id, f4=wire.seat(4000, 0, 1), f5=scene.seat, **({"f6": proof} if proof else {}))[:128])


# ---- Connections that stay ----------------------------------------------------------------------


def opens(text=b"", sources=(None,)):
    def attempt(scene, number):
        link = scene.plain(sources[number % len(sources)])
        if text:
            link.sendall(text(scene) if callable(text) else text)
        return link
    return attempt


def half_a_hello(scene, _number):
    link = scene.invited("peer")
    try:
        link.socket.sendall(wire.header(wire.HELLO, 8 << 20) + bytes(1 << 20))
    except OSError:
        pass  # it was closed: there were too many
    return link.socket


def spins(_scene):
    until = time.monotonic() + 0.01
    while time.monotonic() < until:
        pass
    return False


# Rows of docs/attacks.md, by how they begin.
TLS, CLAIM, SCOPE = "bytes that are no TLS", "an invite that never was", "a request that one's invite is not for"
HEADER, LORIS, HALF_OPEN = "a header that announces 128 MiB", "slow-loris", "10 000 half-open connections"
HELLOS, ASKING, TEXTS = "many half-sent Hellos", "asking and not reading", "terminal escapes"
STREAMS, STOP, OTHERS = "a flood of bad streams", "one `StopRequest` frame", "messages under another's name"
NO_SEAT, NO_KEY, SEAT_ROW = "a link to a peer", "a link under a member's name", "another's seat in the place"
FIELD_STOP = wire.message(f1=1)
SOMEBODY = wire.seat(1, 0, 1)

ALL = (
    Attack("no connection, a process that computes", "-", spins, at="nobody"),
    Attack("connect and close, as fast as it can", "-", says(b""), at="nobody"),
    Attack("a line of text", "-", says(b"hello, are you there?\n"), at="nobody"),
    Attack("a ClientHello, gone before its answer", "-", greets(waits=False), at="nobody"),
    Attack("connect and reset", "-", resets, at="nobody"),
    Attack("its own key and nothing to say", "-", shakes(), at="nobody"),
    # Before TLS
    Attack("connect and close, as fast as it can", TLS, says(b"")),
    Attack("connect and reset", TLS, resets),
    Attack("a line of text", TLS, says(b"hello, are you there?\n")),
    Attack("an HTTP request", TLS, says(b"GET / HTTP/1.1\r\nHost: swarm\r\n\r\n")),
    Attack("an SSH banner, an HTTP/2 preface", TLS, says(b"SSH-2.0-x\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")),
    Attack("random bytes of 1 to 65 536", TLS, says(some_bytes)),
    Attack("a StatusRequest in clear text", TLS, says(wire.frame(wire.STATUS_REQUEST, b"", request=1))),
    Attack("a StopRequest in clear text", TLS, stop_in_clear),
    Attack("headers in clear text: 128 MiB, 1 GiB", TLS,
           says(wire.header(wire.HELLO, 128 << 20), wire.header(wire.FORWARD, 9, GIGABYTE))),
    Attack("a TLS record that never comes whole", TLS, says(b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03")),
    # The handshake
    Attack("half a ClientHello", TLS, greets(cut=120)),
    Attack("a ClientHello and no more", TLS, greets()),
    Attack("a ClientHello, gone before its answer", TLS, greets(waits=False)),
    Attack("a ClientHello, then random bytes", TLS, greets(then=os.urandom(2000))),
    Attack("a ClientHello of TLS 1.2", TLS, greets("old", adjust=old_tls)),
    Attack("TLS 1.2", TLS, shakes(adjust=old_tls)),
    Attack("another ALPN", TLS, shakes(alpn="h2")),
    Attack("no ALPN", TLS, shakes(alpn=None)),
    Attack("no certificate", TLS, shakes(who=None)),
    Attack("a certificate of another kind of key (P-256)", TLS, shakes(who="p256")),
    Attack("a certificate of 60 KiB", TLS, shakes(who="long")),
    Attack("another group (P-384)", TLS, shakes(adjust=lambda context: context.set_ecdh_curve("secp384r1"))),
    Attack("its own key and nothing to say", TLS, shakes()),
    # What it says after it
    Attack("an opening of 65 535 bytes", TLS, shakes(head=b"\xff\xff" + bytes(3000))),
    Attack("an opening of random bytes", CLAIM, shakes(opening=lambda _: os.urandom(200))),
    Attack("an HTTP request within TLS", CLAIM, shakes(head=b"\0\x20GET / HTTP/1.1\r\nHost: swarm\r\n\r\n..")),
    Attack("an invite that never was", CLAIM, claims("nobody's")),
    Attack("a known invite and a guessed secret", CLAIM, claims("peer", bad_secret=True)),
    Attack("an expired invite", CLAIM, claims("expired")),
    Attack("a revoked invite", CLAIM, claims("revoked")),
    Attack("a used-up invite", CLAIM, claims("used up")),
    Attack("an invite of a time to come", CLAIM, claims("early")),
    Attack("another run's invite", CLAIM, claims("another run's")),
    Attack("the proof of another link", CLAIM, shakes(opening=lambda scene: scene.replayed)),
    Attack("a seat that another key has signed", SEAT_ROW,
           shakes(opening=lambda scene: b"join 0 0\n" + scene.certificates["forged"])),
    Attack("a seat that is another key's", SEAT_ROW,
           shakes(opening=lambda scene: b"join 0 0\n" + scene.certificates["another's"])),
    Attack("a seat that has expired", SEAT_ROW,
           shakes(opening=lambda scene: b"join 0 0\n" + scene.certificates["expired"])),
    # With an invite that lets it look
    Attack("an observer's StopRequest", SCOPE, frames(wire.frame(wire.STOP_REQUEST, FIELD_STOP, request=1))),
    Attack("an observer's StopRequest with a guessed proof", SCOPE, frames(
        wire.frame(wire.STOP_REQUEST, wire.message(f1=1, f2=os.urandom(32)), request=1))),
    Attack("an observer's Hello", SCOPE, frames(wire.frame(wire.HELLO, wire.hello(), request=1))),
    Attack("an observer's RelayHello", SCOPE,
           frames(wire.frame(wire.RELAY_HELLO, wire.message(f1=wire.PROTOCOL, f2="r", f3="h:1"), request=1))),
    Attack("an observer asks for nonces, 50 at a time", SCOPE,
           frames(*[wire.frame(wire.CHALLENGE_REQUEST, b"", request=n) for n in range(1, 51)]), quiet=True),
    Attack("an observer asks for the status, 50 at a time", ASKING,
           frames(*[wire.frame(wire.STATUS_REQUEST, b"", request=n) for n in range(1, 51)]), quiet=True),
    Attack("an observer asks and does not read", ASKING, unread, quiet=True),
    Attack("a header of 40 bytes: 128 MiB of Hello", HEADER, frames(wire.header(wire.HELLO, 128 << 20, request=1))),
    Attack("a header of 40 bytes: 1 GiB of payload", HEADER, frames(wire.header(wire.HELLO, 60, GIGABYTE, request=1))),
    Attack("a header of 40 bytes: 4 GiB of meta, 16 EiB of payload", HEADER,
           frames(wire.header(wire.HELLO, 2**32 - 1, 2**64 - 1))),
    Attack("garbage after the handshake", STREAMS, frames(os.urandom(4096))),
    Attack("a frame of another version, a wrong hash", STREAMS, frames(
        lambda _: random.choice((wire.frame(wire.HELLO, b"", version=9), wire.header(wire.HELLO, 30) + bytes(30))))),
    # With an invite to join, and no seat
    Attack("a Hello of another protocol", TEXTS, frames(
        wire.frame(wire.HELLO, wire.hello(protocol=999), request=1), by="peer")),
    Attack("a Hello with terminal escapes for a name", TEXTS, frames(
        wire.frame(wire.HELLO, wire.hello(name="\x1b[2J\x1b[31mroot\r\n"), request=1), by="peer")),
    Attack("50 Hellos in one connection", TEXTS, frames(
        *[wire.frame(wire.HELLO, wire.hello(protocol=999), request=n) for n in range(1, 51)], by="peer", answers=2)),
    Attack("a newcomer's StopRequest", SCOPE, frames(
        wire.frame(wire.STOP_REQUEST, FIELD_STOP, request=1), by="peer")),
    Attack("Stepped, Fenced and Shutdown without a seat", OTHERS, frames(
        *[wire.frame(kind, wire.message(f1=wire.seat(1, 0, 1), f2=9)) for kind in
          (wire.STEPPED, wire.FENCED, wire.SHUTDOWN)], wire.frame(wire.STATUS_REQUEST, b"", request=1),
        by="peer", answers=1), quiet=True),
    # Connections that stay
    Attack("4096 half ClientHellos of eight addresses", HALF_OPEN,
           opens(lambda scene: scene.hello_bytes("good")[:200], ADDRESSES), holds=4096),
    Attack("slow-loris: a byte a second, 64 connections", LORIS, opens(), holds=64, drip=b"\x16\x03\x01\x02\x00\x01"),
    Attack("512 half-open connections", HALF_OPEN, opens(), holds=512),
    Attack("4096 half-open connections of one address", HALF_OPEN, opens(), holds=4096),
    Attack("4096 half-open connections of eight addresses", HALF_OPEN, opens(sources=ADDRESSES), holds=4096),
    Attack("512 handshakes that stop after the ClientHello", HALF_OPEN,
           opens(lambda scene: scene.hello_bytes("good")), holds=512),
    Attack("4096 handshakes of eight addresses that stop after the ClientHello", HALF_OPEN,
           opens(lambda scene: scene.hello_bytes("good"), ADDRESSES), holds=4096),
    Attack("256 handshakes that end, and say nothing", HALF_OPEN, lambda scene, _: scene.link().socket, holds=256),
    Attack("64 half-sent Hellos of 8 MiB", HELLOS, half_a_hello, holds=64),
    # A peer's port
    Attack("connect and close, as fast as it can", TLS, says(b""), at="peer"),
    Attack("random bytes of 1 to 65 536", TLS, says(some_bytes), at="peer"),
    Attack("a LinkHello in clear text", NO_SEAT, says(wire.frame(wire.LINK_HELLO, wire.message(f1=1))), at="peer"),
    Attack("a ClientHello and no more", TLS, greets(), at="peer"),
    Attack("no certificate", TLS, shakes(who=None), at="peer"),
    Attack("its own key and no seat", NO_SEAT, shakes(), at="peer"),
    Attack("an invite in the place of a seat", NO_SEAT, claims("peer"), at="peer"),
    Attack("a seat that another key has signed", NO_SEAT, member("forged"), at="peer"),
    Attack("a seat that is another key's", NO_SEAT, member("another's"), at="peer"),
    Attack("a seat that has expired", NO_SEAT, member("expired"), at="peer"),
    Attack("a seat of another run", NO_SEAT, member("another run's"), at="peer"),
    Attack("a LinkHello without the members' key", NO_KEY, member("over", link_hello(proof=None)), at="peer"),
    Attack("a LinkHello with a guessed proof, a Forward of another stage", NO_KEY, member(
        "over", link_hello(), wire.frame(wire.FORWARD, wire.message(f2=1))), at="peer"),
    Attack("a PieceRequest in the place of a LinkHello", NO_KEY, member(
        "over", wire.frame(wire.PIECE_REQUEST, wire.message(f2=1))), at="peer"),
    Attack("Shutdown, Fenced from a stranger", NO_KEY, member(
        "over", wire.frame(wire.SHUTDOWN, wire.message(f1=1)), wire.frame(wire.FENCED, wire.message(f1=SOMEBODY))),
        at="peer"),
    Attack("a header of 40 bytes: 1 GiB of payload", HEADER,
           member("over", wire.header(wire.FORWARD, 60, GIGABYTE)), at="peer"),
    Attack("512 half-open connections", HALF_OPEN, opens(), at="peer", holds=512),
    Attack("slow-loris: a byte a second, 64 connections", LORIS, opens(), at="peer", holds=64,
           drip=b"\x16\x03\x01\x02\x00\x01"),
)
