"""Is everything in its place? Asked of a cluster after an installation: one line an answer."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from elbowroom.cluster.act import HOLDS
from elbowroom.cluster.client import ApiError, NotFoundError
from elbowroom.cluster.kinds import API_VERSION, stamp
from elbowroom.guard.watch import tried

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_PERIOD: Final = 1.0
_LEASE_SECONDS: Final = 30.0
"""How old the leader's last sign of life may be, with clocks that differ a little."""
_ANSWER_SECONDS: Final = 5.0
_KINDS: Final = ("vmscalerequests", "vmmigrations", "capacityholds")
NOWHERE: Final = "elbowroom-check"
"""A node that is none: a hold on it keeps nobody out."""


class CheckError(Exception):
    """Something is not in its place; the message says what, and where to look."""


class Check:
    """Asks until everything is in its place, or for so long."""

    def __init__(self, api: Api, namespace: str, *, guard: bool, say: Callable[[str], None]) -> None:
        """Say where the operator is, whether there is to be a guard, and who hears the answers."""
        self._api, self._namespace, self._say = api, namespace, say
        self._questions: list[tuple[str, Callable[[], Awaitable[str]]]] = [
            ("the kinds of elbowroom.dev are served", self._kinds),
            ("an operator leads", self._leader),
            ("a scheduler keeps to holds", self._scheduler),
        ]
        if guard:
            self._questions.append(("the API server asks the guard", self._guard))

    async def run(self, within: float) -> None:
        """Ask. CheckError: something was not in its place to the end."""
        until = time.monotonic() + within
        try:
            for title, question in self._questions:
                while why := await self._asked(question):
                    if time.monotonic() > until:
                        raise CheckError(f"not so: {title}: {why}")
                    await asyncio.sleep(_PERIOD)
                self._say(f"ok  {title}")
        finally:
            await self._api.close()

    @staticmethod
    async def _asked(question: Callable[[], Awaitable[str]]) -> str:
        try:
            return await question()
        except ApiError as error:
            return str(error)

    async def _kinds(self) -> str:
        try:
            found = await self._api.get(f"/apis/{API_VERSION}")
        except NotFoundError:
            found = {"resources": []}
        served = {item["name"] for item in found["resources"]}
        missing = [kind for kind in _KINDS if kind not in served]
        return f"{', '.join(missing)} missing: apply crds/, or set crds.install in the chart" if missing else ""

    async def _leader(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._namespace}/leases/elbowroom-operator"
        try:
            spec: Json = (await self._api.get(path)).get("spec", {})
        except NotFoundError:
            return "no operator has ever led here: look at the log of Deployment elbowroom-operator"
        if not spec.get("holderIdentity"):
            return "nobody holds the lease now: look at the log of Deployment elbowroom-operator"
        silence = (datetime.now(UTC) - datetime.fromisoformat(spec["renewTime"])).total_seconds()
        told = f"its lease was last renewed {silence:.0f} s ago: look at the log of Deployment elbowroom-operator"
        return told if silence > _LEASE_SECONDS else ""

    async def _scheduler(self) -> str:
        """Make a hold for nobody, nowhere. A scheduler that keeps to holds says that it cannot honour it."""
        name = f"{NOWHERE}-{secrets.token_hex(4)}"
        made = await self._api.create(HOLDS, _hold(name))
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answered = await self._answered(name, made["metadata"]["resourceVersion"])
        except TimeoutError:
            answered = False
        finally:
            await self._drop(name)
        told = f"nobody has answered a hold within {_ANSWER_SECONDS:g} s: does a scheduler with the plugin lead?"
        return "" if answered else told

    async def _answered(self, name: str, version: str) -> bool:
        """Follow a hold: the operator sweeps it as soon as it is answered, so a look now and then would miss that."""
        query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": version}
        async for line in self._api.watch(HOLDS, **query):
            event = msgspec.json.decode(line) if line else {}
            if event.get("type") == "ERROR":
                return False
            if event.get("type") != "BOOKMARK" and event.get("object", {}).get("status", {}).get("phase"):
                return True
        return False

    async def _drop(self, name: str) -> None:
        try:
            found = await self._api.get(f"{HOLDS}/{name}")
            await self._api.delete(f"{HOLDS}/{name}", uid=found["metadata"]["uid"])
        except NotFoundError:
            return  # the operator was faster

    async def _guard(self) -> str:
        asked, why = await tried(self._api, self._namespace)
        return "" if asked else why


def _hold(name: str) -> Json:
    nobody = {"namespace": NOWHERE, "name": NOWHERE, "uid": name}
    return {
        "apiVersion": API_VERSION, "kind": "CapacityHold", "metadata": {"name": name},
        "spec": {
            "node": NOWHERE, "claimant": nobody, "request": nobody, "target": {"cpu": "1m", "memory": "1Mi"},
            "had": {"cpu": "1m", "memory": "1Mi"}, "payers": [], "expiresAt": stamp(time.time() + 30),
        },
    }  # fmt: skip
