"""A stock scheduler that was only configured keeps to holds, and pods of one that was not are kept away by a taint.

Nodes have 4 cores and 8Gi. The testbed's own scheduler, with our plugins, does not run here.
"""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.holds import Holds, install
from support.namespace import IDLE, Size, condition, pod, priority_class
from support.operators import start_operator
from support.schedulers import extender, stock
from support.testbed import ROOT, Testbed
from support.waiting import stays, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json, Namespace
    from support.scenes import Scene
    from support.schedulers import Process

MEMORY = "64Mi"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Testbed, Process]]:
    """Provide a cluster whose scheduler is a stock one with our extender, and an operator in it."""
    folder = tmp_path_factory.mktemp("extended")
    settings: Any = yaml.safe_load((ROOT / "examples" / "extender-scheduler.yaml").read_text())
    with Testbed(folder / "testbed", nodes=3, flags=("--cpu", "4", "--memory", "8Gi")) as running, ExitStack() as stack:
        install(running, ROOT)
        running.kubectl("apply", "-f", str(ROOT / "examples" / "extender.yaml"))
        running.cli("kill", "kube-scheduler")
        process = stack.enter_context(extender(running, folder))
        process.until_said('"message": "ready"')
        stack.enter_context(stock(running, folder, "default-scheduler", extenders=settings["extenders"]))
        start_operator(running, bindWithin="20s", backoff="1s")
        yield running, process


@pytest.fixture(scope="module")
def cluster(extended: tuple[Testbed, Process]) -> Testbed:
    return extended[0]


def placed(name: str, cpu: str) -> Json:
    return pod(name, IDLE, cpu=cpu, memory=MEMORY, nodeName="node-1")


def test_a_whole_scale_up_with_a_scheduler_that_was_only_configured(stage: Scene) -> None:
    db, _ = stage.boot(db="2", web="2")
    stage.space.apply(pod("thief", IDLE, cpu="1", node="node-1"))
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    stage.requests.until("grow", "Succeeded")
    assert stage.has("db").cpu == 4000
    assert stage.lives("web") != "node-1"
    assert not stage.space.pod("thief")["spec"].get("nodeName")
    stage.vms.until_tick(db, lambda tick: tick.cpus == 4)
    stage.witness.assert_kept(stage.space.name)


@pytest.fixture
def quiet(extended: tuple[Testbed, Process], namespace: Namespace) -> Iterator[Holds]:
    """Provide holds by hand: the operator, which would sweep them, is away meanwhile."""
    running = extended[0]
    operator = ("-n", "elbowroom-system", "scale", "deployment/elbowroom-operator", "--timeout=60s")
    running.kubectl(*operator, "--replicas=0", within=70)
    running.kubectl("-n", "elbowroom-system", "wait", "--for=delete", "pods", "--all", "--timeout=60s", within=70)
    made = Holds(namespace)
    try:
        yield made
    finally:
        made.close()
        running.kubectl(*operator, "--replicas=1", within=70)


@pytest.fixture
def namespace(stage: Scene) -> Namespace:
    return stage.space


def test_a_held_node_is_closed_and_open_again_when_the_hold_goes(namespace: Namespace, quiet: Holds) -> None:
    db, web = namespace.start(placed("db", "1"), placed("web", "2"))
    hold = quiet.create(db, "3", payers={"web-2": web})
    assert quiet.until(hold, "Held")["shortfall"]["cpu"] == "1"
    namespace.apply(pod("late", IDLE, cpu="100m", memory=MEMORY, node="node-1"))

    def told() -> str:
        said: str = condition(namespace.pod("late"), "PodScheduled").get("message", "")
        return said

    until("it is told why", lambda: "room on it is held for" in told())
    stays("nobody comes", lambda: not namespace.pod("late")["spec"].get("nodeName"), during=1)
    quiet.delete(hold)
    namespace.until_ready("late", within=90)


def test_the_claimant_s_new_size_ends_the_hold(namespace: Namespace, quiet: Holds) -> None:
    (db,) = namespace.start(placed("db", "1"))
    hold = quiet.create(db, "3")
    assert quiet.until(hold, "Held")["shortfall"]["cpu"] == "0"
    quiet.patch(hold, committed=True)
    quiet.until(hold, "Held")
    namespace.resize("db", cpu="3", memory=MEMORY)
    namespace.until_resized("db", Size(3000, 64 << 20))
    quiet.until(hold, "Claimed")


def test_a_preemptor_passes_the_claimant_by(namespace: Namespace, quiet: Holds) -> None:
    important = f"{namespace.name}-important"
    namespace.apply(priority_class(important))
    try:
        db, web, _ = namespace.start(placed("db", "2"), placed("web", "1"), placed("api", "1"))
        hold = quiet.create(db, "3", payers={"web-2": web})
        quiet.until(hold, "Held")
        namespace.apply(pod("boss", IDLE, cpu="1", memory=MEMORY, node="node-1", priorityClassName=important))
        until("the boss waits", lambda: condition(namespace.pod("boss"), "PodScheduled").get("status") == "False")
        stays("nobody is killed", lambda: all("deletionTimestamp" not in namespace.pod(name)["metadata"]
                                              for name in ("db", "web", "api")), during=2)  # fmt: skip
    finally:
        namespace.kubectl("delete", "priorityclass", important)


def test_a_crowd_takes_no_more_than_there_is(namespace: Namespace, quiet: Holds) -> None:
    """The scheduler's own view and the extender's are never alike: every binding is looked at again."""
    (db,) = namespace.start(placed("db", "1"))
    names = [f"crowd-{number}" for number in range(30)]
    namespace.apply(*(pod(name, IDLE, cpu="100m", memory=MEMORY, node="node-1") for name in names[:15]))
    hold = quiet.create(db, "2")
    namespace.apply(*(pod(name, IDLE, cpu="100m", memory=MEMORY, node="node-1") for name in names[15:]))
    status = quiet.until(hold, "Held")
    there = {name for name in names if namespace.pod(name)["spec"].get("nodeName")}
    stays("nobody comes after the promise", lambda: there == {
        name for name in names if namespace.pod(name)["spec"].get("nodeName")}, during=2)  # fmt: skip
    assert status["shortfall"]["cpu"] == "0"
    assert len(there) <= 20


def test_an_extender_that_was_stopped_comes_back_and_binds_again(
    namespace: Namespace, extended: tuple[Testbed, Process]
) -> None:
    process = extended[1]
    process.signal(signal.SIGSTOP)
    try:
        namespace.apply(pod("late", IDLE, cpu="100m", memory=MEMORY))
        stays("nobody is bound without it", lambda: not namespace.pod("late")["spec"].get("nodeName"), during=2)
    finally:
        process.signal(signal.SIGCONT)
    namespace.until_ready("late", within=90)
