"""Where another scheduler places pods on the same nodes, a taint keeps it away from a node on which room is held.

Nodes have 4 cores and 8Gi. A stock scheduler runs beside ours, for pods that ask for it. The operator has no guard here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.holds import install
from support.namespace import IDLE, condition, pod, priority_class
from support.operators import SYSTEM, start_operator
from support.scenes import SLOWLY
from support.schedulers import stock
from support.testbed import ROOT, Testbed
from support.waiting import stays, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.scenes import Scene

HELD = "elbowroom.dev/held"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("tainting")
    with Testbed(folder / "testbed", nodes=2, flags=("--cpu", "4", "--memory", "8Gi")) as running:
        install(running, ROOT)
        start_operator(running, taint=True, bindWithin="20s", backoff="1s")
        running.kubectl("apply", "-f", str(ROOT / "examples" / "guard.yaml"))  # for what it may do to nodes
        running.kubectl("delete", "validatingwebhookconfiguration", "elbowroom-guard")
        with stock(running, folder):
            yield running


def tainted(testbed: Testbed, node: str) -> bool:
    return any(item["key"] == HELD for item in testbed.node(node)["spec"].get("taints", ()))


def test_a_preemptor_of_another_scheduler_passes_the_claimant_by(stage: Scene) -> None:
    """Without the taint it kills the claimant: `make bench-thieves` shows it."""
    space, testbed = stage.space, stage.space.testbed
    important = f"{space.name}-important"[:63]
    space.apply(priority_class(important))
    try:
        stage.boot(db="2", web="2")
        stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
        stage.until_copying()
        assert tainted(testbed, "node-1")
        boss = {"schedulerName": "stock", "priorityClassName": important, "node": "node-1"}
        space.apply(
            pod("boss", IDLE, cpu="2", **boss), pod("small", IDLE, cpu="100m", schedulerName="stock", node="node-1")
        )
        said = "had untolerated taint"
        until("it is kept away", lambda: said in condition(space.pod("boss"), "PodScheduled").get("message", ""))
        stage.requests.until("grow", "Succeeded")
        assert stage.has("db").cpu == 4000
        assert stage.lives("web") == "node-2"
        space.kubectl("delete", "pod", "boss", "small", "--wait=false")
        until("the taint has gone with the hold", lambda: not tainted(testbed, "node-1"))
        stage.witness.assert_kept(space.name)
    finally:
        space.kubectl("delete", "priorityclass", important)


def test_a_taint_that_nobody_needs_is_swept_also_after_the_operator_was_killed(stage: Scene) -> None:
    testbed = stage.space.testbed
    stage.boot(db="2", web="2")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()
    assert tainted(testbed, "node-1")
    testbed.kubectl("-n", SYSTEM, "delete", "pods", "--all", "--grace-period=1", "--wait=false")
    stage.space.kubectl("delete", "vmscalerequest", "grow", "--wait=false")
    testbed.kubectl("taint", "node", "node-2", f"{HELD}=:NoSchedule")
    until("both have gone", lambda: not tainted(testbed, "node-1") and not tainted(testbed, "node-2"), within=60)
    assert stage.lives("web") == "node-1"
    stays("no taint comes back", lambda: not tainted(testbed, "node-1"), during=1)
    stage.witness.assert_kept(stage.space.name)


def test_a_taint_that_somebody_takes_off_comes_back_while_room_is_held(stage: Scene) -> None:
    testbed = stage.space.testbed
    stage.boot(db="2", web="2")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()
    testbed.kubectl("taint", "node", "node-1", f"{HELD}-")
    until("it is back", lambda: tainted(testbed, "node-1"))
    stage.requests.until("grow", "Succeeded")
    until("it has gone", lambda: not tainted(testbed, "node-1"))
    stage.witness.assert_kept(stage.space.name)
