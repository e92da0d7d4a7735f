"""Schedulers die and others take over: held room stays held, nobody is forgotten, nobody is stuck."""

from __future__ import annotations

import random
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from support.holds import Holds, install
from support.namespace import IDLE, fresh_namespace, pod
from support.schedulers import ELECTION, Standby
from support.testbed import ROOT, Testbed
from support.waiting import stays, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.namespace import Json, Namespace

SCHEDULER = "kube-scheduler"


@pytest.fixture(scope="module")
def elected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Provide a cluster whose schedulers elect a leader."""
    directory = tmp_path_factory.mktemp("elected")
    with Testbed(directory, nodes=2, flags=("--cpu", "4", "--memory", "8Gi", *ELECTION)) as running:
        install(running, ROOT)
        yield running


@pytest.fixture
def space(elected: Testbed, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    with fresh_namespace(elected, request.node.name) as made:
        yield made


@pytest.fixture
def holds(space: Namespace) -> Iterator[Holds]:
    made = Holds(space)
    yield made
    made.close()


def pair(space: Namespace) -> list[Json]:
    """Fill node-1: db and web have two cores each."""
    return space.start(*(pod(name, IDLE, cpu="2", nodeName="node-1") for name in ("db", "web")))


def crowd(space: Namespace, count: int = 20) -> None:
    space.apply(*(pod(f"crowd-{number}", IDLE, cpu="500m", node="node-1") for number in range(count)))


def on_node_1(space: Namespace) -> list[str]:
    items = space.core.list_namespaced_pod(space.name, field_selector="spec.nodeName=node-1").items
    return sorted(space.testbed.plain(item)["metadata"]["name"] for item in items)


def test_a_hold_that_came_while_no_scheduler_ran_is_known_before_the_first_pod_is_placed(
    elected: Testbed, space: Namespace, holds: Holds
) -> None:
    db, web = pair(space)
    elected.cli("kill", SCHEDULER)
    try:
        hold = holds.create(db, "4", payers={"web-receiver": web})
        crowd(space)
        space.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
        stays("nobody speaks for a scheduler that does not run", lambda: "phase" not in _said(holds, hold), during=1)
    finally:
        elected.cli("restart", SCHEDULER)
    # Its neighbour has gone before anything was promised: it is refused, and only then others may come.
    assert holds.until(hold, "Refused")["reason"] == "NeighbourGone"
    until("the crowd has come", lambda: len(on_node_1(space)) == 5)


def _said(holds: Holds, hold: str) -> Json:
    status: Json = {key: value for key, value in holds.get(hold).get("status", {}).items() if value}
    return {} if status.get("phase") == "Pending" else status


def test_the_order_of_requests_is_kept_though_all_are_seen_at_once(
    elected: Testbed, space: Namespace, holds: Holds
) -> None:
    names = ("early", "late", "urgent")
    pods = space.start(*(pod(name, IDLE, cpu="1", nodeName="node-1") for name in names))
    elected.cli("kill", SCHEDULER)
    try:
        early = holds.create(pods[0], "2")
        # The API server's clock has seconds.
        stays("nobody speaks", lambda: not _said(holds, early), during=1.1)
        late = holds.create(pods[1], "2")
        urgent = holds.create(pods[2], "2", priority=9)
    finally:
        elected.cli("restart", SCHEDULER)
    # One core is free.
    holds.until(urgent, "Held")
    for hold in (early, late):
        assert holds.until(hold, "Refused")["reason"] == "NobodyMovable"


def test_held_room_stays_held_while_the_scheduler_is_down_and_when_it_is_back(
    elected: Testbed, space: Namespace, holds: Holds
) -> None:
    db, web = pair(space)
    hold = holds.create(db, "4", payers={"web-receiver": web})
    before = holds.until(hold, "Held")
    elected.cli("kill", SCHEDULER)
    try:
        crowd(space)
        space.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
    finally:
        elected.cli("restart", SCHEDULER)
    after = until("another term has acknowledged it", lambda: _in_another_term(holds, hold, before))
    assert after["phase"] == "Held"
    stays("nobody takes the room", lambda: on_node_1(space) == ["db"], during=2)
    holds.delete(hold)
    until("the crowd comes when the hold goes", lambda: len(on_node_1(space)) == 5)


def _in_another_term(holds: Holds, hold: str, before: Json) -> Json | None:
    status: Json = holds.get(hold)["status"]
    return status if status["term"] != before["term"] else None


def test_a_receiver_that_waited_when_the_scheduler_died_is_not_stuck(
    elected: Testbed, space: Namespace, holds: Holds
) -> None:
    db, web, api = space.start(
        *(pod(name, IDLE, cpu=cpu, nodeName="node-1") for name, cpu in (("db", "2"), ("web", "1"), ("api", "1")))
    )
    hold = holds.create(db, "4", payers={"web-receiver": web, "api-receiver": api})
    holds.until(hold, "Held")
    space.apply(pod("web-receiver", IDLE))
    until("it has a place", lambda: space.pod("web-receiver")["status"].get("nominatedNodeName"))
    elected.cli("kill", SCHEDULER)
    elected.cli("restart", SCHEDULER)
    stays("it waits again", lambda: not space.pod("web-receiver")["spec"].get("nodeName"), during=2)
    space.apply(pod("api-receiver", IDLE))
    for name in ("web-receiver", "api-receiver"):
        assert space.until_ready(name)["spec"]["nodeName"] == "node-2"


def test_a_standby_says_nothing_until_it_leads_and_then_keeps_what_was_held(
    elected: Testbed, space: Namespace, holds: Holds, tmp_path: Path
) -> None:
    db, web = pair(space)
    hold = holds.create(db, "4", payers={"web-receiver": web})
    before = holds.until(hold, "Held")
    with Standby(elected, tmp_path / "standby.log") as standby:
        stays("the standby is silent", lambda: holds.get(hold)["status"]["term"] == before["term"], during=1)
        assert not standby.leads
        elected.cli("kill", SCHEDULER)
        try:
            crowd(space)
            space.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
            after = until("the standby has taken over", lambda: _in_another_term(holds, hold, before), within=30)
            assert (after["phase"], standby.leads) == ("Held", True)
            stays("nobody takes the room", lambda: on_node_1(space) == ["db"], during=2)
            # One that sleeps while another leads must not act when it wakes up.
            standby.signal(signal.SIGSTOP)
            elected.cli("restart", SCHEDULER)
            until("the first one leads again", lambda: _in_another_term(holds, hold, after), within=30)
            standby.signal(signal.SIGCONT)
            assert standby.wait() != 0
            stays("nobody takes the room", lambda: on_node_1(space) == ["db"], during=1)
        finally:
            elected.cli("restart", SCHEDULER)


@pytest.mark.parametrize("turn", range(4))
def test_a_scheduler_that_is_killed_at_any_moment_gives_nothing_away(
    elected: Testbed, space: Namespace, holds: Holds, turn: int
) -> None:
    """Before and after the acknowledgement, before and after bindings: whenever chance has it."""
    chance = random.Random(turn)
    sizes = {"db": "1", "web": "1", "api": "1"}
    db, web, _ = space.start(*(pod(name, IDLE, cpu=cpu, nodeName="node-1") for name, cpu in sizes.items()))
    names = [f"crowd-{number}" for number in range(10)]
    comes = [pod(name, IDLE, cpu="300m", node="node-1") for name in names]
    crowd_comes = threading.Thread(target=space.apply, args=comes)
    killer = threading.Timer(chance.uniform(0.0, 0.6), elected.cli, ("kill", SCHEDULER))
    waiting = threading.Event()
    crowd_comes.start()
    killer.start()
    waiting.wait(chance.uniform(0.0, 0.4))
    hold = holds.create(db, "2", payers={"web-receiver": web})
    crowd_comes.join()
    killer.join()
    elected.cli("restart", SCHEDULER)
    # One core was free: the crowd may have some of it, and what is promised is there once web has gone.
    status = until("it is acknowledged", lambda: _said(holds, hold), within=20)
    assert status["phase"] == "Held", status
    space.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
    space.resize("db", cpu="2", memory="64Mi")
    holds.until(hold, "Claimed")
    until("db has grown", lambda: _allocated(space.pod("db")) == "2", within=15)
    assert all(space.pod(name)["status"]["phase"] != "Failed" for name in names)


def _allocated(found: Json) -> str:
    return str(found["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])
