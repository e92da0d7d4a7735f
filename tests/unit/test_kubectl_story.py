"""What `kubectl elbowroom explain` says of a request in each phase: true, and of use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from elbowroom.core import conditions
from elbowroom.core.reasons import Reason
from elbowroom.core.world import MigrationPhase, RequestPhase
from elbowroom.kubectl.showing import moved
from elbowroom.telling.advice import ADVICE
from elbowroom.telling.rooms import Bar
from elbowroom.telling.story import Move, Request, Story, tell, why_not
from elbowroom.telling.words import ago, amount, listed, span

BEGAN = datetime(2026, 11, 19, 8, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=42)
DB = {"namespace": "shop", "name": "db", "uid": "u-db"}
WEB = {"namespace": "shop", "name": "web", "uid": "u-web"}
PLAN = {
    "node": "node-1", "shortfall": {"cpu": "2"}, "target": {"cpu": "4"},
    "neighbours": [{
        "pod": WEB, "vm": "web", "size": {"cpu": "2", "memory": "2Gi"}, "migration": "web-1", "receiver": "web-1",
    }],
    "notChosen": [
        {"namespace": "shop", "name": "api", "reason": "NotOptedIn", "message": "its owner has not agreed"},
        {"namespace": "shop", "name": "cache", "reason": "NotAVM"},
        {"namespace": "infra", "name": "dns", "reason": "NotAVM"},
    ],
}  # fmt: skip


def request(phase: RequestPhase, reason: Reason, *done: str, message: str = "", **status: Any) -> Request:
    """Describe a request for db to grow from 2 to 4 cores, asked 42 s ago, so many of whose conditions are true."""
    told = [
        {"type": kind, "status": "True" if kind in done else "False", "reason": "Done" if kind in done else reason,
         "lastTransitionTime": (BEGAN + timedelta(seconds=2)).isoformat()}
        for kind in conditions.OF_REQUESTS
    ]  # fmt: skip
    known = {"from": "2 cpu", "to": "4 cpu", "node": "node-1", "pod": DB} if done else {}
    body = {
        "metadata": {"namespace": "shop", "name": "grow", "uid": "u-1", "creationTimestamp": BEGAN.isoformat()},
        "spec": {"vm": "db", "resources": {"cpu": "4"}, "deadline": "2m"},
        "status": {"phase": phase, "reason": reason, "message": message, "conditions": told, **known, **status},
    }
    return Request.of(body)


def move(phase: MigrationPhase, reason: Reason, **status: Any) -> Move:
    body = {
        "metadata": {"namespace": "shop", "name": "web-1"}, "spec": {"vm": "web"},
        "status": {"phase": phase, "reason": reason, "receiver": {"name": "web-1", "node": "node-2"}, **status},
    }  # fmt: skip
    return Move.of(body)


def story(item: Request, *moves: Move) -> Story:
    return tell(item, moves, NOW)


def test_one_that_nobody_has_looked_at() -> None:
    body: dict[str, Any] = {
        "metadata": {"namespace": "shop", "name": "grow", "uid": "u", "creationTimestamp": BEGAN.isoformat()},
        "spec": {"pod": "db", "resources": {"cpu": "4", "memory": "1Gi"}},
    }
    told = story(Request.of(body))
    assert told.wanted == "pod db in shop shall have 4 cpu and 1Gi memory. Asked 42 s ago; it gives up in 9 min."
    assert told.now == "No operator has looked at it yet."
    assert "no operator leads" in told.to_do


def test_one_that_waits_for_a_vm() -> None:
    told = story(request(RequestPhase.PENDING, Reason.VM_NOT_FOUND))
    assert told.wanted == "VM db in shop shall have 4 cpu. Asked 42 s ago; it gives up in 78 s."
    assert told.so_far == ()
    assert told.now.startswith("It waits. No running pod has the VM's label")
    assert "kubectl get pods -l elbowroom.dev/vm" in told.to_do


def test_one_that_finds_nobody_to_move() -> None:
    plan = {**PLAN, "neighbours": []}
    told = story(
        request(RequestPhase.PENDING, Reason.NOBODY_MOVABLE, "Accepted", message="no neighbour may be moved", plan=plan)
    )
    assert told.wanted.startswith("VM db in shop on node-1 shall have 4 cpu instead of 2 cpu.")
    assert told.now == "It waits. No set of neighbours that may be moved would free enough. no neighbour may be moved."
    assert "elbowroom.dev/movable=true" in told.to_do


def test_one_whose_neighbour_is_being_copied() -> None:
    item = request(
        RequestPhase.MOVING, Reason.TRANSFERRING, "Accepted", "Planned", "RoomHeld", "ReceiversBound", plan=PLAN
    )
    copied = move(MigrationPhase.TRANSFERRING, Reason.TRANSFERRING, percent=83, remainingBytes=3 << 20)
    told = story(item, copied)
    assert told.so_far == (
        "40 s ago: node-1 lacks 2 cpu: web (2 cpu and 2Gi memory) moves away.",
        "40 s ago: The scheduler keeps that room on node-1 for it.",
        "40 s ago: web goes to node-2, into pod shop/web-1.",
    )
    assert told.now == "Its neighbours are being moved. Guests are being copied. web: 83 % copied, 3 MiB left."
    assert told.to_do.startswith("Nothing to do.")


def test_one_whose_receiver_finds_no_node() -> None:
    item = request(RequestPhase.MOVING, Reason.TRANSFERRING, "Accepted", "Planned", "RoomHeld", plan=PLAN)
    told = story(item, move(MigrationPhase.BINDING, Reason.RECEIVER_UNBOUND, receiver={"name": "web-1"}))
    assert "web: the scheduler has found no node for a receiver yet." in told.now
    assert "kubectl describe pod says what the scheduler minds" in told.to_do


def test_one_whose_switch_over_nobody_can_tell_the_end_of() -> None:
    item = request(RequestPhase.COMMITTING, Reason.SWITCHING_OVER, "Accepted", "Planned", "RoomHeld", plan=PLAN)
    told = story(item, move(MigrationPhase.SWITCHING_OVER, Reason.RUNNER_SILENT))
    assert "delete the Node" in told.to_do


def test_one_that_is_done() -> None:
    item = request(RequestPhase.SUCCEEDED, Reason.DONE, *conditions.OF_REQUESTS, plan=PLAN,
                   guest={"before": {"cpus": 2, "memoryBytes": 1}, "after": {"cpus": 4, "memoryBytes": 1}})  # fmt: skip
    told = story(item, move(MigrationPhase.SUCCEEDED, Reason.DONE, downtimeMilliseconds=84))
    assert told.wanted == "VM db in shop on node-1 shall have 4 cpu instead of 2 cpu. Asked 42 s ago."
    assert "40 s ago: web runs on node-2, and stood still for 84 ms." in told.so_far
    assert "40 s ago: The pod has 4 cpu." in told.so_far
    assert "40 s ago: The guest has its new size." in told.so_far
    assert told.now == "It is done. The pod, and the guest in it, have the size that was asked for."
    assert told.to_do == "Nothing to do."


def test_one_that_has_failed_says_what_for() -> None:
    failed = [{"uid": "u", "reason": "ReceiverRefused"}]
    told = story(
        request(RequestPhase.FAILED, Reason.DEADLINE, "Accepted", message="last: ReceiverRefused", failed=failed)
    )
    assert told.so_far == (
        "A move of an earlier plan has failed: the api server refuses the receiver: quota, limits or an admission rule.",
    )
    assert told.now == "It has failed. It did not come to its end in time. last: ReceiverRefused."


def test_one_whose_guard_is_down_says_so() -> None:
    item = request(RequestPhase.MOVING, Reason.TRANSFERRING, "Accepted", plan=PLAN)
    body = item.status.model_dump(by_alias=True, mode="json")
    down = {"type": "Guarded", "status": "False", "reason": "GuardDown", "lastTransitionTime": BEGAN.isoformat()}
    status = type(item.status).model_validate({**body, "conditions": [*body["conditions"], down]})
    told = story(Request(**{**item.__dict__, "status": status}))
    assert told.so_far[-1].startswith("42 s ago: The API server does not get an answer from the guard.")


def test_one_of_a_newer_operator() -> None:
    told = story(request(RequestPhase.MOVING, "SomethingNew", "Accepted", message="the moon is in the way"))  # type: ignore[arg-type]
    assert "the moon is in the way" in told.now
    assert told.to_do == ADVICE[Reason.UNKNOWN]


_NEVER = (  # in a request's own status
    Reason.ACCEPTED, Reason.EARLIER_STEP, Reason.NOT_NEEDED, Reason.GUARDED, Reason.GUARD_DOWN, Reason.NOT_A_VM,
    Reason.NOT_OPTED_IN, Reason.IS_CLAIMANT, Reason.IN_USE, Reason.HIGHER_PRIORITY, Reason.NOT_SELECTED, Reason.RESTING,
    Reason.FAILED_BEFORE, Reason.NOT_RUNNING, Reason.DOES_NOT_HELP, Reason.COSTS_MORE, Reason.EXPIRED,
    Reason.NEIGHBOUR_TAKEN, Reason.GAVE_WAY,
)  # fmt: skip


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in _NEVER])
def test_there_is_advice_for_every_reason(reason: Reason) -> None:
    for phase in RequestPhase:
        told = story(request(phase, reason, "Accepted", plan=PLAN))
        assert told.to_do
        assert not told.now.endswith(("..", " ."))
        assert told.now.endswith(".")


def test_those_who_stay_are_told_by_why() -> None:
    item = request(RequestPhase.SUCCEEDED, Reason.DRY_RUN, "Accepted", plan=PLAN)
    assert [*why_not(item)] == ["shop/api: its owner has not agreed", "shop/cache, infra/dns: it is a plain pod"]
    (web,) = moved(item)
    assert (web.pod, web.memory, web.seconds) == ("shop/web", 2 << 30, 2.0)


@pytest.mark.parametrize(
    ("bar", "widths"),
    [
        (Bar(0, 0, 4000), (0, 0, 32)), (Bar(4000, 0, 4000), (32, 0, 0)), (Bar(2000, 1000, 4000), (16, 8, 8)),
        (Bar(1, 1, 4000), (1, 1, 30)), (Bar(4000, 2000, 4000), (32, 0, 0)), (Bar(0, 0, 0), (0, 0, 32)),
    ],
)  # fmt: skip
def test_a_bar_is_as_wide_as_it_is(bar: Bar, widths: tuple[int, int, int]) -> None:
    assert bar.widths(32) == widths


def test_numbers_are_said_as_people_say_them() -> None:
    assert [amount(size) for size in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3 GiB"]
    assert [span(seconds) for seconds in (0.04, 9.94, 12, 119, 600, 7300)] == [
        "0.0 s",
        "9.9 s",
        "12 s",
        "119 s",
        "10 min",
        "2 h",
    ]
    assert [ago(seconds) for seconds in (0.4, 3.2, 4000)] == ["just now", "3 s ago", "66 min ago"]
    assert [listed(items) for items in ((), ("a",), ("a", "b", "c"))] == ["", "a", "a, b and c"]
