#!/usr/bin/env python3
"""A cloud's metadata server, as its documentation has it: EC2 (IMDSv2), Compute Engine or Azure.

usage: fake_metadata_server.py CLOUD FOLDER [--address ADDRESS] [--seconds 20]
Prints its port. The file FOLDER/notice, once it is there, is the notice: that the machine goes, --seconds after the file was
written; FOLDER/broken makes it answer 503. It begins with an answer that is garbage, and EC2's tokens live for three
requests. FOLDER/acknowledged holds what Azure was told.
"""

import argparse
import datetime
import http.server
import json
import os
import time

PARSER = argparse.ArgumentParser()
PARSER.add_argument("cloud", choices=("aws", "gcp", "azure"))
PARSER.add_argument("folder")
PARSER.add_argument("--address", default="127.0.0.1")
PARSER.add_argument("--seconds", type=float, default=20, help="from the notice to the machine's end")
FLAGS = PARSER.parse_args()
CLOUD, FOLDER = FLAGS.cloud, FLAGS.folder
TOKEN_REQUESTS = 3
WAIT_SECONDS = 60


def has(name):
    return os.path.exists(os.path.join(FOLDER, name))


def end_of_machine(form):
    at = os.path.getmtime(os.path.join(FOLDER, "notice")) + FLAGS.seconds
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime(form)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tokens, garbage = {}, [True]

    def log_message(self, *arguments):
        pass

    def answer(self, status, body="", **headers):
        data = body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refused(self):
        if has("broken"):
            self.answer(503, "busy")
            return True
        if self.garbage and self.command == "GET":
            self.garbage.clear()
            self.wfile.write(b"this is no HTTP\r\n\r\n")
            self.close_connection = True
            return True
        return False

    def do_PUT(self):
        if self.refused():
            return
        if CLOUD != "aws" or self.path != "/latest/api/token" or not self.headers.get("X-aws-ec2-metadata-token-ttl-seconds"):
            return self.answer(400)
        token = f"token-{len(self.tokens)}=="
        self.tokens[token] = TOKEN_REQUESTS
        self.answer(200, token)

    def do_GET(self):
        if not self.refused():
            getattr(self, CLOUD)()

    def aws(self):
        token = self.headers.get("X-aws-ec2-metadata-token")
        if self.tokens.get(token, 0) <= 0:
            return self.answer(401)
        self.tokens[token] -= 1
        if self.path == "/latest/meta-data/spot/instance-action" and has("notice"):
            body = {"action": "terminate", "time": end_of_machine("%Y-%m-%dT%H:%M:%SZ")}
            return self.answer(200, json.dumps(body))
        self.answer(404)

    def gcp(self):
        if self.headers.get("Metadata-Flavor") != "Google" or not self.path.startswith("/computeMetadata/v1/instance/preempted"):
            return self.answer(403)
        until = time.monotonic() + (WAIT_SECONDS if "last_etag=e0" in self.path else 0)
        while time.monotonic() < until and not has("notice"):
            time.sleep(0.05)
        self.answer(200, "TRUE" if has("notice") else "FALSE", ETag="e1" if has("notice") else "e0")

    def azure(self):
        if self.headers.get("Metadata") != "true":
            return self.answer(400)
        if self.path.startswith("/metadata/instance/compute/name"):
            return self.answer(200, "vm-7")
        events = []
        if has("notice"):
            events.append({"EventId": "E-1", "EventType": "Preempt", "ResourceType": "VirtualMachine", "Resources": ["vm-7"],
                           "EventStatus": "Scheduled", "NotBefore": end_of_machine("%a, %d %b %Y %H:%M:%S GMT")})
        self.answer(200, json.dumps({"DocumentIncarnation": len(events), "Events": events}))

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        with open(os.path.join(FOLDER, "acknowledged"), "w") as out:
            out.write(body)
        self.answer(200)


server = http.server.ThreadingHTTPServer((FLAGS.address, 0), Handler)
print(f"port {server.server_port}", flush=True)
server.serve_forever()
