"""From an AdmissionReview to a verdict, and back. What it has to look up, it asks for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from elbowroom.cluster import pods, slim
from elbowroom.core.room import Room

from . import rules
from .rules import ALLOWED, Trust, Verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from elbowroom.core.world import Pod

    from .book import Book

Json = dict[str, Any]
PROBE_NODE: Final = "elbowroom-guard-probe"
"""No node has this name: a pod that asks for it is refused, which shows that the guard is asked."""
PROBED: Final = "the guard is asked"
_MIRROR: Final = "kubernetes.io/config.mirror"
_KUBELETS: Final = "system:nodes"
"""Who makes mirrors of static pods. Anybody may write the annotation, and schedulers would count whoever has it."""
_PROBE: Final = Verdict(allowed=False, message=PROBED, code=rules.NEVER)
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""What the API server takes for a name."""
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a text is answered with that nobody sends who means it."""
_REASONS: Final = {rules.LATER: "TooManyRequests", rules.NEVER: "Forbidden"}
_ANY: Final = Room(1, 1)


class ReviewError(Exception):
    """That is no AdmissionReview that the guard has asked for; the message says why."""


class _Slim(msgspec.Struct, rename="camel", gc=False):
    """Decoded from JSON; what is not named here is skipped."""


class _Resource(_Slim):
    resource: str


class _User(_Slim):
    username: str = ""
    groups: tuple[str, ...] = ()


class _Request(_Slim):
    uid: str
    resource: _Resource
    operation: str = ""
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: _User = msgspec.field(default_factory=_User)
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(_Slim):
    request: _Request


class _Target(_Slim):
    name: str = ""


class _BindingMeta(_Slim):
    name: str = ""


class _Binding(_Slim):
    metadata: _BindingMeta
    target: _Target


class _NewMeta(_Slim):
    """What a pod has that is not made yet: perhaps no name."""

    annotations: dict[str, str] = {}


class _NewPod(_Slim):
    metadata: _NewMeta
    spec: slim.PodSpec


class Lookup(Protocol):
    """What is asked for where a review does not say it; live, each time."""

    async def pod(self, namespace: str, name: str) -> slim.Pod | None:
        """Return a pod."""

    async def cordoned(self, node: str) -> bool:
        """Tell whether nobody may come to a node any more."""


_decode = msgspec.json.Decoder(_Review).decode
_binding = msgspec.json.Decoder(_Binding).decode
_new_pod = msgspec.json.Decoder(_NewPod).decode


class Reviewer:
    """Answers reviews."""

    def __init__(self, book: Book, trust: Callable[[], Trust], lookup: Lookup) -> None:
        """Take what is known, who is trusted, and where the rest is to be had."""
        self._book, self._trust, self._lookup = book, trust, lookup
        self._by: dict[tuple[str, str], Callable[[_Request], Awaitable[Verdict]]] = {
            ("pods", "binding"): self._bound, ("bindings", ""): self._bound, ("pods", "resize"): self._resized,
            ("pods", ""): self._created, ("pods", "eviction"): self._evicted,
        }  # fmt: skip

    async def answer(self, text: bytes) -> tuple[Json, str, Verdict]:
        """Return what is sent back, what was asked for, and the verdict. ReviewError: that was no question."""
        try:
            request = _decode(text).request
        except UNREADABLE as error:
            raise ReviewError(f"not an AdmissionReview: {error}") from error
        what = "/".join(filter(None, (request.resource.resource, request.sub_resource)))
        judge = self._by.get((request.resource.resource, request.sub_resource))
        if judge is None:
            raise ReviewError(f"nobody here judges {what}: take it out of the webhook's rules")
        try:
            verdict = await judge(request)
        except UNREADABLE as error:
            raise ReviewError(f"the {what} in it cannot be read: {error}") from error
        return _answered(request.uid, verdict), what, verdict

    async def _bound(self, request: _Request) -> Verdict:
        found = _binding(request.object)
        node, name = found.target.name, request.name or found.metadata.name
        _check(node, request.namespace, name)
        if node == PROBE_NODE:
            return _PROBE
        trust, user = self._trust(), request.user_info.username
        verdict = rules.binding(self._book, trust, user, node, _ANY)
        if verdict.allowed:
            return verdict
        # Only now does it matter what the pod asks for, and a Binding does not say it.
        pod = await self._lookup.pod(request.namespace, name)
        return ALLOWED if pod is None else rules.binding(self._book, trust, user, node, pods.to_pod(pod).spec())

    async def _resized(self, request: _Request) -> Verdict:
        sides = [slim.decode_pod(side) for side in (request.old_object, request.object)]
        _check_amounts(sides[1].spec)
        before, after = map(pods.to_pod, sides)
        return rules.resize(self._book, self._trust(), request.user_info.username, before, after)

    async def _created(self, request: _Request) -> Verdict:
        found = _new_pod(request.object)
        _check_amounts(found.spec)
        node = found.spec.node_name
        if node == PROBE_NODE:
            return _PROBE
        static = _MIRROR in found.metadata.annotations and _KUBELETS in request.user_info.groups
        return rules.creation(self._book, node, _asked(found), static=static)

    async def _evicted(self, request: _Request) -> Verdict:
        _check(request.namespace, request.name)
        found = await self._lookup.pod(request.namespace, request.name)
        if found is None:
            return ALLOWED
        pod: Pod = pods.to_pod(found)
        trust, user = self._trust(), request.user_info.username
        verdict = rules.eviction(self._book, trust, user, pod, cordoned=False)
        if verdict.allowed or not pod.node or not await self._lookup.cordoned(pod.node):
            return verdict
        return rules.eviction(self._book, trust, user, pod, cordoned=True)


def _check(*names: str) -> None:
    """Refuse what is no name: it would become part of a path."""
    for name in names:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name[:64]!r} is no name")


def _check_amounts(spec: slim.PodSpec) -> None:
    """Refuse what asks for less than nothing: it would make up for what another container asks for."""
    for item in (*spec.containers, *spec.init_containers):
        if min(pods.room(item.resources.requests)) < 0:
            raise ValueError(f"{item.name[:64]!r} asks for less than nothing")


def _asked(found: _NewPod) -> Room:
    nobody = slim.Meta(name="", uid="", resource_version="")
    return pods.to_pod(slim.Pod(metadata=nobody, spec=found.spec)).spec()


def _answered(uid: str, verdict: Verdict) -> Json:
    response: Json = {"uid": uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = {"code": verdict.code, "reason": _REASONS[verdict.code], "message": verdict.message}
    elif verdict.message:
        response["warnings"] = [verdict.message]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
