"""Holds and questions as the guard sees them, without a cluster."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from elbowroom.cluster import slim
from elbowroom.guard.book import Book

Json = dict[str, Any]


def hold(uid: str = "h", node: str = "n1", phase: str = "Held", **spec: Any) -> slim.Hold:
    """Describe a hold of shop/db, which pays with shop/web, for two cores more."""
    body = {
        "metadata": {"name": uid, "uid": uid, "resourceVersion": "1", "creationTimestamp": "2026-11-18T08:00:00Z"},
        "spec": {
            "node": node, "claimant": {"namespace": "shop", "name": "db", "uid": "db"},
            "request": {"namespace": "shop", "name": "grow-db", "uid": "r"}, "target": {"cpu": "4", "memory": "2Gi"},
            "had": {"cpu": "2", "memory": "2Gi"},
            "payers": [{"pod": {"namespace": "shop", "name": "web", "uid": "web"}, "receiver": "web-2"}], **spec,
        },
        "status": {"phase": phase},
    }  # fmt: skip
    return msgspec.convert(body, slim.Hold)


def book(*holds: slim.Hold) -> Book:
    found = Book()
    for item in holds or (hold(),):
        found.put(item)
    return found


def pod(name: str = "thief", *, cpu: str = "1", node: str = "", **meta: Any) -> Json:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "uid": name, "namespace": "shop", "resourceVersion": "1", **meta},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
    }


def review(  # noqa: PLR0913
    resource: str, sub: str, what: object, *, before: object = None, name: str = "thief", user: str = "jane",
    groups: tuple[str, ...] = ("g",),
) -> bytes:  # fmt: skip
    request = {
        "uid": "42", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": resource}, "subResource": sub, "name": name,
        "namespace": "shop", "operation": "CREATE", "userInfo": {"username": user, "groups": groups}, "object": what,
        "oldObject": before, "dryRun": False,
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def binding(node: str = "n1") -> Json:
    return {"metadata": {"name": "thief"}, "target": {"kind": "Node", "name": node}}
