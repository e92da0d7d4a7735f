"""What the kubelet asks: whether this process can be counted on, and whether it has to be started anew.

Ready is who could do its work now: a standby that sees the Lease, or a leader that is sure of it and hears of the
cluster. Alive is everybody whom a restart would not help.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from elbowroom.leader import Leader

_log = logging.getLogger(__name__)
LEASE_SECONDS: Final = 15.0
"""How old a standby's last look at the Lease may be."""
FRESH_SECONDS: Final = 90.0
"""How long a watch may be silent: one that has nothing to tell says so about every minute."""
DEAD_SECONDS: Final = 300.0
"""After how long of silence a restart is worth trying: the watch itself has been begun anew twice by then."""


class HealthPortError(Exception):
    """The port for the kubelet's questions cannot be listened on."""


def why_not_ready(leader: Leader, heard: dict[str, float], now: float, *, knows: bool) -> str:
    """Say why an operator cannot be counted on; nothing where it can."""
    if not leader.leads:
        silence = now - leader.heard_at
        return f"it stands by, and has not seen the lease for {silence:.0f} s" if silence > LEASE_SECONDS else ""
    if not leader.sure:
        return "it led, and could not renew the lease: somebody else may lead"
    if not knows:
        return "it leads, and reads nodes and pods"
    return _silent(heard, now, FRESH_SECONDS)


def why_dead(leader: Leader, heard: dict[str, float], now: float, *, knows: bool) -> str:
    """Say why an operator has to be started anew; nothing where that would not help."""
    return _silent(heard, now, DEAD_SECONDS) if leader.leads and knows else ""


def _silent(heard: dict[str, float], now: float, longest: float) -> str:
    for what, moment in heard.items():
        if now - moment > longest:
            return f"it leads, and has heard nothing of {what} for {now - moment:.0f} s"
    return ""


class HealthServer:
    """Answers /healthz and /readyz on a port. Use it as a context manager; port 0 is no port."""

    def __init__(self, port: int, dead: Callable[[], str], unready: Callable[[], str]) -> None:
        """Say where, and who knows."""
        self._port = port
        app = web.Application()
        app.router.add_get("/healthz", _answer(dead))
        app.router.add_get("/readyz", _answer(unready))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        """Listen."""
        if self._port:
            await self._runner.setup()
            try:
                await web.TCPSite(self._runner, None, self._port).start()
            except OSError as error:
                raise HealthPortError(f"--health-port: {self._port} cannot be listened on: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        await self._runner.cleanup()


def _answer(why_not: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        told = why_not()
        return web.Response(status=503 if told else 200, text=f"{told or 'ok'}\n")

    return answer
