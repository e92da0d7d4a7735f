"""Held room is kept at the API server, where no scheduler is asked: with a real operator, webhook, certificate and guests.

Nodes have 4 cores and 8Gi. While web is copied slowly, node-1 is held for db.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes.client.exceptions import ApiException
from support.namespace import IDLE, condition, pod
from support.operators import operator_log
from support.past import LATER, bind, evict, unplaced
from support.scenes import SLOWLY
from support.testbed import ROOT
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.scenes import Scene
    from support.testbed import Testbed


@pytest.fixture(scope="module")
def cluster(guarded: Testbed) -> Testbed:
    return guarded


@pytest.fixture
def held(stage: Scene) -> Iterator[Scene]:
    """Hold node-1 for db for as long as the test takes: web is being copied, and not quickly."""
    stage.boot(db="2", web="1")
    stage.space.start(pod("api", IDLE, cpu="500m", nodeName="node-1"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "3500m"}, transfer=SLOWLY)
    stage.until_copying()
    yield stage
    stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 3500
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


def refused(call: Callable[[], object]) -> str:
    """Return what is said to somebody who is to come again later."""
    with pytest.raises(ApiException) as error:
        call()
    assert error.value.status == LATER, error.value
    message: str = json.loads(error.value.body or "{}")["message"]
    return message


def test_who_comes_past_the_scheduler_is_refused_and_told_why(held: Scene) -> None:
    space = held.space
    space.apply(unplaced("thief", "100m"), unplaced("thief-2", "100m"))
    for legacy in (False, True):
        message = refused(partial(bind, space, "thief", "node-1", legacy=legacy))
        assert (
            f"cpu on node-1 is held for {space.name}/db by VMScaleRequest {space.name}/grow (CapacityHold " in message
        )
        assert "nothing is added there now; try again later" in message
    named: Any = pod("named", IDLE, cpu="100m", nodeName="node-1")
    assert "is held for" in refused(partial(space.core.create_namespaced_pod, space.name, named))
    assert "is held for" in refused(partial(space.resize, "api", cpu="600m", memory="64Mi"))
    # Everything else goes on as ever.
    bind(space, "thief", "node-2")
    space.until_ready("thief")
    space.resize("api", cpu="400m", memory="64Mi")
    space.start(pod("elsewhere", IDLE, cpu="100m", nodeName="node-3"), pod("placed", IDLE, cpu="100m"))


def test_an_autoscaler_may_touch_the_claimant_and_its_neighbour_later(held: Scene) -> None:
    space = held.space
    for name, doing in (("db", "is being grown"), ("web", "is being moved")):
        sizes = {"spec": {"containers": [{"name": "runner", "resources": {"requests": {"cpu": "900m"}}}]}}
        message = refused(partial(space.core.patch_namespaced_pod_resize, name, space.name, sizes))
        assert f"{space.name}/{name} {doing} for VMScaleRequest {space.name}/grow" in message
        # What an autoscaler does next when a resize is refused.
        assert "is not evicted until that is over" in refused(partial(evict, space, name))
    evict(space, "api")


def test_a_static_pod_cannot_be_refused_and_is_told(stage: Scene) -> None:
    """Its kubelet runs it, whatever the API server says of its mirror."""
    stage.boot(db="2", web="1")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()
    described = pod("static", IDLE, cpu="1")
    described["metadata"]["namespace"] = stage.space.name
    manifest = stage.space.testbed.directory / "nodes" / "node-1" / "kubelet" / "manifests" / "static.json"
    manifest.write_text(json.dumps(described))
    try:
        stage.until_reason("grow", "NobodyMovable")
        taken = next(line for line in stage.events("grow") if line.startswith("RoomTaken"))
        assert f"taken on node-1 by {stage.space.name}/static-node-1" in taken
        assert stage.lives("web") == "node-1"
    finally:
        manifest.unlink()
    stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 4000
    stage.witness.assert_kept(stage.space.name, stolen=True)


def test_a_guard_that_is_down_stops_nobody_and_the_request_says_so(stage: Scene) -> None:
    stage.boot(db="2", web="2")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()

    def says(reason: str) -> bool:
        return condition(stage.requests.get("grow"), "Guarded").get("reason") == reason

    until("the request is guarded", lambda: says("Guarded"))
    testbed = stage.space.testbed
    testbed.kubectl("delete", "validatingwebhookconfiguration", "elbowroom-guard")
    try:
        until("the request says that nobody guards it", lambda: says("GuardDown"))
        until("an event says so", lambda: any(event.startswith("GuardDown: ") for event in stage.events("grow")))
        stage.space.start(pod("elsewhere", IDLE, cpu="100m", nodeName="node-3"))  # the cluster goes on
    finally:
        testbed.kubectl("apply", "-f", str(ROOT / "examples" / "guard.yaml"))
    until("the guard is asked again", lambda: operator_log(testbed).count("the guard is asked") > 1)
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(stage.space.name)


def test_a_drained_node_is_emptied_all_the_same(stage: Scene) -> None:
    """Who cordons a node wants it empty, and a request that is under way there gives up."""
    stage.boot(db="2", web="2")
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer=SLOWLY)
    stage.until_copying()
    testbed = stage.space.testbed
    try:
        testbed.kubectl("cordon", "node-1")
        evict(stage.space, "db")
        found = stage.requests.until("grow", "Failed")
        assert found["status"]["reason"] == "ClaimantGone"
    finally:
        testbed.kubectl("uncordon", "node-1")
    assert stage.lives("web") == "node-1"
    stage.witness.assert_kept(stage.space.name, broken=("db",))
