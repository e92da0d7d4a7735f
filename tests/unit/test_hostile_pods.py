"""Pods whose owners have written into them what makes no sense: the operator sees a plain pod, and goes on."""

from __future__ import annotations

import ssl
from typing import Any

import msgspec
import pytest
from elbowroom.cluster import slim
from elbowroom.cluster.view import View
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.qemu import QemuDriver

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "a date that is none": {"ELBOWROOM_VM": "{memory: 2024-13-45}"},
    "a tag that does not fit": {"ELBOWROOM_VM": "!!timestamp x"},
    "a truth that is none": {"ELBOWROOM_VM": "!!bool x"},
    "brackets without an end": {"ELBOWROOM_VM": "[" * 3000},
    "a book": {"ELBOWROOM_VM": "x: " + "[1]," * 500_000},
    "an object": {"ELBOWROOM_VM": "!!python/object/apply:os.system [true]"},
    "references to references": {"ELBOWROOM_VM": "a: &a [x]\nb: &b [*a,*a,*a]\nmemory: *b"},
    "a number without an end": {"ELBOWROOM_RECEIVE": "9" * 5000},
    "a number of another script": {"ELBOWROOM_RECEIVE": "٣"},
}


def described(**env: str) -> dict[str, Any]:
    return {
        "metadata": {
            "uid": "u", "namespace": "shop", "name": "evil", "resourceVersion": "7", "creationTimestamp": "2026-11-19T08:00:00Z",
            "labels": {"elbowroom.dev/vm": "evil", "elbowroom.dev/movable": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "K" * 3000, "name": "x", "uid": "x", "controller": True}],
        },
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [{
            "name": "main", "env": [{"name": name, "value": value} for name, value in env.items()],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        }]},
        "status": {"phase": "Running"},
    }  # fmt: skip


@pytest.mark.parametrize("what", ENVIRONMENTS)
def test_what_makes_no_sense_ends_nobody(what: str) -> None:
    view = View(QemuDriver(RunnerClient(ssl.create_default_context)))
    view.put_pod(msgspec.convert(described(**ENVIRONMENTS[what]), slim.Pod))
    found = view.store.pod("u")
    assert found is not None
    assert (found.size.cpu, found.guest, found.attempt) == (1000, None, 0)
    # What is told of it is short: it is told to others.
    assert len(found.why_fixed) < 200
