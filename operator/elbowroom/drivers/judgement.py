"""From what two runners say to where the guest is. Pure.

The source is believed about what it has let go of, the receiver about what runs there; nobody is believed about the
other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elbowroom.core.world import TransferState
from elbowroom.runner.messages import GuestState, IncidentKind, TransferPhase

from .interface import Transfer

if TYPE_CHECKING:
    from elbowroom.runner.messages import Outgoing, Status

_DAMAGE = (IncidentKind.RESET, IncidentKind.PANIC, IncidentKind.SHUTDOWN, IncidentKind.DEATH)
_UNDER_WAY = {
    TransferPhase.STARTING: TransferState.COPYING,
    TransferPhase.COPYING: TransferState.COPYING,
    TransferPhase.BRINK: TransferState.AT_BRINK,
    TransferPhase.COMMITTED: TransferState.COMMITTED,
    TransferPhase.SWITCHING: TransferState.SWITCHING,
    TransferPhase.CANCELLED: TransferState.CANCELLED,
    TransferPhase.FAILED: TransferState.FAILED,
}


def judge(source: Status | None, receiver: Status | None, attempt: int) -> Transfer:
    """Tell where a move is; nothing stands for a side that does not answer."""
    incoming = receiver.incoming if receiver is not None else None
    if receiver is not None and incoming is not None and incoming.released and incoming.attempt == attempt:
        return _at_receiver(source, receiver, attempt)
    if source is None:
        return _source_silent(receiver, attempt)
    if source.outgoing is None or source.outgoing.attempt != attempt:
        return _unknown_to_source(source, attempt)
    return _at_source(source, source.outgoing, receiver)


def _source_silent(receiver: Status | None, attempt: int) -> Transfer:
    incoming = receiver.incoming if receiver is not None else None
    if receiver is None or incoming is None or incoming.attempt != attempt:
        return Transfer(attempt, TransferState.UNKNOWN, "neither side answers who would know")
    if receiver.state is GuestState.ARRIVED:
        message = "the receiver has all of the guest, and the source does not answer"
        return Transfer(attempt, TransferState.COMPLETE, message, revision=receiver.revision)
    message = f"the source does not answer, and the receiver has not got all of the guest ({receiver.state})"
    return Transfer(attempt, TransferState.INCOMPLETE, message, revision=receiver.revision)


def _at_source(source: Status, outgoing: Outgoing, receiver: Status | None) -> Transfer:
    if outgoing.phase in (TransferPhase.COMPLETED, TransferPhase.RELEASED):
        return _on_its_way(source, outgoing, receiver)
    if source.state in (GuestState.ENDED, GuestState.PANICKED):
        return _told(source, outgoing, TransferState.LOST, _last_damage(source, None) or f"the guest is {source.state}")
    if outgoing.phase in (TransferPhase.FAILED, TransferPhase.CANCELLED) and source.state is GuestState.PAUSED:
        return _told(source, outgoing, TransferState.UNKNOWN, f"the guest is not resumed yet: {outgoing.message}")
    return _told(source, outgoing, _UNDER_WAY[outgoing.phase], outgoing.message)


def _unknown_to_source(source: Status, attempt: int) -> Transfer:
    if source.last_attempt >= attempt:
        return Transfer(
            attempt, TransferState.CANCELLED, "it was cancelled, or a newer one has begun", revision=source.revision
        )
    return Transfer(attempt, TransferState.NOT_STARTED, revision=source.revision)


def _on_its_way(source: Status, outgoing: Outgoing, receiver: Status | None) -> Transfer:
    if receiver is None:
        state, message = TransferState.LEFT, "the guest has left the source, and the receiver does not answer"
    elif receiver.state is GuestState.ENDED:
        state, message = TransferState.LOST, "the guest has left the source, and the receiver's QEMU has ended"
    else:
        state, message = (
            TransferState.ARRIVED,
            "the guest has left the source, and the receiver was not told to run it yet",
        )
    return _told(source, outgoing, state, message)


def _at_receiver(source: Status | None, receiver: Status, attempt: int) -> Transfer:
    damage = _last_damage(receiver, attempt)
    incoming = receiver.incoming
    if receiver.state in (GuestState.ENDED, GuestState.PANICKED) or damage:
        state, message = TransferState.DAMAGED, damage or f"the guest is {receiver.state} in the receiver"
    elif incoming is not None and not incoming.complete:
        state, message = TransferState.SWITCHING, "the guest runs in the receiver, and its memory is still on its way"
    elif receiver.state is GuestState.PAUSED:
        state, message = TransferState.ARRIVED, "the receiver was told to run the guest, and does not yet"
    else:
        state, message = TransferState.SUCCEEDED, "the guest runs in the receiver"
    outgoing = source.outgoing if source is not None else None
    if source is None or outgoing is None or outgoing.attempt != attempt:
        return Transfer(attempt, state, message, committed=True, percent=100.0, revision=receiver.revision)
    return _told(source, outgoing, state, message)


def _last_damage(status: Status, attempt: int | None) -> str:
    found = [item for item in status.incidents if item.kind in _DAMAGE and (attempt is None or item.attempt == attempt)]
    return found[-1].message if found else ""


def _told(source: Status, outgoing: Outgoing, state: TransferState, message: str) -> Transfer:
    progress = outgoing.progress
    return Transfer(
        outgoing.attempt, state, message, committed=outgoing.committed, percent=progress.percent,
        transferred_bytes=progress.transferred_bytes, remaining_bytes=progress.remaining_bytes,
        bytes_per_second=progress.bytes_per_second, converging=progress.converging, downtime_ms=outgoing.downtime_ms,
        stopped_ms=outgoing.stopped_ms, revision=source.revision,
    )  # fmt: skip
