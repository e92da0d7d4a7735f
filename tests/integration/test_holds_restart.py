"""Schedulers die and others take over: held room stays held, nobody is forgotten, nobody is stuck."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest
from elbowroom.core.quantity import millicores
from kubernetes import client
from support.ambush import Ambush, Fate, Moment
from support.holds import Holds, install
from support.namespace import IDLE, fresh_namespace, pod
from support.schedulers import ELECTION, Doomed, Standby
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


def _judged(holds: Holds, hold: str) -> Json:
    return until("it is acknowledged", lambda: _said(holds, hold), within=20)


def test_of_two_holds_that_count_on_one_neighbour_only_one_is_held(
    elected: Testbed, space: Namespace, holds: Holds
) -> None:
    """Both are judged in the same moment: what was just promised counts, though no watch has shown it yet."""
    sizes = {"db": "1", "cache": "1", "web": "2"}
    db, cache, web = space.start(*(pod(name, IDLE, cpu=cpu, nodeName="node-1") for name, cpu in sizes.items()))
    elected.cli("kill", SCHEDULER)
    try:
        first = holds.create(db, "2", payers={"web-receiver": web})
        second = holds.create(cache, "2", payers={"web-receiver-2": web})
    finally:
        elected.cli("restart", SCHEDULER)
    said = [_judged(holds, hold) for hold in (first, second)]
    assert sorted(item["phase"] for item in said) == ["Held", "Refused"], said
    assert "NeighbourTaken" in {item["reason"] for item in said}


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
            leader = holds.get(hold)["status"]["term"]
            assert standby.wait() != 0
            stays("nobody takes the room", lambda: on_node_1(space) == ["db"], during=1)
            assert holds.get(hold)["status"]["term"] == leader
        finally:
            elected.cli("restart", SCHEDULER)


ACKNOWLEDGES = ("PUT", r"/capacityholds/[^/]+/status$")
BINDS = ("POST", r"/pods/crowd-\d+/binding$")
BINDS_A_RECEIVER = ("POST", r"-receiver/binding$")
GIVES_A_PLACE = ("PATCH", r"-receiver/status$")
Killed = Callable[[Moment], AbstractContextManager[Ambush]]


@pytest.fixture
def killed(elected: Testbed, tmp_path: Path) -> Killed:
    """Have a scheduler at work that will be killed at a moment, and another one from then on."""

    @contextmanager
    def work(moment: Moment) -> Iterator[Ambush]:
        elected.cli("kill", SCHEDULER)
        try:
            with Ambush(elected, "system:kube-scheduler", moment) as ambush:
                with Doomed(ambush, tmp_path) as doomed:
                    yield ambush
                    doomed.until_killed()
                led = _leader(elected)
                elected.cli("restart", SCHEDULER)
                if moment.fate is Fate.LATE:
                    until("another one leads", lambda: _leader(elected) != led)
                    ambush.let_go()
                assert moment.fate is Fate.LOST or ambush.arrived.wait(10)
        finally:
            elected.cli("restart", SCHEDULER)

    return work


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.DONE])
def test_a_scheduler_that_is_killed_at_its_word_gives_nothing_away(
    space: Namespace, holds: Holds, killed: Killed, fate: Fate
) -> None:
    db, web = _almost_full(space)
    with killed(Moment(*ACKNOWLEDGES, fate)):
        hold = holds.create(db, "2", payers={"web-receiver": web})
        _small_crowd(space)
    _swap(space, holds, hold)


def _leader(elected: Testbed) -> str:
    lease = client.CoordinationV1Api(elected.api).read_namespaced_lease(SCHEDULER, "kube-system")
    return str(elected.plain(lease)["spec"]["holderIdentity"])


def test_what_a_scheduler_has_bound_arrives_when_the_next_one_leads_already_and_counts(
    space: Namespace, holds: Holds, killed: Killed
) -> None:
    db, _ = _almost_full(space)
    with killed(Moment(*BINDS, Fate.LATE)) as ambush:
        _small_crowd(space)
        assert ambush.struck.wait(20)
        hold = holds.create(db, "2")
    # Nobody leaves for it, and of the core that seemed to be free something is gone: to promise it would be a lie.
    assert _judged(holds, hold)["reason"] == "NobodyMovable"
    until("the crowd uses what is left", lambda: len(on_node_1(space)) == 6)


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.DONE])
def test_a_scheduler_that_is_killed_at_a_binding_gives_nothing_away(
    space: Namespace, holds: Holds, killed: Killed, fate: Fate
) -> None:
    """What it has placed counts for the next one."""
    db, web = _almost_full(space)
    with killed(Moment(*BINDS, fate)) as ambush:
        _small_crowd(space)
        assert ambush.struck.wait(20)
        hold = holds.create(db, "2", payers={"web-receiver": web})
    _swap(space, holds, hold)


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.DONE, Fate.LATE])
@pytest.mark.parametrize("call", [GIVES_A_PLACE, BINDS_A_RECEIVER], ids=["its place", "its binding"])
def test_receivers_are_not_stuck_when_their_scheduler_is_killed(
    space: Namespace, holds: Holds, killed: Killed, call: tuple[str, str], fate: Fate
) -> None:
    """Of two siblings one waits in Permit, or one is bound and the other is not."""
    sizes = {"db": "2", "web": "1", "api": "1"}
    db, web, api = space.start(*(pod(name, IDLE, cpu=cpu, nodeName="node-1") for name, cpu in sizes.items()))
    with killed(Moment(*call, fate)):
        hold = holds.create(db, "4", payers={"web-receiver": web, "api-receiver": api})
        before = holds.until(hold, "Held")
        space.apply(pod("web-receiver", IDLE), pod("api-receiver", IDLE))
    for name in ("web-receiver", "api-receiver"):
        assert space.until_ready(name)["spec"]["nodeName"] == "node-2"
    after = until("another term has acknowledged it", lambda: _in_another_term(holds, hold, before))
    assert after["phase"] == "Held"


def _almost_full(space: Namespace) -> list[Json]:
    """Leave one core of node-1 free; a crowd would like it."""
    return space.start(*(pod(name, IDLE, cpu="1", nodeName="node-1") for name in ("db", "web", "api")))[:2]


def _small_crowd(space: Namespace) -> None:
    space.apply(*(pod(f"crowd-{number}", IDLE, cpu="300m", node="node-1") for number in range(10)))


def _swap(space: Namespace, holds: Holds, hold: str) -> None:
    """Have what was promised: the claimant grows, nobody is overcommitted, and the surplus is used."""
    status = _judged(holds, hold)
    assert status["phase"] == "Held", status
    space.resize("db", cpu="2", memory="64Mi")
    holds.until(hold, "Claimed")
    space.kubectl("delete", "pod", "web", "--grace-period=1", "--wait")
    until("db has grown", lambda: _allocated(space.pod("db")) == "2", within=15)
    # db 2, api 1: three of the crowd have room, and none of them is stuck.
    until("the crowd uses what is left", lambda: len(on_node_1(space)) == 5)
    found = [space.pod(name) for name in on_node_1(space)]
    asked = [item["spec"]["containers"][0]["resources"]["requests"]["cpu"] for item in found]
    assert sum(map(millicores, asked)) <= 4000, asked
    assert all(item["status"]["phase"] != "Failed" for item in found)


def _allocated(found: Json) -> str:
    return str(found["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])
