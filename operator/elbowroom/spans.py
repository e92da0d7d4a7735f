"""The spans of requests and migrations, from their objects. Pure. docs/metrics.md says what is in them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from elbowroom.traces import Place, Span

if TYPE_CHECKING:
    from elbowroom.core.world import MigrationStatus, RequestStatus

Json = dict[str, Any]
_NAMES: Final = {"VMScaleRequest": "scale request", "VMMigration": "migration"}
_GOOD: Final = "Succeeded"


def place(body: Json) -> Place:
    """Return where an object's span is: a migration's in the trace of the request that it is made for."""
    uid = body["metadata"]["uid"]
    return Place(_owner(body).trace, Place.of(uid).span)


def _owner(body: Json) -> Place:
    return Place.of(body["spec"].get("request", {}).get("uid") or body["metadata"]["uid"])


def phase(body: Json, name: str, reason: str, began: float, ended: float) -> Span:
    """Return the span of a phase that is over."""
    whole = place(body)
    return Span(name, whole.below(name, f"{began:.3f}"), whole, began, ended, _facts(body, reason=reason))


def whole(body: Json, status: RequestStatus | MigrationStatus, ended: float) -> Span:
    """Return the span of a request or migration that has come to its end."""
    own, parent = place(body), _owner(body)
    phase_, reason = str(status.phase), str(status.reason)
    began = datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp()
    return Span(
        _NAMES[body["kind"]], own, None if own == parent else parent, began, ended,
        _facts(body, phase=phase_, reason=reason), "" if phase_ == _GOOD else f"{phase_}: {reason}",
    )  # fmt: skip


def _facts(body: Json, **more: str) -> dict[str, str | int | float | bool]:
    meta, status = body["metadata"], body.get("status", {})
    found: dict[str, str | int | float | bool] = {
        "k8s.namespace.name": meta["namespace"], "elbowroom.kind": body["kind"], "elbowroom.name": meta["name"],
        **{f"elbowroom.{name}": value for name, value in more.items()},
    }  # fmt: skip
    known = {
        "vm": body["spec"].get("vm"), "node": status.get("node"), "from": status.get("from"), "to": status.get("to"),
        "round": status.get("round"), "source.node": (status.get("source") or {}).get("node"),
        "receiver.node": (status.get("receiver") or {}).get("node"), "bytes": status.get("transferredBytes"),
        "downtime_ms": status.get("downtimeMilliseconds"),
    }  # fmt: skip
    return {**found, **{f"elbowroom.{name}": value for name, value in known.items() if value is not None}}
