"""The extender's shell: it answers a stock scheduler, binds its pods one after the other, and acknowledges holds."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from elbowroom.cluster import kinds, pods, slim
from elbowroom.cluster.act import HOLDS, as_it_was, path_of, pod_path
from elbowroom.cluster.client import STRATEGIC_PATCH, ApiError, ConflictError, NotFoundError, UnavailableError
from elbowroom.guard.review import NAME

from . import rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.cluster.client import Api
    from elbowroom.core.world import Hold, Pod
    from elbowroom.leader import Leader

    from .known import Known

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_REFRESH_SECONDS: Final = 1.0
_TURN_SECONDS, _BIND_SECONDS = 8.0, 8.0
"""How long a binding may wait for its turn, and how long it may take: together less than the scheduler waits."""
FREED: Final = "elbowroom.dev/freed"
"""The annotation of a node that says when room on it was last given back."""


class QuestionError(Exception):
    """That cannot be answered; the message says what to change."""


class _Go(msgspec.Struct, rename="pascal", gc=False):
    """Names as Go writes them where nobody has said otherwise."""


class FilterArgs(_Go):
    """Asked for the nodes that a pod may come to, and in the same words for scores."""

    pod: slim.Pod
    node_names: list[str] | None = None


class _MetaPod(_Go):
    uid: str = msgspec.field(name="UID")


class _Victims(_Go):
    pods: list[_MetaPod] | None = None
    violations: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptArgs(_Go):
    """Asked for the pods whose places another may take."""

    pod: slim.Pod
    victims: dict[str, _Victims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class BindArgs(_Go):
    """Asked to bind a pod to a node."""

    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Extender:
    """One that leads."""

    def __init__(
        self, api: Api, known: Known, leader: Leader, term: str, clock: Callable[[], float] = time.time
    ) -> None:
        """Take what it knows, and in whose name it speaks."""
        self._api, self._known, self._leader, self._term, self._clock = api, known, leader, term, clock
        self._turn = asyncio.Lock()
        """Bindings and promises take turns: a promise has seen all bindings before it, and those after it know it."""
        self._dirty: set[str] = set()
        self._freed: set[str] = set()
        self._news = asyncio.Event()
        known.on_freed = self._free

    # What the scheduler asks

    def filter(self, args: FilterArgs) -> Json:
        """Leave out the nodes on which somebody holds room, and the one that a receiver's guest leaves."""
        pod, names = pods.to_pod(args.pod), self._names(args)
        barred = self._known.barred()
        avoided = rules.roles(self._known.store).avoids(pod.namespace, pod.name)
        if avoided:
            barred[avoided] = "it is the node that its guest leaves"
        return {
            "NodeNames": [name for name in names if name not in barred], "FailedNodes": {}, "Error": "",
            "FailedAndUnresolvableNodes": {name: barred[name] for name in names if name in barred},
        }  # fmt: skip

    def prioritize(self, args: FilterArgs) -> list[Json]:
        """Have a receiver come to where the most is left."""
        pod, names = pods.to_pod(args.pod), self._names(args)
        receives = rules.roles(self._known.store).avoids(pod.namespace, pod.name) is not None
        return [
            {"Host": name, "Score": rules.score(self._known.node(name), pod.size) if receives else 0} for name in names
        ]

    def preempt(self, args: PreemptArgs) -> Json:
        """Leave out the nodes where somebody would have to go whom a hold or a migration needs."""
        if args.victims is None:
            raise QuestionError("the extender needs nodeCacheCapable: true in the scheduler's configuration")
        pod, known = pods.to_pod(args.pod), rules.roles(self._known.store)
        barred = self._known.barred()
        left: dict[str, _Victims] = {}
        for name, victims in args.victims.items():
            uids = [victim.uid for victim in victims.pods or ()]
            if name not in barred and rules.victims_allowed(known, pod, uids):
                left[name] = victims
                self._known.leave(uids)
        return {"NodeNameToMetaVictims": msgspec.to_builtins(left)}

    @staticmethod
    def _names(args: FilterArgs) -> list[str]:
        if args.node_names is None:
            raise QuestionError("the extender needs nodeCacheCapable: true in the scheduler's configuration")
        return args.node_names

    async def bind(self, args: BindArgs) -> Json:
        """Bind a pod, if it may come to that node, after everybody who was bound before it."""
        for name in (args.namespace, args.name, args.node):
            if not NAME.fullmatch(name):  # it would become part of a path
                raise QuestionError(f"{name[:64]!r} is no name")
        asked = time.monotonic()
        async with self._turn:
            # A scheduler that has waited for too long has given up, and counts on that.
            late = time.monotonic() - asked > _TURN_SECONDS
            why = "it took too long until it was this pod's turn" if late else await self._bind(args)
        if why:
            _log.info("not bound", extra={"pod": f"{args.namespace}/{args.name}", "note": why})
        return {"Error": why}

    async def _bind(self, args: BindArgs) -> str:
        known = self._known
        known.settle()
        try:
            pod = known.store.pod(args.uid) or await self._look_up(args)
        except ApiError as error:
            return f"the pod cannot be looked up: {error}"
        node = known.node(args.node, besides=args.uid)
        if pod is None or node is None:
            return f"there is no {'pod of that UID' if pod is None else f'node {args.node}'}"
        late = "" if self._leader.sure else "this extender does not lead any more: another one may be binding pods"
        return rules.may_bind(known.store, node, pod, known.barred()) or late or await self._bound(args, pod)

    async def _bound(self, args: BindArgs, pod: Pod) -> str:
        known = self._known
        body = {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": args.name, "uid": args.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        }  # fmt: skip
        known.place(pod, args.node)  # whatever is answered: it may have been done
        try:
            async with asyncio.timeout(_BIND_SECONDS):
                await self._api.create(pod_path(args.namespace, args.name) + "/binding", body)
        except (TimeoutError, UnavailableError) as error:
            return f"the API server did not answer in time: {error}"
        except ConflictError as error:
            # Perhaps by ourselves, and the answer was lost: only the pod itself knows where it is.
            with suppress(ApiError):
                await self._look_up(args)
            return str(error)
        except ApiError as error:
            known.unplace(args.uid)
            return str(error)
        return ""

    async def _look_up(self, args: BindArgs) -> Pod | None:
        try:
            found = slim.decode_pod(await self._api.read(pod_path(args.namespace, args.name)))
        except NotFoundError:
            return None
        if found.metadata.uid != args.uid:
            return None
        self._known.put_pod(found)
        return self._known.store.pod(args.uid)

    # What is said about holds

    def wake(self, node: str) -> None:
        """Have the holds on a node looked at."""
        if node:
            self._dirty.add(node)
            self._news.set()

    def _free(self, node: str) -> None:
        self._freed.add(node)
        self.wake(node)

    async def _tell_freed(self, node: str) -> None:
        """Have the scheduler look again at pods that were kept out: a change of a node wakes those, holds do not."""
        freed = {"metadata": {"annotations": {FREED: kinds.stamp(self._clock())}}}
        try:
            await self._api.patch(f"/api/v1/nodes/{node}", freed, STRATEGIC_PATCH)
        except ApiError as error:
            _log.warning("pods that wait for %s may wait some minutes longer: %s", node, error)

    async def acknowledge(self) -> None:
        """Say what is to be said about holds, until cancelled."""
        while True:
            dirty, self._dirty = self._dirty, set()
            self._news.clear()
            while self._freed:
                await self._tell_freed(self._freed.pop())
            for node in sorted(dirty):
                for hold in self._known.on(node):
                    await self._look(hold.claimant)
            try:
                async with asyncio.timeout(_REFRESH_SECONDS):
                    await self._news.wait()
            except TimeoutError:  # for what nobody tells us: the time, above all
                self._dirty.update(hold.node for hold in self._known.store.holds.values() if hold.live)

    async def _look(self, claimant: str) -> None:
        async with self._turn:
            known = self._known
            known.settle()
            hold, body = known.store.holds.get(claimant), known.hold_body(claimant)
            if hold is None or body is None or not self._leader.sure:
                return
            status: Json = body.get("status", {})
            spoken = (status.get("observedGeneration"), status.get("term")) == (
                body["metadata"]["generation"],
                self._term,
            )
            answer = rules.decide(
                known.store, known.node(hold.node), hold, self._clock(), leaving=known.leaving(), spoken=spoken
            )
            if answer is not None:
                await self._say(hold, body, answer)

    async def _say(self, hold: Hold, body: Json, answer: rules.Answer) -> None:
        meta = body["metadata"]
        status = {
            **body.get("status", {}), "phase": answer.phase, "reason": answer.reason, "message": answer.message,
            "shortfall": kinds.amounts(answer.shortfall), "observedGeneration": meta["generation"], "term": self._term,
        }  # fmt: skip
        change = {"op": "add", "path": "/status", "value": status}
        try:
            changed = await self._api.patch(path_of(body) + "/status", as_it_was(meta["resourceVersion"], change))
        except (ConflictError, NotFoundError):
            await self._look_again(body)
            return
        except ApiError as error:
            _log.warning("a hold could not be acknowledged, it will be tried again: %s", error)
            return
        self._known.put_hold(changed)
        _log.info(
            "hold",
            extra={"hold": meta["name"], "node": hold.node, "phase": str(answer.phase), "reason": answer.reason},
        )
        for other in self._known.on(hold.node):
            self.wake(other.node)

    async def _look_again(self, body: Json) -> None:
        try:
            self._known.put_hold(await self._api.get(f"{HOLDS}/{body['metadata']['name']}"))
        except NotFoundError:
            self._known.drop_hold(body["metadata"]["uid"])
        except ApiError as error:
            _log.debug("a hold could not be read again: %s", error)
