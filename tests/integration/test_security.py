"""The cluster's doors are locked: who may do what is decided by certificates, tokens, RBAC and Node authorization."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from support.namespace import IDLE, pod
from support.testbed import KUBECTL, PYTHON_IMAGE, complete
from support.waiting import until

if TYPE_CHECKING:
    from support.namespace import Json, Namespace
    from support.testbed import Testbed

# What an in-cluster client does: token, authority and address from where every pod finds them.
IN_CLUSTER = """
import os, ssl, urllib.error, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
namespace = open(f"{account}/namespace").read()
context = ssl.create_default_context(cafile=f"{account}/ca.crt")
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
for resource in ("configmaps", "secrets"):
    request = urllib.request.Request(f"https://{host}:{port}/api/v1/namespaces/{namespace}/{resource}")
    request.add_header("Authorization", "Bearer " + open(f"{account}/token").read())
    try:
        print(resource, urllib.request.urlopen(request, context=context, timeout=10).status, flush=True)
    except urllib.error.HTTPError as error:
        print(resource, error.code, flush=True)
"""


def rbac(name: str, namespace: str) -> list[Json]:
    """Allow a service account to list config maps, and nothing else."""
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
        {
            "apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
        },
        {
            "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    ]  # fmt: skip


def test_a_deployment_may_do_what_its_role_allows_and_nothing_else(namespace: Namespace) -> None:
    template = pod(
        "unused",
        ["python3", "-c", IN_CLUSTER + "import time\nwhile True: time.sleep(1)"],
        image=PYTHON_IMAGE,
        serviceAccountName="reader",
    )
    deployment = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "reader"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "reader"}},
            "template": {"metadata": {"labels": {"app": "reader"}}, "spec": template["spec"]},
        },
    }  # fmt: skip
    namespace.apply(*rbac("reader", namespace.name), deployment)
    namespace.kubectl("rollout", "status", "deployment/reader", "--timeout=60s", within=70)
    until(
        "both processes have asked",
        lambda: (
            namespace.kubectl("logs", "-l", "app=reader", "--prefix=false").split()
            == ["configmaps", "200", "secrets", "403"] * 2
        ),
    )


def url(testbed: Testbed) -> str:
    return str(testbed.status()["server"])


def trusting(testbed: Testbed) -> ssl.SSLContext:
    """Trust the testbed's authority, and show no certificate."""
    encoded = testbed.kubectl(
        "config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"
    )
    return ssl.create_default_context(cadata=base64.b64decode(encoded).decode())


def test_a_stranger_is_refused(testbed: Testbed) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url(testbed)}/api/v1/pods", context=trusting(testbed), timeout=10)  # noqa: S310
    assert refused.value.code == 403


def test_the_api_server_shows_a_certificate_of_the_testbeds_own_authority_only(testbed: Testbed) -> None:
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{url(testbed)}/healthz", context=ssl.create_default_context(), timeout=10)  # noqa: S310


def test_a_node_may_not_speak_for_another(namespace: Namespace, testbed: Testbed) -> None:
    def may(*what: str, node: str) -> str:
        asked = complete(
            KUBECTL, "auth", "can-i", *what, "--as", f"system:node:{node}", "--as-group", "system:nodes",
            env={"KUBECONFIG": str(testbed.kubeconfig)},
        )  # fmt: skip
        return asked.stdout.strip()

    namespace.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"word": "sesame"}}
    )
    namespace.start(
        pod("user", IDLE, node="node-1", volumes=[{"name": "key", "secret": {"secretName": "key"}}],
            container={"volumeMounts": [{"name": "key", "mountPath": "/key"}]})
    )  # fmt: skip
    get = ("get", "secret/key", "-n", namespace.name)
    assert may(*get, node="node-1") == "yes"
    assert may(*get, node="node-2").startswith("no")


def test_the_kubelet_asks_who_is_there(namespace: Namespace, testbed: Testbed) -> None:
    node = testbed.status()["nodes"][0]
    probe = (
        "import ssl, urllib.request, urllib.error\n"
        "context = ssl.create_default_context(cafile='/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')\n"
        f"request = urllib.request.Request('https://{node['ip']}:10250/pods')\n"
        "import sys\n"
        "if len(sys.argv) > 1: request.add_header('Authorization', 'Bearer ' + open('/var/run/secrets/kubernetes.io/serviceaccount/token').read())\n"
        "try: print(urllib.request.urlopen(request, context=context, timeout=10).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    namespace.start(pod("curious", IDLE, image=PYTHON_IMAGE))
    assert namespace.kubectl("exec", "curious", "--", "python3", "-c", probe).strip() == "401"
    assert namespace.kubectl("exec", "curious", "--", "python3", "-c", probe, "with-token").strip() == "403"


def test_tokens_name_their_pod_and_end(namespace: Namespace) -> None:
    namespace.start(pod("holder", IDLE))
    token = namespace.kubectl("exec", "holder", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = json.loads(namespace.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["authenticated"]
    assert answer["status"]["user"]["username"] == f"system:serviceaccount:{namespace.name}:default"
    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["holder"]


def test_a_container_sees_neither_the_testbeds_keys_nor_its_sockets(namespace: Namespace, testbed: Testbed) -> None:
    namespace.start(pod("snoop", IDLE))
    listing = namespace.kubectl("exec", "snoop", "--", "sh", "-c", f"find {testbed.directory} /run | sort")
    assert "pki" not in listing
    assert "sock" not in listing
