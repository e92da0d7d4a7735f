"""A move as its agent steers it, where timing decides: against a scripted stand-in for QEMU's monitor.

Everything else about moves is tested with real guests. What is here are moments that last microseconds in reality.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, cast

import pytest
from elbowroom.runner.messages import Destination, GuestState, Limits, TransferPhase
from elbowroom.runner.monitor import LostError, Monitor
from elbowroom.runner.outgoing import Transfer
from elbowroom.runner.record import OutgoingRecord
from elbowroom.runner.tls import Identity
from elbowroom.traces import Silent

if TYPE_CHECKING:
    from elbowroom.runner.peer import Peer

RAM = {"total": 100, "remaining": 0, "transferred": 100, "mbps": 1.0, "dirty-sync-count": 2}


class ScriptedMonitor:
    """Answers query-migrate from a list, the last answer for ever; notes what it was told."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self._answers = list(answers)
        self.told: list[str] = []

    async def run(self, command: str, arguments: dict[str, Any] | None = None) -> Any:
        self.told.append(command)
        return [] if command == "query-named-block-nodes" else arguments

    async def ask(self, command: str) -> dict[str, Any]:
        assert command == "query-migrate"
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class ScriptedPeer:
    """A receiver that does what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def credentials(self) -> str:
        return "/nowhere"

    async def release(self, _to: Destination, attempt: int, *, within: float) -> bool:
        assert within > 0
        self.told.append(f"release {attempt}")
        return True

    async def quit(self, _to: Destination, attempt: int) -> None:
        self.told.append(f"quit {attempt}")

    async def warm_up(self, _to: Destination) -> None:
        return


def transfer(monitor: ScriptedMonitor, peer: ScriptedPeer, **record: Any) -> Transfer:
    noted = OutgoingRecord(
        attempt=4, to=Destination(host="10.0.0.1"), limits=Limits(**record.pop("limits", {})), started_at=time.monotonic(), **record
    )  # fmt: skip
    return Transfer(cast("Monitor", monitor), noted, cast("Peer", peer), Identity("shop", "db"), lambda: None, Silent())


def run(move: Transfer, *, resumed: bool = True) -> None:
    async def to_its_end() -> None:
        async with asyncio.timeout(10):
            await move.run(resumed=resumed)
        await asyncio.sleep(0)  # what was called besides

    asyncio.run(to_its_end())


def test_the_completed_of_an_earlier_arrival_is_not_taken_for_this_moves() -> None:
    """An agent died after it had written its record and before QEMU began. A QEMU that once received says `completed`."""
    peer = ScriptedPeer()
    move = transfer(ScriptedMonitor({"status": "completed"}), peer)
    run(move)
    assert move.phase is TransferPhase.FAILED
    assert move.guest_state is None
    assert peer.told == ["quit 4"]


def test_a_move_that_qemu_never_began_has_failed() -> None:
    move = transfer(ScriptedMonitor({}), ScriptedPeer())
    run(move)
    assert move.phase is TransferPhase.FAILED


def test_a_completed_move_is_told_to_the_receiver_and_nothing_takes_that_back() -> None:
    """Also when QEMU ends before it has told its figures."""
    peer = ScriptedPeer()
    completed = {"status": "completed", "ram": RAM}
    move = transfer(ScriptedMonitor(completed, LostError("gone")), peer, committed_at=time.monotonic())
    with pytest.raises(LostError):
        run(move)
    assert move.phase is TransferPhase.RELEASED
    assert move.guest_state is GuestState.MOVED
    assert peer.told == ["release 4"]


def test_nothing_is_said_about_a_move_that_qemu_cannot_be_asked_about() -> None:
    peer = ScriptedPeer()
    move = transfer(ScriptedMonitor(LostError("no answer within 20 s")), peer, committed_at=time.monotonic())
    with pytest.raises(LostError):
        run(move)
    assert not move.phase.over
    assert peer.told == []


def test_an_agent_that_finds_the_guest_paused_after_the_commit_goes_on() -> None:
    monitor = ScriptedMonitor(
        {"status": "pre-switchover", "ram": RAM}, {"status": "completed", "ram": RAM, "downtime": 5, "total-time": 9}
    )
    move = transfer(monitor, ScriptedPeer(), committed_at=time.monotonic())
    run(move)
    assert "migrate-continue" in monitor.told
    assert move.phase is TransferPhase.RELEASED
    assert (move.record.downtime_ms, move.record.total_ms) == (5, 9)


def test_an_agent_that_finds_the_guest_paused_without_a_commit_resumes_it() -> None:
    monitor = ScriptedMonitor(*[{"status": "pre-switchover", "ram": RAM}] * 3, {"status": "cancelled"})
    peer = ScriptedPeer()
    move = transfer(monitor, peer, limits={"hold_ms": 50})
    run(move)
    assert "migrate_cancel" in monitor.told
    assert "migrate-continue" not in monitor.told
    assert move.phase is TransferPhase.FAILED
    assert "nobody committed the move" in move.record.message
    assert peer.told == ["quit 4"]
