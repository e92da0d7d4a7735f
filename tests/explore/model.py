"""The state of a small world. Sizes are whole numbers of one resource; everything is a value and can be hashed."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from elbowroom.core.actions import Action
    from elbowroom.core.world import Hold, Migration, Request


UNIT = 1000
"""Sizes are whole numbers of cores; the core counts thousandths."""


class Phase(IntEnum):
    """A pod's phase at the API."""

    PENDING = 0
    RUNNING = 1
    ENDED = 2


class Seen(IntEnum):
    """What the kubelet says to the size in a pod's spec."""

    DONE = 0
    UNSEEN = 1
    DEFERRED = 2
    IN_PROGRESS = 3
    """Given, and not actual yet."""


class Pod(NamedTuple):
    """A pod: the API's object, and the process that the kubelet runs for it."""

    uid: str
    node: str = ""
    spec: int = 0
    allocated: int = 0
    seen: Seen = Seen.DONE
    since: int = 0
    """The order in which resizes became Deferred."""
    phase: Phase = Phase.RUNNING
    terminating: bool = False
    process: bool = True
    vm: str = ""
    movable: bool = True
    owner: str = ""
    attempt: int = 0
    priority: int = 0
    fence: str = ""
    tampered: bool = False
    """Somebody has bound it past the scheduler, or resized it: what becomes of it on a full node is their doing."""
    rejected: bool = False
    """The kubelet had no room for it when it came: OutOfcpu."""
    kept: bool = False
    """A controller makes another one when it is gone."""
    restarts: bool = False
    """Its kubelet starts its container again when that has ended: the guest boots anew."""

    @property
    def name(self) -> str:
        """Return its name. A second pod of that name has another UID."""
        return self.uid.rstrip("'")

    @property
    def counted(self) -> int:
        """What the scheduler counts."""
        return 0 if self.phase is Phase.ENDED else max(self.spec, self.allocated)


class Move(IntEnum):
    """Where a guest's transfer really is."""

    COPYING = 0
    BRINK = 1
    COMMITTED = 2
    """QEMU stops the guest and sends the rest by itself."""
    COMPLETE = 3
    """All of it is in the receiver; the source may yet fail and take its guest back."""
    ARRIVED = 4
    """The source has let go for ever."""
    DONE = 5
    CANCELLED = 6
    FAILED = 7
    LOST = 8


class Transfer(NamedTuple):
    """One attempt, as both QEMUs know it."""

    source: str
    receiver: str
    attempt: int
    move: Move = Move.COPYING


class Scheduler(NamedTuple):
    """What the leading scheduler has in memory."""

    loaded: bool = True
    assumed: tuple[tuple[str, str], ...] = ()
    """Pods that it has given a node, and that are not bound yet."""
    ledger: tuple[Hold, ...] = ()
    """The holds that it has heard of."""
    behind: tuple[tuple[str, str, int], ...] | None = None
    """Pods, their nodes and sizes as it still sees them, where its watch of pods has fallen behind."""
    flight: tuple[tuple[str, str], ...] = ()
    """Bindings that its predecessor has sent, and that may yet arrive."""
    nominated: tuple[tuple[str, str, str], ...] = ()
    """Preemptors, the nodes that they are to have, and their victims, which are removed a while later."""


class Held(NamedTuple):
    """A promise of the scheduler's, as it was given."""

    claimant: str
    node: str
    target: int
    payers: tuple[str, ...]


class State(NamedTuple):
    """All of it."""

    pods: tuple[Pod, ...]
    holds: tuple[Hold, ...] = ()
    requests: tuple[Request, ...] = ()
    migrations: tuple[Migration, ...] = ()
    transfers: tuple[Transfer, ...] = ()
    scheduler: Scheduler = Scheduler()
    guests: tuple[tuple[str, int, int], ...] = ()
    """The size that a claimant's guest has, and the last order for it."""
    dead: tuple[str, ...] = ()
    """Nodes that have died."""
    now: int = 0
    faults: int = 0
    """How many more may happen."""
    late: tuple[Action, ...] = ()
    """What an operator has decided a while ago and may yet do, once or many times."""
    view: tuple[str, tuple[Any, ...]] | None = None
    """One kind of object as an operator still sees it, whose watch of that kind has fallen behind."""
    cut: tuple[str, ...] = ()
    """Pods whose runners no operator can reach."""
    stale: tuple[str, ...] = ()
    """Claimants whose holds have changed since the scheduler has spoken of them."""
    quota: bool = True
    """The API server would take the claimant's resize."""
    freed: tuple[tuple[str, int], ...] = ()
    """For the invariants: room that a request's own moves have freed and its claimant has not got yet."""
    held: tuple[Held, ...] = ()
    """For the invariants: what was promised, and whose claimants have not grown yet."""
    vms: tuple[str, ...] = ()
    """For the invariants: all VMs."""
    killed: tuple[str, ...] = ()
    """For the invariants: VMs one of whose pods or nodes was killed or deleted by somebody else."""
    broken: str = ""
    """For the invariants: something that must never happen has happened in the step that led here."""


class Setup(NamedTuple):
    """What does not change in a world."""

    nodes: tuple[tuple[str, int], ...]
    guard: bool = True
    """The admission guard is there: nothing is added to a node with a hold behind the scheduler's back."""
    elsewhere: bool = True
    """The scheduler keeps receivers off their neighbour's node. Only a mutant does not."""
    serialised: bool = True
    """The scheduler counts what it has promised to others. Only a mutant does not."""
    permanent: bool = True
    """The scheduler lets no committed hold expire. Only a mutant does."""
    patient: bool = True
    """A new scheduler waits until its predecessor's bindings have arrived. Only a mutant does not."""
    settles: bool = True
    """The scheduler promises nothing while it is placing others there. Only a mutant does."""
    foreign: bool = False
    """Somebody else resizes VM pods, too, as a vertical autoscaler does."""
    heals: bool = True
    """Whoever was cut off is reached again, some time."""
    clears: bool = True
    """Pods of a dead node are cleared away, some time."""
    views: bool = False
    """Watches of single kinds fall behind."""
    comes: tuple[Request, ...] = ()
    """Requests that somebody may yet make."""
    tries: int = 1
    """How many plans a request makes."""
    end: int = 2
    """Time stops here; everything has to have ended by then."""


def forget(state: State, claimant: str) -> State:
    """Drop what was promised to somebody, and freed for it: it has grown, is gone, or does not want it any more."""
    return state._replace(
        held=tuple(item for item in state.held if item.claimant != claimant),
        freed=tuple(item for item in state.freed if item[0] != claimant),
    )


def find(pods: tuple[Pod, ...], uid: str) -> Pod | None:
    """Return a pod."""
    for pod in pods:
        if pod.uid == uid:
            return pod
    return None


def put(pods: tuple[Pod, ...], new: Pod) -> tuple[Pod, ...]:
    """Replace or add a pod."""
    return tuple(sorted((*(pod for pod in pods if pod.uid != new.uid), new)))


def drop(pods: tuple[Pod, ...], uid: str) -> tuple[Pod, ...]:
    """Remove a pod."""
    return tuple(pod for pod in pods if pod.uid != uid)
