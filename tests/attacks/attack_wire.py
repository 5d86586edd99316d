"""What an attacker on the network says to a run: frames (docs/formats/frame.md), join strings, the words of a link
(docs/formats/invites.md), certificates. Python's standard library, and the program `openssl` for keys."""

import base64
import dataclasses
import hashlib
import hmac
import os
import socket
import ssl
import struct
import subprocess
import time

ALPN = "swarmline/1"
HELLO, WELCOME, STEPPED, SHUTDOWN, FENCED, LINK_HELLO, FORWARD, PIECE_REQUEST = 10, 11, 28, 33, 36, 50, 51, 59
RELAY_HELLO, RELAY_WELCOME = 72, 73
STATUS_REQUEST, STATUS_REPLY, STOP_REQUEST, STOP_REPLY, CHALLENGE_REQUEST = 80, 81, 82, 83, 84
PATIENCE = 3  # for an answer
PROTOCOL = 5

# ---- Frames ----

_U64 = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364")


def xxh3(data):
    """XXH3-64 of nothing, or of 17 to 128 bytes: other lengths are not needed here."""
    def word(text, at):
        return int.from_bytes(text[at:at + 8], "little")

    def mix(at, secret):
        product = (word(data, at) ^ word(_SECRET, secret)) * (word(data, at + 8) ^ word(_SECRET, secret + 8))
        return (product & _U64) ^ (product >> 64)

    if not data:
        value = word(_SECRET, 56) ^ word(_SECRET, 64)
        value = (value ^ value >> 33) * _P2 & _U64
        value = (value ^ value >> 29) * _P3 & _U64
        return value ^ value >> 32
    assert 17 <= len(data) <= 128, len(data)
    total = len(data) * _P1
    for pair in range((len(data) - 1) // 32 + 1):
        total += mix(16 * pair, 32 * pair) + mix(len(data) - 16 * (pair + 1), 32 * pair + 16)
    total &= _U64
    total = (total ^ total >> 37) * 0x165667919E3779F9 & _U64
    return total ^ total >> 32


def header(kind, meta_bytes, payload_bytes=0, meta_hash=0, request=0, flags=0, version=1, magic=b"SWRM"):
    first = magic + struct.pack("<HHQIIQI", version, kind, request, meta_bytes, flags, payload_bytes, meta_hash)
    return first + struct.pack("<I", xxh3(first) & 0xFFFFFFFF)


def frame(kind, meta=b"", request=0, **more):
    return header(kind, len(meta), 0, xxh3(meta) & 0xFFFFFFFF, request, **more) + meta


def varint(value):
    text = b""
    while value > 127:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def message(**fields):
    """Protocol Buffers by number, f1=..., f20=...; a field that nobody knows fills it up to a length xxh3() takes."""
    text = b""
    for name, value in fields.items():
        number = int(name[1:])
        if isinstance(value, int):
            text += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            text += varint(number << 3 | 2) + varint(len(value)) + value
    if len(text) < 17:
        text += varint(900 << 3 | 2) + varint(17) + bytes(17)
    return text


def seat(peer, stage, incarnation):
    text = b"".join(varint(number << 3) + varint(value) for number, value in
                    ((1, peer), (2, stage), (3, incarnation)) if value)
    return text


def hello(protocol=PROTOCOL, name="stranger", address="192.0.2.99:9", **more):
    return message(f1=protocol, f2=name, f3=address, **more)


# ---- Keys ----

@dataclasses.dataclass(frozen=True)
class Identity:
    """A key and its certificate, as files; `hash` is what swarmline knows it by."""

    key: str
    certificate: str
    hash: str

    @staticmethod
    def make(folder, name, kind=("-algorithm", "ed25519"), more=()):
        key, certificate = (os.path.join(folder, name + end) for end in (".key", ".pem"))
        openssl("genpkey", *kind, "-out", key)
        openssl("req", "-x509", "-new", "-key", key, "-subj", "/CN=" + name, "-days", "30", "-out", certificate, *more)
        public = openssl("pkey", "-in", key, "-pubout", "-outform", "DER")
        return Identity(key, certificate, hashlib.sha256(public).hexdigest())


def openssl(*arguments, text=b""):
    return subprocess.run(["openssl", *arguments], input=text, check=True, capture_output=True).stdout


def seat_certificate(signer, folder, run_id, peer, stage, key_hash, seconds):
    """Signed by the key in that file."""
    text = f"swarmline seat 1\n{run_id}\n{peer} {stage} 1\n{key_hash}\n{int(time.time() + seconds)}\n"
    path = os.path.join(folder, "to-sign")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return (text + openssl("pkeyutl", "-sign", "-rawin", "-inkey", signer, "-in", path).hex()).encode()


# ---- Links ----

@dataclasses.dataclass(frozen=True)
class Invite:
    id: bytes
    secret: bytes

    @staticmethod
    def of(join_string):
        """swarm1WORD@ADDRESSES"""
        word = join_string.strip()[len("swarm1"):].split("@")[0].upper()
        text = base64.b32decode(word + "=" * (-len(word) % 8))
        at = 1 + text[0] + 32
        return Invite(text[at:at + 8], text[at + 8:at + 24])


class Link:
    """A TLS connection; what the other end answers to an opening; frames."""

    def __init__(self, plain, identity, folder=None, alpn=ALPN, adjust=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if adjust:
            adjust(context)
        if alpn:
            context.set_alpn_protocols([alpn])
        if identity:
            context.load_cert_chain(identity.certificate, identity.key)
        self.keys = None
        if folder:  # of secrets, which only a binding needs
            self.keys = os.path.join(folder, f"secrets-{os.getpid()}-{id(self)}")
            context.keylog_filename = self.keys
        try:
            self.socket = context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    def binding(self):
        """RFC 9266, by the exporter's secret (RFC 8446, 7.5), which Python tells only a file."""
        with open(self.keys, encoding="utf-8") as file:
            secret = next(bytes.fromhex(line.split()[2]) for line in file if line.startswith("EXPORTER_SECRET"))
        os.unlink(self.keys)

        def derived(key, label, context):
            label = b"tls13 " + label
            info = struct.pack(">HB", 32, len(label)) + label + bytes([len(context)]) + context
            return hmac.digest(key, info + b"\1", "sha256")

        nothing = hashlib.sha256().digest()
        return derived(derived(secret, b"EXPORTER-Channel-Binding", nothing), b"exporter", nothing)

    def opening(self, invite, binding=None):
        proof = hmac.digest(invite.secret, b"swarmline join 1\n" + (binding or self.binding()), "sha256")
        return b"join " + invite.id.hex().encode() + b" " + proof.hex().encode()

    def says(self, words):
        self.socket.sendall(struct.pack(">H", len(words)) + words)

    def is_admitted(self):
        """None: it has ended without an answer."""
        try:
            head = self.read(3)
            self.read(struct.unpack(">H", head[1:])[0])
            return head[0] == 0
        except OSError:
            return None

    def read(self, size):
        text = b""
        while len(text) < size:
            more = self.socket.recv(size - len(text))
            if not more:
                raise ConnectionResetError("the end")
            text += more
        return text

    def answer(self):
        """(kind, whether it is an error); None: there is no other."""
        try:
            head = self.read(40)
            self.read(struct.unpack("<I", head[16:20])[0] + struct.unpack("<Q", head[24:32])[0])
            return struct.unpack("<H", head[6:8])[0], bool(head[20] & 2)
        except OSError:
            return None

    def close(self):
        if self.keys and os.path.exists(self.keys):
            os.unlink(self.keys)
        self.socket.close()


def connect(address, source=None):
    plain = socket.create_connection(address, PATIENCE, (source, 0) if source else None)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def client_hello(alpn=ALPN, adjust=None):
    """The first bytes of a handshake, which can be said again and again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if adjust:
        adjust(context)
    if alpn:
        context.set_alpn_protocols([alpn])
    out = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()
