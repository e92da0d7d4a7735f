"""Serves the page, to as many as it can without getting in the operator's way.

It has no accounts of its own: who may see it is who reaches it. So it listens on the pod's own loopback address, where
`kubectl port-forward` comes in, and Kubernetes decides who may do that. A name that a stranger's web site has made
point there is refused.
"""

from __future__ import annotations

import asyncio
import time
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from aiohttp.typedefs import Handler

    from elbowroom.config import PageSettings

Json = dict[str, Any]
Parts = dict[str, bytes]
_FILES: Final = {"/": ("index.html", "text/html"), "/page.css": ("page.css", "text/css"),
                 "/page.js": ("page.js", "text/javascript")}  # fmt: skip
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_OWN_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
VIEWERS: Final = 32
LONGEST_FIND: Final = 63
_PERIOD: Final = 0.5
"""How often a picture is drawn while somebody looks."""
_SHARE: Final = 20
"""A picture is not drawn again before this many times as long as it took: a twentieth of the operator's time."""
_STILL_THERE: Final = 15.0
"""After so long without news something is sent all the same, so that a viewer who has gone is found out."""
_SLOW: Final = 10.0
"""How long a viewer may take to read what it was sent."""


class PagePortError(Exception):
    """The page's address cannot be listened on."""


class PageServer:
    """Serves it while it is used as a context manager. Without settings there is no page."""

    def __init__(self, settings: PageSettings | None, picture: Callable[[str], Json]) -> None:
        """Say where, and who draws: the parts of a picture by their names."""
        self._settings, self._studio, self._viewers = settings, _Studio(picture), 0
        app = web.Application(middlewares=[self._guarded])
        for path in _FILES:
            app.router.add_get(path, _send_file)
        app.router.add_get("/news", self._news)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    @property
    def addresses(self) -> list[Any]:
        """Return where it listens."""
        return self._runner.addresses

    async def __aenter__(self) -> Self:
        """Listen."""
        if self._settings is not None:
            where = self._settings
            await self._runner.setup()
            try:
                await web.TCPSite(self._runner, where.address, where.port).start()
            except OSError as error:
                raise PagePortError(f"page: {where.address}:{where.port} cannot be listened on: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        await self._runner.cleanup()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        names = (*_OWN_NAMES, *(self._settings.hosts if self._settings is not None else ()))
        asked = request.host.lower()
        if asked not in names and _without_port(asked) not in names:
            text = f"This page is not known as {asked[:100]}. If it shall be, add that to page.hosts.\n"
            return web.Response(status=403, text=text, headers=_HEADERS)
        return await handler(request)

    async def _news(self, request: web.Request) -> web.StreamResponse:
        find = request.query.get("find", "")
        if len(find) > LONGEST_FIND:
            return web.Response(status=400, text=f"find: has more than {LONGEST_FIND} characters\n", headers=_HEADERS)
        if self._viewers >= VIEWERS:
            text = f"{VIEWERS} others look at this page already: try again when one of them has gone.\n"
            return web.Response(status=503, text=text, headers=_HEADERS)
        self._viewers += 1
        try:
            return await self._tell(request, find)
        finally:
            self._viewers -= 1

    async def _tell(self, request: web.Request, find: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        seen: Parts = {}
        said = time.monotonic()
        while True:
            parts = await self._studio.newest(find)
            news = _changed(seen, parts)
            if news or time.monotonic() - said > _STILL_THERE:
                said, seen = time.monotonic(), parts
                try:
                    async with asyncio.timeout(_SLOW):
                        await response.write(_event(news))
                except (ConnectionError, TimeoutError):
                    return response
            await asyncio.sleep(_PERIOD)


class _Studio:
    """Draws, once for all who look for the same, and not all the time."""

    def __init__(self, picture: Callable[[str], Json]) -> None:
        self._picture = picture
        self._drawn: dict[str, tuple[float, Parts]] = {}
        self._rests_until = 0.0

    async def newest(self, find: str) -> Parts:
        """Return a picture that is as new as it has to be."""
        while True:
            now = time.monotonic()
            at, parts = self._drawn.get(find, (-_PERIOD, {}))
            if now - at < _PERIOD:
                return parts
            if now >= self._rests_until:
                return self._draw(find, now)
            await asyncio.sleep(self._rests_until - now)

    def _draw(self, find: str, now: float) -> Parts:
        parts = {name: msgspec.json.encode(part) for name, part in self._picture(find).items()}
        done = time.monotonic()
        self._rests_until = done + _SHARE * (done - now)
        # Nobody looks for what nobody has asked for lately.
        self._drawn = {key: value for key, value in self._drawn.items() if done - value[0] < _STILL_THERE}
        self._drawn[find] = (done, parts)
        return parts


def _changed(seen: Mapping[str, bytes], parts: Parts) -> Parts:
    return {name: part for name, part in parts.items() if seen.get(name) != part}


def _event(parts: Parts) -> bytes:
    """Write parts as one event; a comment where there are none."""
    if not parts:
        return b":\n\n"
    return b"data: {" + b",".join(msgspec.json.encode(name) + b":" + part for name, part in parts.items()) + b"}\n\n"


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host


async def _send_file(request: web.Request) -> web.Response:
    name, kind = _FILES[request.path]
    text = resources.files(__package__).joinpath("static", name).read_text("utf-8")
    return web.Response(text=text, content_type=kind, charset="utf-8", headers=_HEADERS)
