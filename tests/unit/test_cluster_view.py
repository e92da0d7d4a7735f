"""What comes late, or comes back, changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
from elbowroom.cluster import slim
from elbowroom.cluster.view import View, older
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.qemu import QemuDriver


def nobody() -> Any:
    raise AssertionError("no runner is called here")


def view() -> View:
    return View(QemuDriver(RunnerClient(nobody)))


def pod(version: str, phase: str = "Running") -> slim.Pod:
    body = {
        "metadata": {"name": "db", "uid": "u", "namespace": "shop", "resourceVersion": version},
        "spec": {"containers": [], "nodeName": "n1"}, "status": {"phase": phase},
    }  # fmt: skip
    return msgspec.convert(body, slim.Pod)


def request(version: str) -> dict[str, Any]:
    meta = {
        "uid": "r",
        "namespace": "shop",
        "name": "grow",
        "resourceVersion": version,
        "creationTimestamp": "2026-11-18T00:00:00Z",
    }
    return {"kind": "VMScaleRequest", "metadata": meta, "spec": {"vm": "db", "resources": {"cpu": "1"}}}


def test_an_older_state_of_a_pod_is_not_taken_for_news() -> None:
    known = view()
    known.put_pod(pod("10", "Succeeded"))
    known.put_pod(pod("9"))
    found = known.store.pod("u")
    assert found is not None
    assert found.version == "10"


def test_a_pod_that_is_gone_does_not_come_back_with_the_answer_to_its_deletion() -> None:
    known = view()
    known.put_pod(pod("9"))
    known.drop_pod("u")
    known.put_pod(pod("10"))
    assert known.store.pod("u") is None
    assert "u" not in known.shapes


def node(uid: str, name: str = "n1") -> slim.Node:
    body = {"metadata": {"name": name, "uid": uid, "resourceVersion": "1"}, "status": {"allocatable": {"cpu": "4"}}}
    return msgspec.convert(body, slim.Node)


def test_a_node_that_was_made_anew_stays_when_the_old_one_of_its_name_is_forgotten() -> None:
    known = view()
    known.put_node(node("old"))
    known.put_node(node("new"))
    known.drop_node("old")
    assert "n1" in known.store.nodes
    known.drop_node("new")
    assert "n1" not in known.store.nodes


def test_pods_that_are_alike_share_what_a_resize_is_written_from() -> None:
    known = view()
    for uid, cpu in (("a", "1"), ("b", "1"), ("c", "2")):
        found = pod("1")
        found.metadata.uid = uid
        sizes = slim.Sizes(requests={"cpu": cpu})
        found.spec.containers = (slim.Container("main", sizes, env=(slim.Variable("A", uid),)),)
        known.put_pod(found)
    assert known.shapes["a"] is known.shapes["b"]
    assert known.shapes["c"].containers == (slim.Container("main", slim.Sizes(requests={"cpu": "2"})),)


def test_the_same_holds_for_objects_of_our_own() -> None:
    known = view()
    known.put_request(request("10"))
    known.put_request(request("9"))
    assert known.store.requests["r"].version == "10"
    known.drop_request("r")
    known.put_request(request("12"))
    assert "r" not in known.store.requests


def test_heartbeats_of_a_node_change_nothing() -> None:
    known = view()
    body = {
        "metadata": {"name": "n1", "uid": "n", "resourceVersion": "1"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    known.put_node(msgspec.convert(body, slim.Node))
    before = known.store.nodes["n1"]
    known.put_node(msgspec.convert({**body, "metadata": {**body["metadata"], "resourceVersion": "2"}}, slim.Node))  # type: ignore[dict-item]
    assert known.store.nodes["n1"] is before


def test_versions_are_numbers_of_any_length() -> None:
    assert older("9", "10")
    assert not older("10", "9")
    assert not older("a", "b")
