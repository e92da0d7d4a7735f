"""The world as frozen values: what was observed, and nothing that was not.

Everything in here may be old by the time it is looked at. So each action that follows from it says what it relies on
(actions.py), and whoever carries it out checks that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from .places import Places
from .room import NOTHING, Room, total

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from .reasons import Reason
    from .selector import Selector


GUEST_BLOCK: Final = 2 << 20
"""A guest's memory comes and goes in pieces of this many bytes: virtio-mem's, and a huge page."""


class PodPhase(StrEnum):
    """As far as it matters here."""

    PENDING = "Pending"
    RUNNING = "Running"
    ENDED = "Ended"


class Resize(StrEnum):
    """What the kubelet says to the size that the pod's spec has now."""

    DONE = "Done"
    UNSEEN = "Unseen"
    DEFERRED = "Deferred"
    IN_PROGRESS = "InProgress"
    INFEASIBLE = "Infeasible"


class Container(NamedTuple):
    """One container."""

    name: str
    request: Room
    """By its spec."""
    given: Room | None = None
    """What the kubelet has given it, where that is something else."""


class GuestSize(NamedTuple):
    """What a guest has: vCPUs that are online, bytes that are plugged."""

    cpus: int
    memory: int


class GuestRange(NamedTuple):
    """What a guest can have without a restart: it booted with the least."""

    least: GuestSize
    most: GuestSize


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod."""

    uid: str
    namespace: str
    name: str
    node: str = ""
    """Empty before it is bound."""
    allocated: Room = NOTHING
    """What the kubelet has given it: the whole pod, overhead included."""
    size: Room = NOTHING
    """What the scheduler counts: the largest of spec, allocated and actual."""
    containers: tuple[Container, ...] = ()
    peak: Room = NOTHING
    """What its init containers take before the others start."""
    overhead: Room = NOTHING
    fixed: Room | None = None
    """Its pod-level request, where it has one: then containers do not count."""
    phase: PodPhase = PodPhase.RUNNING
    terminating: bool = False
    admitted: bool = True
    """Its kubelet has acknowledged it: from then on it has its room."""
    resize: Resize = Resize.DONE
    priority: int = 0
    ready: bool = True
    vm: str = ""
    vm_container: str = ""
    """The container that runs the guest."""
    guest: GuestRange | None = None
    """What its guest can have, where its spec says so."""
    movable: bool = False
    why_fixed: str = ""
    """Why it must not be moved, where its owner would allow it."""
    labels: frozenset[tuple[str, str]] = frozenset()
    owner: str = ""
    """The UID of the migration that it would be collected with."""
    attempt: int = 0
    """The attempt that it was made to receive; 0 where its guest has booted."""
    fence: str = ""
    """What was last written on it to keep late resizes out."""
    created_at: float = 0.0
    since: float = 0.0
    """When its kubelet took it, or it was made where that has not happened yet."""
    version: str = ""
    """Its resourceVersion."""

    @property
    def lives(self) -> bool:
        """Tell whether it runs, and will."""
        return self.phase is PodPhase.RUNNING and not self.terminating

    @property
    def counts(self) -> bool:
        """Tell whether it takes room. A pod that is ending does until it has ended."""
        return self.phase is not PodPhase.ENDED

    def spec(self) -> Room:
        """Return the whole pod's request by its spec."""
        return self._whole(self._requests())

    def with_container(self, name: str, wanted: Room) -> Room:
        """Return the whole pod's request if one container had another size."""
        return self._whole({**self._requests(), name: wanted})

    def container(self, name: str) -> Room:
        """Return one container's request."""
        return self._container(name).request

    def given(self, name: str) -> Room:
        """Return what the kubelet has given one container."""
        container = self._container(name)
        return container.request if container.given is None else container.given

    def _container(self, name: str) -> Container:
        return next(container for container in self.containers if container.name == name)

    def _requests(self) -> dict[str, Room]:
        return {container.name: container.request for container in self.containers}

    def _whole(self, containers: dict[str, Room]) -> Room:
        if self.fixed is not None:
            return self.fixed.plus(self.overhead)
        return total([*containers.values()]).most(self.peak).plus(self.overhead)


@dataclass(frozen=True, slots=True)
class Node:
    """One node with its pods."""

    name: str
    allocatable: Room
    pods: tuple[Pod, ...] = ()
    ready: bool = True
    """Its kubelet answers."""
    takes_pods: bool = True
    """Nobody has cordoned it, and no room on it is held behind a taint."""
    tainted: bool = False
    """It has our taint, which keeps the pods of other schedulers away while room is held."""
    requested: Room = field(init=False)
    """What the scheduler counts. Summed up once: there are thousands of nodes, and each is asked often."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "requested", total([pod.size for pod in self.pods if pod.counts]))

    def pod(self, uid: str) -> Pod | None:
        """Return one of its pods."""
        return next((pod for pod in self.pods if pod.uid == uid), None)


class HoldPhase(StrEnum):
    """What the scheduler has said about a hold."""

    PENDING = "Pending"
    HELD = "Held"
    CLAIMED = "Claimed"
    RELEASED = "Released"
    REFUSED = "Refused"


class Payer(NamedTuple):
    """A neighbour whose leaving pays for a hold, and the name of its receiver."""

    uid: str
    receiver: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The room on one node that belongs to one pod."""

    claimant: str
    """Its UID, and the hold's name."""
    request: str
    """The request's UID."""
    node: str
    target: Room
    """The claimant's whole size afterwards."""
    payers: tuple[Payer, ...] = ()
    priority: int = 0
    created_at: float = 0.0
    expires_at: float = 0.0
    committed: bool = False
    """A neighbour may have left for it, or its claimant been resized: it does not expire, and is not taken back."""
    round: int = 1
    """The request's plan that it belongs to."""
    phase: HoldPhase = HoldPhase.PENDING
    """What the scheduler has said about the spec as it is now; PENDING while it has said nothing."""
    reason: str = ""
    message: str = ""
    shortfall: Room = NOTHING
    """What lacks as the scheduler sees it, pods counted that it is just placing. Kept up to date by it."""
    version: str = ""

    @property
    def live(self) -> bool:
        """Tell whether it keeps others out, or may yet."""
        return self.phase not in (HoldPhase.RELEASED, HoldPhase.REFUSED)

    @property
    def promised(self) -> bool:
        """Tell whether the scheduler has said that it keeps the room."""
        return self.phase in (HoldPhase.HELD, HoldPhase.CLAIMED)

    def precedes(self, other: Hold) -> bool:
        """Tell whether room that belongs to nobody is this one's before it is the other's."""
        return self._rank() < other._rank()

    def _rank(self) -> tuple[bool, int, float, str]:
        return (not self.committed, -self.priority, self.created_at, self.claimant)


class TransferState(StrEnum):
    """Where a guest's transfer is, as the runners of both sides tell it."""

    NOT_STARTED = "NotStarted"
    COPYING = "Copying"
    AT_BRINK = "AtBrink"
    """It can switch over as soon as it is committed."""
    COMMITTED = "Committed"
    SWITCHING = "Switching"
    ARRIVED = "Arrived"
    """The source has let go for ever, and the receiver has not run the guest yet: it needs `release`."""
    SUCCEEDED = "Succeeded"
    """The guest runs in the receiver, and nothing has happened to it."""
    CANCELLED = "Cancelled"
    FAILED = "Failed"
    """The guest runs in the source, as before."""
    DAMAGED = "Damaged"
    """The guest moved, and was reset, panicked or died on the way or after it. There is nothing to go back to."""
    LOST = "Lost"
    """Neither side has the guest any more."""
    LEFT = "Left"
    """The source has let go for ever, and the receiver does not answer."""
    COMPLETE = "Complete"
    """All of the guest is in the receiver; the source, who would have to let go, does not answer."""
    INCOMPLETE = "Incomplete"
    """The receiver has not got all of it, and the source does not answer."""
    UNKNOWN = "Unknown"
    """Nobody answers who would know."""


class Transfer(NamedTuple):
    """What is known about a transfer."""

    state: TransferState
    percent: int = 0
    message: str = ""


class RequestPhase(StrEnum):
    """Where a request is."""

    PENDING = "Pending"
    SHRINKING = "Shrinking"
    HOLDING = "Holding"
    MOVING = "Moving"
    COMMITTING = "Committing"
    SWAPPING = "Swapping"
    GROWING = "Growing"
    RELEASING = "Releasing"
    UNDOING = "Undoing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    PARTIALLY_MOVED = "PartiallyMoved"

    @property
    def final(self) -> bool:
        """Tell whether nothing follows."""
        return self in _FINAL_REQUEST


_FINAL_REQUEST = frozenset(
    (RequestPhase.SUCCEEDED, RequestPhase.FAILED, RequestPhase.CANCELLED, RequestPhase.PARTIALLY_MOVED)
)


class Planned(NamedTuple):
    """A neighbour that is to be moved, with the names that were chosen before anything was made."""

    uid: str
    namespace: str
    name: str
    vm: str
    size: Room
    migration: str
    receiver: str


class NotChosen(NamedTuple):
    """A neighbour that is not moved, and why."""

    namespace: str
    name: str
    reason: Reason
    message: str = ""


class FailedMove(NamedTuple):
    """A neighbour whose move has failed for a request."""

    uid: str
    reason: Reason


class Outcome(NamedTuple):
    """How a request will have ended once everything is put back; `PENDING` for another try."""

    phase: RequestPhase
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """How far a request is. All that it remembers is in here."""

    phase: RequestPhase = RequestPhase.PENDING
    reason: Reason | None = None
    message: str = ""
    claimant: str = ""
    """The UID of the pod that gets the size."""
    container: str = ""
    node: str = ""
    original: Room = NOTHING
    """The container's size before."""
    wanted: Room = NOTHING
    """The container's size afterwards."""
    target: Room = NOTHING
    """The whole pod's size afterwards."""
    guest_before: GuestSize | None = None
    guest_after: GuestSize | None = None
    """What its guest shall have; nothing where the request is not about a guest."""
    order: int = 0
    """The number of this plan for the guest's runner: higher than that of any earlier plan for it."""
    shortfall: Room = NOTHING
    plan: tuple[Planned, ...] = ()
    not_chosen: tuple[NotChosen, ...] = ()
    """Why other neighbours are not moved, for users: VMs first, and no more than they would read."""
    room_appeared: bool = False
    """The room came by itself: nobody in the plan is moved."""
    round: int = 0
    failed: tuple[FailedMove, ...] = ()
    resized: bool = False
    """The claimant may have been told its new size: giving up puts the old one back."""
    outcome: Outcome | None = None
    retry_at: float = 0.0
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """One VMScaleRequest."""

    uid: str
    namespace: str
    name: str
    vm: str = ""
    pod: str = ""
    container: str = ""
    cpu: int | None = None
    """Thousandths of a core; nothing where it stays as it is."""
    memory: int | None = None
    moves: bool = True
    """The strategy allows to move neighbours."""
    at_most: int = 4
    selector: Selector | None = None
    priority: int = 0
    deadline: float = 600.0
    dry_run: bool = False
    suspend: bool = False
    deleted: bool = False
    created_at: float = 0.0
    keep_for: float = 86400.0
    status: RequestStatus = RequestStatus()
    version: str = ""


class MigrationPhase(StrEnum):
    """Where a migration is."""

    PENDING = "Pending"
    BINDING = "Binding"
    TRANSFERRING = "Transferring"
    AT_BRINK = "AtBrink"
    SWITCHING_OVER = "SwitchingOver"
    MOVED = "Moved"
    CANCELLING = "Cancelling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def final(self) -> bool:
        """Tell whether nothing follows."""
        return self in _FINAL_MIGRATION


_FINAL_MIGRATION = frozenset((MigrationPhase.SUCCEEDED, MigrationPhase.FAILED, MigrationPhase.CANCELLED))


class MigrationOutcome(NamedTuple):
    """How a migration will have ended."""

    phase: MigrationPhase
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """How far a migration is. All that it remembers is in here."""

    phase: MigrationPhase = MigrationPhase.PENDING
    reason: Reason | None = None
    message: str = ""
    source: str = ""
    """The UID of the pod that the guest leaves."""
    source_node: str = ""
    receiver: str = ""
    """The receiver's name, stored before the pod is made."""
    receiver_uid: str = ""
    attempt: int = 0
    committed: bool = False
    """The one write that decides: from here on it cannot be called off."""
    outcome: MigrationOutcome | None = None
    started_at: float = 0.0
    finished_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Migration:
    """One VMMigration."""

    uid: str
    namespace: str
    name: str
    vm: str
    request: str = ""
    """The UID of the request that it makes room for; empty where it was made by hand."""
    pod: str = ""
    """The UID of the pod that is to leave, where a request says so."""
    receiver: str = ""
    node: str = ""
    """Where it has to go, if that matters."""
    deadline: float = 1800.0
    deleted: bool = False
    created_at: float = 0.0
    keep_for: float = 86400.0
    status: MigrationStatus = MigrationStatus()
    version: str = ""


class Check(NamedTuple):
    """What the API server says to a resize that was only tried, or to a receiver."""

    allowed: bool
    message: str = ""


@dataclass(frozen=True)
class World:
    """Everything that was observed, with indices that are made when they are needed. store.py has lasting ones."""

    nodes: Mapping[str, Node]
    unbound: tuple[Pod, ...] = ()
    """Pods without a node, or with one that is not there."""
    requests: Mapping[str, Request] = field(default_factory=dict)
    migrations: Mapping[str, Migration] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    """By the claimant's UID."""
    transfers: Mapping[str, Transfer] = field(default_factory=dict)
    """By the migration's UID, for migrations that are not over. The runners were asked after the pods were looked at:
    what a receiver says is newer than the news that its source is dead."""
    guests: Mapping[str, GuestSize] = field(default_factory=dict)
    """By the pod's UID, for claimants."""
    orders: Mapping[str, int] = field(default_factory=dict)
    """The last order that a guest's runner has taken, by the pod's UID."""
    gone: AbstractSet[str] = frozenset()
    """UIDs of pods that the API server itself has said to be gone."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    """By the request's UID, where its resize was tried a moment ago; by the migration's, where its receiver was
    refused."""

    @cached_property
    def _by_uid(self) -> dict[str, Pod]:
        return {pod.uid: pod for pod in self.pods()}

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Pod]:
        return {(pod.namespace, pod.name): pod for pod in self.pods()}

    @cached_property
    def _by_vm(self) -> dict[tuple[str, str], list[Pod]]:
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self.pods():
            if pod.vm:
                found.setdefault((pod.namespace, pod.vm), []).append(pod)
        return found

    @cached_property
    def _by_owner(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for pod in self.pods():
            if pod.owner:
                found.setdefault(pod.owner, []).append(pod)
        return found

    @cached_property
    def _migrations_by_name(self) -> dict[tuple[str, str], Migration]:
        return {(item.namespace, item.name): item for item in self.migrations.values()}

    def node(self, name: str) -> Node:
        """Return a node. One that is not there, and pods may yet name it, has no room."""
        return self.nodes.get(name) or Node(name, NOTHING, ready=False)

    def pods(self) -> Iterator[Pod]:
        """Return all pods."""
        for node in self.nodes.values():
            yield from node.pods
        yield from self.unbound

    def pod(self, uid: str) -> Pod | None:
        """Return a pod."""
        return self._by_uid.get(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by its name."""
        return self._by_name.get((namespace, name))

    def pods_of_vm(self, namespace: str, vm: str) -> Collection[Pod]:
        """Return the pods of a VM: two of them while it is moved."""
        return self._by_vm.get((namespace, vm), [])

    def pods_owned_by(self, uid: str) -> Collection[Pod]:
        """Return the pods that would be collected with a migration."""
        return self._by_owner.get(uid, [])

    def migration_named(self, namespace: str, name: str) -> Migration | None:
        """Return a migration by its name."""
        return self._migrations_by_name.get((namespace, name))

    def migrations_from(self, uid: str) -> Collection[Migration]:
        """Return the migrations, past ones too, that a pod is the source of."""
        return [item for item in self.migrations.values() if item.status.source == uid]

    def migrations_for(self, request: str) -> Collection[Migration]:
        """Return the migrations that make room for a request."""
        return [item for item in self.migrations.values() if item.request == request]

    def active_requests(self) -> Collection[Request]:
        """Return the requests that are not over."""
        return [item for item in self.requests.values() if not item.status.phase.final]

    def requests_about(self, pod: Pod) -> Collection[Request]:
        """Return the requests that are not over and name a pod, or its VM, or have begun with it."""
        return [
            item for item in self.active_requests()
            if item.status.claimant == pod.uid
            or (item.namespace == pod.namespace and (item.pod == pod.name or (pod.vm and item.vm == pod.vm)))
        ]  # fmt: skip

    def active_migrations(self) -> Collection[Migration]:
        """Return the migrations that are not over."""
        return [item for item in self.migrations.values() if not item.status.phase.final]

    def places(self) -> Places:
        """Return where receivers could go."""
        return Places.of(self.nodes.values(), self.holds.values())
