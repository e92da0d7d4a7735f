"""From an AdmissionReview, as the API server sends it, to an answer as it takes it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from elbowroom.cluster import slim
from elbowroom.guard.review import PROBE_NODE, PROBED, Reviewer, ReviewError
from elbowroom.guard.rules import Trust
from support.kept import binding, book, pod, review

Json = dict[str, Any]


class Cluster:
    """What can be looked up."""

    def __init__(self, *pods: Json, cordoned: bool = False) -> None:
        self._pods, self._cordoned, self.asked = pods, cordoned, 0

    async def pod(self, namespace: str, name: str) -> slim.Pod | None:
        self.asked += 1
        found = [
            item
            for item in self._pods
            if (item["metadata"]["namespace"], item["metadata"]["name"]) == (namespace, name)
        ]
        return msgspec.convert(found[0], slim.Pod) if found else None

    async def cordoned(self, node: str) -> bool:
        assert node == "n1"
        return self._cordoned


def answer(text: bytes, cluster: Cluster | None = None) -> Json:
    trust = Trust("op", frozenset({"system:kube-scheduler"}))
    reviewer = Reviewer(book(), lambda: trust, cluster or Cluster())
    found: Json = asyncio.run(reviewer.answer(text))[0]
    assert (found["apiVersion"], found["kind"], found["response"]["uid"]) == (
        "admission.k8s.io/v1",
        "AdmissionReview",
        "42",
    )
    response: Json = found["response"]
    return response


@pytest.mark.parametrize(("resource", "sub"), [("pods", "binding"), ("bindings", "")])
def test_a_binding_is_judged_by_what_its_pod_asks_for(resource: str, sub: str) -> None:
    text = review(resource, sub, binding())
    refused = answer(text, Cluster(pod(cpu="1")))
    assert refused["status"]["code"] == 429
    assert refused["status"]["reason"] == "TooManyRequests"
    assert "cpu on n1 is held for shop/db" in refused["status"]["message"]
    assert answer(text, Cluster(pod(cpu="0")))["allowed"]
    assert answer(text, Cluster())["allowed"]  # there is no such pod: the API server says so itself


def test_nothing_is_looked_up_where_nothing_is_held() -> None:
    cluster = Cluster(pod())
    assert answer(review("pods", "binding", binding("n2")), cluster)["allowed"]
    assert answer(review("pods", "binding", binding(), user="system:kube-scheduler"), cluster)["allowed"]
    assert cluster.asked == 0


def test_a_new_pod_has_no_uid_and_perhaps_no_name() -> None:
    nameless = pod(node="n1")
    nameless["metadata"] = {"generateName": "thief-", "namespace": "shop"}
    assert not answer(review("pods", "", nameless))["allowed"]
    assert answer(review("pods", "", pod(node="n2")))["allowed"]


def test_a_static_pod_passes_with_a_warning_that_its_maker_sees() -> None:
    mirror = pod(node="n1", annotations={"kubernetes.io/config.mirror": "x"})
    found = answer(review("pods", "", mirror, user="system:node:n1", groups=("system:nodes", "system:authenticated")))
    assert found["allowed"]
    assert "a static pod cannot be refused" in found["warnings"][0]
    assert not answer(review("pods", "", mirror))["allowed"]  # an annotation that anybody can write


def test_the_probe_is_refused_whatever_is_held() -> None:
    found = answer(review("pods", "", pod(node=PROBE_NODE)))
    assert found["status"] == {"code": 403, "reason": "Forbidden", "message": PROBED}


def test_a_resize_is_judged_by_both_of_its_sides() -> None:
    small, large = pod("api", cpu="1", node="n1"), pod("api", cpu="2", node="n1")
    grown = {**large, "status": {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "1"}}]}}
    assert not answer(review("pods", "resize", grown, before=small))["allowed"]
    assert answer(review("pods", "resize", small, before=large))["allowed"]


def test_an_eviction_is_judged_by_its_pod_and_its_node() -> None:
    body = {"metadata": {"name": "web"}}
    web = pod("web", node="n1")
    text = review("pods", "eviction", body, name="web")
    assert not answer(text, Cluster(web))["allowed"]
    assert answer(text, Cluster(web, cordoned=True))["allowed"]
    assert answer(text, Cluster())["allowed"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "not an AdmissionReview"),
        (b"{}", "not an AdmissionReview"),
        (review("pods", "log", {}), "nobody here judges pods/log"),
        (review("pods", "binding", {"metadata": {}}), "the pods/binding in it cannot be read"),
        (review("pods", "", None), "the pods in it cannot be read"),
    ],
)
def test_what_is_no_question_for_the_guard_is_said_to_be_none(text: bytes, told: str) -> None:
    with pytest.raises(ReviewError, match=told):
        answer(text)
