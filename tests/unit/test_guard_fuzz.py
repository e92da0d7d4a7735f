"""Malformed, huge and hostile questions: a clean refusal to answer, never a crash, and never an "allowed" by mistake."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from elbowroom.cluster import slim
from elbowroom.extender.app import Address, ListenError, routes
from elbowroom.guard.review import Reviewer, ReviewError
from elbowroom.guard.rules import Trust
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kept import book

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
POD: dict[str, Any] = {
    "metadata": {"name": "thief", "uid": "u", "namespace": "shop", "resourceVersion": "1"},
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    },
}
BINDING = {"metadata": {"name": "thief"}, "target": {"kind": "Node", "name": "n1"}}
WHAT: list[tuple[str, str, Any]] = [
    ("pods", "", POD), ("pods", "binding", BINDING), ("bindings", "", BINDING), ("pods", "resize", POD),
    ("pods", "eviction", {"metadata": {"name": "thief"}}),
]  # fmt: skip


class NoBody:
    """A cluster in which every pod is one that asks for much, and whose names have been checked."""

    async def pod(self, namespace: str, name: str) -> slim.Pod | None:
        assert "/" not in namespace + name
        return msgspec.convert(POD, slim.Pod)

    async def cordoned(self, node: str) -> bool:
        assert node == "n1"
        return False


def answered(text: bytes) -> Any:
    """Return the verdict, or nothing where there was no question."""
    reviewer = Reviewer(book(), lambda: Trust("op", frozenset({"sched"})), NoBody())
    try:
        return asyncio.run(reviewer.answer(text))[2]
    except ReviewError:
        return None


def review(resource: str, sub: str, what: Any) -> dict[str, Any]:
    small = json.loads(json.dumps(POD))
    small["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m", "memory": "1Mi"}
    request = {
        "uid": "42", "resource": {"resource": resource}, "subResource": sub, "name": "thief", "namespace": "shop",
        "operation": "CREATE", "userInfo": {"username": "jane"}, "object": what, "oldObject": small,
    }  # fmt: skip
    return {"request": request}


def changed(where: Any, path: list[int], value: Any) -> Any:
    """Return a copy in which one place is something else."""
    if not path or not isinstance(where, dict | list) or not where:
        return value
    copy = dict(where) if isinstance(where, dict) else list(where)
    keys = list(copy) if isinstance(copy, dict) else range(len(copy))
    key: Any = keys[path[0] % len(keys)]
    copy[key] = changed(copy[key], path[1:], value)
    return copy


@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_bytes_are_no_question(text: bytes) -> None:
    assert answered(text) is None


@given(st.sampled_from(WHAT), st.lists(st.integers(0, 20), min_size=1, max_size=7), JSON)
@settings(max_examples=600)
def test_a_review_in_which_anything_is_something_else_is_answered_or_not(
    what: tuple[str, str, Any], path: list[int], value: Any
) -> None:
    answered(json.dumps(changed(review(*what), path, value)).encode())


@given(st.sampled_from(WHAT[:4]), st.text(max_size=40))
@settings(max_examples=200)
def test_no_amount_is_so_strange_that_it_is_let_in(what: tuple[str, str, Any], amount: str) -> None:
    strange = json.loads(json.dumps(what[2]))
    if "spec" in strange:
        strange["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
        verdict = answered(json.dumps(review(what[0], what[1], strange)).encode())
        assert verdict is None or not verdict.allowed or not _is_something(amount)


def _is_something(amount: str) -> bool:
    return any(digit in amount for digit in "123456789")


@pytest.mark.parametrize(
    "amount", ["9" * 100_000, "1e99999999999", "1e-" + "9" * 10_000, "-1", "NaN", "Infinity", "1e2147483647", "0x10"]
)
def test_amounts_that_would_cost_much(amount: str) -> None:
    strange = json.loads(json.dumps(POD))
    strange["spec"]["containers"][0]["resources"]["requests"]["cpu"] = amount
    verdict = answered(json.dumps(review("pods", "", strange)).encode())
    assert verdict is None or not verdict.allowed


@pytest.mark.parametrize("name", ["", "../secrets/x", "a/b", "A", "a" * 300, "a?b", "a%2Fb"])
def test_what_is_no_name_does_not_become_part_of_a_path(name: str) -> None:
    for resource, sub, what in WHAT[1:3]:
        asked = review(resource, sub, {**what, "metadata": {"name": name}})
        asked["request"]["name"] = name
        assert answered(json.dumps(asked).encode()) is None
    asked = review(*WHAT[4])
    asked["request"]["name"] = name
    assert answered(json.dumps(asked).encode()) is None


def test_deep_and_long() -> None:
    assert answered(b"[" * 200_000) is None
    assert answered(b'{"request":' * 50_000) is None
    deep = json.dumps(review("pods", "", POD)).replace('"n1"', "[" * 50_000 + "]" * 50_000)
    assert answered(deep.encode()) is None


# The extender


def test_an_extender_is_not_open_to_everybody() -> None:
    with pytest.raises(ListenError, match="give --tls FOLDER as well"):
        Address("0.0.0.0", 8888).check()  # noqa: S104
    with pytest.raises(ListenError, match="is no IP address"):
        Address("localhost", 8888).check()
    Address("127.0.0.1", 8888).check()


@given(
    st.sampled_from(["filter", "prioritize", "preempt", "bind"]),
    st.binary(max_size=200) | JSON.map(lambda found: json.dumps(found).encode()),
)
@settings(max_examples=150, deadline=None)
def test_an_extender_is_asked_nonsense(verb: str, text: bytes) -> None:
    async def ask() -> tuple[int, str]:
        app = web.Application()
        nobody: Any = _Nobody()
        app.router.add_routes(routes(nobody, lambda: True))
        async with TestClient(TestServer(app)) as client:
            answer = await client.post(f"/{verb}", data=text)
            return answer.status, await answer.text()

    status, told = asyncio.run(ask())
    assert status == 400, told
    assert told.startswith(f"{verb}: ")


class _Nobody:
    """Fails the test if it is asked anything: no nonsense gets that far."""

    @staticmethod
    async def bind(args: object) -> None:
        raise AssertionError(args)

    filter = prioritize = preempt = bind
