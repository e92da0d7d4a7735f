"""What the extender knows that its watches have not shown yet, and what it cannot read."""

from __future__ import annotations

from typing import Any

import msgspec
from elbowroom.cluster import pods, slim
from elbowroom.core.world import HoldPhase
from elbowroom.extender.known import Known

Json = dict[str, Any]


def pod(version: str = "1", *, node: str = "") -> slim.Pod:
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "metadata": {"name": "late", "uid": "late", "namespace": "shop", "resourceVersion": version},
        "spec": {"containers": [container], **({"nodeName": node} if node else {})},
    }
    return msgspec.convert(body, slim.Pod)


def known() -> Known:
    found = Known()
    body = {
        "metadata": {"name": "n1", "uid": "n1", "resourceVersion": "1"}, "status": {"allocatable": {"cpu": "1", "memory": "1Gi"}},
    }  # fmt: skip
    found.put_node(msgspec.convert(body, slim.Node))
    found.put_pod(pod())
    return found


def hold(version: str = "1", phase: str = "Held", **spec: Any) -> Json:
    who = {"namespace": "shop", "name": "db", "uid": "db"}
    return {
        "kind": "CapacityHold",
        "metadata": {"name": "db", "uid": "h", "resourceVersion": version, "generation": 7, "creationTimestamp": "2026-11-18T00:00:00Z"},
        "spec": {"node": "n1", "claimant": who, "request": who, "target": {"cpu": "2"}, "expiresAt": "2026-11-18T01:00:00Z", **spec},
        "status": {"phase": phase, "observedGeneration": 1},
    }  # fmt: skip


def requested(found: Known, **more: str) -> int:
    node = found.node("n1", **more)
    assert node is not None
    return node.requested.cpu


def test_who_was_bound_counts_before_the_watch_shows_it() -> None:
    found = known()
    assert requested(found) == 0
    found.place(pods.to_pod(pod()), "n1")
    found.settle()
    assert requested(found) == 1000
    found.put_pod(pod("2", node="n1"))
    found.settle()
    assert requested(found) == 1000


def test_one_whose_binding_was_not_answered_does_not_stand_in_its_own_way() -> None:
    found = known()
    found.place(pods.to_pod(pod()), "n1")
    assert requested(found, besides="late") == 0


def test_one_that_was_bound_elsewhere_after_all_counts_there_only() -> None:
    found = known()
    found.place(pods.to_pod(pod()), "n1")
    found.put_pod(pod("2", node="n2"))
    found.settle()
    assert requested(found) == 0


def test_what_was_said_of_an_earlier_state_of_a_hold_still_counts() -> None:
    found = known()
    found.put_hold(hold())
    assert found.store.holds["db"].phase is HoldPhase.HELD
    assert list(found.barred()) == ["n1"]


def test_a_hold_that_is_over_or_gone_is_told_once() -> None:
    found, freed = known(), list[str]()
    found.on_freed = freed.append
    found.put_hold(hold())
    assert not freed
    found.put_hold(hold("2", "Released"))
    found.put_hold(hold("3", "Released"))
    assert freed == ["n1"]
    assert not found.barred()


def test_a_hold_that_cannot_be_read_keeps_its_node_closed_until_it_is_gone() -> None:
    found = known()
    found.put_hold(hold(expiresAt="when the cows come home"))
    assert found.barred() == {"n1": "there is a hold on it that cannot be read"}
    found.drop_hold("h")
    assert not found.barred()


def test_a_hold_that_can_be_read_again_is_closed_for_its_own_reason_only() -> None:
    found = known()
    found.put_hold(hold(expiresAt="when the cows come home"))
    found.put_hold(hold("2"))
    assert found.barred() == {"n1": "room on it is held for db"}
    found.put_hold(hold("3", "Released"))
    assert not found.barred()


def test_a_migration_that_cannot_be_read_ends_nobody() -> None:
    found = known()
    meta = {
        "name": "m",
        "uid": "m",
        "namespace": "shop",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-18T00:00:00Z",
    }
    found.put_migration(
        {"kind": "VMMigration", "metadata": meta, "spec": {"vm": "web"}, "status": {"phase": "Teleporting"}}
    )
    assert not found.store.migrations
