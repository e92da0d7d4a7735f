"""A request's story, in sentences: what is wanted, what has been done, what it waits for, what to do about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from elbowroom.api.migration import MigrationSpec, MigrationStatus
from elbowroom.api.scale_request import ScaleRequestSpec, ScaleRequestStatus
from elbowroom.core import conditions
from elbowroom.core.duration import seconds
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.core.world import MigrationPhase, RequestPhase

from .advice import ADVICE
from .words import ago, amount, listed, sized, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from elbowroom.api.scale_request import NotChosen

    Json = Mapping[str, Any]

_TOLD: Final = 6
"""How many neighbours that were not chosen are named for each reason."""


@dataclass(frozen=True)
class Request:
    """A VMScaleRequest as it was read."""

    namespace: str
    name: str
    uid: str
    created: datetime
    deleted: bool
    spec: ScaleRequestSpec
    status: ScaleRequestStatus

    @classmethod
    def of(cls, body: Json) -> Request:
        """Read one."""
        meta = body["metadata"]
        return cls(
            meta["namespace"], meta["name"], meta["uid"], _moment(meta["creationTimestamp"]),
            "deletionTimestamp" in meta, ScaleRequestSpec.model_validate(body["spec"]),
            ScaleRequestStatus.model_validate(body.get("status", {})),
        )  # fmt: skip

    @property
    def reason(self) -> Reason:
        """Return why it is where it is; a newer operator may know reasons that we do not."""
        return _reason(self.status.reason)


@dataclass(frozen=True)
class Move:
    """A VMMigration as it was read."""

    namespace: str
    name: str
    spec: MigrationSpec
    status: MigrationStatus

    @classmethod
    def of(cls, body: Json) -> Move:
        """Read one."""
        meta = body["metadata"]
        return cls(
            meta["namespace"], meta["name"], MigrationSpec.model_validate(body["spec"]),
            MigrationStatus.model_validate(body.get("status", {})),
        )  # fmt: skip


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _reason(text: str) -> Reason:
    try:
        return Reason(text)
    except ValueError:
        return Reason.UNKNOWN


@dataclass(frozen=True)
class Story:
    """What there is to say."""

    wanted: str
    so_far: tuple[str, ...]
    now: str
    to_do: str


def tell(request: Request, moves: Sequence[Move], now: datetime) -> Story:
    """Tell it."""
    return Story(_wanted(request, now), (*_so_far(request, moves, now),), _now(request, moves), _to_do(request, moves))


# What is wanted


def subject(request: Request) -> str:
    """Name what a request is about."""
    return f"VM {request.spec.vm}" if request.spec.vm else f"pod {request.spec.pod}"


def _wanted(request: Request, now: datetime) -> str:
    status, spec = request.status, request.spec
    what = f"{subject(request)} in {request.namespace} shall have {sized(spec.resources)}"
    if status.before and status.after:
        where = f" on {status.node}" if status.node else ""
        what = f"{subject(request)} in {request.namespace}{where} shall have {status.after} instead of {status.before}"
    age = (now - request.created).total_seconds()
    if status.phase.final:
        return f"{what}. Asked {ago(age)}."
    left = seconds(spec.deadline) - age
    gives_up = f"it gives up in {span(left)}" if left > 0 else "its time is over"
    return f"{what}. Asked {ago(age)}; {gives_up}."


# What was done


def _so_far(request: Request, moves: Sequence[Move], now: datetime) -> Iterator[str]:
    status = request.status
    if status.round > 1 and not status.phase.final:
        yield f"This is plan {status.round}."
    yield from (
        f"A move of an earlier plan has failed: {MEANING[_reason(item.reason)].rstrip('.').lower()}."
        for item in {item.reason: item for item in status.failed}.values()
    )
    said = {
        conditions.PLANNED: _plan(request),
        conditions.ROOM_HELD: f"The scheduler keeps that room on {status.node} for it." if status.plan else "",
        conditions.RECEIVERS_BOUND: " ".join(_receivers(moves)),
        conditions.STATE_TRANSFERRED: " ".join(_moved(moves)),
        conditions.POD_RESIZED: f"The pod has {status.after}.",
        conditions.VM_RESIZED: "The guest has its new size." if status.guest else "",
    }
    for condition in status.conditions:
        if condition.status != "True" or condition.reason == Reason.NOT_NEEDED or condition.type not in said:
            continue
        if said[condition.type]:
            age = (now - condition.last_transition_time).total_seconds()
            yield f"{ago(age)}: {said[condition.type]}"
    if (down := next((item for item in status.conditions if item.reason == Reason.GUARD_DOWN), None)) is not None:
        yield f"{ago((now - down.last_transition_time).total_seconds())}: {MEANING[Reason.GUARD_DOWN]}"


def _plan(request: Request) -> str:
    plan = request.status.plan
    if plan is None or not (plan.neighbours or request.status.phase is not RequestPhase.PENDING):
        return ""
    if not plan.neighbours:
        return f"{plan.node} has the room."
    names = listed(f"{item.vm} ({sized(item.size)})" for item in plan.neighbours)
    moves = "moves" if len(plan.neighbours) == 1 else "move"
    return f"{plan.node} lacks {sized(plan.shortfall)}: {names} {moves} away."


def _receivers(moves: Sequence[Move]) -> Iterator[str]:
    for move in moves:
        receiver = move.status.receiver
        if receiver is not None and receiver.node:
            yield f"{move.spec.vm} goes to {receiver.node}, into pod {move.namespace}/{receiver.name}."


def _moved(moves: Sequence[Move]) -> Iterator[str]:
    for move in moves:
        status = move.status
        if status.receiver is None or status.phase not in (MigrationPhase.MOVED, MigrationPhase.SUCCEEDED):
            continue
        still = (
            "" if status.downtime_milliseconds is None else f", and stood still for {status.downtime_milliseconds} ms"
        )
        yield f"{move.spec.vm} runs on {status.receiver.node or status.receiver.name}{still}."


# What it waits for


def _now(request: Request, moves: Sequence[Move]) -> str:
    status = request.status
    if not status.reason:
        return "No operator has looked at it yet."
    if request.deleted and not status.phase.final:
        return "It was deleted, and what was begun is being put back."
    meaning = MEANING[request.reason]
    facts = [status.message] if status.message and status.message not in meaning else []
    facts += [f"{move.spec.vm}: {_progress(move)}" for move in moves if not move.status.phase.final]
    return f"{_head(request)} {meaning}{f' {listed(facts)}.' if facts else ''}".replace("..", ".")


_HEADS: Final = {
    RequestPhase.PENDING: "It waits.", RequestPhase.SHRINKING: "It shrinks.",
    RequestPhase.HOLDING: "Room is being held.",
    RequestPhase.MOVING: "Its neighbours are being moved.", RequestPhase.COMMITTING: "It is about to switch over.",
    RequestPhase.SWAPPING: "The pod is told its new size, then the neighbour goes.",
    RequestPhase.GROWING: "The pod has its size.", RequestPhase.RELEASING: "It is nearly done.",
    RequestPhase.UNDOING: "It is being undone.", RequestPhase.SUCCEEDED: "It is done.",
    RequestPhase.FAILED: "It has failed.", RequestPhase.CANCELLED: "It was called off.",
    RequestPhase.PARTIALLY_MOVED: "It has failed half-way.",
}  # fmt: skip


def _head(request: Request) -> str:
    return _HEADS[request.status.phase]


def _progress(move: Move) -> str:
    status, reason = move.status, _reason(move.status.reason)
    if status.phase is MigrationPhase.TRANSFERRING:
        left = f", {amount(status.remaining_bytes)} left" if status.remaining_bytes else ""
        return f"{status.percent} % copied{left}"
    said = MEANING[reason].rstrip(".")
    return f"{said[0].lower()}{said[1:]}" + (f" ({status.message})" if status.message else "")


# What to do


def _to_do(request: Request, moves: Sequence[Move]) -> str:
    if not request.status.reason:
        return "If it lasts, no operator leads: kubectl get lease -A says who does, and helm test whether all is well."
    if request.reason in (Reason.TRANSFERRING, Reason.SWITCHING_OVER):
        # What one of its migrations waits for says more.
        for move in moves:
            reason = _reason(move.status.reason)
            if not move.status.phase.final and reason in (
                Reason.RECEIVER_UNBOUND, Reason.RECEIVER_STARTING, Reason.RUNNER_SILENT, Reason.BUDGET,
            ):  # fmt: skip
                return ADVICE[reason]
    return ADVICE.get(request.reason, ADVICE[Reason.UNKNOWN])


def why_not(request: Request) -> Iterator[str]:
    """Say why the other neighbours do not move, those of one reason together."""
    by_reason: dict[tuple[str, str], list[NotChosen]] = {}
    for item in request.status.plan.not_chosen if request.status.plan else ():
        by_reason.setdefault((item.reason, item.message), []).append(item)
    for (reason, message), items in by_reason.items():
        names = [f"{item.namespace}/{item.name}" for item in items[:_TOLD]]
        more = f" and {len(items) - _TOLD} more" if len(items) > _TOLD else ""
        why = message or MEANING[_reason(reason)].rstrip(".")
        yield f"{', '.join(names)}{more}: {why[0].lower()}{why[1:]}"
