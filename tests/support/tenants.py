"""A tenant: somebody with a role in a namespace of its own, a real token, and whatever it likes in its pods."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING

import yaml

from .namespace import Namespace, fresh_namespace
from .testbed import KUBECTL, PYTHON_IMAGE, complete

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .namespace import Json
    from .testbed import Testbed

# What a runner is asked for, answered by somebody who wants others to wait. It has its VM's certificate.
HOSTILE_RUNNER = """
import http.server, itertools, json, os, signal, ssl, sys
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
mode, known, revisions = os.environ["MODE"], {"attempt": 0, "committed": False}, itertools.count(1)
shape = dict(machine="q35", accelerator="tcg", cpuModel="max", cpus=1, maxCpus=4, plugged=[], memory=1 << 27,
             maxMemory=1 << 30, requestedMemory=0, disks=0, network="user")
def status():
    told = dict(revision=next(revisions), vm="evil", namespace=os.environ["SPACE"], runner="1", qemu="10.0.2",
                state="Running", shape=shape, lastAttempt=known["attempt"])
    if known["attempt"]:
        phase = "Copying" if mode == "stalls" else "Switching" if known["committed"] else "AtBrink"
        told["outgoing"] = dict(attempt=known["attempt"], phase=phase, committed=known["committed"],
                                to={"host": "10.9.9.9"}, limits={}, progress={"percent": 50})
    return told
class Runner(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def say(self, code, body):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if mode == "refuses":
            self.say(403, json.dumps({"reason": "Forbidden", "message": "never " * 2000}).encode())
        elif mode == "rubbish":
            self.say(200, b"\\xff" * 300000)
        else:
            self.say(200, json.dumps(status()).encode())
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/cancel":
            return self.say(409, json.dumps({"reason": "Committed", "message": "never"}).encode())
        if self.path == "/v1/migrate":
            known["attempt"] = asked["attempt"]
        if self.path == "/v1/commit":
            known["committed"] = True
        self.say(200, b"{}")
server = http.server.ThreadingHTTPServer(("0.0.0.0", 8443), Runner)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/etc/elbowroom/tls/tls.crt", "/etc/elbowroom/tls/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


class Tenant:
    """Somebody with a role in one namespace."""

    def __init__(self, space: Namespace, folder: Path, role: str) -> None:
        """Give somebody that role, and a token."""
        self.space, testbed = space, space.testbed
        self.account = f"system:serviceaccount:{space.name}:mallory"
        testbed.kubectl("-n", space.name, "create", "serviceaccount", "mallory")
        bound = (f"--clusterrole={role}", f"--serviceaccount={space.name}:mallory")
        testbed.kubectl("-n", space.name, "create", "rolebinding", "mallory", *bound)
        token = testbed.kubectl("-n", space.name, "create", "token", "mallory").strip()
        found = yaml.safe_load(testbed.kubeconfig.read_text())
        found["users"] = [{"name": item["name"], "user": {"token": token}} for item in found["users"]]
        self._kubeconfig = folder / f"{space.name}.kubeconfig"
        self._kubeconfig.write_text(yaml.safe_dump(found))

    def tries(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl with its token in its namespace; return what was refused, and nothing where it was done."""
        env = {"KUBECONFIG": str(self._kubeconfig)}
        done = complete(KUBECTL, "-n", self.space.name, *arguments, within=60, stdin=stdin, env=env)
        return "" if done.returncode == 0 else done.stderr

    def applies(self, *objects: Json) -> str:
        """Create or change objects; return what was refused."""
        return self.tries("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def hostile_vm(self, name: str, node: str, mode: str, *, cpu: str = "1") -> Json:
        """Describe a pod that says it is a VM which may be moved."""
        return {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"elbowroom.dev/vm": "evil", "elbowroom.dev/movable": "true"}},
            "spec": {
                "restartPolicy": "Never", "nodeName": node, "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "runner", "image": PYTHON_IMAGE, "command": ["python3", "-c", HOSTILE_RUNNER],
                    "env": [{"name": "MODE", "value": mode}, {"name": "SPACE", "value": self.space.name}],
                    "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                    "volumeMounts": [{"name": "certificate", "mountPath": "/etc/elbowroom/tls", "readOnly": True}],
                }],
                "volumes": [{"name": "certificate", "secret": {"secretName": "elbowroom-vm-evil"}}],
            },
        }  # fmt: skip


@contextmanager
def tenant(testbed: Testbed, folder: Path, role: str = "edit") -> Iterator[Tenant]:
    """Make a namespace for somebody with a role in it."""
    with fresh_namespace(testbed, role) as space:
        yield Tenant(space, folder, role)
