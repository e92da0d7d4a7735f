"""An admission webhook that a pod of the testbed serves."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from support.certificates import self_signed
from support.namespace import IDLE, pod
from support.testbed import KUBECTL, PYTHON_IMAGE, complete

if TYPE_CHECKING:
    from support.namespace import Json, Namespace

SERVER = """
import http.server, json, ssl

class Webhook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = review["request"]["name"] or review["request"]["object"]["metadata"]["name"]
        allowed = not name.startswith("forbidden")
        response = {"uid": review["request"]["uid"], "allowed": allowed, "status": {"message": f"no room for {name}, says the pod"}}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("", 8443), Webhook)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/certificate/tls.crt", "/certificate/tls.key")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""


def configuration(namespace: str, authority: str) -> Json:
    """Ask the service about new pods of this namespace, and of no other."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "room.elbowroom.test", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
                "timeoutSeconds": 5,
                "clientConfig": {
                    "service": {"namespace": namespace, "name": "webhook", "port": 443},
                    "caBundle": base64.b64encode(authority.encode()).decode(),
                },
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            }
        ],
    }  # fmt: skip


def test_a_webhook_in_a_pod_refuses_a_pod_with_its_own_message(namespace: Namespace) -> None:
    certificate = self_signed(f"webhook.{namespace.name}.svc")
    secret = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "certificate"},
        "stringData": {"tls.crt": certificate.certificate, "tls.key": certificate.key},
    }  # fmt: skip
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "webhook"},
        "spec": {"selector": {"app": "webhook"}, "ports": [{"port": 443, "targetPort": 8443}]},
    }  # fmt: skip
    server = pod(
        "webhook",
        ["python3", "-c", SERVER],
        image=PYTHON_IMAGE,
        volumes=[{"name": "certificate", "secret": {"secretName": "certificate"}}],
    )
    server["metadata"]["labels"] = {"app": "webhook"}
    server["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "certificate", "mountPath": "/certificate"}], "readinessProbe": {"tcpSocket": {"port": 8443}, "periodSeconds": 1},
    }  # fmt: skip
    namespace.apply(secret, service, server)
    namespace.until_ready("webhook")
    namespace.kubectl(
        "wait",
        "endpointslice",
        "-l",
        "kubernetes.io/service-name=webhook",
        "--for=jsonpath={.endpoints[0].conditions.ready}=true",
        "--timeout=20s",
    )
    namespace.apply(configuration(namespace.name, certificate.certificate))
    try:
        refused = complete(
            KUBECTL,
            "-n",
            namespace.name,
            "run",
            "forbidden-fruit",
            "--image=any",
            env={"KUBECONFIG": str(namespace.testbed.kubeconfig)},
        )
        assert refused.returncode == 1
        assert "no room for forbidden-fruit, says the pod" in refused.stderr
        namespace.start(pod("welcome", IDLE))
    finally:
        namespace.kubectl("delete", "validatingwebhookconfiguration", namespace.name)
