"""QMP: commands with an end, and events in the order in which QEMU sends them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from qemu.qmp import ConnectError, EventListener, ExecInterruptedError, ExecuteError, QMPClient, Runstate, StateError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

OLDEST = 9
_COMMAND_SECONDS = 20.0
_CONNECT_SECONDS = 20.0
# qemu.qmp reports each lost connection with a traceback; what it means is said by those who wait for an answer.
logging.getLogger("qemu.qmp").setLevel(logging.CRITICAL)


class MonitorError(Exception):
    """QEMU has refused a command, or cannot be asked any more."""


class LostError(MonitorError):
    """QEMU cannot be asked any more, or not now: whether it has done what it was told is not known."""


class TooOldError(MonitorError):
    """QEMU is of a version that is not to be trusted with a migration."""


class Monitor:
    """One connection to QEMU."""

    def __init__(self, client: QMPClient, listener: EventListener) -> None:
        """Take over a connection."""
        self._client = client
        self._listener = listener
        self.version = ""

    @classmethod
    async def connect(cls, path: Path, *, alive: Callable[[], bool]) -> Monitor:
        """Connect as soon as QEMU has made its socket."""
        client = QMPClient("runner")
        listener = EventListener()
        client.register_listener(listener)
        end = asyncio.get_running_loop().time() + _CONNECT_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(end):
                    await client.connect(str(path))
                break
            except (ConnectError, OSError) as error:  # a time-out is an OSError, too
                # QEMU says nothing when its socket is there; it takes some 50 ms.
                if not alive() or asyncio.get_running_loop().time() >= end:
                    raise LostError(f"QEMU does not answer at its monitor: {error}") from error
                await asyncio.sleep(0.01)
        monitor = cls(client, listener)
        await monitor._check_version()
        return monitor

    async def _check_version(self) -> None:
        version = (await self.ask("query-version"))["qemu"]
        self.version = f"{version['major']}.{version['minor']}.{version['micro']}"
        if version["major"] < OLDEST:
            raise TooOldError(
                f"QEMU {self.version} is too old: older than {OLDEST} it corrupts busy guests while it migrates them"
            )

    async def run(self, command: str, arguments: dict[str, Any] | None = None) -> Any:  # noqa: ANN401  # QMP's answers are JSON
        """Have QEMU do something, and return its answer."""
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                return await self._client.execute(command, arguments)
        except ExecuteError as error:
            raise MonitorError(f"{command}: {error}") from error
        except TimeoutError as error:
            raise LostError(f"{command}: QEMU did not answer within {_COMMAND_SECONDS:g} s") from error
        except (ExecInterruptedError, StateError, OSError, EOFError) as error:
            raise LostError(f"{command}: the connection to QEMU is lost") from error

    async def ask(self, command: str, arguments: dict[str, Any] | None = None) -> dict[str, Any]:
        """Do the same where the answer is an object."""
        answer = await self.run(command, arguments)
        assert isinstance(answer, dict)  # noqa: S101
        return answer

    async def human(self, line: str) -> str:
        """Ask for what only the monitor for people tells."""
        return str(await self.run("human-monitor-command", {"command-line": line}))

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Return events until the connection ends."""
        closed = asyncio.create_task(self._closed())
        try:
            while True:
                event = asyncio.create_task(self._listener.get())
                await asyncio.wait((event, closed), return_when=asyncio.FIRST_COMPLETED)
                if not event.done():
                    event.cancel()
                    return
                yield dict(event.result())
        finally:
            closed.cancel()

    async def _closed(self) -> None:
        while self._client.runstate is Runstate.RUNNING:
            await self._client.runstate_changed()

    async def close(self) -> None:
        """Let go of the connection; QEMU runs on."""
        try:
            await self._client.disconnect()
        except (EOFError, OSError, StateError):
            return
