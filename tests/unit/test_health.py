"""Who can be counted on, and whom a restart would help."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

import pytest
from aiohttp import ClientSession
from elbowroom.health import HealthPortError, HealthServer, why_dead, why_not_ready
from elbowroom.leader import Leader

if TYPE_CHECKING:
    from elbowroom.cluster.client import Api


def leader(*, leads: bool, renewed: float = 0.0, heard: float = 0.0) -> Leader:
    """Describe one that has last renewed its lease, or seen another's, so many seconds ago."""
    found = Leader(cast("Api", None), "space", "me")
    found.leads, found.heard_at = leads, time.monotonic() - heard
    found._renewed = time.monotonic() - renewed  # noqa: SLF001
    return found


def told(one: Leader, *, knows: bool = True, **silence: float) -> tuple[str, str]:
    """Return why it is not ready and why it is dead, with watches that have been silent for so long."""
    now = time.monotonic()
    heard = {name: now - seconds for name, seconds in silence.items()}
    return why_not_ready(one, heard, now, knows=knows), why_dead(one, heard, now, knows=knows)


def test_a_standby_is_ready_while_it_sees_the_lease() -> None:
    assert told(leader(leads=False, heard=14)) == ("", "")
    assert told(leader(leads=False, heard=16)) == ("it stands by, and has not seen the lease for 16 s", "")


def test_a_leader_is_ready_once_it_knows_everything_and_while_it_is_sure() -> None:
    assert told(leader(leads=True, renewed=2), nodes=5) == ("", "")
    assert told(leader(leads=True, renewed=2), knows=False) == ("it leads, and reads nodes and pods", "")
    unclear = "it led, and could not renew the lease: somebody else may lead"
    assert told(leader(leads=True, renewed=8), nodes=5) == (unclear, "")


def test_a_leader_that_hears_nothing_is_not_ready_and_later_dead() -> None:
    assert told(leader(leads=True), nodes=5, pods=89) == ("", "")
    stale = "it leads, and has heard nothing of pods for 91 s"
    assert told(leader(leads=True), nodes=5, pods=91) == (stale, "")
    dead = "it leads, and has heard nothing of pods for 301 s"
    assert told(leader(leads=True), nodes=5, pods=301) == (dead, dead)


def test_the_kubelet_is_answered_over_http() -> None:
    reasons = {"dead": "", "unready": "it thinks"}

    async def ask() -> list[tuple[int, str]]:
        async with (
            HealthServer(18_081, lambda: reasons["dead"], lambda: reasons["unready"]),
            ClientSession() as session,
        ):
            found = []
            for path in ("healthz", "readyz"):
                async with session.get(f"http://127.0.0.1:18081/{path}") as answer:
                    found.append((answer.status, await answer.text()))
            with pytest.raises(HealthPortError, match="--health-port: 18081 cannot be listened on"):
                async with HealthServer(18_081, str, str):
                    pass
            return found

    assert asyncio.run(ask()) == [(200, "ok\n"), (503, "it thinks\n")]


def test_without_a_port_nobody_is_answered() -> None:
    async def nothing() -> None:
        async with HealthServer(0, str, str):
            pass

    asyncio.run(nothing())
