"""Holds as the guard sees them, without a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
from elbowroom.cluster import slim
from elbowroom.guard.book import Book


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
