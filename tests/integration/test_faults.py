"""The control plane's parts die and come back: nothing is lost, and everybody reconnects."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from kubernetes import watch
from support.namespace import IDLE, pod
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.namespace import Json, Namespace
    from support.testbed import Testbed


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"written": name}}


class Watcher:
    """A client that watches config maps and reconnects, as any controller does."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace, self.seen, self.over = namespace, set[str](), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.is_set():
            try:
                list_maps = self.namespace.core.list_namespaced_config_map
                stream = watch.Watch().stream  # type: ignore[no-untyped-call]
                for event in stream(list_maps, self.namespace.name, timeout_seconds=5):  # type: ignore[no-untyped-call]
                    self.seen.add(event["object"].metadata.name)
            except Exception:  # noqa: BLE001, S110  # whatever breaks the connection: it is made anew
                pass
            self.over.wait(0.1)


@pytest.fixture
def watcher(namespace: Namespace) -> Iterator[Watcher]:
    watching = Watcher(namespace)
    yield watching
    watching.over.set()
    watching.thread.join(10)


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
def test_a_killed_component_comes_back_and_nothing_is_lost(
    component: str, testbed: Testbed, namespace: Namespace, watcher: Watcher
) -> None:
    before, *_ = namespace.start(pod("bystander", IDLE))
    namespace.apply(config_map("before"))
    until("the watcher sees what was written before", lambda: "before" in watcher.seen)

    testbed.cli("kill", component)
    states = {part["name"]: part["state"] for part in testbed.status()["components"]}
    assert states[component] == "down"
    testbed.cli("restart", component)

    assert namespace.kubectl("get", "configmap", "before", "-o", "jsonpath={.data.written}") == "before"
    namespace.apply(config_map("after"))
    until("the watcher has reconnected", lambda: "after" in watcher.seen)
    # Scheduler, controllers and kubelets have reconnected, too: a Deployment needs all of them.
    namespace.kubectl(
        "create", "deployment", "fresh", "--image=elbowroom.test/shell", "--replicas=2", "--", "sh", "-c", IDLE
    )
    namespace.kubectl("rollout", "status", "deployment/fresh", "--timeout=90s", within=100)
    after = namespace.until_ready("bystander")
    assert (
        after["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0


@pytest.mark.parametrize("component", ["kube-scheduler", "kube-controller-manager"])
def test_what_was_asked_for_while_a_component_was_down_is_done_when_it_is_back(
    component: str, testbed: Testbed, namespace: Namespace
) -> None:
    testbed.cli("kill", component)
    try:
        namespace.kubectl("create", "deployment", "patient", "--image=elbowroom.test/shell", "--", "sh", "-c", IDLE)
    finally:
        testbed.cli("restart", component)
    namespace.kubectl("rollout", "status", "deployment/patient", "--timeout=60s", within=70)


def test_every_component_has_a_log_that_can_be_read(testbed: Testbed) -> None:
    status = testbed.status()
    names = [part["name"] for part in status["components"] if part["name"] != "supervisor"] + [
        node["name"] for node in status["nodes"]
    ]
    assert len(names) >= 7
    for name in set(names) - {"etcd"}:  # etcd has nothing to warn about
        assert testbed.cli("logs", name, "--tail", "3").strip(), name
