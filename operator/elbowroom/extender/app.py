"""The extender: its parts, put together, and served over HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiohttp import web

from elbowroom.cluster import slim
from elbowroom.cluster.kinds import API_VERSION
from elbowroom.cluster.reflector import Reflector
from elbowroom.guard.review import UNREADABLE
from elbowroom.health import HealthServer, why_not_ready
from elbowroom.leader import Leader
from elbowroom.runner.tls import Files

from .extender import BindArgs, Extender, FilterArgs, PreemptArgs, QuestionError
from .known import Known
from .shown import Shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from elbowroom.cluster.client import Api

Json = dict[str, Any]
Answer = Json | list[Json]
_log = logging.getLogger(__name__)
_LARGEST: Final = 32 << 20
_SYNC_SECONDS: Final = 120.0
_FRESH_SECONDS: Final = 90.0
"""How old the last word of a watch may be: one that has nothing to tell says so about every minute."""


class ListenError(Exception):
    """It cannot be served there; the message says what to change."""


class Address(NamedTuple):
    """Where the scheduler finds it, and who may ask."""

    host: str
    port: int
    tls: Path | None = None
    """A folder with tls.crt, tls.key, and the ca.crt that whoever asks has to be certified by."""

    def check(self) -> None:
        """Refuse to have pods bound for everybody who can reach a port."""
        try:
            local = ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise ListenError(f"--listen: {self.host!r} is no IP address") from error
        if self.tls is None and not local:
            raise ListenError(
                f"--listen: {self.host} can be reached by others, who could have pods bound: give --tls FOLDER as "
                "well, or listen on 127.0.0.1 beside the scheduler"
            )


class ExtenderApp:
    """One of several, of which one leads."""

    def __init__(  # noqa: PLR0913
        self, api: Api, namespace: str, identity: str, address: Address, *, health_port: int = 0, pod: str | None = None
    ) -> None:
        """Take what it works with, its pod if it is one of several behind a Service, and where the kubelet may ask."""
        self._api, self._address, self._shown = api, address, Shown(api, namespace, pod)
        self._health = HealthServer(health_port, lambda: "", self._why_not_ready)
        self._leader = Leader(api, namespace, identity, "elbowroom-extender")
        self._known = Known()
        self._extender = Extender(api, self._known, self._leader, identity)
        self._ready = False
        self._known.on_pod = lambda pod: self._extender.wake(pod.node)
        self._reflectors = (
            Reflector(api, "/api/v1/nodes", slim.Node, self._node_seen, self._known.drop_node),
            Reflector(api, "/api/v1/pods", slim.Pod, self._known.put_pod, self._known.drop_pod),
            self._whole("capacityholds", self._hold_seen, self._known.drop_hold),
            self._whole("vmmigrations", self._known.put_migration, self._known.drop_migration),
        )

    def _whole(self, plural: str, put: Callable[[Json], None], drop: Callable[[str], None]) -> Reflector[slim.Whole]:
        path = f"/apis/{API_VERSION}/{plural}"
        return Reflector(self._api, path, slim.Whole, lambda item: put(item.body), drop, decode=slim.Whole)

    def _node_seen(self, node: slim.Node) -> None:
        self._known.put_node(node)
        self._extender.wake(node.metadata.name)

    def _hold_seen(self, body: Json) -> None:
        self._known.put_hold(body)
        self._extender.wake(body["spec"]["node"])

    async def run(self) -> None:
        """Answer until cancelled; anything of use once it leads and knows everything."""
        async with self._health:
            await self._shown.hide()
            await self._run()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._serve())
                await self._leader.acquire()
                group.create_task(self._leader.keep())
                # Read after the one before has ended: what it has bound is in there.
                for reflector in self._reflectors:
                    group.create_task(reflector.run())
                await self._know_everything()
                await self._shown.show()
                self._ready = True
                _log.info("ready", extra={"nodes": len(self._known.store.nodes), "pods": len(self._known.shapes)})
                await self._extender.acknowledge()
        finally:
            await self._leader.release()
            await self._api.close()

    async def _know_everything(self) -> None:
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                for reflector in self._reflectors:
                    await reflector.synced.wait()
        except TimeoutError as error:
            told = f"nodes, pods, holds and migrations could not be read within {_SYNC_SECONDS:g} s; the log says why"
            raise ListenError(told) from error

    # HTTP

    async def _serve(self) -> None:
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_routes(routes(self._extender, self._leads))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        host, port, tls = self._address
        try:
            context = None if tls is None else Files(tls).server()
            await web.TCPSite(runner, host, port, ssl_context=context).start()
            await asyncio.Event().wait()
        except OSError as error:
            raise ListenError(f"--listen: {host}:{port} cannot be listened on: {error}") from error
        finally:
            await runner.cleanup()

    def _leads(self) -> bool:
        # A watch that is silent may be one that is broken.
        heard = min(reflector.heard_at for reflector in self._reflectors)
        return self._ready and self._leader.sure and time.monotonic() - heard < _FRESH_SECONDS

    async def _readyz(self, _request: web.Request) -> web.Response:
        why = self._why_not_asked()
        return web.Response(status=503 if why else 200, text=f"{why or 'ok'}\n")

    def _why_not_asked(self) -> str:
        return "" if self._leads() else "another one leads, or none yet"

    def _why_not_ready(self) -> str:
        """Say to the kubelet why it cannot be counted on. Where a label says who is asked, one that stands by can."""
        if self._shown.pod is None:
            return self._why_not_asked()
        heard = {"the cluster": min(reflector.heard_at for reflector in self._reflectors)}
        return why_not_ready(self._leader, heard, time.monotonic(), knows=self._ready)


def routes(extender: Extender, leads: Callable[[], bool]) -> list[web.RouteDef]:
    """Return what a scheduler may ask."""

    async def now(answer: Answer) -> Answer:
        return answer

    verbs: dict[str, tuple[type[Any], Callable[[Any], Awaitable[Answer]]]] = {
        "filter": (FilterArgs, lambda args: now(extender.filter(args))),
        "prioritize": (FilterArgs, lambda args: now(extender.prioritize(args))),
        "preempt": (PreemptArgs, lambda args: now(extender.preempt(args))),
        "bind": (BindArgs, extender.bind),
    }
    return [web.post(f"/{verb}", _handler(verb, kind, answer, leads)) for verb, (kind, answer) in verbs.items()]


def _handler(
    verb: str, kind: type[Any], answer: Callable[[Any], Awaitable[Answer]], leads: Callable[[], bool]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    decode = msgspec.json.Decoder(kind).decode

    async def handle(request: web.Request) -> web.Response:
        if not leads():
            return web.Response(status=503, text="this extender does not lead: ask the one that is ready\n")
        try:
            found = await answer(decode(await request.read()))
        except UNREADABLE as error:
            return web.Response(status=400, text=f"{verb}: not what a scheduler asks: {error}\n")
        except QuestionError as error:
            return web.Response(status=400, text=f"{verb}: {error}\n")
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    return handle
