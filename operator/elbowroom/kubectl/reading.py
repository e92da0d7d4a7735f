"""What the commands look at, read from the API server in the name of whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from kubernetes import config

from elbowroom.api.base import GROUP, VERSION
from elbowroom.cluster import slim
from elbowroom.cluster.act import HOLDS
from elbowroom.cluster.client import NotFoundError
from elbowroom.cluster.view import View
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.drivers.receiver import VM_LABEL
from elbowroom.telling.story import Move, Request

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence

    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_OURS: Final = f"/apis/{GROUP}/{VERSION}"
REQUESTS, MIGRATIONS = "vmscalerequests", "vmmigrations"
_PAGE: Final = "500"


class AskedError(Exception):
    """What was asked for cannot be answered; the message says why, and what to do."""


def own_namespace(context: str | None) -> str:
    """Return the namespace that kubectl would take."""
    try:
        contexts, current = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except config.ConfigException as error:
        raise AskedError(f"no cluster is configured: {error}") from error
    chosen = next((item for item in contexts if item["name"] == context), None) if context else current
    if chosen is None:
        raise AskedError(f"--context: the kubeconfig has no context {context}")
    return str(chosen["context"].get("namespace") or "default")


class Reader:
    """Reads objects of one namespace, and of the cluster."""

    def __init__(self, api: Api, namespace: str) -> None:
        """Say where."""
        self.api, self.namespace = api, namespace

    def path(self, plural: str, name: str = "", namespace: str | None = None) -> str:
        """Return where objects of our kinds are."""
        folder = f"{_OURS}/namespaces/{namespace or self.namespace}/{plural}"
        return f"{folder}/{name}" if name else folder

    async def request(self, name: str) -> Json:
        """Read a request."""
        try:
            return await self.api.get(self.path(REQUESTS, name))
        except NotFoundError as error:
            raise AskedError(
                f"there is no request {name} in namespace {self.namespace}: kubectl get vmsr -A lists all"
            ) from error

    async def moves_of(self, request: Request) -> list[Move]:
        """Read the migrations that are made for a request, as far as they are there."""
        found = []
        for planned in request.status.plan.neighbours if request.status.plan else ():
            try:
                body = await self.api.get(self.path(MIGRATIONS, planned.migration, planned.pod.namespace))
            except NotFoundError:
                continue
            found.append(Move.of(body))
        return found

    async def subject(self, name: str) -> Json:
        """Return how a request names what somebody has typed: a pod of that name, or else a VM."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        try:
            body = await self.api.get(f"{pods}/{name}")
        except NotFoundError:
            if (await self.api.get(pods, labelSelector=f"{VM_LABEL}={name}"))["items"]:
                return {"vm": name}
            raise AskedError(
                f"there is neither a pod nor a VM {name} in namespace {self.namespace}: "
                f"kubectl get pods -L {VM_LABEL} lists them"
            ) from None
        # A VM's pod has another name after each move; the VM stays the VM.
        vm = body["metadata"].get("labels", {}).get(VM_LABEL)
        return {"vm": vm} if vm else {"pod": name}

    async def world(self) -> View:
        """Read nodes, pods, holds and migrations of the whole cluster, as the operator sees them."""
        view = View(QemuDriver(RunnerClient(_nobody)))
        async for item in self._all("/api/v1/nodes"):
            view.put_node(msgspec.convert(item, slim.Node))
        async for item in self._all("/api/v1/pods"):
            view.put_pod(msgspec.convert(item, slim.Pod))
        async for item in self._all(HOLDS):
            view.put_hold({**item, "kind": "CapacityHold"})
        async for item in self._all(f"{_OURS}/{MIGRATIONS}"):
            view.put_migration({**item, "kind": "VMMigration"})
        return view

    async def _all(self, path: str) -> AsyncIterator[Json]:
        more = ""
        while True:
            answer = await self.api.get(path, limit=_PAGE, **({"continue": more} if more else {}))
            items: Sequence[Json] = answer["items"]
            for item in items:
                yield item
            more = answer["metadata"].get("continue", "")
            if not more:
                return


def _nobody() -> ssl.SSLContext:
    raise AssertionError("runners are not called from here")
