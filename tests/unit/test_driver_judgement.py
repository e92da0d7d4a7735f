"""Where the guest is, from what two runners say: a table of cases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from elbowroom.core.world import TransferState
from elbowroom.drivers.judgement import judge
from elbowroom.runner.messages import (
    Destination,
    GuestState,
    Incident,
    IncidentKind,
    Incoming,
    Limits,
    Outgoing,
    Status,
    TransferPhase,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ATTEMPT = 3


def status(state: GuestState, **more: Any) -> Status:
    return Status(revision=7, vm="db", namespace="shop", runner="1", qemu="10.0.2", state=state, **more)


def source(
    phase: TransferPhase | None, *, state: GuestState = GuestState.RUNNING, attempt: int = ATTEMPT, **more: Any
) -> Status:
    if phase is None:
        return status(state, last_attempt=attempt, **more)
    committed = phase not in (TransferPhase.COPYING, TransferPhase.BRINK, TransferPhase.CANCELLED)
    to = Destination(host="10.0.0.1")
    outgoing = Outgoing(attempt=attempt, phase=phase, committed=committed, to=to, limits=Limits())
    return status(state, outgoing=outgoing, last_attempt=attempt, **more)


def receiver(
    state: GuestState, *, released: bool = False, attempt: int = ATTEMPT, incidents: Sequence[Incident] = ()
) -> Status:
    return status(state, incoming=Incoming(attempt=attempt, released=released), incidents=tuple(incidents))


def incident(kind: IncidentKind, attempt: int = ATTEMPT) -> Incident:
    return Incident(kind=kind, at=datetime.now(UTC), attempt=attempt, message=kind)


CASES = {
    "nothing has begun": (source(None, attempt=2), receiver(GuestState.INCOMING), TransferState.NOT_STARTED),
    "cancelled before it came": (source(None), None, TransferState.CANCELLED),
    "an older attempt is under way": (source(TransferPhase.COPYING, attempt=2), None, TransferState.NOT_STARTED),
    "a newer attempt is under way": (source(TransferPhase.COPYING, attempt=4), None, TransferState.CANCELLED),
    "copying": (source(TransferPhase.COPYING), receiver(GuestState.INCOMING), TransferState.COPYING),
    "copying, receiver silent": (source(TransferPhase.COPYING), None, TransferState.COPYING),
    "at the brink": (source(TransferPhase.BRINK), receiver(GuestState.INCOMING), TransferState.AT_BRINK),
    "committed": (source(TransferPhase.COMMITTED), receiver(GuestState.INCOMING), TransferState.COMMITTED),
    "switching": (source(TransferPhase.SWITCHING), receiver(GuestState.ARRIVED), TransferState.SWITCHING),
    "cancelled": (source(TransferPhase.CANCELLED), receiver(GuestState.ENDED), TransferState.CANCELLED),
    "failed": (source(TransferPhase.FAILED), receiver(GuestState.ARRIVED), TransferState.FAILED),
    "let go, not told": (source(TransferPhase.COMPLETED), receiver(GuestState.ARRIVED), TransferState.ARRIVED),
    "let go, receiver silent": (source(TransferPhase.COMPLETED), None, TransferState.LEFT),
    "let go, receiver dead": (source(TransferPhase.COMPLETED), receiver(GuestState.ENDED), TransferState.LOST),
    "runs there": (source(TransferPhase.RELEASED), receiver(GuestState.RUNNING, released=True), TransferState.SUCCEEDED),
    "runs there, source silent": (None, receiver(GuestState.RUNNING, released=True), TransferState.SUCCEEDED),
    "both silent": (None, None, TransferState.UNKNOWN),
    "source silent, not told": (None, receiver(GuestState.ARRIVED), TransferState.COMPLETE),
    "source silent, not all of it there": (None, receiver(GuestState.INCOMING), TransferState.INCOMPLETE),
    "source silent, another attempt's receiver": (None, receiver(GuestState.ARRIVED, attempt=2), TransferState.UNKNOWN),
    "reset on the way": (
        source(TransferPhase.RELEASED),
        receiver(GuestState.RUNNING, released=True, incidents=[incident(IncidentKind.RESET)]),
        TransferState.DAMAGED,
    ),
    "reset before this move": (
        source(TransferPhase.RELEASED),
        receiver(GuestState.RUNNING, released=True, incidents=[incident(IncidentKind.RESET, attempt=2)]),
        TransferState.SUCCEEDED,
    ),
    "the receiver's agent was restarted": (
        source(TransferPhase.RELEASED),
        receiver(GuestState.RUNNING, released=True, incidents=[incident(IncidentKind.RUNNER_RESTART)]),
        TransferState.SUCCEEDED,
    ),
    "panicked there": (source(TransferPhase.RELEASED), receiver(GuestState.PANICKED, released=True), TransferState.DAMAGED),
    "told, and stands still": (
        source(TransferPhase.COMPLETED), receiver(GuestState.PAUSED, released=True), TransferState.ARRIVED,
    ),
    "failed, not resumed yet": (source(TransferPhase.FAILED, state=GuestState.PAUSED), None, TransferState.UNKNOWN),
    "died there": (source(TransferPhase.RELEASED), receiver(GuestState.ENDED, released=True), TransferState.DAMAGED),
    "panicked here while copying": (source(TransferPhase.COPYING, state=GuestState.PANICKED), None, TransferState.LOST),
    "another attempt's receiver": (
        source(TransferPhase.COPYING), receiver(GuestState.RUNNING, released=True, attempt=2), TransferState.COPYING,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_the_guest_is(case: str) -> None:
    at_source, at_receiver, state = CASES[case]
    seen = judge(at_source, at_receiver, ATTEMPT)
    assert (seen.attempt, seen.state) == (ATTEMPT, state), seen
