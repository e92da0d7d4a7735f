"""What to do next about a migration: one function per phase.

Until the commit everything can be undone, and the receiver is made away with. The commit is one write to the migration
(`committed`); whoever writes it has seen the guest at the brink and the receiver detached. After it there is only one
direction: forward, unless QEMU itself says that the guest has stayed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from .actions import (
    CancelTransfer,
    CommitTransfer,
    CreateReceiver,
    DeletePod,
    DetachReceiver,
    Forget,
    LookForPod,
    ReleaseTransfer,
    StartTransfer,
    WriteMigration,
)
from .reasons import Reason
from .world import (
    MigrationOutcome,
    MigrationPhase,
    Pod,
    PodPhase,
    RequestPhase,
    Resize,
    Transfer,
    TransferState,
)

if TYPE_CHECKING:
    from .actions import Actions
    from .policy import Policy
    from .world import Migration, Request, World

_NOT_STARTED = Transfer(TransferState.NOT_STARTED)
_STAYED: Final = (TransferState.FAILED, TransferState.CANCELLED)
_SETTLED: Final = (*_STAYED, TransferState.NOT_STARTED, TransferState.LOST)
_SENDING: Final = (TransferState.COPYING, TransferState.AT_BRINK, TransferState.COMMITTED, TransferState.SWITCHING)
_WANTING: Final = (RequestPhase.MOVING, RequestPhase.COMMITTING)
_PLANNING: Final = (RequestPhase.HOLDING, *_WANTING)


def decide(world: World, migration: Migration, now: float, policy: Policy) -> Actions:
    """Return what to do next about a migration."""
    phase = migration.status.phase
    match phase:
        case MigrationPhase.PENDING:
            return _pending(world, migration, now, policy)
        case MigrationPhase.BINDING:
            return _binding(world, migration, now, policy)
        case MigrationPhase.TRANSFERRING:
            return _transferring(world, migration, now)
        case MigrationPhase.AT_BRINK:
            return _at_brink(world, migration, now)
        case MigrationPhase.SWITCHING_OVER:
            return _switching_over(world, migration)
        case MigrationPhase.MOVED:
            return _moved(world, migration, now)
        case MigrationPhase.CANCELLING:
            return _cancelling(world, migration, now)
        case MigrationPhase.SUCCEEDED | MigrationPhase.FAILED | MigrationPhase.CANCELLED:
            return _over(world, migration, now)
        case _:
            assert_never(phase)


def can_commit(world: World, migration: Migration) -> bool:
    """Tell whether a migration may be committed: the guest at the brink, the receiver not to be collected."""
    source, receiver = world.pod(migration.status.source), receiver_of(world, migration)
    return (
        migration.status.phase is MigrationPhase.AT_BRINK
        and not migration.deleted
        and _transfer(world, migration).state is TransferState.AT_BRINK
        and source is not None
        and source.lives
        and receiver is not None
        and receiver.lives
        and not receiver.owner
    )


def commit(migration: Migration) -> WriteMigration:
    """Return the write that decides."""
    status = replace(
        migration.status, phase=MigrationPhase.SWITCHING_OVER, committed=True, reason=Reason.SWITCHING_OVER, message=""
    )
    return WriteMigration(migration.uid, migration.version, status)


def cancel(migration: Migration, outcome: MigrationOutcome) -> WriteMigration:
    """Return the write that calls a migration off. Not for one that is committed."""
    status = replace(
        migration.status,
        phase=MigrationPhase.CANCELLING,
        outcome=outcome,
        reason=outcome.reason,
        message=outcome.message,
    )
    return WriteMigration(migration.uid, migration.version, status)


def receiver_of(world: World, migration: Migration) -> Pod | None:
    """Return the receiver."""
    status = migration.status
    if status.receiver_uid:
        return world.pod(status.receiver_uid)
    found = world.pod_named(migration.namespace, status.receiver)
    # Before its UID is known it is ours by its owner only: a pod of that name may be anybody's.
    return found if found is not None and found.owner == migration.uid else None


def cannot_move(world: World, migration: Migration) -> bool:
    """Tell whether a move that is being called off has neither a commit nor a receiver: its guest stays at home."""
    called_off = migration.status.phase is MigrationPhase.CANCELLING and not migration.status.committed
    unproven = _unproven(world, migration, migration.status.receiver_uid)
    return called_off and not unproven and _gone(receiver_of(world, migration))


def _gone(pod: Pod | None) -> bool:
    """Tell whether a pod's processes have certainly ended. Somebody who removes a pod by force vouches for that."""
    return pod is None or pod.phase is PodPhase.ENDED


def _unproven(world: World, migration: Migration, *uids: str) -> Actions:
    """Return the questions that have to be asked before a pod that is not seen may be taken for gone."""
    unseen = (uid for uid in uids if uid and world.pod(uid) is None and uid not in world.gone)
    return tuple(LookForPod(migration.uid, uid) for uid in unseen)


def _out_of_reach(world: World, pod: Pod) -> bool:
    """Tell whether a pod is ending on a node that does not answer: nobody knows when it will have ended."""
    return pod.terminating and not world.node(pod.node).ready


def _write(migration: Migration, phase: MigrationPhase, reason: Reason, **changes: object) -> Actions:
    status = replace(migration.status, phase=phase, reason=reason, message="", **changes)  # type: ignore[arg-type]
    return () if status == migration.status else (WriteMigration(migration.uid, migration.version, status),)


def _stop(world: World, migration: Migration, now: float) -> MigrationOutcome | None:
    """Return why a migration that is not committed should end, or nothing."""
    source = world.pod(migration.status.source or migration.pod)
    if migration.deleted:
        return MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED)
    if migration.request and not _wanted(world.requests.get(migration.request), migration):
        return MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED, "the request does not need it any more")
    if migration.status.source and (_gone(source) or (source is not None and source.terminating)):
        return MigrationOutcome(MigrationPhase.FAILED, Reason.NEIGHBOUR_GONE)
    if now > migration.created_at + migration.deadline:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.DEADLINE)
    return None


def _wanted(request: Request | None, migration: Migration) -> bool:
    """Tell whether its request still counts on it. One that is not seen does not."""
    if request is None or request.status.phase not in _WANTING or request.status.room_appeared:
        return False
    return any(planned.migration == migration.name for planned in request.status.plan)


class UnderWay(NamedTuple):
    """How many moves there are, how many go from or to a node, and how many are for a namespace."""

    total: int
    nodes: Counter[str]
    namespaces: Counter[str]

    def at(self, node: str) -> int:
        """Return those of one node."""
        return self.nodes[node]

    def left(self, node: str, namespace: str, policy: Policy) -> int:
        """Return how many more may begin from a node, for a namespace."""
        return min(
            policy.moves_in_cluster - self.total,
            policy.moves_per_node - self.nodes[node],
            policy.moves_per_namespace - self.namespaces[namespace],
        )


def under_way(world: World, now: float) -> UnderWay:
    """Count the moves of the cluster: those that have begun, and those that a request has planned."""
    total, nodes, namespaces = 0, Counter[str](), Counter[str]()
    for item in world.active_migrations():
        if not item.request and item.status.phase is MigrationPhase.PENDING:
            continue  # one by hand that has not begun waits for the others, and must not be waited for
        if now > item.created_at + item.deadline or cannot_move(world, item):
            continue  # nobody can tell where its guest is, perhaps for ever: others do not wait for that
        ends = (world.pod(item.status.source or item.pod), receiver_of(world, item))
        request = world.requests.get(item.request)
        total += 1
        nodes.update({pod.node for pod in ends if pod is not None})
        namespaces[item.namespace if request is None else request.namespace] += 1
    for request in world.active_requests():
        if request.status.phase in _PLANNING and not request.status.room_appeared:
            unseen = [
                planned for planned in request.status.plan
                if world.migration_named(planned.namespace, planned.migration) is None
            ]  # fmt: skip
            total += len(unseen)
            nodes[request.status.node] += len(unseen)
            namespaces[request.namespace] += len(unseen)
    return UnderWay(total, nodes, namespaces)


def _pending(world: World, migration: Migration, now: float, policy: Policy) -> Actions:
    if (outcome := _stop(world, migration, now)) is not None:
        return (cancel(migration, outcome),)
    source = _source(world, migration)
    if isinstance(source, MigrationOutcome):
        return (cancel(migration, source),)
    if source is None:
        return _write(migration, MigrationPhase.PENDING, Reason.IN_USE)
    if not migration.request and under_way(world, now).left(source.node, migration.namespace, policy) <= 0:
        return _write(migration, MigrationPhase.PENDING, Reason.BUDGET)
    used = [other.status.attempt for other in world.migrations_from(source.uid)]
    # By the clock, so that it is higher than those of attempts that nobody remembers.
    attempt = max([int(now), source.attempt, *used]) + 1
    return _write(
        migration, MigrationPhase.BINDING, Reason.RECEIVER_UNBOUND, source=source.uid, source_node=source.node,
        receiver=migration.receiver or f"{migration.vm}-{migration.uid[:8]}", attempt=attempt, started_at=now,
    )  # fmt: skip


def _source(world: World, migration: Migration) -> Pod | MigrationOutcome | None:
    """Return the pod that is to leave, why there is none, or nothing where it is part of something else now."""
    if migration.pod:
        source = world.pod(migration.pod)
    else:
        found = world.pods_of_vm(migration.namespace, migration.vm)
        source = next((pod for pod in found if pod.lives and pod.ready), None) or next(iter(found), None)
    if source is None or not source.lives or not source.node:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.VM_NOT_FOUND)
    if not source.movable:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.NOT_OPTED_IN, source.why_fixed)
    older = any(
        (other.created_at, other.uid) < (migration.created_at, migration.uid)
        for other in world.active_migrations()
        if (other.namespace, other.vm) == (migration.namespace, migration.vm)
        and (other.status.source or not migration.request)  # one by hand that waits does not keep a request waiting
    )
    return None if older or source.uid in in_use(world, besides=migration) else source


def in_use(world: World, *, besides: Migration | None = None, request: str = "") -> frozenset[str]:
    """Return the UIDs of pods that are part of a move or of a hold of somebody else's."""
    own = besides.request if besides is not None else request
    used: set[str] = set()
    for hold in world.holds.values():
        if hold.live and hold.request != own:
            used.update((hold.claimant, *(payer.uid for payer in hold.payers)))
    for other in world.active_migrations():
        if besides is None and not other.request and not other.status.source:
            used.update(pod.uid for pod in world.pods_of_vm(other.namespace, other.vm))
        if besides is None or other.uid != besides.uid:
            used.update(uid for uid in (other.status.source, other.pod, other.status.receiver_uid) if uid)
    return frozenset(used)


def _binding(world: World, migration: Migration, now: float, policy: Policy) -> Actions:
    status = migration.status
    if (outcome := _stop(world, migration, now)) is not None:
        return (cancel(migration, outcome),)
    receiver = receiver_of(world, migration)
    if receiver is None and not status.receiver_uid:
        if now > status.started_at + policy.bind_within:
            return (cancel(migration, MigrationOutcome(MigrationPhase.FAILED, Reason.RECEIVER_UNBOUND)),)
        if (check := world.checks.get(migration.uid)) is not None and not check.allowed:
            outcome = MigrationOutcome(MigrationPhase.FAILED, Reason.RECEIVER_REFUSED, check.message)
            return (cancel(migration, outcome),)
        return (CreateReceiver(migration.uid, status.source, status.receiver, status.attempt, migration.node),)
    if (outcome := _bad_receiver(migration, receiver)) is not None:
        return (cancel(migration, outcome),)
    assert receiver is not None  # noqa: S101  # else it would have been bad
    if not status.receiver_uid:
        return _write(migration, status.phase, Reason.RECEIVER_UNBOUND, receiver_uid=receiver.uid)
    if (refused := _start_refused(world, migration)) is not None:
        return (cancel(migration, refused),)
    if receiver.phase is not PodPhase.RUNNING:
        reason = Reason.RECEIVER_STARTING if receiver.node else Reason.RECEIVER_UNBOUND
        if now > status.started_at + policy.bind_within:
            return (cancel(migration, MigrationOutcome(MigrationPhase.FAILED, reason)),)
        return _write(migration, status.phase, reason)
    return (
        StartTransfer(migration.uid, status.attempt),
        *_write(migration, MigrationPhase.TRANSFERRING, Reason.TRANSFERRING),
    )


def _start_refused(world: World, migration: Migration) -> MigrationOutcome | None:
    """Return how a move ends that a runner will not begin: it would say the same again."""
    check = world.checks.get(migration.uid)
    if check is None or check.allowed:
        return None
    return MigrationOutcome(MigrationPhase.FAILED, Reason.TRANSFER_FAILED, check.message)


def _bad_receiver(migration: Migration, receiver: Pod | None) -> MigrationOutcome | None:
    if receiver is None or _gone(receiver) or receiver.terminating:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.RECEIVER_GONE)
    if receiver.attempt != migration.status.attempt:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.RECEIVER_GONE, "its name is taken by another pod")
    if receiver.node and receiver.node == migration.status.source_node:
        return MigrationOutcome(MigrationPhase.FAILED, Reason.NO_PLACE, "the receiver came to the neighbour's own node")
    return None


def _transferring(world: World, migration: Migration, now: float) -> Actions:
    receiver = _still_good(world, migration, now)
    if not isinstance(receiver, Pod):
        return receiver
    if _transfer(world, migration).state is not TransferState.AT_BRINK:
        return ()
    if receiver.owner:
        return (DetachReceiver(receiver.uid, receiver.version),)
    return _write(migration, MigrationPhase.AT_BRINK, Reason.AT_BRINK)


def _at_brink(world: World, migration: Migration, now: float) -> Actions:
    receiver = _still_good(world, migration, now)
    if not isinstance(receiver, Pod):
        return receiver
    if receiver.owner:
        return (DetachReceiver(receiver.uid, receiver.version),)
    # A request commits its migrations itself, all of them together.
    return () if migration.request or not can_commit(world, migration) else (commit(migration),)


def _still_good(world: World, migration: Migration, now: float) -> Pod | Actions:
    """Return the receiver of a copy that goes on, or what to do about one that does not."""
    receiver = receiver_of(world, migration)
    outcome = _stop(world, migration, now) or _bad_receiver(migration, receiver)
    if outcome is not None:
        return (cancel(migration, outcome),)
    assert receiver is not None  # noqa: S101  # else it would have been bad
    transfer = _transfer(world, migration)
    if transfer.state is TransferState.NOT_STARTED:
        if (refused := _start_refused(world, migration)) is not None:
            return (cancel(migration, refused),)
        return (StartTransfer(migration.uid, migration.status.attempt),)
    if transfer.state in (*_STAYED, TransferState.LOST):
        return (cancel(migration, MigrationOutcome(MigrationPhase.FAILED, Reason.TRANSFER_FAILED, transfer.message)),)
    return receiver


def _transfer(world: World, migration: Migration) -> Transfer:
    return world.transfers.get(migration.uid, _NOT_STARTED)


def _switching_over(world: World, migration: Migration) -> Actions:
    status = migration.status
    transfer = world.transfers.get(migration.uid, Transfer(TransferState.UNKNOWN))
    source = world.pod(status.source)
    match transfer.state:
        case TransferState.SUCCEEDED:
            return _write(migration, MigrationPhase.MOVED, Reason.NEIGHBOUR_LEAVING)
        case TransferState.DAMAGED:
            outcome = MigrationOutcome(MigrationPhase.FAILED, Reason.GUEST_DAMAGED, transfer.message)
            return _write(migration, MigrationPhase.MOVED, Reason.GUEST_DAMAGED, outcome=outcome)
        case TransferState.LOST:
            return _lost(migration, transfer)
        case TransferState.FAILED | TransferState.CANCELLED:
            outcome = MigrationOutcome(MigrationPhase.FAILED, Reason.TRANSFER_FAILED, transfer.message)
            return (cancel(migration, outcome),)
        case TransferState.ARRIVED:
            return (ReleaseTransfer(migration.uid, status.attempt),)
        case TransferState.NOT_STARTED | TransferState.COPYING | TransferState.AT_BRINK:
            return (_let_go(world, migration),)
        case TransferState.LEFT | TransferState.COMPLETE | TransferState.INCOMPLETE | TransferState.UNKNOWN if (
            questions := _unproven(world, migration, status.source, status.receiver_uid)
        ):
            return questions
        case TransferState.COMPLETE if _gone(source):
            # Nobody is left who could take the guest back: the receiver may run it.
            return (ReleaseTransfer(migration.uid, status.attempt),)
        case TransferState.COMMITTED | TransferState.SWITCHING:
            return _write(migration, status.phase, Reason.SWITCHING_OVER)
        case TransferState.LEFT | TransferState.COMPLETE | TransferState.INCOMPLETE | TransferState.UNKNOWN:
            if _nobody_has_it(transfer.state, source, receiver_of(world, migration)):
                return _lost(migration, transfer)
            # A side that does not answer is not dead. It ends when its pod does, or somebody removes that by force.
            return _write(migration, status.phase, Reason.RUNNER_SILENT)
        case _:
            assert_never(transfer.state)


def _let_go(world: World, migration: Migration) -> CommitTransfer | CancelTransfer:
    """Let a guest switch over; but not into a receiver that somebody has deleted since, while it is still at home."""
    receiver = receiver_of(world, migration)
    doomed = receiver is not None and not receiver.lives
    return (CancelTransfer if doomed else CommitTransfer)(migration.uid, migration.status.attempt)


def _nobody_has_it(state: TransferState, source: Pod | None, receiver: Pod | None) -> bool:
    """Tell from what is proven dead, and from what the other side says, whether a guest is nowhere."""
    match state:
        case TransferState.LEFT:
            return _gone(receiver)
        case TransferState.INCOMPLETE:
            return _gone(source)
        case _:
            return state is TransferState.UNKNOWN and _gone(source) and _gone(receiver)


def _lost(migration: Migration, transfer: Transfer) -> Actions:
    return (cancel(migration, MigrationOutcome(MigrationPhase.FAILED, Reason.GUEST_LOST, transfer.message)),)


def may_leave(world: World, migration: Migration) -> bool:
    """Tell whether what is left of a source may go: the room that it keeps is not needed, or its claimant has asked."""
    request = world.requests.get(migration.request) if migration.request else None
    if request is None or request.status.phase.final or request.status.phase is RequestPhase.UNDOING:
        return True
    if request.status.phase is not RequestPhase.SWAPPING:
        return request.status.phase in (RequestPhase.GROWING, RequestPhase.RELEASING)
    claimant = world.pod(request.status.claimant)
    if claimant is None or not claimant.lives:
        return True
    # Resize first: the kubelet has seen the new size, so the room never looks free.
    asked = claimant.container(request.status.container) == request.status.wanted
    return asked and claimant.resize in (Resize.DEFERRED, Resize.IN_PROGRESS, Resize.DONE)


def _moved(world: World, migration: Migration, now: float) -> Actions:
    source = world.pod(migration.status.source)
    if questions := _unproven(world, migration, migration.status.source):
        return questions
    if source is None or _out_of_reach(world, source):
        return _end(migration, migration.status.outcome or MigrationOutcome(MigrationPhase.SUCCEEDED, Reason.DONE), now)
    if source.terminating or not (_gone(source) or may_leave(world, migration)):
        return ()
    return (DeletePod(source.uid),)


def _cancelling(world: World, migration: Migration, now: float) -> Actions:
    status = migration.status
    assert status.outcome is not None  # noqa: S101  # written together with the phase
    source, receiver = world.pod(status.source) if status.source else None, receiver_of(world, migration)
    transfer = _transfer(world, migration)
    if status.committed and transfer.state not in _SETTLED and not _nobody_has_it(transfer.state, source, receiver):
        # Whoever took it for lost did not know what is known now: forward again.
        return _write(migration, MigrationPhase.SWITCHING_OVER, Reason.SWITCHING_OVER, outcome=None)
    # What was never committed cannot have moved: the receiver goes, whatever its source has to say. What was, has
    # come back because QEMU said so, or is lost.
    settled = status.committed or _gone(source) or transfer.state in _SETTLED
    calls = () if settled else (CancelTransfer(migration.uid, status.attempt),)
    if questions := _unproven(world, migration, status.receiver_uid):
        return (*calls, *questions)
    if receiver is None or _out_of_reach(world, receiver):
        # A source that is silent finds out by itself that nobody takes its guest. One that says for ever that it sends
        # does not keep us: whoever owns it has written it.
        patient = now <= migration.created_at + migration.deadline
        return calls if transfer.state in _SENDING and calls and patient else _end(migration, status.outcome, now)
    return calls if receiver.terminating else (*calls, DeletePod(receiver.uid))


def _end(migration: Migration, outcome: MigrationOutcome, now: float) -> Actions:
    status = replace(
        migration.status, phase=outcome.phase, reason=outcome.reason, message=outcome.message, finished_at=now
    )
    return (WriteMigration(migration.uid, migration.version, status),)


def _over(world: World, migration: Migration, now: float) -> Actions:
    late = [pod for pod in world.pods_owned_by(migration.uid) if not pod.terminating]
    if late:
        # Made by somebody who did not know yet that this is over. A receiver that was committed to has no owner; where
        # our view is older than that, its version is another one.
        return tuple(DeletePod(pod.uid, pod.version) for pod in late)
    if any(hold.request == migration.request for hold in world.holds.values()) and migration.request:
        return ()  # whoever gives the hold back has to see how this ended
    if migration.deleted or now > migration.status.finished_at + migration.keep_for:
        return (Forget(migration.uid, migration.version),)
    return ()
