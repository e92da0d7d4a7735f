"""Following a request or a migration to its end: a bar in a terminal, a line for each change in a pipe."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from elbowroom.api.migration import MigrationStatus
from elbowroom.api.scale_request import ScaleRequestStatus
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.core.world import MigrationPhase, RequestPhase
from elbowroom.telling.words import span

from .reading import AskedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from rich.console import Console

Json = dict[str, Any]
_PERIOD: Final = 0.3
_STEPS: Final = 8
"""The conditions of a request; a migration has four."""
_STEPS_OF_A_MOVE: Final = 4
_LONGER: Final = 900.0
"""How much longer than its own time something is followed: what is committed is brought to its end."""


class Follower:
    """Reads again and again, and shows what has changed."""

    def __init__(self, out: Console, what: str, read: Callable[[], Awaitable[Json]], within: float) -> None:
        """Take where to show it, what it is called, how to read it, and how many seconds it may take itself."""
        self._out, self._what, self._read, self._began = out, what, read, time.monotonic()
        self._until = self._began + within + _LONGER

    async def run(self) -> Json:
        """Follow it to its end, and return it as it is then."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._out, disable=not self._out.is_terminal) as progress:
            task = progress.add_task(self._what, total=1.0)
            said, body = "", await self._read()
            while True:
                phase, reason, moving, share = _where(body)
                line = f"{phase:<12}  {reason:<18}  {moving}".rstrip()
                progress.update(task, description=f"{self._what}  {line}", completed=share)
                if line != said and not self._out.is_terminal:
                    self._out.print(f"{span(time.monotonic() - self._began):>8}  {line}")
                said = line
                if _phase(body).final:
                    return body
                body = await self._later()

    async def _later(self) -> Json:
        if time.monotonic() > self._until:
            raise AskedError(
                f"{self._what} has not ended in its time: kubectl elbowroom explain says what it waits for"
            )
        await asyncio.sleep(_PERIOD)
        return await self._read()


def _phase(body: Json) -> RequestPhase | MigrationPhase:
    kind = RequestPhase if body["kind"] == "VMScaleRequest" else MigrationPhase
    return kind(body.get("status", {}).get("phase", kind.PENDING))


def _where(body: Json) -> tuple[str, str, str, float]:
    """Return phase, reason, what is moving, and how far all of it is, from 0 to 1."""
    status: ScaleRequestStatus | MigrationStatus
    if body["kind"] == "VMScaleRequest":
        status = ScaleRequestStatus.model_validate(body.get("status", {}))
        percents = [*_percents(status.moving)]
        copied = sum(percents) / len(percents) / 100 if percents else 0.0
        moving, steps = status.moving, _STEPS
    else:
        status = MigrationStatus.model_validate(body.get("status", {}))
        copied = status.percent / 100 if status.phase is MigrationPhase.TRANSFERRING else 0.0
        moving, steps = f"{status.percent}%" if status.percent else "", _STEPS_OF_A_MOVE
    done = sum(item.status == "True" for item in status.conditions[:steps])
    share = 1.0 if status.phase.final else min(1.0, (done + copied) / steps)
    return str(status.phase), status.reason, moving, share


def _percents(moving: str) -> Iterator[int]:
    for part in moving.split(", "):
        percent = part.rpartition(" ")[2].removesuffix("%")
        if percent.isdecimal():
            yield int(percent)


def outcome(body: Json) -> str:
    """Say how something ended."""
    status = body.get("status", {})
    try:
        meaning = MEANING[Reason(status.get("reason", ""))]
    except ValueError:
        meaning = ""
    return f"{status.get('phase')}: {meaning}" + (f" ({status['message']})" if status.get("message") else "")
