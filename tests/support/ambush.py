"""A way to the API server that lies in wait for one call.

The caller is killed before the call arrives, after it, or while it is on its way. So "killed between any two calls" is a
place, and not a matter of luck.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import yaml
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from aiohttp import ClientResponse

    from .inside import Inside
    from .testbed import Testbed

_PATIENCE = 30.0
# What belongs to one connection, and not to what is said over it.
_HOP = frozenset(("connection", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"))


class Fate(StrEnum):
    """What becomes of the call at which the caller is killed."""

    LOST = "before"
    """It never arrives."""
    DONE = "after"
    """It takes effect, and the caller does not hear of it."""
    LATE = "late"
    """It takes effect when the caller is long dead: once `let_go` is called."""
    SEEN = "seen"
    """It takes effect, something happens elsewhere, and only then the caller, who lives on, hears of it."""
    SECOND = "second"
    """Something happens elsewhere first. Then it takes effect, and the caller lives on."""


@dataclass(frozen=True)
class Moment:
    """A call, by its method and a pattern for its path."""

    method: str
    path: str
    fate: Fate

    def __call__(self, method: str, path: str, _: bytes) -> Fate | None:
        """Tell whether this is the call."""
        return self.fate if method == self.method and re.search(self.path, path.partition("?")[0]) else None


@dataclass
class PhaseWritten:
    """The call that writes a phase into the status of an object of ours, of which a part of the path is known."""

    where: str = ""
    phase: str = ""
    fate: Fate = Fate.SEEN

    def __call__(self, method: str, path: str, body: bytes) -> Fate | None:
        """Tell whether this is the call."""
        if method != "PATCH" or not re.search(f"{self.where}.*/status$", path.partition("?")[0]):
            return None
        written = (change["value"] for change in json.loads(body) if change["path"] == "/status")
        return self.fate if any(status.get("phase") == self.phase for status in written) else None


class EveryWrite:
    """Every call that changes something: the first time it is lost, and when it is made again its answer is."""

    def __init__(self) -> None:
        """Begin with none."""
        self._lost = set[tuple[str, str]]()
        self.killed_at: list[str] = []

    def __call__(self, method: str, path: str, _: bytes) -> Fate | None:
        """Tell whether this is one of them."""
        if method == "GET" or re.search("/leases|/events|dryRun", path):
            return None
        call = (method, path)
        fate = Fate.DONE if call in self._lost else Fate.LOST
        self._lost ^= {call}
        self.killed_at.append(f"{fate} {method} {path}")
        return fate


class Ambush:
    """A proxy on 127.0.0.1 that speaks to the API server in somebody's name. Use it as a context manager."""

    def __init__(
        self,
        testbed: Testbed,
        user: str,
        moment: Callable[[str, str, bytes], Fate | None],
        inside: Inside | None = None,
    ) -> None:
        """Say for whom, and what to wait for; with `inside`, the door is in the testbed's own network."""
        self._config, self._user, self._moment = testbed.api.configuration, user, moment
        self._server = "https://10.96.0.1" if inside else self._config.host
        self.behind = 0.0
        """For how many seconds at least the news of watches are kept back."""
        self._strike: Callable[[], None] = lambda: None
        self._striking = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve_for_ever, args=[inside], daemon=True)
        self._hands = ThreadPoolExecutor(1)
        self._go = asyncio.Event()
        self.struck = threading.Event()
        self.arrived = threading.Event()
        """The call at which the caller was killed has been made for it."""

    def _serve_for_ever(self, inside: Inside | None) -> None:
        if inside is not None:
            inside.enter()
        self._loop.run_forever()

    def at_the_moment(self, strike: Callable[[], None]) -> None:
        """Say how the caller is killed: from here on it may be, once."""
        self._strike, self._striking = strike, False
        self.struck.clear()
        self.arrived.clear()

    def let_go(self) -> None:
        """Deliver the call that was kept back."""
        self._loop.call_soon_threadsafe(self._go.set)

    def kubeconfig(self, path: Path) -> Path:
        """Write a file that leads here."""
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": "it", "users": [{"name": "it", "user": {}}],
                    "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                    "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
                }
            )
        )  # fmt: skip
        return path

    def __enter__(self) -> Self:
        """Open the door."""
        # A thread is in the network of the one that has made it, and this one has to be where the test is.
        self._hands.submit(lambda: None).result()
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.let_go()
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._hands.shutdown()

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)  # type: ignore[arg-type]

    async def _open(self) -> None:
        context = ssl.create_default_context(cafile=self._config.ssl_ca_cert)
        context.load_cert_chain(self._config.cert_file, self._config.key_file)
        self._session = ClientSession(
            connector=TCPConnector(ssl=context, limit=0), timeout=ClientTimeout(total=None), auto_decompress=False
        )
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        here = self._is_the_moment(request, body)
        if here is not Fate.LOST:
            if here is Fate.SECOND:
                await self._loop.run_in_executor(self._hands, self._kill)
            if here is Fate.LATE:
                self._kill()
                await asyncio.wait_for(self._go.wait(), _PATIENCE)
            headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
            headers |= {
                "Impersonate-User": self._user,
                "Content-Type": request.headers.get("Content-Type", "application/json"),
            }
            target = f"{self._server}{request.path_qs}"
            async with self._session.request(request.method, target, headers=headers, data=body or None) as answer:
                if here is Fate.SEEN and answer.ok:  # what was refused has not been written
                    await self._loop.run_in_executor(self._hands, self._kill)
                if here in (None, Fate.SEEN, Fate.SECOND):
                    behind = self.behind if "watch" in request.query else 0.0
                    return await _hand_over(request, answer, behind)
                await answer.read()
                self.arrived.set()
        self._kill()
        return web.Response(status=503)

    def _is_the_moment(self, request: web.Request, body: bytes) -> Fate | None:
        return None if self._striking else self._moment(request.method, request.path_qs, body)

    def _kill(self) -> None:
        if not self._striking:
            self._striking = True
            self._strike()
            self.struck.set()


async def _hand_over(request: web.Request, answer: ClientResponse, behind: float) -> web.StreamResponse:
    """Pass an answer on piece by piece, each so late: it may be a watch."""
    headers = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
    response = web.StreamResponse(status=answer.status, headers=headers)
    with suppress(ConnectionResetError):  # the caller was killed
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            if behind:
                await asyncio.sleep(behind)
            await response.write(piece)
        await response.write_eof()
    return response
