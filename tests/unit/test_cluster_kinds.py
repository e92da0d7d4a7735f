"""What the operator writes into a status is what it reads back: else it would write for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from elbowroom.api.migration import MigrationStatus as ApiMigrationStatus
from elbowroom.api.scale_request import ScaleRequestStatus
from elbowroom.cluster import kinds
from elbowroom.core import conditions
from elbowroom.core.reasons import Reason
from elbowroom.core.room import Room
from elbowroom.core.world import (
    FailedMove,
    GuestSize,
    HoldPhase,
    MigrationOutcome,
    MigrationPhase,
    MigrationStatus,
    NotChosen,
    Outcome,
    Planned,
    RequestPhase,
    RequestStatus,
)
from hypothesis import given
from hypothesis import strategies as st

META = {
    "uid": "r1", "namespace": "shop", "name": "grow", "resourceVersion": "7", "generation": 2,
    "creationTimestamp": "2026-11-18T00:00:00Z",
}  # fmt: skip
REQUEST: dict[str, Any] = {
    "apiVersion": kinds.API_VERSION, "kind": "VMScaleRequest", "metadata": META,
    "spec": {"vm": "db", "resources": {"cpu": "4", "memory": "8Gi"}},
}  # fmt: skip
MIGRATION: dict[str, Any] = {
    "apiVersion": kinds.API_VERSION, "kind": "VMMigration", "metadata": META, "spec": {"vm": "web"},
}  # fmt: skip
CLAIMANT = {"namespace": "shop", "name": "db", "uid": "db"}
FULL = RequestStatus(
    phase=RequestPhase.UNDOING, reason=Reason.UNDOING, message="web: DeadlineExceeded", claimant="db",
    container="runner", node="n1", original=Room(2000, 1 << 30), wanted=Room(4000, 8 << 30), target=Room(4100, 9 << 30),
    guest_before=GuestSize(2, 1 << 30), guest_after=GuestSize(4, 7 << 30), order=12, shortfall=Room(1500, 0),
    plan=(Planned("w", "shop", "web-0", "web", Room(1500, 3 << 20), "web-r1-1", "web-r1-1"),),
    not_chosen=(NotChosen("shop", "api", Reason.NOT_A_VM), NotChosen("x", "y", Reason.RESTING, "until later")),
    room_appeared=True, round=3, failed=(FailedMove("w", Reason.TRANSFER_FAILED),), resized=True,
    outcome=Outcome(RequestPhase.FAILED, Reason.DEADLINE, "last"), retry_at=1_800_000_000.25, finished_at=1_800_000_001.5,
)  # fmt: skip


def read_back(status: RequestStatus) -> RequestStatus:
    written = kinds.request_status(REQUEST, status, CLAIMANT if status.claimant else None, {})
    ScaleRequestStatus.model_validate(written)
    return kinds.to_request({**REQUEST, "status": written}).status


@pytest.mark.parametrize(
    "status", [RequestStatus(), FULL, replace(FULL, plan=(), outcome=None, guest_after=None, guest_before=None)]
)
def test_a_requests_status_is_read_as_it_was_written(status: RequestStatus) -> None:
    assert read_back(status) == status


@given(
    st.sampled_from(RequestPhase), st.sampled_from(Reason), st.text(max_size=40), st.integers(0, 10**6),
    st.integers(0, 10**13), st.integers(0, 1000), st.booleans(),
)  # fmt: skip
def test_any_of_them_is(  # noqa: PLR0913, PLR0917
    phase: RequestPhase,
    reason: Reason,
    message: str,
    cpu: int,
    memory: int,
    number: int,
    flag: bool,  # noqa: FBT001
) -> None:
    status = replace(
        FULL, phase=phase, reason=reason, message=message, wanted=Room(cpu, memory), target=Room(cpu + 1, memory),
        round=number, order=number, resized=flag, room_appeared=not flag,
    )  # fmt: skip
    assert read_back(status) == status


@pytest.mark.parametrize("committed", [False, True])
def test_a_migrations_status_is_read_as_it_was_written(committed: bool) -> None:  # noqa: FBT001
    status = MigrationStatus(
        phase=MigrationPhase.CANCELLING, reason=Reason.GUEST_LOST, message="so", source="w", source_node="n1",
        receiver="web-1", receiver_uid="w2", attempt=9, committed=committed, started_at=1_800_000_000.0,
        outcome=MigrationOutcome(MigrationPhase.FAILED, Reason.GUEST_LOST, "so"), finished_at=1_800_000_002.0,
    )  # fmt: skip
    places = {"source": {"name": "web", "uid": "w", "node": "n1"}, "receiver": {"name": "web-1", "uid": "w2"}}
    written = kinds.migration_status(MIGRATION, status, places, {}, now=1_800_000_003.0)
    ApiMigrationStatus.model_validate(written)
    assert kinds.to_migration({**MIGRATION, "status": written}).status == status


def test_what_was_told_of_a_copy_stays_when_the_status_is_written() -> None:
    body = {**MIGRATION, "status": {"percent": 40, "downtimeMilliseconds": 80, "committedAt": "2026-11-18T00:00:01Z"}}
    written = kinds.migration_status(body, MigrationStatus(committed=True), {}, {}, now=1_800_000_000.0)
    assert (written["percent"], written["downtimeMilliseconds"], written["committedAt"]) == (
        40,
        80,
        "2026-11-18T00:00:01Z",
    )


def hold(status: dict[str, Any], generation: int = 2) -> HoldPhase:
    reference = {"namespace": "shop", "name": "db", "uid": "db"}
    body = {
        "metadata": {**META, "generation": generation}, "status": status,
        "spec": {
            "node": "n1", "claimant": reference, "request": reference, "target": {"cpu": "4", "memory": "8Gi"},
            "expiresAt": "2026-11-18T01:00:00.000000Z",
        },
    }  # fmt: skip
    return kinds.to_hold(body).phase


@pytest.mark.parametrize(
    ("phase", "observed", "expected"),
    [("Held", 2, "Held"), ("Held", 1, "Pending"), ("Claimed", 1, "Pending"), ("Refused", 1, "Refused"), ("Released", 1, "Released")],
)  # fmt: skip
def test_what_was_said_about_an_older_hold_counts_only_where_it_is_final(
    phase: str, observed: int, expected: str
) -> None:
    assert hold({"phase": phase, "observedGeneration": observed}) == expected


def test_a_condition_keeps_the_time_since_when_it_is_so() -> None:
    told = conditions.of_request(RequestStatus(reason=Reason.VM_NOT_FOUND), [])
    first = kinds.conditions(REQUEST, told, now=1_800_000_000.0)
    body = {**REQUEST, "status": {"conditions": first}}
    assert kinds.conditions(body, told, now=1_900_000_000.0) == first
    accepted = conditions.of_request(RequestStatus(phase=RequestPhase.HOLDING, reason=Reason.WAITING_FOR_HOLD), [])
    later = {item["type"]: item for item in kinds.conditions(body, accepted, now=1_900_000_000.0)}
    assert later["Accepted"]["lastTransitionTime"] != first[0]["lastTransitionTime"]
    assert later["Ready"]["lastTransitionTime"] == first[-1]["lastTransitionTime"]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1, "1"), (1024, "1Ki"), (1 << 30, "1Gi"), ((1 << 30) + (1 << 20), "1025Mi"), (3 << 40, "3Ti")]
)  # fmt: skip
def test_memory_is_written_as_people_do(size: int, text: str) -> None:
    assert kinds.memory(size) == text
