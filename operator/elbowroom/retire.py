"""Before an uninstall: whatever is under way is put back or brought to its end, and nothing of ours keeps anything.

Requests that are under way are deleted, which the operator takes as the wish to have things put back; what is committed
goes on to its end. When no hold, taint or migration is left the operator is switched off, and only then are our
finalizers taken off what has ended: with an operator there they would come back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from elbowroom.cluster.act import HOLDS, path_of
from elbowroom.cluster.client import MERGE_PATCH, ApiError, ConflictError, NotFoundError
from elbowroom.cluster.kinds import API_VERSION, FINALIZER
from elbowroom.cluster.view import TAINT
from elbowroom.core.world import MigrationPhase, RequestPhase

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_PERIOD: Final = 1.0
_SWITCH_OFF_SECONDS: Final = 45.0
_ENDED: Final = ("Succeeded", "Failed")
_OPERATOR: Final = "app.kubernetes.io/name=elbowroom-operator"
_KINDS: Final = (("VMScaleRequest", "vmscalerequests"), ("VMMigration", "vmmigrations"))


class LeftError(Exception):
    """It did not come to an end in time; the message says what is left, and what to do."""


class Retirement:
    """Brings everything to an end, once."""

    def __init__(self, api: Api, namespace: str, deployment: str, within: float) -> None:
        """Say which operator, and how many seconds it may take."""
        self._api, self._until, self._within = api, time.monotonic() + within, within
        self._deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def run(self) -> None:
        """Settle, switch off, let go."""
        try:
            replicas = await self._replicas()
            while True:
                if replicas == 0 and await self._under_way():
                    replicas = 1  # an earlier uninstall was broken off, and nobody is there who could put things back
                    await self._scale(replicas)
                await self._wait_for("what is under way", self._settling)
                await self._switch_off(replicas)
                if not await self._under_way():
                    break
                await self._scale(replicas)  # somebody has asked for something in the last moment
            await self._let_go()
            _log.info("nothing is under way any more, and the operator is switched off")
        finally:
            await self._api.close()

    async def _switch_off(self, replicas: int) -> None:
        """End the operators; where that does not come about, have them back: nothing is to be half done."""
        await self._scale(0)
        self._until = max(self._until, time.monotonic() + _SWITCH_OFF_SECONDS)
        try:
            await self._wait_for("the operator's pods", self._operators)
        except LeftError:
            await self._scale(replicas)
            raise

    async def _wait_for(self, what: str, left: Callable[[], Awaitable[list[str]]]) -> None:
        before: list[str] = []
        while found := await left():
            if found != before:
                before = found
                _log.info("waiting for %s", what, extra={"left": found})
            if time.monotonic() > self._until:
                some = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")  # noqa: PLR2004
                raise LeftError(
                    f"after {self._within:g} s there is still {some}: look at them with kubectl describe and at the "
                    "operator's log, and uninstall again; nothing was removed"
                )
            await asyncio.sleep(_PERIOD)

    async def _settling(self) -> list[str]:
        """Ask for an end of what is under way, and say what that is. What requests have made ends with them."""
        for body in await self._unfinished():
            if "deletionTimestamp" not in body["metadata"] and "request" not in body["spec"]:
                await self._delete(body)
        return await self._under_way()

    async def _under_way(self) -> list[str]:
        """Say what would be left behind."""
        holds = [f"CapacityHold {item['metadata']['name']}" for item in await self._all(HOLDS)]
        tainted = [
            f"the taint of node {node['metadata']['name']}"
            for node in (await self._api.get("/api/v1/nodes"))["items"]
            if any(item["key"] == TAINT for item in node["spec"].get("taints", ()))
        ]
        return [_named(item) for item in await self._unfinished()] + holds + tainted

    async def _unfinished(self) -> list[Json]:
        return [item for item in await self._ours() if not _over(item)]

    async def _ours(self) -> list[Json]:
        return [
            {**item, "kind": kind} for kind, plural in _KINDS
            for item in await self._all(f"/apis/{API_VERSION}/{plural}")
        ]  # fmt: skip

    async def _all(self, path: str) -> list[Json]:
        try:
            found: list[Json] = (await self._api.get(path))["items"]
        except NotFoundError:
            return []  # the kinds are not installed, so there is none of them
        return found

    async def _delete(self, body: Json) -> None:
        try:
            await self._api.delete(path_of(body), uid=body["metadata"]["uid"])
        except (NotFoundError, ConflictError):
            return  # somebody was faster

    async def _replicas(self) -> int:
        try:
            return int((await self._api.get(self._deployment))["spec"]["replicas"])
        except NotFoundError:
            return 0

    async def _scale(self, replicas: int) -> None:
        try:
            await self._api.patch(f"{self._deployment}/scale", {"spec": {"replicas": replicas}}, MERGE_PATCH)
        except NotFoundError:
            return

    async def _operators(self) -> list[str]:
        found = await self._api.get(self._pods, labelSelector=_OPERATOR)
        return [
            f"Pod {item['metadata']['namespace']}/{item['metadata']['name']}" for item in found["items"]
            if item.get("status", {}).get("phase") not in _ENDED  # evicted ones stay, and do nothing
        ]  # fmt: skip

    async def _let_go(self) -> None:
        for body in await self._ours():
            meta = body["metadata"]
            rest = [item for item in meta.get("finalizers", ()) if item != FINALIZER]
            if len(rest) == len(meta.get("finalizers", ())):
                continue
            change = {"metadata": {"finalizers": rest, "resourceVersion": meta["resourceVersion"]}}
            try:
                await self._api.patch(path_of(body), change, MERGE_PATCH)
            except NotFoundError:
                continue
            except ApiError as error:
                raise LeftError(f"{_named(body)} keeps its finalizer: {error}; uninstall again") from error


def _over(body: Json) -> bool:
    phase = body.get("status", {}).get("phase")
    if phase is None:
        return False
    kind = RequestPhase if body["kind"] == "VMScaleRequest" else MigrationPhase
    return kind(phase).final


def _named(body: Json) -> str:
    meta = body["metadata"]
    phase = body.get("status", {}).get("phase", "new")
    return f"{body['kind']} {meta['namespace']}/{meta['name']} ({phase})"
