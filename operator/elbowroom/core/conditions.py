"""What users wait for: a request's and a migration's phase, told as conditions. Derived each time, never stored apart.

A condition is true once its step is done, or is not part of what is needed. The step that it is at says why it is not
done yet, those that follow wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from .reasons import Reason
from .world import MigrationPhase, RequestPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .world import Migration, MigrationStatus, RequestStatus


class Condition(NamedTuple):
    """One statement."""

    type: str
    true: bool
    reason: Reason
    message: str = ""


ACCEPTED: Final = "Accepted"
PLANNED: Final = "Planned"
ROOM_HELD: Final = "RoomHeld"
RECEIVERS_BOUND: Final = "ReceiversBound"
STATE_TRANSFERRED: Final = "StateTransferred"
POD_RESIZED: Final = "PodResized"
VM_RESIZED: Final = "VMResized"
READY: Final = "Ready"
OF_REQUESTS: Final = (
    ACCEPTED, PLANNED, ROOM_HELD, RECEIVERS_BOUND, STATE_TRANSFERRED, POD_RESIZED, VM_RESIZED, READY,
)  # fmt: skip
GUARDED: Final = "Guarded"
"""No step of a request: whether its room is guarded at the API server, where a guard is used."""
RECEIVER_BOUND: Final = "ReceiverBound"
SOURCE_REMOVED: Final = "SourceRemoved"
OF_MIGRATIONS: Final = (RECEIVER_BOUND, STATE_TRANSFERRED, SOURCE_REMOVED, READY)

NOT_ACCEPTED: Final = (
    Reason.VM_NOT_FOUND, Reason.AMBIGUOUS_VM, Reason.POD_NOT_RUNNING, Reason.GUEST_SILENT, Reason.CONTAINER_NOT_FOUND,
    Reason.LARGER_THAN_NODE, Reason.OUT_OF_RANGE, Reason.SUPERSEDED,
)  # fmt: skip
"""What only the running system can know about a request, and the API server cannot refuse."""

_DONE: Final = {
    RequestPhase.PENDING: 1, RequestPhase.SHRINKING: 5, RequestPhase.HOLDING: 2, RequestPhase.MOVING: 3,
    RequestPhase.COMMITTING: 4, RequestPhase.SWAPPING: 5, RequestPhase.GROWING: 6, RequestPhase.RELEASING: 7,
    RequestPhase.SUCCEEDED: 8,
}  # fmt: skip
"""How many conditions are true in a phase, in their order. While it is undone, and when it has failed, only one is."""
_NEIGHBOURS: Final = (RECEIVERS_BOUND, STATE_TRANSFERRED)
_MIGRATIONS_DONE: Final = {
    MigrationPhase.TRANSFERRING: 1, MigrationPhase.AT_BRINK: 1, MigrationPhase.SWITCHING_OVER: 1,
    MigrationPhase.MOVED: 2, MigrationPhase.SUCCEEDED: 4,
}  # fmt: skip


def of_request(status: RequestStatus, migrations: Sequence[Migration | None]) -> tuple[Condition, ...]:
    """Return what is true of a request; `migrations` are those of its plan."""
    why = status.reason or Reason.EARLIER_STEP
    ended = status.outcome.reason if status.outcome is not None else why
    if ended in NOT_ACCEPTED:
        return tuple(_told(OF_REQUESTS, 0, [], ended, status.message))
    if status.reason is Reason.DRY_RUN:
        return tuple(_told(OF_REQUESTS, 2, _unneeded(status), Reason.DRY_RUN, status.message, after=Reason.DRY_RUN))
    done = _DONE.get(status.phase, 1)
    if status.phase is RequestPhase.MOVING and _all_bound(migrations):
        done += 1
    if status.phase is RequestPhase.RELEASING and status.outcome is not None:
        # The guest did not grow, or its pod did not shrink.
        done, why = 6 if status.outcome.reason is Reason.GUEST_REFUSED else 5, status.outcome.reason
    return tuple(_told(OF_REQUESTS, done, _unneeded(status), why, status.message))


def of_guard(*, up: bool) -> Condition:
    """Return what a request says about the guard."""
    return Condition(GUARDED, true=up, reason=Reason.GUARDED if up else Reason.GUARD_DOWN)


def _all_bound(migrations: Sequence[Migration | None]) -> bool:
    return bool(migrations) and all(item is not None and item.status.phase in _MIGRATIONS_DONE for item in migrations)


def _unneeded(status: RequestStatus) -> list[str]:
    """Return the steps that a request does without."""
    shrinks = status.phase is RequestPhase.SHRINKING
    unneeded = [PLANNED, ROOM_HELD] if shrinks else []
    unneeded += _NEIGHBOURS if shrinks or not status.plan or status.room_appeared else []
    return unneeded if status.guest_after is not None else [*unneeded, VM_RESIZED]


def of_migration(status: MigrationStatus) -> tuple[Condition, ...]:
    """Return what is true of a migration."""
    why = status.reason or Reason.EARLIER_STEP
    return tuple(_told(OF_MIGRATIONS, _MIGRATIONS_DONE.get(status.phase, 0), [], why, status.message))


def _told(  # noqa: PLR0913, PLR0917  # the steps, how far, and what to say
    steps: Iterable[str], done: int, unneeded: Sequence[str], why: Reason, message: str,
    after: Reason = Reason.EARLIER_STEP,
) -> Iterator[Condition]:  # fmt: skip
    for number, step in enumerate(steps):
        if number < done:
            yield Condition(
                step, true=True, reason=Reason.NOT_NEEDED if step in unneeded else _TRUE.get(step, Reason.DONE)
            )
        elif number == done or step == READY:
            yield Condition(step, true=False, reason=why, message=message)
        else:
            yield Condition(step, true=False, reason=after)


_TRUE: Final = {ACCEPTED: Reason.ACCEPTED, PLANNED: Reason.PLANNED, ROOM_HELD: Reason.HELD}
