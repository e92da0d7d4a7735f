"""The operator: its parts, put together, and started in their order."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import kopf
from kubernetes.client.exceptions import ApiException
from prometheus_client import REGISTRY
from urllib3.exceptions import HTTPError

from elbowroom import metrics, traces
from elbowroom.authority.keeper import DamagedError, Keeper, NotOursError
from elbowroom.authority.vms import VmSecrets
from elbowroom.cluster import slim
from elbowroom.cluster.client import ApiError, NotFoundError
from elbowroom.cluster.events import Recorder
from elbowroom.cluster.kinds import API_VERSION
from elbowroom.cluster.reflector import Reflector
from elbowroom.cluster.view import View
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.qemu import QemuDriver
from elbowroom.guard.watch import GuardWatch
from elbowroom.handlers import registry
from elbowroom.health import HealthServer, why_dead, why_not_ready
from elbowroom.leader import Leader
from elbowroom.page import picture
from elbowroom.page.server import PageServer
from elbowroom.reconcile import Reconciler
from elbowroom.runner.tls import Identity

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from kubernetes import client

    from elbowroom.cluster.client import Api
    from elbowroom.config import Settings

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_AUDIT_SECONDS: Final = 60.0
_CERTIFICATE_SECONDS: Final = 600.0
_SYNC_SECONDS: Final = 120.0


class StartError(Exception):
    """It cannot begin; the message says what to do."""


class CertificateError(StartError):
    """It has no certificate of its own, or cannot renew it."""


class Operator:
    """One operator, of which several may run."""

    def __init__(  # noqa: PLR0913
        self, api: Api, core: client.CoreV1Api, namespace: str, identity: str, settings: Settings,
        *, health_port: int = 0,
    ) -> None:  # fmt: skip
        """Take what it works with, and where the kubelet may ask how it is."""
        self._api = api
        self._health = HealthServer(health_port, self.why_dead, self.why_not_ready)
        self._page = PageServer(settings.page, self.picture)
        self._knows, self._audited_at = False, 0.0
        self._keeper = Keeper(core, namespace, lambda: datetime.now(UTC))
        self._context: ssl.SSLContext | None = None
        self._runners = RunnerClient(self._operator_context, tries=2)
        driver = QemuDriver(self._runners, settings.scheduler)
        self.view = View(driver)
        self._traces = traces.teller("elbowroom-operator")
        self.reconciler = Reconciler(
            api, driver, self.view, settings.policy(), Recorder(api, identity), traces=self._traces
        )
        self._leader = Leader(api, namespace, identity)
        metrics.LEADS.set_function(lambda: float(self._leader.sure))
        self._secrets = VmSecrets(self._keeper, self._identities)
        self._guard = None if settings.guard is None else GuardWatch(api, namespace, self.reconciler.guard_changed)
        self._nodes = Reflector(api, "/api/v1/nodes", slim.Node, self.view.put_node, self.view.drop_node)
        self._pods = Reflector(api, "/api/v1/pods", slim.Pod, self.view.put_pod, self.view.drop_pod)

    def _operator_context(self) -> ssl.SSLContext:
        assert self._context is not None  # noqa: S101  # made before anybody is called
        return self._context

    def _identities(self) -> list[Identity]:
        return [*dict.fromkeys(Identity(vm.namespace, vm.name) for vm in self.view.vms.values())]

    # What kopf tells

    def saw_request(self, event: str | None, body: Json) -> None:
        """Take in news of a request."""
        uid = body["metadata"]["uid"]
        (self.view.drop_request(uid) if event == "DELETED" else self.view.put_request(body))
        self.reconciler.request_changed(uid)

    def saw_migration(self, event: str | None, body: Json) -> None:
        """Take in news of a migration."""
        uid = body["metadata"]["uid"]
        (self.view.drop_migration(uid) if event == "DELETED" else self.view.put_migration(body))
        self.reconciler.migration_changed(uid)

    def saw_hold(self, event: str | None, body: Json) -> None:
        """Take in news of a hold."""
        (self.view.drop_hold(body["metadata"]["uid"]) if event == "DELETED" else self.view.put_hold(body))
        self.reconciler.hold_changed(body["spec"]["request"]["uid"])

    # Running

    def why_not_ready(self) -> str:
        """Say why it cannot be counted on; nothing where it can."""
        return why_not_ready(self._leader, self._heard(), time.monotonic(), knows=self._knows)

    def why_dead(self) -> str:
        """Say why it has to be started anew; nothing where that would not help."""
        return why_dead(self._leader, self._heard(), time.monotonic(), knows=self._knows)

    def _heard(self) -> dict[str, float]:
        # Our own kinds are read whole once a minute.
        return {"nodes": self._nodes.heard_at, "pods": self._pods.heard_at, "requests and holds": self._audited_at}

    def picture(self, find: str) -> Json:
        """Return what the page shows. Only who leads knows it."""
        if self._leader.sure and self._knows:
            return picture.draw(self.view, time.time(), find)
        return picture.empty(self._why_no_picture())

    def _why_no_picture(self) -> str:
        if self._leader.leads or not self._leader.holder:
            return "The operator is reading what is in the cluster."
        holder = self._leader.holder
        return f"This operator stands by; the one that leads is {holder}, in pod {holder.rpartition('-')[0]}: ask that."

    async def run(self) -> None:
        """Lead, know everything, and work, until told to end."""
        async with self._health, self._page:
            await self._lead()

    async def _lead(self) -> None:
        try:
            await self._leader.acquire()
            with self._counted():
                await self._work()
        finally:
            await self._leader.release()
            await asyncio.to_thread(self._traces.close)
            await self._runners.close()
            await self._api.close()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Have what is known counted, for as long as it is kept up to date."""
        known = metrics.Known(self.view.store, self.reconciler.waiting)
        REGISTRY.register(known)
        try:
            yield
        finally:
            REGISTRY.unregister(known)

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work) for work in (self._leader.keep(), self._nodes.run(), self._pods.run())]
            await self._know_everything()
            self._knows = True
            _log.info("ready", extra={"nodes": len(self.view.store.nodes), "pods": len(self.view.shapes)})
            later = [self.reconciler.run(), self._secrets.run(), self._renew(), self._audit_for_ever()]
            later += [] if self._guard is None else [self._guard.run()]
            tasks += [group.create_task(work) for work in later]
            await kopf.operator(registry=registry, memo=kopf.Memo(operator=self), clusterwide=True, standalone=True)
            for task in tasks:
                task.cancel()

    async def _know_everything(self) -> None:
        await self._take_certificate()
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                await self._nodes.synced.wait()
                await self._pods.synced.wait()
        except TimeoutError as error:
            raise StartError(
                f"nodes and pods could not be read within {_SYNC_SECONDS:g} s; the log says what was answered"
            ) from error
        await self._audit()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_CERTIFICATE_SECONDS)
            try:
                await self._take_certificate()
            except CertificateError as error:  # there is time: it is renewed long before it ends
                _log.warning("%s", error)

    async def _take_certificate(self) -> None:
        try:
            self._context = await self._keeper.operator_context()
        except ApiException as error:
            told = f"the authority's Secret: the API server said {error.status} {error.reason}"
            raise CertificateError(told) from error
        except (HTTPError, NotOursError, DamagedError) as error:
            raise CertificateError(f"the authority's Secret: {error}") from error

    async def _audit_for_ever(self) -> None:
        """Read our own kinds now and then: kopf does not tell what was deleted while a watch was broken."""
        while True:
            await asyncio.sleep(_AUDIT_SECONDS)
            try:
                await self._audit()
            except ApiError as error:
                _log.warning("our own kinds could not be read: %s", error)

    async def _audit(self) -> None:
        parts: tuple[tuple[str, str, Callable[[Json], None], Callable[[str], None]], ...] = (
            ("vmscalerequests", "VMScaleRequest", self.view.put_request, self.view.drop_request),
            ("vmmigrations", "VMMigration", self.view.put_migration, self.view.drop_migration),
            ("capacityholds", "CapacityHold", self.view.put_hold, self.view.drop_hold),
        )
        for plural, kind, put, drop in parts:
            known = {uid for uid, body in self.view.bodies.items() if body["kind"] == kind}
            found = await self._read(plural)
            for body in found:
                put(body)
            for uid in known - {body["metadata"]["uid"] for body in found}:
                drop(uid)
        self._audited_at = time.monotonic()

    async def _read(self, plural: str) -> list[Json]:
        try:
            answer = await self._api.get(f"/apis/{API_VERSION}/{plural}")
        except NotFoundError as error:
            raise StartError(f"the API server does not know {plural}.elbowroom.dev: apply crds/ first") from error
        found: list[Json] = answer["items"]
        return found
