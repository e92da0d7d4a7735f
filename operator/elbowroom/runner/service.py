"""What the runner offers: HTTPS for the operator and for the VM's other runner, and plain probes for the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, TypeVar

import aiohttp
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import ValidationError

from .machine import RefusedError
from .messages import (
    API_PORT,
    HEALTH_PORT,
    TRACE,
    ChangeLimits,
    GuestState,
    Message,
    Migrate,
    OfAttempt,
    Reason,
    Receive,
    Refusal,
    Resize,
)
from .metrics import exposition
from .monitor import MonitorError
from .tls import OPERATOR, peer_names

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

    from .calls import Calls
    from .config import VMConfig
    from .machine import Machine
    from .tls import Files

log = logging.getLogger(__name__)
M = TypeVar("M", bound=Message)
_CODES = {
    Reason.INVALID: 400, Reason.FORBIDDEN: 403, Reason.NOT_FOUND: 404, Reason.NOT_YET: 503, Reason.MONITOR: 502,
    Reason.INTERNAL: 500,
}  # fmt: skip
_CONFLICT = 409
_LONGEST_WAIT = 60.0
_CHECK_SECONDS = 1.0
_REFUSED_FROM = 400
_SILENT_SECONDS = 30.0
_FOR_THE_VM = frozenset(("/v1/ping", "/v1/release", "/v1/quit"))


class Service:
    """Both listeners."""

    def __init__(self, machine: Machine, calls: Calls, files: Files) -> None:
        """Say what is served."""
        self._machine, self._calls, self._files = machine, calls, files
        self._check = GuestCheck(machine.config)
        self._runners: list[web.AppRunner] = []

    async def open(self) -> None:
        """Listen."""
        await self._listen(self._health(), HEALTH_PORT, secure=False)
        await self._listen(self._api(), API_PORT, secure=True)

    async def _listen(self, app: web.Application, port: int, *, secure: bool) -> None:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, None, port, ssl_context=self._files.server() if secure else None).start()
        self._runners.append(runner)

    async def close(self) -> None:
        """Stop listening."""
        for runner in self._runners:
            await runner.cleanup()
        await self._check.close()

    # The kubelet's side

    def _health(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _readyz(self, _request: web.Request) -> web.Response:
        ready = self._machine.state is GuestState.RUNNING and await self._check.passes()
        # The guest may have left while it was being asked.
        ready = ready and self._machine.state is GuestState.RUNNING
        return web.Response(status=200 if ready else 503, text=f"the guest is {self._machine.state}\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=exposition(await self._machine.status()), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _livez(self, _request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_SILENT_SECONDS):
                await self._machine.answers()
        except (MonitorError, TimeoutError) as error:
            return web.Response(status=503, text=f"QEMU does not answer: {error}\n")
        return web.Response(text="ok\n")

    # The operator's side

    def _api(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=1 << 16)
        app.router.add_get("/v1/ping", self._ping)
        app.router.add_get("/v1/status", self._status)
        for name, handler in {
            "receive": self._receive, "migrate": self._migrate, "limits": self._limits, "commit": self._commit,
            "cancel": self._cancel, "release": self._release, "resize": self._resize, "quit": self._quit,
        }.items():  # fmt: skip
            app.router.add_post(f"/v1/{name}", handler)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self._admit(request)
            return await handler(request)
        except RefusedError as error:
            return _refusal(error.reason, error.message)
        except MonitorError as error:
            return _refusal(Reason.MONITOR, str(error))
        except web.HTTPException as error:
            return _refusal(
                Reason.NOT_FOUND if error.status < _CODES[Reason.INTERNAL] else Reason.INTERNAL, error.reason
            )
        except Exception:
            log.exception("a call failed", extra={"path": request.path})
            return _refusal(Reason.INTERNAL, "the runner has failed; its log says how")

    def _admit(self, request: web.Request) -> None:
        names = caller(request)
        if OPERATOR in names:
            return
        if self._machine.identity.uri in names and request.path in _FOR_THE_VM:
            return
        told = ", ".join(sorted(names)) or "a certificate without a name"
        raise RefusedError(Reason.FORBIDDEN, f"{told} may not do this with VM {self._machine.identity.name}")

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="{}", content_type="application/json")

    async def _status(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            after, wait = int(query.get("after", -1)), min(float(query.get("wait", 0)), _LONGEST_WAIT)
        except ValueError:
            raise RefusedError(Reason.INVALID, "after and wait: have to be numbers") from None
        await self._machine.news(after, wait)
        return await self._answer()

    async def _answer(self) -> web.Response:
        # The guest itself is not asked: one that has just arrived has other things to do. Readiness is the kubelet's.
        return _json(await self._machine.status())

    async def _receive(self, request: web.Request) -> web.Response:
        await self._calls.receive(await _body(request, Receive))
        return await self._answer()

    async def _migrate(self, request: web.Request) -> web.Response:
        await self._calls.migrate(await _body(request, Migrate), request.headers.get(TRACE, ""))
        return await self._answer()

    async def _limits(self, request: web.Request) -> web.Response:
        self._calls.change_limits(await _body(request, ChangeLimits))
        return await self._answer()

    async def _commit(self, request: web.Request) -> web.Response:
        self._calls.commit((await _body(request, OfAttempt)).attempt)
        return await self._answer()

    async def _cancel(self, request: web.Request) -> web.Response:
        await self._calls.cancel((await _body(request, OfAttempt)).attempt)
        return await self._answer()

    async def _release(self, request: web.Request) -> web.Response:
        await self._calls.release((await _body(request, OfAttempt)).attempt)
        return web.Response(text="{}", content_type="application/json")

    async def _resize(self, request: web.Request) -> web.Response:
        await self._calls.resize(await _body(request, Resize))
        return await self._answer()

    async def _quit(self, request: web.Request) -> web.Response:
        call = await _body(request, OfAttempt)
        await self._calls.quit(call.attempt, by_source=OPERATOR not in caller(request))
        return web.Response(text="{}", content_type="application/json")


class GuestCheck:
    """Asks the guest whether it is up, as its configuration says."""

    def __init__(self, config: VMConfig) -> None:
        """Take the rules from the configuration."""
        self._ready = config.ready
        self._session: aiohttp.ClientSession | None = None

    async def passes(self) -> bool:
        """Tell whether the guest answers."""
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                http = await self._http() if self._ready.http else True
                return http and (await self._tcp(self._ready.tcp) if self._ready.tcp else True)
        except (TimeoutError, OSError, aiohttp.ClientError):
            return False

    async def _http(self) -> bool:
        assert self._ready.http is not None  # noqa: S101
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
        url = f"http://127.0.0.1:{self._ready.http.port}{self._ready.http.path}"
        async with self._session.get(url, allow_redirects=False) as answer:
            return answer.status < _REFUSED_FROM

    async def _tcp(self, port: int) -> bool:
        # User networking accepts for the guest and hangs up when the guest does not want it: so stay for a moment.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with asyncio.timeout(0.2):
                return bool(await reader.read(1))
        except TimeoutError:
            return True
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def close(self) -> None:
        """Give the connections back."""
        if self._session is not None:
            await self._session.close()


def caller(request: web.Request) -> frozenset[str]:
    """Return the names of who is calling, from the certificate that TLS has checked."""
    transport = request.transport
    return peer_names(transport.get_extra_info("peercert") if transport is not None else None)


def _json(message: Message, status: int = 200) -> web.Response:
    return web.Response(status=status, text=message.model_dump_json(by_alias=True), content_type="application/json")


def _refusal(reason: Reason, message: str) -> web.Response:
    return _json(Refusal(reason=reason, message=message), _CODES.get(reason, _CONFLICT))


async def _body(request: web.Request, kind: type[M]) -> M:
    try:
        return kind.model_validate_json(await request.read())
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise RefusedError(Reason.INVALID, f"{field}: {first['msg']}") from error
