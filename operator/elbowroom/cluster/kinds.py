"""Between objects of our own kinds and the core's values. Pure.

What is read back is what was written: the core writes a status only where it differs, and would write for ever
otherwise.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from elbowroom.api.base import GROUP, VERSION
from elbowroom.api.hold import HoldSpec, HoldStatus
from elbowroom.api.migration import MigrationSpec, MigrationStatus
from elbowroom.api.scale_request import ScaleRequestSpec, ScaleRequestStatus, Strategy
from elbowroom.core import world as core
from elbowroom.core.duration import seconds
from elbowroom.core.quantity import millicores, quantity_bytes
from elbowroom.core.reasons import Reason
from elbowroom.core.room import NOTHING, Room
from elbowroom.core.selector import Rule, Selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from elbowroom.api import base, scale_request
    from elbowroom.core.conditions import Condition

Json = dict[str, Any]
FINALIZER: Final = "elbowroom.dev/operator"
"""Ours: what has it is not gone before we have put things back."""
API_VERSION: Final = f"{GROUP}/{VERSION}"
_MESSAGE: Final = 2048


# Amounts and times


def room(resources: base.Resources | None) -> Room:
    """Read a size; nothing where there is none."""
    if resources is None:
        return NOTHING
    return Room(
        0 if resources.cpu is None else millicores(resources.cpu),
        0 if resources.memory is None else quantity_bytes(resources.memory),
    )


def amounts(size: Room) -> dict[str, str]:
    """Write a size as Kubernetes does."""
    return {"cpu": cores(size.cpu), "memory": memory(size.memory)}


def cores(milli: int) -> str:
    """Write an amount of CPU."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def memory(size: int) -> str:
    """Write an amount of memory in the largest unit that it is a whole number of."""
    for shift, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def stamp(moment: float) -> str:
    """Write a time, to the microsecond: it is read back and compared."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(read: datetime | None) -> float:
    return 0.0 if read is None else read.timestamp()


def _created(body: Json) -> float:
    return datetime.fromisoformat(body["metadata"]["creationTimestamp"]).timestamp()


def _reason(text: str) -> Reason | None:
    try:
        return Reason(text)
    except ValueError:
        return None  # nothing yet, or that of a newer operator


def _known(text: str) -> Reason:
    """Read a reason that has to be one; that of a newer operator is not known here."""
    return _reason(text) or Reason.UNKNOWN


# Requests


def to_request(body: Json) -> core.Request:
    """Read a request."""
    meta = body["metadata"]
    spec = ScaleRequestSpec.model_validate(body["spec"])
    return core.Request(
        uid=meta["uid"], namespace=meta["namespace"], name=meta["name"], vm=spec.vm or "", pod=spec.pod or "",
        container=spec.container or "", cpu=None if spec.resources.cpu is None else millicores(spec.resources.cpu),
        memory=None if spec.resources.memory is None else quantity_bytes(spec.resources.memory),
        moves=Strategy.MOVE_NEIGHBOUR in spec.strategy, at_most=spec.neighbours.at_most,
        selector=_selector(spec.neighbours.selector), priority=spec.priority, deadline=seconds(spec.deadline),
        dry_run=spec.dry_run, suspend=spec.suspend, deleted="deletionTimestamp" in meta, created_at=_created(body),
        keep_for=float(spec.ttl_seconds_after_finished), version=meta["resourceVersion"],
        status=_request_status(ScaleRequestStatus.model_validate(body.get("status", {}))),
    )  # fmt: skip


def _selector(selector: scale_request.Selector | None) -> Selector | None:
    if selector is None:
        return None
    labels = (Rule(key, "In", frozenset((value,))) for key, value in selector.match_labels.items())
    rules = (Rule(item.key, item.operator, frozenset(item.values)) for item in selector.match_expressions)
    return Selector((*labels, *rules))


def _request_status(read: ScaleRequestStatus) -> core.RequestStatus:
    plan, guest, outcome = read.plan, read.guest, read.outcome
    return core.RequestStatus(
        phase=read.phase, reason=_reason(read.reason), message=read.message, claimant=read.pod.uid if read.pod else "",
        container=read.container, node=read.node or "", original=room(read.original), wanted=room(read.wanted),
        target=room(plan.target) if plan else NOTHING, shortfall=room(plan.shortfall) if plan else NOTHING,
        guest_before=core.GuestSize(guest.before.cpus, guest.before.memory_bytes) if guest else None,
        guest_after=core.GuestSize(guest.after.cpus, guest.after.memory_bytes) if guest else None, order=read.order,
        plan=tuple(_planned(item) for item in plan.neighbours) if plan else (),
        not_chosen=tuple(
            core.NotChosen(item.namespace, item.name, _known(item.reason), item.message) for item in plan.not_chosen
        ) if plan else (),
        room_appeared=read.room_appeared, round=read.round, resized=read.resized,
        failed=tuple(core.FailedMove(item.uid, _known(item.reason)) for item in read.failed),
        outcome=core.Outcome(core.RequestPhase(outcome.phase), _known(outcome.reason), outcome.message)
        if outcome else None,
        retry_at=_moment(read.retry_at), finished_at=_moment(read.finished_at),
    )  # fmt: skip


def _planned(item: scale_request.PlannedNeighbour) -> core.Planned:
    return core.Planned(
        item.pod.uid, item.pod.namespace, item.pod.name, item.vm, room(item.size), item.migration, item.receiver
    )


def request_status(body: Json, status: core.RequestStatus, claimant: Json | None, told: Json) -> Json:
    """Write a request's status. `claimant` names its pod; `told` is what is said beside what the core knows."""
    plan = {
        "node": status.node, "shortfall": amounts(status.shortfall), "target": amounts(status.target),
        "neighbours": [
            {
                "pod": {"namespace": item.namespace, "name": item.name, "uid": item.uid}, "vm": item.vm,
                "size": amounts(item.size), "migration": item.migration, "receiver": item.receiver,
            }
            for item in status.plan
        ],
        "notChosen": [
            {"namespace": item.namespace, "name": item.name, "reason": item.reason, "message": item.message[:_MESSAGE]}
            for item in status.not_chosen
        ],
    }  # fmt: skip
    outcome = status.outcome
    written = {
        "observedGeneration": body["metadata"].get("generation", 1), "phase": status.phase,
        "reason": status.reason or "", "message": status.message[:_MESSAGE], "pod": claimant,
        "container": status.container, "node": status.node,
        "original": amounts(status.original) if status.original else None,
        "wanted": amounts(status.wanted) if status.wanted else None, "from": _size(status.original),
        "to": _size(status.wanted), "guest": _guest(status), "order": status.order, "resized": status.resized,
        "plan": plan if status.target else None, "roomAppeared": status.room_appeared, "round": status.round,
        "failed": [{"uid": item.uid, "reason": item.reason} for item in status.failed],
        "outcome": outcome and _ended(outcome),
        "retryAt": stamp(status.retry_at) if status.retry_at else None,
        "finishedAt": stamp(status.finished_at) if status.finished_at else None, **told,
    }  # fmt: skip
    return _without_nothing(written)


def _guest(status: core.RequestStatus) -> Json | None:
    if status.guest_before is None or status.guest_after is None:
        return None
    return {
        name: {"cpus": size.cpus, "memoryBytes": size.memory}
        for name, size in (("before", status.guest_before), ("after", status.guest_after))
    }


def _size(size: Room) -> str:
    """Say a size to people."""
    return f"{cores(size.cpu)} cpu, {memory(size.memory)}" if size else ""


def _ended(outcome: core.Outcome | core.MigrationOutcome) -> Json:
    return {"phase": outcome.phase, "reason": outcome.reason, "message": outcome.message[:_MESSAGE]}


def _without_nothing(written: Json) -> Json:
    return {key: value for key, value in written.items() if value not in (None, "")}


# Migrations


def to_migration(body: Json) -> core.Migration:
    """Read a migration."""
    meta = body["metadata"]
    spec = MigrationSpec.model_validate(body["spec"])
    read = MigrationStatus.model_validate(body.get("status", {}))
    outcome = read.outcome
    status = core.MigrationStatus(
        phase=read.phase, reason=_reason(read.reason), message=read.message, attempt=read.attempt,
        source=(read.source.uid or "") if read.source else "",
        source_node=(read.source.node or "") if read.source else "",
        receiver=read.receiver.name if read.receiver else "",
        receiver_uid=(read.receiver.uid or "") if read.receiver else "", committed=read.committed_at is not None,
        started_at=_moment(read.started_at), finished_at=_moment(read.finished_at),
        outcome=core.MigrationOutcome(core.MigrationPhase(outcome.phase), _known(outcome.reason), outcome.message)
        if outcome else None,
    )  # fmt: skip
    return core.Migration(
        uid=meta["uid"], namespace=meta["namespace"], name=meta["name"], vm=spec.vm,
        request=spec.request.uid if spec.request else "", pod=spec.pod.uid if spec.pod else "",
        receiver=spec.receiver or "", node=spec.target.node or "", deadline=seconds(spec.deadline),
        deleted="deletionTimestamp" in meta, created_at=_created(body), keep_for=float(spec.ttl_seconds_after_finished),
        status=status, version=meta["resourceVersion"],
    )  # fmt: skip


def migration_status(body: Json, status: core.MigrationStatus, places: Json, told: Json, now: float) -> Json:
    """Write a migration's status. `places` are the source and the receiver, `told` what is said beside it."""
    before: Json = body.get("status", {})
    committed_at = before.get("committedAt") or (stamp(now) if status.committed else None)
    outcome = status.outcome
    written = {
        **{key: before.get(key) for key in ("percent", "transferredBytes", "remainingBytes", "downtimeMilliseconds")},
        "observedGeneration": body["metadata"].get("generation", 1), "phase": status.phase,
        "reason": status.reason or "", "message": status.message[:_MESSAGE], "attempt": status.attempt,
        "committedAt": committed_at if status.committed else None,
        "outcome": outcome and _ended(outcome),
        "startedAt": stamp(status.started_at) if status.started_at else None,
        "finishedAt": stamp(status.finished_at) if status.finished_at else None, **places, **told,
    }  # fmt: skip
    return _without_nothing(written)


# Holds


def to_hold(body: Json) -> core.Hold:
    """Read a hold."""
    meta = body["metadata"]
    spec = HoldSpec.model_validate(body["spec"])
    status = HoldStatus.model_validate(body.get("status", {}))
    over = status.phase in (core.HoldPhase.RELEASED, core.HoldPhase.REFUSED)
    spoken = over or status.observed_generation == meta.get("generation", 1)
    return core.Hold(
        claimant=spec.claimant.uid, request=spec.request.uid, node=spec.node, target=room(spec.target),
        payers=tuple(core.Payer(item.pod.uid, item.receiver) for item in spec.payers), priority=spec.priority,
        created_at=_created(body), expires_at=spec.expires_at.timestamp(), committed=spec.committed, round=spec.round,
        phase=status.phase if spoken else core.HoldPhase.PENDING, reason=status.reason, message=status.message,
        shortfall=room(status.shortfall), version=meta["resourceVersion"],
    )  # fmt: skip


# Conditions


def conditions(body: Json, told: Iterable[Condition], now: float) -> list[Json]:
    """Write conditions; one that says what it said before keeps the time since when it does."""
    before = {item["type"]: item for item in body.get("status", {}).get("conditions", ())}
    generation = body["metadata"].get("generation", 1)
    written = []
    for item in told:
        status = "True" if item.true else "False"
        old = before.get(item.type)
        since = old["lastTransitionTime"] if old is not None and old["status"] == status else stamp(now)
        written.append(
            {
                "type": item.type, "status": status, "reason": item.reason, "message": item.message[:_MESSAGE],
                "lastTransitionTime": since, "observedGeneration": generation,
            }
        )  # fmt: skip
    return written
