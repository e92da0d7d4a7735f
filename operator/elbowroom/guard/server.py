"""The guard as it is served: HTTPS for the API server, with the holds that this replica watches.

A process of its own beside the operator's: that one may think for a while, and nobody's binding shall wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from elbowroom import metrics
from elbowroom.authority.keeper import Keeper
from elbowroom.cluster import slim
from elbowroom.cluster.act import HOLDS, pod_path
from elbowroom.cluster.client import ApiError, NotFoundError
from elbowroom.cluster.reflector import Reflector

from .book import Book
from .certificate import FromFiles, NoCertificateError, OwnAuthority, Renewed
from .review import Reviewer, ReviewError
from .rules import Trust

if TYPE_CHECKING:
    from kubernetes import client

    from elbowroom.cluster.client import Api
    from elbowroom.config import GuardSettings

    from .certificate import Source

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_FRESH_SECONDS: Final = 90.0
"""How old the last word from the API server may be: a watch that has nothing to tell says so about every minute."""
_CERTIFICATE_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 1.0
_LEAVING_SECONDS: Final = 3.0
"""How long it goes on answering after it was told to end: until nobody is sent to it any more."""
_LARGEST: Final = 8 << 20
_ME: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class PortError(Exception):
    """The guard's port cannot be listened on."""


class LiveLookup:
    """Asks the API server itself."""

    def __init__(self, api: Api) -> None:
        """Take the client."""
        self._api = api

    async def pod(self, namespace: str, name: str) -> slim.Pod | None:
        """Return a pod."""
        try:
            return slim.decode_pod(await self._api.read(pod_path(namespace, name)))
        except NotFoundError:
            return None

    async def cordoned(self, node: str) -> bool:
        """Tell whether nobody may come to a node any more."""
        try:
            found = await self._api.get(f"/api/v1/nodes/{node}")
        except NotFoundError:
            return True
        return bool(found.get("spec", {}).get("unschedulable", False))


def new_guard(api: Api, core: client.CoreV1Api, namespace: str, settings: GuardSettings) -> Guard:
    """Put one together."""
    source: Source
    if settings.certificate is not None:
        source = FromFiles(settings.certificate)
    else:
        keeper = Keeper(core, namespace, _now)
        source = OwnAuthority(keeper, api, f"{settings.service}.{namespace}.svc", settings.configuration, _now)
    return Guard(api, source, settings.port, frozenset(settings.schedulers))


def _now() -> datetime:
    return datetime.now(UTC)


class Guard:
    """One replica."""

    def __init__(self, api: Api, source: Source, port: int, schedulers: frozenset[str]) -> None:
        """Say whose certificate it shows, where it listens, and which schedulers respect holds by themselves."""
        self._api, self._port, self._schedulers = api, port, schedulers
        self._book, self._operator, self._leaving = Book(), "", False
        self._renewed, self._certified = Renewed(source), asyncio.Event()
        self.holds = Reflector(api, HOLDS, slim.Hold, self._book.put, self._book.drop)
        self._reviewer = Reviewer(self._book, self._trust, LiveLookup(api))

    def _trust(self) -> Trust:
        return Trust(self._operator, self._schedulers)

    def stale(self) -> str:
        """Say why this replica must not be asked; nothing where it may."""
        if not self._operator or not self.holds.synced.is_set():
            return "the holds have not been read yet"
        silence = time.monotonic() - self.holds.heard_at
        return f"the API server was last heard of {silence:.0f} s ago" if silence > _FRESH_SECONDS else ""

    async def run(self) -> None:
        """Answer until cancelled, and a little longer."""
        try:
            async with asyncio.TaskGroup() as group:
                work = [group.create_task(item) for item in (self.holds.run(), self._keep_certificate())]
                try:
                    await self.know_myself()
                    await self._certified.wait()
                    await self._serve()
                finally:
                    for task in work:
                        task.cancel()
        finally:
            await self._api.close()

    async def know_myself(self) -> None:
        """Find out what the operator is called: all replicas, and the one that acts, have one account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        while not self._operator:
            try:
                answer = await self._api.create(_ME, body)
                self._operator = answer["status"]["userInfo"]["username"]
            except ApiError as error:
                _log.warning("the guard does not know its own account yet: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _keep_certificate(self) -> None:
        while True:
            try:
                await self._renewed.refresh()
                self._certified.set()
            except (NoCertificateError, ApiError) as error:
                _log.warning("%s", error)
            await asyncio.sleep(_CERTIFICATE_SECONDS if self._certified.is_set() else _AGAIN_SECONDS)

    async def _serve(self) -> None:
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, None, self._port, ssl_context=self._renewed.context).start()
            except OSError as error:
                raise PortError(f"guard.port: {self._port} cannot be listened on: {error}") from error
            _log.info("the guard answers", extra={"port": self._port})
            await asyncio.Event().wait()
        finally:
            # Whoever was about to ask this replica has to hear of another one first, or is not refused by anybody.
            self._leaving = True
            await asyncio.sleep(_LEAVING_SECONDS)
            await runner.cleanup()

    def application(self) -> web.Application:
        """Return what is served, without the door."""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post("/admit", self._admit)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/healthz", self._healthz)
        return app

    async def _healthz(self, _request: web.Request) -> web.Response:
        # Who answers is alive: a restart would not make the API server speak.
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        stale = "it is about to end" if self._leaving else self.stale()
        return web.Response(status=503 if stale else 200, text=f"{stale or 'ok'}\n")

    async def _admit(self, request: web.Request) -> web.Response:
        # Who knows nothing says nothing: the API server does what its failurePolicy says.
        if stale := self.stale():
            return web.Response(status=503, text=stale)
        with metrics.GUARD_SECONDS.time():
            try:
                answer, what, verdict = await self._reviewer.answer(await request.read())
            except ReviewError as error:
                return web.Response(status=400, text=str(error))
            except ApiError as error:
                return web.Response(status=503, text=f"what is asked for cannot be looked up: {error}")
        metrics.GUARD_ANSWERS.labels(what=what, answer="allowed" if verdict.allowed else "refused").inc()
        if not verdict.allowed and verdict.message:
            _log.info("refused", extra={"what": what, "note": verdict.message})
        response = web.json_response(answer)
        if self._leaving:
            response.force_close()
        return response
