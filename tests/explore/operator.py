"""The operator in the model: the shipped functions decide, on views that may be old; what they say is carried out.

A second operator that sees the same does the same, so it is nothing new. What is new is one that has decided and acts
late: that stands for a stale or lost watch, for a paused leader that wakes up, and for a call that was under way when the
world changed. A call that fails before it takes effect is a step that is not taken; one that
fails after it leaves nothing behind, because nothing is kept in memory.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from elbowroom.core import actions as act
from elbowroom.core import migration as moves
from elbowroom.core import request as requests
from elbowroom.core import sweep
from elbowroom.core.policy import Policy
from elbowroom.core.reasons import Reason
from elbowroom.core.room import Room
from elbowroom.core.world import (
    Check,
    Container,
    GuestSize,
    Hold,
    HoldPhase,
    Migration,
    MigrationPhase,
    Node,
    PodPhase,
    RequestPhase,
    Resize,
    TransferState,
    World,
)
from elbowroom.core.world import (
    Pod as SeenPod,
)
from elbowroom.core.world import (
    Transfer as SeenTransfer,
)

from .model import UNIT, Move, Phase, Pod, Seen, Setup, State, Transfer, find, forget, put
from .steps import AT_SOURCE, BEFORE_COMMIT, handed_over, runs, runs_guest, terminate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# All short times run out when the clock moves once, the deadline when it moves twice.
POLICY = Policy(failures=1, rest=0.0, backoff=0.0, hold_term=0.5, bind_within=0.5, grant_within=0.3, moves_per_node=2)
# Reasons of outcomes that decisions look at.
_KEPT = {
    Reason.CANCELLED: Reason.CANCELLED, Reason.NEIGHBOUR_GONE: Reason.CANCELLED, Reason.GUEST_LOST: Reason.GUEST_LOST,
    Reason.SUSPENDED: Reason.SUSPENDED, Reason.DONE: Reason.DONE, Reason.RECEIVER_GONE: Reason.RECEIVER_GONE,
    Reason.RECEIVER_UNBOUND: Reason.RECEIVER_GONE, Reason.RECEIVER_STARTING: Reason.RECEIVER_GONE,
}  # fmt: skip
_PHASES = {Phase.PENDING: PodPhase.PENDING, Phase.RUNNING: PodPhase.RUNNING, Phase.ENDED: PodPhase.ENDED}
_RESIZES = {
    Seen.DONE: Resize.DONE, Seen.UNSEEN: Resize.UNSEEN, Seen.DEFERRED: Resize.DEFERRED,
    Seen.IN_PROGRESS: Resize.IN_PROGRESS,
}  # fmt: skip
_REMEMBERED = 400_000
"""How many worlds' decisions: states that share one are visited soon after each other, and all of them would not fit into memory."""
BEHIND = " (behind)"
"""What somebody does who has fallen behind is told so."""
_KINDS = ("pods", "holds", "requests", "migrations")
"""What is watched. Runners are asked, and after the pods were looked at."""
_TRANSFERS = {
    Move.COPYING: TransferState.COPYING, Move.BRINK: TransferState.AT_BRINK, Move.COMMITTED: TransferState.COMMITTED,
    Move.COMPLETE: TransferState.SWITCHING, Move.CANCELLED: TransferState.CANCELLED, Move.FAILED: TransferState.FAILED,
}  # fmt: skip


class Brain:
    """The decisions that are explored: the shipped ones, or a mutant's."""

    request = staticmethod(requests.decide)
    migration = staticmethod(moves.decide)
    sweep = staticmethod(sweep.decide)


class Operator:
    """Decides and acts. Decisions are remembered by what they were made on: most states share them."""

    def __init__(self, setup: Setup, brain: type[Brain] = Brain) -> None:
        """Take the world's setup and the functions."""
        self._setup, self._brain = setup, brain
        self._policy = replace(POLICY, tries=setup.tries)
        self._decided: dict[tuple[Any, ...], tuple[act.Action, ...]] = {}
        self._decisions: dict[tuple[act.Action, ...], tuple[act.Action, ...]] = {}
        """The few different ones that there are, each kept once."""
        self._objects: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._carry_out: dict[type, Callable[[State, Any], State | None]] = {
            act.WriteRequest: _write_request, act.WriteMigration: _write_migration, act.CreateHold: self._create_hold,
            act.RenewHold: _renew_hold, act.CommitHold: _commit_hold, act.DeleteHold: _delete_hold,
            act.CreateMigration: _create_migration, act.CreateReceiver: _create_receiver,
            act.DetachReceiver: _detach_receiver, act.DeletePod: _delete_pod, act.StartTransfer: _start_transfer,
            act.CommitTransfer: _commit_transfer, act.CancelTransfer: _cancel_transfer,
            act.ReleaseTransfer: _release_transfer, act.ResizePod: _resize_pod, act.FencePod: _fence_pod,
            act.ResizeGuest: _resize_guest, act.Forget: _forget, act.LookForPod: _look,
        }  # fmt: skip

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Return all that an operator can do next."""
        decided = self.decide(state)
        for action in decided:
            yield from self._act(state, action, "")
        if state.view is not None:
            yield from self._on_an_old_view(state, *state.view, decided)
        for action in state.late:
            yield from self._act(state, action, BEHIND)
        if state.late:
            yield "what was decided a while ago is not done any more", state._replace(late=())
        elif state.faults and decided and state.view is None:
            # It has decided, and is slow, cut off or paused from here on.
            yield "an operator falls behind", state._replace(late=decided, faults=state.faults - 1)
        if self._setup.views and state.faults and state.view is None and not state.late:
            yield from self._fall_behind(state)

    def _on_an_old_view(
        self, state: State, kind: str, part: tuple[Any, ...], besides: tuple[act.Action, ...]
    ) -> Iterator[tuple[str, State]]:
        for action in self.decide(_with(state, kind, part), state):
            if action not in besides:
                yield from self._act(state, action, f", on an old view of {kind}{BEHIND}")
        yield f"the watch of {kind} catches up", state._replace(view=None)

    @staticmethod
    def _fall_behind(state: State) -> Iterator[tuple[str, State]]:
        for kind in _KINDS:
            if getattr(state, kind):
                old = (kind, getattr(state, kind))
                yield f"the watch of {kind} falls behind", state._replace(view=old, faults=state.faults - 1)

    def decide(self, state: State, live: State | None = None) -> tuple[act.Action, ...]:
        """Let the shipped functions decide. `live` is what is really there, for those who ask the API server itself."""
        there = state if live is None else live
        # By identity: the search gives the same object for the same part, and keeps it.
        key = (
            *map(id, state[:5]),
            id(there.pods),
            state.now,
            *map(id, (state.guests, state.dead, state.cut, state.stale)),
            state.quota,
        )
        known = self._decided.get(key)
        if known is None:
            world = self._world(state, there)
            found: list[act.Action] = []
            for request in world.requests.values():
                found += self._brain.request(world, request, float(state.now), self._policy)
            for migration in world.migrations.values():
                found += self._brain.migration(world, migration, float(state.now), self._policy)
            found += self._brain.sweep(world)
            known = tuple(_plain(world, found, state.now))
            known = self._decisions.setdefault(known, known)
            if len(self._decided) >= _REMEMBERED:
                self._decided.clear()
            self._decided[key] = known
        return known

    def _world(self, state: State, live: State) -> World:
        pods = [self._seen(pod, _seen_ready_pod if runs_guest(state, pod) else _seen_pod) for pod in state.pods]
        sizes = {uid: size for uid, size, _ in state.guests}
        nodes = {
            name: Node(
                name, _room(capacity), tuple(pod for pod in pods if pod.node == name), ready=name not in state.dead
            )
            for name, capacity in self._setup.nodes
        }
        return World(
            nodes=nodes, unbound=tuple(pod for pod in pods if not pod.node),
            requests={item.uid: self._seen(item, _with_version) for item in state.requests},
            migrations={item.uid: self._seen(item, _with_version) for item in state.migrations},
            holds={
                item.claimant: self._seen(item, _unspoken if item.claimant in state.stale else _with_version)
                for item in state.holds
            },
            transfers=dict(_seen_transfers(state)),
            guests={
                pod.uid: GuestSize(sizes.get(pod.uid, pod.allocated), 0)
                for pod in state.pods if runs_guest(state, pod) and pod.uid not in state.cut
            },
            orders={uid: order for uid, _, order in state.guests},
            gone=_gone(state, live),
            # It is tried anew each time, and says what is true.
            checks={
                **{item.uid: Check(state.quota, "quota") for item in state.requests},
                **{item.uid: Check(state.quota, "quota") for item in state.migrations},
            },
        )  # fmt: skip

    def _seen(self, item: Any, make: Callable[[Any], Any]) -> Any:
        """Return how the core sees an object. The object is kept, so that its identity stays its own."""
        known = self._objects.get((id(item), make))
        if known is None:
            known = self._objects[id(item), make] = (item, make(item))
        return known[1]

    def _act(self, state: State, action: act.Action, by: str) -> Iterator[tuple[str, State]]:
        after = self._carry_out[type(action)](state, action)
        if by and after is not None and isinstance(action, act.CommitTransfer):
            after = _into_its_end(after, action)
        if after is not None and after != state:
            yield f"{sentence(action)}{by}", after

    def settled(self, before: State, state: State) -> State:
        """Forget what was decided late and can never be done any more: its precondition is gone for good."""
        if not state.late or state[:4] == before[:4]:
            return state
        late = tuple(action for action in state.late if _may_yet(state, action))
        return state if late == state.late else state._replace(late=late)

    def _create_hold(self, state: State, action: act.CreateHold) -> State | None:
        if any(hold.claimant == action.hold.claimant for hold in state.holds):
            return None
        return state._replace(holds=_sorted((*state.holds, action.hold)))


def _plain(world: World, found: list[act.Action], now: int) -> Iterator[act.Action]:
    """Forget what no decision looks at: for people it matters, and here it would only make more states."""
    for action in found:
        if not isinstance(action, act.WriteRequest | act.WriteMigration):
            yield action
            continue
        status: Any = action.status
        changes: dict[str, Any] = {"reason": None, "message": "", "finished_at": 0.0}
        if status.outcome is not None:
            reason = _KEPT.get(status.outcome.reason, Reason.TRANSFER_FAILED)
            changes["outcome"] = status.outcome._replace(message="", reason=reason)
        if isinstance(action, act.WriteMigration):
            before: Any = world.migrations[action.uid].status
            plain = replace(status, **changes)
            if plain != before:
                yield act.WriteMigration(action.uid, action.version, plain)
            continue
        before = world.requests[action.uid].status
        plain = replace(status, **changes, not_chosen=(), retry_at=status.retry_at if status.retry_at > now else 0.0)
        if plain != before:
            yield act.WriteRequest(action.uid, action.version, plain)


def _gone(state: State, live: State) -> frozenset[str]:
    named = {uid for item in state.migrations for uid in (item.status.source, item.status.receiver_uid)}
    return frozenset(named - {pod.uid for pod in live.pods})


def _look(state: State, action: act.LookForPod) -> State | None:
    """Ask whether a pod is gone: what the answer is, is in the world already."""
    del state, action
    return None  # nothing changes


def _room(size: int) -> Room:
    return Room(size * UNIT)


def version(item: Any) -> str:
    """Return what stands for a resourceVersion: the content. That lets more through than the API server would."""
    return str(hash(item))


def _may_yet(state: State, action: act.Action) -> bool:
    match action:
        case act.WriteRequest() | act.WriteMigration() | act.Forget():
            return _current((*state.requests, *state.migrations), action.uid, action.version) is not None
        case act.RenewHold() | act.CommitHold() | act.DeleteHold():
            return _current(state.holds, action.claimant, action.version) is not None
        case act.ResizePod() | act.DetachReceiver() | act.FencePod():
            return any(pod.uid == action.uid and version(pod) == action.version for pod in state.pods)
        case act.DeletePod() | act.ResizeGuest():
            return find(state.pods, action.uid) is not None
        case _:
            return True


def _with_version(item: Any) -> Any:
    return replace(item, version=version(item))


def _unspoken(hold: Hold) -> Hold:
    """Return a hold that has changed since the scheduler has spoken of it."""
    return replace(hold, version=version(hold), phase=HoldPhase.PENDING if hold.live else hold.phase)


def _with(state: State, kind: str, part: tuple[Any, ...]) -> State:
    changes: Any = {kind: part}
    return state._replace(**changes)


def _seen_ready_pod(pod: Pod) -> SeenPod:
    return replace(_seen_pod(pod), ready=True)


def _seen_pod(pod: Pod) -> SeenPod:
    return SeenPod(
        uid=pod.uid, namespace="x", name=pod.name, node=pod.node, allocated=_room(pod.allocated), size=_room(pod.counted),
        containers=(Container("main", _room(pod.spec), _room(pod.allocated)),), vm_container="main" if pod.vm else "", phase=_PHASES[pod.phase], terminating=pod.terminating,
        admitted=pod.phase is not Phase.PENDING, resize=_RESIZES[pod.seen], priority=pod.priority, vm=pod.vm, movable=pod.movable, owner=pod.owner,
        attempt=pod.attempt, fence=pod.fence, ready=False, version=version(pod),
    )  # fmt: skip


def _seen_transfers(seen: State) -> Iterator[tuple[str, SeenTransfer]]:
    """Tell where moves are as the driver does: from the answers of those runners that can be reached."""
    for migration in seen.migrations:
        status = migration.status
        if not status.source or status.phase.final:
            continue
        item = next(
            (item for item in seen.transfers if (item.source, item.attempt) == (status.source, status.attempt)), None
        )
        source, receiver = (runs(seen, uid) and uid not in seen.cut for uid in (status.source, status.receiver_uid))
        yield (
            migration.uid,
            SeenTransfer(_judged(item.move if item is not None else None, source=source, receiver=receiver)),
        )


def _judged(move: Move | None, *, source: bool, receiver: bool) -> TransferState:
    if receiver and move is Move.DONE:
        return TransferState.SUCCEEDED
    if source:
        if move in (Move.ARRIVED, Move.DONE, Move.LOST):
            return TransferState.ARRIVED if receiver and move is Move.ARRIVED else TransferState.LEFT
        return TransferState.NOT_STARTED if move is None else _TRANSFERS[move]
    if not receiver or move is None:
        return TransferState.UNKNOWN
    return TransferState.COMPLETE if move in (Move.COMPLETE, Move.ARRIVED) else TransferState.INCOMPLETE


def _sorted(items: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sorted(items, key=lambda item: getattr(item, "claimant", None) or item.uid))


def _replaced(items: tuple[Any, ...], old: Any, new: Any) -> tuple[Any, ...]:
    return tuple(new if item is old else item for item in items)


def _current(items: tuple[Any, ...], uid: str, wanted: str | None) -> Any:
    """Return an object, if it is as it was when it was looked at."""
    for item in items:
        if getattr(item, "claimant", None) == uid or getattr(item, "uid", None) == uid:
            return item if wanted is None or version(item) == wanted else None
    return None


# Our own objects


def _write_request(state: State, action: act.WriteRequest) -> State | None:
    found = _current(state.requests, action.uid, action.version)
    if found is None:
        return None
    if action.status.phase is RequestPhase.UNDOING:
        # It gives up: what was promised, and what was freed, is not asked for any more.
        state = forget(state, found.status.claimant)
    changed = _replaced(state.requests, found, replace(found, status=action.status))
    return state._replace(requests=changed)


def _write_migration(state: State, action: act.WriteMigration) -> State | None:
    found = _current(state.migrations, action.uid, action.version)
    if found is None:
        return None
    return state._replace(migrations=_replaced(state.migrations, found, replace(found, status=action.status)))


def _renew_hold(state: State, action: act.RenewHold) -> State | None:
    found = _current(state.holds, action.claimant, action.version)
    if found is None:
        return None
    return _changed(state, found, replace(found, expires_at=action.expires_at))


def _commit_hold(state: State, action: act.CommitHold) -> State | None:
    found = _current(state.holds, action.claimant, action.version)
    if found is None:
        return None
    return _changed(state, found, replace(found, committed=True))


def _changed(state: State, old: Hold, new: Hold) -> State:
    """Change a hold: what the scheduler has said was about another one."""
    stale = state.stale if old.phase is HoldPhase.PENDING else tuple(sorted({*state.stale, old.claimant}))
    return state._replace(holds=_replaced(state.holds, old, new), stale=stale)


def _delete_hold(state: State, action: act.DeleteHold) -> State | None:
    found: Hold | None = _current(state.holds, action.claimant, action.version)
    if found is None:
        return None
    stale = tuple(claimant for claimant in state.stale if claimant != action.claimant)
    return state._replace(holds=tuple(hold for hold in state.holds if hold is not found), stale=stale)


def _create_migration(state: State, action: act.CreateMigration) -> State | None:
    planned = action.neighbour
    if any(item.name == planned.migration for item in state.migrations):
        return None
    new = Migration(
        uid=f"m-{planned.migration}", namespace="x", name=planned.migration, vm=planned.vm, request=action.request,
        pod=planned.uid, receiver=planned.receiver, created_at=float(state.now), deadline=100.0,
    )  # fmt: skip
    return state._replace(migrations=_sorted((*state.migrations, new)))


def _forget(state: State, action: act.Forget) -> State | None:
    for kind in ("requests", "migrations"):
        items: tuple[Any, ...] = getattr(state, kind)
        found = _current(items, action.uid, action.version)
        if found is not None:
            changes: Any = {kind: tuple(item for item in items if item is not found)}
            return state._replace(**changes)
    return None


# Pods


def _create_receiver(state: State, action: act.CreateReceiver) -> State | None:
    source = find(state.pods, action.source)
    owner = next((item for item in state.migrations if item.uid == action.migration), None)
    if any(pod.name == action.name for pod in state.pods) or source is None or owner is None:
        return None  # its name is taken; or the API server refuses an owner that is gone
    if not state.quota:
        return None
    used = {item.status.receiver_uid for item in state.migrations} | {item.receiver for item in state.transfers}
    new = Pod(
        uid=f"{action.name}'" if action.name in used else action.name, spec=source.allocated, phase=Phase.PENDING, process=False, vm=source.vm, owner=action.migration,
        attempt=action.attempt,
    )  # fmt: skip
    return state._replace(pods=put(state.pods, new))


def _detach_receiver(state: State, action: act.DetachReceiver) -> State | None:
    pod = find(state.pods, action.uid)
    if pod is None or version(pod) != action.version:
        return None
    return state._replace(pods=put(state.pods, pod._replace(owner="")))


def _delete_pod(state: State, action: act.DeletePod) -> State | None:
    pod = find(state.pods, action.uid)
    if pod is None or pod.terminating or (action.version and version(pod) != action.version):
        return None
    if not pod.node or pod.phase is Phase.ENDED:
        rest = tuple(item for item in state.scheduler.assumed if item[0] != pod.uid)
        gone = tuple(item for item in state.pods if item.uid != pod.uid)
        return state._replace(pods=gone, scheduler=state.scheduler._replace(assumed=rest))
    return _credit(_resized_first(terminate(state, pod, by_us=True), pod), pod)


def _resized_first(state: State, pod: Pod) -> State:
    """Where we remove a neighbour the claimant has asked: other schedulers, too, see that the room is taken."""
    for hold in state.holds:
        claimant = find(state.pods, hold.claimant)
        if claimant is None or claimant.terminating or not _promised(state, hold):
            continue
        if _leaves_for(state, pod, hold) and claimant.spec < hold.target.cpu // UNIT:
            return state._replace(broken=f"2: {pod.uid} is removed, its room looks free: {claimant.uid} has not asked")
    return state


def _leaves_for(state: State, pod: Pod, hold: Hold) -> bool:
    """Tell whether a pod is removed because its guest has moved for a hold. One that was moved by hand leaves for nobody."""
    return any(
        item.request == hold.request and item.status.source == pod.uid and item.status.committed
        for item in state.migrations
    )


def _promised(state: State, hold: Hold) -> bool:
    return any(item.claimant == hold.claimant for item in state.held)


def _credit(state: State, pod: Pod) -> State:
    """Remember whose room it is that a neighbour leaves."""
    for hold in state.holds:
        if _leaves_for(state, pod, hold) and _promised(state, hold):
            claimant = find(state.pods, hold.claimant)
            need = 0 if claimant is None else hold.target.cpu // UNIT - claimant.allocated
            had = dict(state.freed).get(hold.claimant, 0)
            amount = min(had + pod.allocated, need)
            rest = tuple(item for item in state.freed if item[0] != hold.claimant)
            return state._replace(freed=tuple(sorted((*rest, (hold.claimant, amount)))))
    return state


def _resize_pod(state: State, action: act.ResizePod) -> State | None:
    pod = find(state.pods, action.uid)
    if pod is None or version(pod) != action.version or pod.terminating:
        return None
    if action.wanted.cpu // UNIT > pod.spec and not state.quota:
        return None
    new = pod._replace(spec=action.wanted.cpu // UNIT, seen=Seen.UNSEEN, since=0)
    if new.spec == new.allocated:
        new = new._replace(seen=Seen.DONE)
    return state._replace(pods=put(state.pods, new))


def _fence_pod(state: State, action: act.FencePod) -> State | None:
    pod = find(state.pods, action.uid)
    if pod is None or version(pod) != action.version:
        return None
    return state._replace(pods=put(state.pods, pod._replace(fence=action.fence)))


def _resize_guest(state: State, action: act.ResizeGuest) -> State | None:
    pod = find(state.pods, action.uid)
    if pod is None or not runs_guest(state, pod) or pod.uid in state.cut:
        return None
    if any(item[0] == action.uid and item[2] > action.order for item in state.guests):
        return None  # it comes late
    rest = tuple(item for item in state.guests if item[0] != action.uid)
    broken = state.broken
    if action.size.cpus > pod.allocated:
        broken = f"the guest of {pod.uid} was made larger than its pod"
    return state._replace(guests=tuple(sorted((*rest, (action.uid, action.size.cpus, action.order)))), broken=broken)


# Guests: calls carry the attempt's number, stale ones are refused


def _transfer(state: State, migration: str, attempt: int) -> tuple[Migration | None, Transfer | None]:
    owner = next((item for item in state.migrations if item.uid == migration), None)
    if owner is None:
        return None, None
    source = owner.status.source
    found = next((item for item in state.transfers if (item.source, item.attempt) == (source, attempt)), None)
    return owner, found


def _moved(state: State, item: Transfer, move: Move) -> State:
    rest = (other for other in state.transfers if other is not item)
    return state._replace(transfers=tuple(sorted((*rest, item._replace(move=move)))))


def _start_transfer(state: State, action: act.StartTransfer) -> State | None:
    owner, found = _transfer(state, action.migration, action.attempt)
    if owner is None or found is not None:
        return None
    source, receiver = find(state.pods, owner.status.source), find(state.pods, owner.status.receiver_uid)
    if source is None or receiver is None or not receiver.process or not runs_guest(state, source):
        return None
    if source.uid in state.cut or receiver.uid in state.cut:
        return None
    newest = max((item.attempt for item in state.transfers if item.source == source.uid), default=0)
    busy = any(item.source == source.uid and item.move in AT_SOURCE for item in state.transfers)
    if action.attempt <= newest or busy or receiver.attempt != action.attempt:
        return None
    new = Transfer(source.uid, receiver.uid, action.attempt)
    return state._replace(transfers=tuple(sorted((*state.transfers, new))))


def _commit_transfer(state: State, action: act.CommitTransfer) -> State | None:
    _, found = _transfer(state, action.migration, action.attempt)
    if found is None or found.source in state.cut or found.move not in BEFORE_COMMIT:
        return None
    return _moved(state, found, Move.COMMITTED)


def _into_its_end(state: State, action: act.CommitTransfer) -> State:
    """Somebody has deleted a receiver, and an operator who has not heard of it lets its guest go there."""
    _, found = _transfer(state, action.migration, action.attempt)
    receiver = find(state.pods, found.receiver) if found is not None else None
    if receiver is None or not receiver.terminating:
        return state
    return state._replace(killed=tuple(sorted({*state.killed, receiver.vm})))


def _cancel_transfer(state: State, action: act.CancelTransfer) -> State | None:
    _, found = _transfer(state, action.migration, action.attempt)
    if found is None or found.source in state.cut or found.move not in BEFORE_COMMIT:
        return None
    return _moved(state, found, Move.CANCELLED)


def _release_transfer(state: State, action: act.ReleaseTransfer) -> State | None:
    _, found = _transfer(state, action.migration, action.attempt)
    if found is None or found.receiver in state.cut or not runs(state, found.receiver):
        return None
    # Its source may have died in the middle: then it has not got all of the guest, and says no.
    if found.move is Move.COMPLETE and runs(state, found.source):
        state = state._replace(broken=f"1: the guest of {found.source} runs in {found.receiver} as well")
    if found.move not in (Move.COMPLETE, Move.ARRIVED):
        return None
    return handed_over(_moved(state, found, Move.DONE), found)


def sentence(action: act.Action) -> str:  # noqa: PLR0911  # one for each kind
    """Say what is done."""
    match action:
        case act.WriteRequest():
            return f"the operator writes {action.uid}: {action.status.phase}, {action.status.reason}"
        case act.WriteMigration():
            told = " (the commit)" if action.status.phase is MigrationPhase.SWITCHING_OVER else ""
            return f"the operator writes {action.uid}: {action.status.phase}, {action.status.reason}{told}"
        case act.CreateHold():
            return f"the operator asks for {action.hold.target.cpu // UNIT} on {action.hold.node} for {action.hold.claimant}"
        case act.CreateMigration():
            return f"the operator makes the migration {action.neighbour.migration}"
        case act.CreateReceiver():
            return f"the operator makes the receiver {action.name}"
        case act.ResizePod():
            return f"the operator resizes {action.uid} to {action.wanted.cpu // UNIT}"
        case _:
            words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in type(action).__name__)
            return f"the operator does{words} {next(iter(asdict(action).values()))}"
