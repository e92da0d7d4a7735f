"""Held room, kept by the real scheduler: who is kept out, what is said, and who gets it in the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from elbowroom.core.quantity import millicores
from support.holds import Holds
from support.namespace import IDLE, Size, condition, pod
from support.waiting import stays, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json, Namespace

MEMORY, BYTES = "64Mi", 64 * 2**20


@pytest.fixture
def holds(namespace: Namespace) -> Iterator[Holds]:
    made = Holds(namespace)
    yield made
    made.close()


def placed(name: str, node: str, cpu: str, **spec: Any) -> Json:
    """Describe a pod that is on a node already: no scheduler is asked."""
    return pod(name, IDLE, cpu=cpu, memory=MEMORY, nodeName=node, **spec)


def anywhere(name: str, cpu: str, node: str, **spec: Any) -> Json:
    """Describe a pod that would like to come to a node."""
    return pod(name, IDLE, cpu=cpu, memory=MEMORY, node=node, **spec)


def used(namespace: Namespace, node: str, *, besides: tuple[str, ...] = ()) -> int:
    """Return what pods on a node have been given, from the API server's own objects."""
    items = namespace.testbed.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={node}").items
    total = 0
    for item in items:
        found = namespace.testbed.plain(item)
        if found["status"].get("phase") not in ("Succeeded", "Failed") and found["metadata"]["name"] not in besides:
            total += sum(
                millicores(part["resources"].get("requests", {}).get("cpu", 0)) for part in found["spec"]["containers"]
            )
    return total


def waits(namespace: Namespace, name: str, because: str) -> Json:
    """Wait until the scheduler has said why a pod has to wait."""

    def probe() -> Json:
        found = namespace.pod(name)
        told = condition(found, "PodScheduled")
        assert told.get("reason") == "Unschedulable", told
        assert because in told["message"], told
        return found

    return until(f"{name} is refused: {because}", probe)


def has_place(namespace: Namespace, name: str) -> None:
    """Wait until a receiver has a node, which it may not be bound to yet."""
    until(f"{name} has a place", lambda: namespace.pod(name)["status"].get("nominatedNodeName"))


def test_held_room_is_kept_from_a_crowd_and_goes_to_its_claimant(
    namespace: Namespace, holds: Holds, extra_node: str
) -> None:
    db, web = namespace.start(placed("db", extra_node, "1"), placed("web", extra_node, "2"))
    # One core is free; db is to have three.
    hold = holds.create(db, "3", payers={"web-receiver": web})
    status = holds.until(hold, "Held")
    assert (status["shortfall"]["cpu"], status["reason"]) == ("1", "Held")
    assert status["term"]
    names = [f"crowd-{number}" for number in range(120)]
    namespace.apply(*(anywhere(name, "100m", extra_node) for name in names))
    waits(namespace, names[0], "room is held for")
    stays("nobody of the crowd has come", lambda: used(namespace, extra_node) == 3000, during=2)

    namespace.resize("db", cpu="3", memory=MEMORY)
    namespace.until_deferred("db")
    holds.until(hold, "Claimed")
    namespace.kubectl("delete", "pod", "web", "--grace-period=1")
    namespace.until_resized("db", Size(3000, BYTES), within=15)
    # What the neighbour had beyond the need is everybody's, and nobody starves.
    until("the surplus is used", lambda: used(namespace, extra_node) == 4000)
    stays("nobody is overcommitted", lambda: used(namespace, extra_node) == 4000, during=1)
    holds.delete(hold)
    namespace.kubectl("delete", "pod", "db", "--grace-period=1")
    until("the crowd uses what db leaves", lambda: used(namespace, extra_node) == 4000)
    failed = [item for item in names if namespace.pod(item)["status"]["phase"] == "Failed"]
    assert not failed, failed


def test_a_hold_that_comes_among_pods_that_are_alike_keeps_the_next_ones_out(
    namespace: Namespace, holds: Holds, extra_node: str
) -> None:
    """The scheduler places pods that are alike in a batch; what it has found out for the first must not serve the others."""
    (db,) = namespace.start(placed("db", extra_node, "1"))
    names = [f"alike-{number}" for number in range(60)]
    comes = threading.Thread(target=namespace.apply, args=[anywhere(name, "100m", extra_node) for name in names])
    comes.start()
    until("the first ones have come", lambda: used(namespace, extra_node) >= 1300)
    hold = holds.create(db, "2")
    comes.join()
    said = until("it is acknowledged", lambda: holds.get(hold).get("status", {}).get("phase") in ("Held", "Refused"))
    assert said
    if holds.get(hold)["status"]["phase"] == "Held":
        until("the others wait", lambda: used(namespace, extra_node, besides=("db",)) == 2000)
        stays("its core is kept", lambda: used(namespace, extra_node, besides=("db",)) == 2000, during=1)
        namespace.resize("db", cpu="2", memory=MEMORY)
        namespace.until_resized("db", Size(2000, BYTES), within=15)
    else:
        assert used(namespace, extra_node) > 3000, holds.get(hold)


def test_when_a_hold_goes_those_whom_it_kept_out_come_at_once(
    namespace: Namespace, holds: Holds, extra_node: str
) -> None:
    (db,) = namespace.start(placed("db", extra_node, "1"))
    hold = holds.create(db, "4")
    holds.until(hold, "Held")
    namespace.apply(anywhere("small", "500m", extra_node))
    waits(namespace, "small", "room is held for")
    holds.delete(hold)
    namespace.until_ready("small", within=10)


def test_when_a_pod_shrinks_those_come_at_once_whom_a_hold_kept_out(
    namespace: Namespace, holds: Holds, extra_node: str
) -> None:
    db, _ = namespace.start(placed("db", extra_node, "1"), placed("big", extra_node, "2"))
    holds.until(holds.create(db, "2"), "Held")
    namespace.apply(anywhere("small", "500m", extra_node))
    waits(namespace, "small", "room is held for")
    namespace.resize("big", cpu="1", memory=MEMORY)
    namespace.until_ready("small", within=10)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("too large", "LargerThanNode"), ("nobody pays", "NobodyMovable"), ("claimant gone", "ClaimantGone"),
        ("neighbour gone", "NeighbourGone"), ("neighbour taken", "NeighbourTaken"), ("claimant leaves", "NeighbourTaken"),
    ],
)  # fmt: skip
def test_a_hold_that_cannot_be_kept_is_refused_with_the_reason(
    namespace: Namespace, holds: Holds, extra_node: str, case: str, reason: str
) -> None:
    db, web, api = namespace.start(
        placed("db", extra_node, "1"), placed("web", extra_node, "2"), placed("api", extra_node, "1")
    )
    match case:
        case "too large":
            hold = holds.create(db, "5", payers={"r": web})
        case "nobody pays":
            hold = holds.create(db, "2")
        case "claimant gone":
            namespace.kubectl("delete", "pod", "db", "--grace-period=1", "--wait")
            hold = holds.create(db, "2", payers={"r": web})
        case "neighbour gone":
            namespace.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
            hold = holds.create(db, "2", payers={"r": web})
        case "neighbour taken":
            holds.until(holds.create(api, "2", payers={"r1": web}), "Held")
            hold = holds.create(db, "2", payers={"r2": web})
        case _:
            holds.until(holds.create(api, "2", payers={"r1": db}), "Held")
            hold = holds.create(db, "2", payers={"r2": web})
    status = holds.until(hold, "Refused")
    assert status["reason"] == reason, status
    assert status["message"]
    # A refused hold keeps nobody out.
    if case == "nobody pays":
        namespace.kubectl("delete", "pod", "web", "--grace-period=1")
        namespace.start(anywhere("next", "2", extra_node))


def test_a_hold_expires_unless_it_is_renewed_or_committed(namespace: Namespace, holds: Holds, extra_node: str) -> None:
    db, web = namespace.start(placed("db", extra_node, "1"), placed("web", extra_node, "1"))
    short = holds.create(db, "2", lasts=3)
    held = holds.until(short, "Held")
    committed = holds.create(web, "2", lasts=3)
    holds.until(committed, "Held")
    holds.patch(committed, committed=True)
    again = holds.until(committed, "Held")
    assert again["term"] == held["term"]
    namespace.apply(anywhere("next", "1", extra_node))
    waits(namespace, "next", "room is held for")
    assert holds.until(short, "Released")["reason"] == "Expired"
    namespace.until_ready("next")
    stays("a committed hold lasts", lambda: holds.get(committed)["status"]["phase"] == "Held", during=3)


def test_a_hold_whose_claimant_goes_is_released(namespace: Namespace, holds: Holds, extra_node: str) -> None:
    (db,) = namespace.start(placed("db", extra_node, "1"))
    hold = holds.create(db, "4", committed=True)
    holds.until(hold, "Held")
    namespace.kubectl("delete", "pod", "db", "--grace-period=1")
    assert holds.until(hold, "Released")["reason"] == "ClaimantGone"
    namespace.start(anywhere("next", "4", extra_node))


def test_the_shortfall_is_kept_up_to_date(namespace: Namespace, holds: Holds, extra_node: str) -> None:
    db, web, _ = namespace.start(
        placed("db", extra_node, "1"), placed("web", extra_node, "2"), placed("api", extra_node, "1")
    )
    hold = holds.create(db, "3", payers={"r": web})
    holds.until(hold, "Held")
    holds.until_short(hold, 2000)
    namespace.kubectl("delete", "pod", "api", "--grace-period=1")
    holds.until_short(hold, 1000)


class TestReceivers:
    def test_a_receiver_does_not_come_to_the_node_that_its_guest_leaves(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        db, web = namespace.start(placed("db", extra_node, "1"), placed("web", extra_node, "1"))
        hold = holds.create(db, "4", payers={"web-receiver": web})
        holds.until(hold, "Held")
        namespace.apply(anywhere("web-receiver", "100m", extra_node))
        waits(namespace, "web-receiver", "must not come to the node that its guest leaves")
        namespace.kubectl("delete", "pod", "web-receiver")
        # A label opens nothing: whoever is no receiver by a hold is a pod like others.
        forged = anywhere("forged", "2", extra_node)
        forged["metadata"]["labels"] = {"elbowroom.dev/receiver": "true", "elbowroom.dev/vm": "db"}
        namespace.apply(forged)
        waits(namespace, "forged", "room is held for")

    def test_siblings_are_bound_together_or_not_at_all(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        db, web, api = namespace.start(
            placed("db", extra_node, "2"), placed("web", extra_node, "1"), placed("api", extra_node, "1")
        )
        hold = holds.create(db, "4", payers={"web-receiver": web, "api-receiver": api})
        holds.until(hold, "Held")
        namespace.apply(pod("web-receiver", IDLE, cpu="100m"))
        has_place(namespace, "web-receiver")
        stays("it is not bound", lambda: not namespace.pod("web-receiver")["spec"].get("nodeName"), during=1)
        namespace.apply(pod("api-receiver", IDLE, cpu="100m"))
        for name in ("web-receiver", "api-receiver"):
            found = namespace.until_ready(name)
            assert found["spec"]["nodeName"] != extra_node

    def test_receivers_of_two_holds_do_not_wait_for_each_other(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        """Each has one place of two that it needs: the hold that comes first gets the other one's."""
        names = ("db", "cache", "web", "api", "mail", "job")
        db, cache, web, api, mail, job = namespace.start(*(placed(name, extra_node, "500m") for name in names))
        first = holds.create(db, "2", payers={"web-receiver": web, "api-receiver": api}, priority=5)
        second = holds.create(cache, "2", payers={"mail-receiver": mail, "job-receiver": job})
        for hold in (first, second):
            holds.until(hold, "Held")
        for name in ("web", "mail"):
            namespace.apply(anywhere(f"{name}-receiver", "2", "node-3"))
            has_place(namespace, f"{name}-receiver")
        for name in ("job", "api"):
            namespace.apply(anywhere(f"{name}-receiver", "2", "node-3"))
        for name in ("web", "api"):
            namespace.until_ready(f"{name}-receiver")
        for name in ("mail", "job"):
            assert not namespace.pod(f"{name}-receiver")["spec"].get("nodeName")
        # And when the first one's have gone the others come: nobody has forgotten them.
        namespace.kubectl("delete", "pod", "web-receiver", "api-receiver", "--grace-period=1")
        for name in ("mail", "job"):
            namespace.until_ready(f"{name}-receiver", within=60)

    def test_a_receiver_that_nobody_needs_any_more_is_not_bound(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        db, web, api, _ = namespace.start(
            placed("db", extra_node, "1"), placed("web", extra_node, "1"), placed("api", extra_node, "1"),
            placed("job", extra_node, "1"),
        )  # fmt: skip
        hold = holds.create(db, "2", payers={"web-receiver": web, "api-receiver": api})
        holds.until(hold, "Held")
        namespace.apply(pod("web-receiver", IDLE, cpu="100m"))
        has_place(namespace, "web-receiver")
        namespace.kubectl("delete", "pod", "job", "--grace-period=1")
        waits(namespace, "web-receiver", "has appeared by itself")
        assert not namespace.pod("web-receiver")["spec"].get("nodeName")

    def test_a_receiver_whose_request_was_cancelled_is_refused_at_once(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        db, web, api = namespace.start(
            placed("db", extra_node, "2"), placed("web", extra_node, "1"), placed("api", extra_node, "1")
        )
        hold = holds.create(db, "4", payers={"web-receiver": web, "api-receiver": api})
        holds.until(hold, "Held")
        holds.moves(web, "web-receiver", hold=hold)
        namespace.apply(pod("web-receiver", IDLE, cpu="100m"))
        has_place(namespace, "web-receiver")
        holds.delete(hold)
        waits(namespace, "web-receiver", "the hold that this receiver belongs to is gone")
        stays("nobody binds it", lambda: not namespace.pod("web-receiver")["spec"].get("nodeName"), during=1)

    def test_a_vm_that_is_moved_by_hand_goes_elsewhere_and_is_nobodys_victim(
        self, namespace: Namespace, holds: Holds, extra_node: str
    ) -> None:
        (web,) = namespace.start(placed("web", extra_node, "2"))
        holds.moves(web, "web-receiver")
        namespace.apply(anywhere("web-receiver", "100m", extra_node))
        waits(namespace, "web-receiver", "must not come to the node that its guest leaves")
        namespace.apply(anywhere("boss", "4", extra_node, priorityClassName="system-cluster-critical"))
        waits(namespace, "boss", "Insufficient cpu")
        stays("nobody preempts it", lambda: "deletionTimestamp" not in namespace.pod("web")["metadata"], during=1)
        namespace.kubectl("delete", "pod", "web-receiver")
        namespace.start(pod("web-receiver", IDLE, cpu="100m"))
        assert namespace.pod("web-receiver")["spec"]["nodeName"] != extra_node

    def test_a_receiver_prefers_a_node_without_holds(self, namespace: Namespace, holds: Holds, extra_node: str) -> None:
        """Where it would fit, too, and where a pod like any other would go: there is more room."""
        db, web = namespace.start(placed("db", extra_node, "2"), placed("web", extra_node, "2"))
        nodes = ("node-1", "node-2", "node-3")
        busy = namespace.start(*(placed(f"busy-{node}", node, "1500m") for node in nodes[:2]))
        (other,) = namespace.start(placed("other", nodes[2], "100m"))
        assert len(busy) == 2
        holds.until(holds.create(other, "2"), "Held")
        holds.until(holds.create(db, "4", payers={"web-receiver": web}), "Held")
        namespace.start(pod("plain", IDLE, cpu="100m"), pod("web-receiver", IDLE, cpu="100m"))
        assert namespace.pod("plain")["spec"]["nodeName"] == nodes[2]
        assert namespace.pod("web-receiver")["spec"]["nodeName"] in nodes[:2]

    def test_a_receiver_preempts_nobody(self, namespace: Namespace, holds: Holds, extra_node: str) -> None:
        db, web = namespace.start(placed("db", extra_node, "2"), placed("web", extra_node, "2"))
        hold = holds.create(db, "4", payers={"web-receiver": web})
        holds.until(hold, "Held")
        important = pod("web-receiver", IDLE, cpu="4", priorityClassName="system-cluster-critical")
        namespace.start(*(pod(f"low-{node}", IDLE, cpu="2", node=node) for node in ("node-1", "node-2", "node-3")))
        namespace.apply(important)
        waits(namespace, "web-receiver", "a receiver preempts nobody")
        nodes = ("node-1", "node-2", "node-3")
        assert all(namespace.pod(f"low-{node}")["status"]["phase"] == "Running" for node in nodes)


def test_a_preemptor_takes_others_and_no_part_of_a_hold(namespace: Namespace, holds: Holds, extra_node: str) -> None:
    db, web, _ = namespace.start(
        placed("db", extra_node, "1"), placed("web", extra_node, "1"), placed("job", extra_node, "2")
    )
    hold = holds.create(db, "2", payers={"web-receiver": web})
    holds.until(hold, "Held")
    # Two cores: only job's, and the hold needs one of them when job is gone and web is not. So one core at most.
    boss = anywhere("boss", "2", extra_node, priorityClassName="system-cluster-critical")
    namespace.apply(boss)
    waits(namespace, "boss", "room is held for")
    assert all(namespace.pod(name)["status"]["phase"] == "Running" for name in ("db", "web"))
    namespace.apply(anywhere("deputy", "1", extra_node, priorityClassName="system-cluster-critical"))
    namespace.until_ready("deputy")
    namespace.until_gone("job")
    for name in ("db", "web"):
        found = namespace.pod(name)
        assert found["status"]["phase"] == "Running"
        assert "deletionTimestamp" not in found["metadata"]
    assert holds.get(hold)["status"]["phase"] == "Held"
