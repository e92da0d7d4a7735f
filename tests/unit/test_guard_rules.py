"""Who may add something where room is held, and who may not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elbowroom.cluster import pods, slim
from elbowroom.core.room import Room
from elbowroom.guard import rules
from elbowroom.guard.rules import Trust
from support.kept import book, hold

OPERATOR, SCHEDULER, SOMEBODY = "system:serviceaccount:e:operator", "system:kube-scheduler", "jane"
TRUST = Trust(OPERATOR, frozenset({SCHEDULER}))
CORE, GI = 1000, 2**30


def pod(uid: str, cpu: str = "1", memory: str = "1Gi", *, node: str = "n1", given: str | None = None) -> Any:
    sizes = {"cpu": cpu, "memory": memory}
    status = [{"name": "main", "allocatedResources": {**sizes, "cpu": given or cpu}}]
    body = {
        "metadata": {"name": uid, "uid": uid, "namespace": "shop", "resourceVersion": "1"},
        "spec": {"containers": [{"name": "main", "resources": {"requests": sizes}}], "nodeName": node},
        "status": {"containerStatuses": status},
    }
    return pods.to_pod(msgspec.convert(body, slim.Pod))


# Bindings and new pods


def test_a_bare_binding_to_a_held_node_is_refused_and_told_by_whom_and_since_when() -> None:
    verdict = rules.binding(book(), TRUST, SOMEBODY, "n1", Room(CORE, GI))
    assert not verdict.allowed
    assert verdict.message == (
        "cpu on n1 is held for shop/db by VMScaleRequest shop/grow-db (CapacityHold h, since 2026-11-18T08:00:00Z): "
        "nothing is added there now; try again later"
    )
    assert verdict.code == 429


@pytest.mark.parametrize(
    ("what", "user", "node", "asked"),
    [
        ("a scheduler that keeps to holds", SCHEDULER, "n1", Room(CORE, GI)),
        ("another node", SOMEBODY, "n2", Room(CORE, GI)),
        ("a pod that asks for nothing", SOMEBODY, "n1", Room(0, 0)),
        ("a pod that asks for what is not held", SOMEBODY, "n1", Room(0, GI)),
    ],
)
def test_a_binding_passes(what: str, user: str, node: str, asked: Room) -> None:
    assert rules.binding(book(), TRUST, user, node, asked).allowed, what


def test_a_hold_that_does_not_say_what_its_claimant_had_holds_all_of_it() -> None:
    held = book(hold(had=None))
    assert not rules.binding(held, TRUST, SOMEBODY, "n1", Room(0, GI)).allowed


def test_a_pod_that_names_a_held_node_is_refused() -> None:
    assert not rules.creation(book(), "n1", Room(CORE, 0), static=False).allowed


def test_a_static_pod_passes_with_a_warning() -> None:
    verdict = rules.creation(book(), "n1", Room(CORE, 0), static=True)
    assert verdict.allowed
    assert "a static pod cannot be refused: cpu on n1 is held for shop/db" in verdict.message


@pytest.mark.parametrize("phase", ["Released", "Refused"])
def test_a_hold_that_is_over_keeps_nobody_out(phase: str) -> None:
    assert rules.creation(book(hold(phase=phase)), "n1", Room(CORE, 0), static=False).allowed


@pytest.mark.parametrize("phase", ["Pending", "Held", "Claimed"])
def test_a_hold_keeps_others_out_from_its_first_moment_to_its_last(phase: str) -> None:
    assert not rules.creation(book(hold(phase=phase)), "n1", Room(CORE, 0), static=False).allowed


def test_a_hold_that_was_dropped_keeps_nobody_out_and_others_still_do() -> None:
    other = {"namespace": "bank", "name": "ledger", "uid": "ledger"}
    known = book(hold(), hold("h2", claimant=other, payers=[]))
    known.drop("h")
    assert "bank/ledger" in rules.creation(known, "n1", Room(CORE, 0), static=False).message
    assert rules.resize(known, TRUST, SOMEBODY, pod("web"), pod("web", "500m")).allowed
    known.drop("h2")
    known.drop("h2")
    assert rules.creation(known, "n1", Room(CORE, 0), static=False).allowed
    assert len(known) == 0


# Resizes


def test_another_pod_on_the_node_may_not_grow_in_what_is_held() -> None:
    verdict = rules.resize(book(), TRUST, SOMEBODY, pod("api", "1"), pod("api", "2", given="1"))
    assert not verdict.allowed
    assert "cpu on n1 is held for shop/db" in verdict.message


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("shrinks", pod("api", "2"), pod("api", "1", given="2")),
        ("grows in what is not held", pod("api", memory="1Gi"), pod("api", memory="2Gi")),
        ("asks for what it has asked for already", pod("api", "3", given="1"), pod("api", "3", "512Mi", given="1")),
        ("gives up what it waited for", pod("api", "3", given="1"), pod("api", "1", given="1")),
        ("is elsewhere", pod("api", node="n2"), pod("api", "3", node="n2", given="1")),
    ],
)
def test_a_resize_passes_that(what: str, before: Any, after: Any) -> None:
    assert rules.resize(book(), TRUST, SOMEBODY, before, after).allowed, what


def test_who_waits_for_much_may_not_ask_for_less_that_would_fit_into_what_is_held() -> None:
    assert not rules.resize(book(), TRUST, SOMEBODY, pod("api", "4", given="1"), pod("api", "2", given="1")).allowed


@pytest.mark.parametrize(
    ("name", "doing"), [("db", "is being grown"), ("web", "is being moved"), ("web-2", "is about to take a guest")]
)
def test_only_the_operator_resizes_who_is_part_of_it(name: str, doing: str) -> None:
    for after in (pod(name, "500m", given="1"), pod(name, "2", given="1")):
        verdict = rules.resize(book(), TRUST, SOMEBODY, pod(name), after)
        assert not verdict.allowed
        assert f"shop/{name} {doing} for VMScaleRequest shop/grow-db" in verdict.message
        assert rules.resize(book(), TRUST, OPERATOR, pod(name), after).allowed


def test_a_resize_that_changes_nothing_passes() -> None:
    assert rules.resize(book(), TRUST, SOMEBODY, pod("db"), pod("db")).allowed


# Evictions


def test_who_is_part_of_it_is_not_evicted_unless_its_node_is_cordoned() -> None:
    """An autoscaler whose resize is refused evicts the pod instead."""
    verdict = rules.eviction(book(), TRUST, SOMEBODY, pod("db"), cordoned=False)
    assert not verdict.allowed
    assert verdict.code == 429
    assert "is not evicted until that is over, unless its node is cordoned" in verdict.message
    assert rules.eviction(book(), TRUST, SOMEBODY, pod("db"), cordoned=True).allowed
    assert rules.eviction(book(), TRUST, SOMEBODY, pod("api"), cordoned=False).allowed
