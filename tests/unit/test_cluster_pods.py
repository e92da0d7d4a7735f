"""Pods as the API server has them, read as the scheduler and the kubelet count them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elbowroom.cluster import pods, slim
from elbowroom.core.room import Room
from elbowroom.core.world import GuestRange, GuestSize, PodPhase, Resize

MIB = 1 << 20


def container(name: str, cpu: str, memory: str = "64Mi", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}, **more}


def status(name: str, allocated: str, actual: str) -> dict[str, Any]:
    return {
        "name": name, "allocatedResources": {"cpu": allocated, "memory": "64Mi"},
        "resources": {"requests": {"cpu": actual, "memory": "64Mi"}},
    }  # fmt: skip


def read(spec: dict[str, Any], said: dict[str, Any] | None = None, **meta: Any) -> Any:
    body = {
        "metadata": {"name": "db", "uid": "u", "namespace": "shop", "resourceVersion": "3", "generation": 1, **meta},
        "spec": {"nodeName": "n1", **spec},
        "status": {"phase": "Running", "observedGeneration": 1, "startTime": "2026-11-18T00:00:00Z", **(said or {})},
    }
    return pods.to_pod(msgspec.convert(body, slim.Pod))


def test_a_deferred_resize_counts_in_full_and_is_not_given_yet() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
    found = read(
        {"containers": [container("main", "4")]},
        {"containerStatuses": [status("main", "2", "2")], "conditions": [pending]},
    )
    assert (found.size.cpu, found.allocated.cpu, found.resize) == (4000, 2000, Resize.DEFERRED)
    assert found.given("main") == Room(2000, 64 * MIB)


def test_an_infeasible_resize_does_not_count() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    found = read(
        {"containers": [container("main", "4")]},
        {"containerStatuses": [status("main", "2", "2")], "conditions": [pending]},
    )
    assert (found.size.cpu, found.resize) == (2000, Resize.INFEASIBLE)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"observedGeneration": 1}, Resize.UNSEEN),
        ({"containerStatuses": [status("main", "2", "2")]}, Resize.IN_PROGRESS),
        ({"containerStatuses": [status("main", "4", "2")]}, Resize.IN_PROGRESS),
        ({"containerStatuses": [status("main", "4", "4")]}, Resize.DONE),
        (
            {"containerStatuses": [status("main", "4", "2")], "conditions": [{"type": "PodResizeInProgress", "status": "True"}]},
            Resize.IN_PROGRESS,
        ),
    ],
    ids=["not seen yet", "no word of it", "given and not in use", "done", "in progress"],
)  # fmt: skip
def test_that_the_kubelet_says_nothing_proves_nothing(said: dict[str, Any], expected: Resize) -> None:
    said = {"observedGeneration": 2, **said}
    assert read({"containers": [container("main", "4")]}, said, generation=2).resize is expected


def test_sidecars_overhead_and_init_containers_are_counted_as_the_scheduler_does() -> None:
    spec = {
        "containers": [container("main", "1"), container("helper", "200m")], "overhead": {"cpu": "50m"},
        "initContainers": [container("mesh", "300m", restartPolicy="Always"), container("prepare", "2")],
    }  # fmt: skip
    found = read(spec)
    # What runs together is 1.5 cores; while `prepare` runs it is 2.3.
    assert found.size.cpu == 2350
    assert found.with_container("main", Room(3000, 0)).cpu == 3550
    assert [item.name for item in found.containers] == ["main", "helper", "mesh"]


def test_a_size_of_the_pod_as_a_whole_counts_instead_of_its_containers() -> None:
    spec = {"containers": [container("main", "1")], "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}
    found = read(spec, {"allocatedResources": {"cpu": "2", "memory": "1Gi"}})
    assert (found.fixed, found.allocated.cpu, found.size.cpu) == (Room(3000, 1 << 30), 2000, 3000)


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("Pending", PodPhase.PENDING), ("Running", PodPhase.RUNNING), ("Succeeded", PodPhase.ENDED), ("Failed", PodPhase.ENDED)],
)  # fmt: skip
def test_phases(phase: str, expected: PodPhase) -> None:
    assert read({"containers": []}, {"phase": phase}).phase is expected


def test_a_pod_that_its_kubelet_has_not_seen_is_not_admitted() -> None:
    assert not read({"containers": []}, {"startTime": None}).admitted


def test_a_guests_range_is_read_from_its_configuration() -> None:
    config = "kernel: /k\ncpus: 1\nmaxCpus: 4\nmemory: 128Mi\nmaxMemory: 1Gi\n"
    assert pods.guest_range(config) == GuestRange(GuestSize(1, 128 * MIB), GuestSize(4, 1024 * MIB))
    assert pods.guest_range("memory: [") is None
