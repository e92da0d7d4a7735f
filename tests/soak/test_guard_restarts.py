"""Guards that are restarted one after the other, while somebody tries to slip in."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from kubernetes.client.exceptions import ApiException
from support.operators import SYSTEM
from support.past import LATER, bind, unplaced
from support.waiting import until

if TYPE_CHECKING:
    from support.scenes import Scene
    from support.testbed import Testbed


@pytest.fixture(scope="module")
def cluster(guarded: Testbed) -> Testbed:
    return guarded


def test_nobody_slips_in_while_guards_and_operators_are_restarted(stage: Scene) -> None:
    """Two replicas go one after the other; a loop tries to bind past them all the time."""
    space = stage.space
    stage.boot(db="2", web="2")
    space.apply(unplaced("thief", "100m"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"}, transfer={"bandwidth": "2Mi"})
    stage.until_copying()
    over, tried, came = threading.Event(), [0], list[str]()

    def hammer() -> None:
        while not over.wait(0.02):
            tried[0] += 1
            try:
                bind(space, "thief", "node-1")
            except ApiException as error:
                if error.status != LATER:
                    came.append(str(error))
            else:
                came.append("bound")

    thread = threading.Thread(target=hammer)
    thread.start()
    try:
        space.testbed.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/elbowroom-operator")
        status = ("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=60s")
        space.testbed.kubectl(*status, within=70)
        until("the old ones have gone", lambda: len(stage.operators()) == 2, within=30)
        in_time = stage.requests.get("grow")["status"]["phase"] in ("Moving", "Committing")
    finally:
        over.set()
        thread.join(15)
    assert in_time, "the copy was over before the restart was: nothing was shown"
    assert tried[0] > 50
    assert not came
    stage.requests.until("grow", "Succeeded")
    assert stage.lives("web") != "node-1"
    stage.witness.assert_kept(space.name)
