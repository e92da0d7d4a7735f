"""What users wait for, phase by phase."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from elbowroom.api.conditions import updated
from elbowroom.core import conditions
from elbowroom.core.conditions import OF_MIGRATIONS, OF_REQUESTS
from elbowroom.core.reasons import Reason
from elbowroom.core.world import GuestSize, MigrationPhase, Outcome, RequestPhase
from support.worlds import NOW, migration, request

if TYPE_CHECKING:
    from elbowroom.core.world import Migration

BINDING, COPYING = migration(MigrationPhase.BINDING), migration(MigrationPhase.TRANSFERRING)


def found(phase: RequestPhase, *moves: Migration, **status: Any) -> dict[str, tuple[bool, Reason]]:
    item = request(phase, **{"reason": Reason.TRANSFERRING, **status})
    return {told.type: (told.true, told.reason) for told in conditions.of_request(item.status, moves)}


@pytest.mark.parametrize(
    ("phase", "last", "moves"),
    [
        (RequestPhase.PENDING, "Accepted", ()),
        (RequestPhase.HOLDING, "Planned", ()),
        (RequestPhase.MOVING, "RoomHeld", (BINDING,)),
        (RequestPhase.MOVING, "ReceiversBound", (COPYING,)),
        (RequestPhase.COMMITTING, "ReceiversBound", (COPYING,)),
        (RequestPhase.SWAPPING, "StateTransferred", ()),
        (RequestPhase.GROWING, "PodResized", ()),
        (RequestPhase.RELEASING, "VMResized", ()),
        (RequestPhase.SUCCEEDED, "Ready", ()),
        (RequestPhase.UNDOING, "Accepted", ()),
        (RequestPhase.FAILED, "Accepted", ()),
        (RequestPhase.PARTIALLY_MOVED, "Accepted", ()),
    ],
)
def test_they_come_true_one_after_the_other(phase: RequestPhase, last: str, moves: tuple[Migration, ...]) -> None:
    told = found(phase, *moves)
    assert tuple(told) == OF_REQUESTS
    done = OF_REQUESTS.index(last) + 1
    assert [true for true, _ in told.values()] == [True] * done + [False] * (8 - done)
    if done < 7:
        assert told[OF_REQUESTS[done]] == (False, Reason.TRANSFERRING)
        assert told["Ready"] == (False, Reason.TRANSFERRING)


@pytest.mark.parametrize("reason", conditions.NOT_ACCEPTED)
def test_what_only_the_running_system_can_know_is_not_accepted(reason: Reason) -> None:
    for told in (
        found(RequestPhase.FAILED, reason=reason),
        found(RequestPhase.UNDOING, outcome=Outcome(RequestPhase.FAILED, reason)),
    ):
        assert told["Accepted"] == (False, reason)
        assert not any(true for true, _ in told.values())


def test_what_is_not_needed_is_said_to_be_so() -> None:
    in_place = found(RequestPhase.SUCCEEDED, plan=())
    assert in_place["ReceiversBound"] == in_place["StateTransferred"] == (True, Reason.NOT_NEEDED)
    assert in_place["VMResized"] == (True, Reason.DONE)
    appeared = found(RequestPhase.SWAPPING, room_appeared=True)
    assert appeared["StateTransferred"] == (True, Reason.NOT_NEEDED)
    plain = found(RequestPhase.SUCCEEDED, guest_before=None, guest_after=None)
    assert plain["VMResized"] == (True, Reason.NOT_NEEDED)
    shrinking = found(RequestPhase.SHRINKING, plan=(), guest_after=GuestSize(1, 0))
    assert shrinking["RoomHeld"] == (True, Reason.NOT_NEEDED)
    assert shrinking["PodResized"] == (False, Reason.TRANSFERRING)


def test_a_dry_run_is_planned_and_never_ready() -> None:
    told = found(RequestPhase.SUCCEEDED, reason=Reason.DRY_RUN)
    assert told["Planned"] == (True, Reason.PLANNED)
    assert told["RoomHeld"] == told["Ready"] == (False, Reason.DRY_RUN)


def test_a_guest_that_did_not_grow_is_told() -> None:
    refused = Outcome(RequestPhase.FAILED, Reason.GUEST_REFUSED)
    told = found(RequestPhase.RELEASING, outcome=refused)
    assert told["PodResized"][0]
    assert told["VMResized"] == (False, Reason.GUEST_REFUSED)


def test_those_of_a_migration() -> None:
    def true(phase: MigrationPhase) -> list[str]:
        return [told.type for told in conditions.of_migration(migration(phase).status) if told.true]

    assert true(MigrationPhase.BINDING) == true(MigrationPhase.CANCELLED) == []
    assert true(MigrationPhase.AT_BRINK) == ["ReceiverBound"]
    assert true(MigrationPhase.MOVED) == ["ReceiverBound", "StateTransferred"]
    assert true(MigrationPhase.SUCCEEDED) == [*OF_MIGRATIONS]


def test_only_a_change_has_a_new_time() -> None:
    then, now = datetime.fromtimestamp(NOW, UTC), datetime.fromtimestamp(NOW, UTC) + timedelta(minutes=1)
    first = updated((), conditions.of_request(request(RequestPhase.HOLDING).status, ()), 1, then)
    second = updated(first, conditions.of_request(request(RequestPhase.MOVING).status, (BINDING,)), 2, now)
    times = {item.type: item.last_transition_time for item in second}
    assert times["Accepted"] == times["Ready"] == then
    assert times["RoomHeld"] == now
    assert {item.observed_generation for item in second} == {2}
    assert [item.status for item in second] == ["True"] * 3 + ["False"] * 5
