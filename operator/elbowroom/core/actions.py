"""What can be done, as values. Each may be carried out twice, late or never: its precondition makes that harmless.

`version` is the resourceVersion of what was looked at; a write on anything newer is refused. `uid` is the object that
was meant, and none that has its name later. Creations have derived names: the second one finds the first.

These are no tuples: a commit and a cancel of the same thing would be equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .room import Room
    from .world import GuestSize, Hold, MigrationStatus, Planned, RequestStatus


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Record where a request is."""

    uid: str
    version: str
    status: RequestStatus


@dataclass(frozen=True, slots=True)
class WriteMigration:
    """Record where a migration is. For the commit, and for the cancel, this is the write that decides."""

    uid: str
    version: str
    status: MigrationStatus


@dataclass(frozen=True, slots=True)
class CreateHold:
    """Ask the scheduler to keep room."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class RenewHold:
    """Keep it for longer."""

    claimant: str
    version: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class CommitHold:
    """Have it outlive everything but its request: from here on room may become free for it."""

    claimant: str
    version: str


@dataclass(frozen=True, slots=True)
class DeleteHold:
    """Give the room back."""

    claimant: str
    version: str


@dataclass(frozen=True, slots=True)
class TaintNode:
    """Keep the pods of other schedulers away from a node on which room is held."""

    node: str


@dataclass(frozen=True, slots=True)
class UntaintNode:
    """Let them come again, if the API server itself says that nobody holds anything there."""

    node: str


@dataclass(frozen=True, slots=True)
class CreateMigration:
    """Have a neighbour moved."""

    request: str
    neighbour: Planned


@dataclass(frozen=True, slots=True)
class CreateReceiver:
    """Make the pod that takes the guest: owned by its migration, never on the source's node."""

    migration: str
    source: str
    name: str
    attempt: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class DetachReceiver:
    """Take the migration's name off the receiver: from the commit on it is the VM, and not collected with anything."""

    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Remove a pod gracefully, and only this one; with a version, only as it was when it was looked at."""

    uid: str
    version: str = ""


@dataclass(frozen=True, slots=True)
class StartTransfer:
    """Prepare the receiver and begin to send."""

    migration: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CommitTransfer:
    """Let the guest switch over. Follows the write that decided it."""

    migration: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CancelTransfer:
    """Stop sending; the guest stays. Follows the write that decided it."""

    migration: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ReleaseTransfer:
    """Have the receiver run the guest that its source has let go."""

    migration: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CheckResize:
    """Try a resize without doing it: quota, limits and admission rules have their say before anybody moves."""

    request: str
    uid: str
    container: str
    wanted: Room


@dataclass(frozen=True, slots=True)
class ResizePod:
    """Give a container another size."""

    uid: str
    version: str
    container: str
    wanted: Room


@dataclass(frozen=True, slots=True)
class FencePod:
    """Write a word on a pod, so that a resize which was decided before it and comes late is refused."""

    uid: str
    version: str
    fence: str


@dataclass(frozen=True, slots=True)
class ResizeGuest:
    """Ask the guest for another size. Its runner refuses what was ordered before something that it has done already."""

    uid: str
    size: GuestSize
    order: int


@dataclass(frozen=True, slots=True)
class LookForPod:
    """Ask the API server itself whether a pod is gone: that it is missing in a cache proves nothing."""

    migration: str
    uid: str


@dataclass(frozen=True, slots=True)
class Forget:
    """Let an object of ours go: take our finalizer off one that is being deleted, delete one whose time is over."""

    uid: str
    version: str


Action = (
    WriteRequest | WriteMigration | CreateHold | RenewHold | CommitHold | DeleteHold | TaintNode | UntaintNode
    | CreateMigration | CreateReceiver | DetachReceiver | DeletePod | StartTransfer | CommitTransfer | CancelTransfer
    | ReleaseTransfer | CheckResize | ResizePod | FencePod | ResizeGuest | LookForPod | Forget
)  # fmt: skip
Actions = tuple[Action, ...]
