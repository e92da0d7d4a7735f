"""What to do next about a scale request: one function per phase.

    Pending -> Holding -> Moving -> Committing -> Swapping -> Growing -> Releasing -> Succeeded
       |          |          |          |            |           (nobody has to move: straight from Holding)
       +----------+----------+----------+------------+--> Undoing -> Pending again, Failed, Cancelled, PartiallyMoved
       +-> Shrinking -> Growing, or Pending again for what grows
       (every phase that docs/states.md draws is one function below)

Undoing is the same from everywhere: migrations that can be called off are, those that cannot come to their end, the
claimant gets its old size back where it has not got the new one, and then the hold goes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, assert_never

from . import ledger
from . import migration as moves
from .actions import (
    CheckResize,
    CommitHold,
    CreateHold,
    CreateMigration,
    DeleteHold,
    FencePod,
    Forget,
    RenewHold,
    ResizeGuest,
    ResizePod,
    TaintNode,
    WriteRequest,
)
from .plan import Choice, Rules
from .reasons import Reason
from .room import NOTHING, Room
from .world import (
    GUEST_BLOCK,
    FailedMove,
    GuestSize,
    Hold,
    HoldPhase,
    MigrationOutcome,
    MigrationPhase,
    NotChosen,
    Outcome,
    Payer,
    Planned,
    PodPhase,
    RequestPhase,
    Resize,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .actions import Action, Actions
    from .policy import Policy
    from .world import GuestRange, Migration, Node, Pod, Request, World

_OVER: Final = (MigrationPhase.FAILED, MigrationPhase.CANCELLED, MigrationPhase.CANCELLING)
_NOBODYS_FAULT: Final = (Reason.CANCELLED, Reason.NEIGHBOUR_GONE)
_ORDERING: Final = (RequestPhase.SHRINKING, RequestPhase.GROWING, RequestPhase.UNDOING)
"""The phases that change a guest, in the order in which they come."""
_STEPS_OF_A_PLAN: Final = 4
_LAST_PATIENCE: Final = 10
"""How many times as long as a grant may take something is put back that nobody lets us put back."""
_TOLD: Final = 32
"""How many neighbours that were not chosen are told about: the schema takes no more."""
_LONGEST: Final = 256
"""How much is told about each: what is stored has to be what was decided, or it would be written again and again."""
_NAMED: Final = 5
"""How many thieves are named."""
_RECEIVERS_FAULT: Final = (
    Reason.RECEIVER_UNBOUND, Reason.RECEIVER_STARTING, Reason.RECEIVER_GONE, Reason.RECEIVER_REFUSED,
    Reason.NO_PLACE,
)  # fmt: skip


def decide(world: World, request: Request, now: float, policy: Policy) -> Actions:
    """Return what to do next about a request."""
    phase = request.status.phase
    match phase:
        case RequestPhase.PENDING:
            return _pending(world, request, now, policy)
        case RequestPhase.SHRINKING:
            return _shrinking(world, request, now, policy)
        case RequestPhase.HOLDING:
            return _holding(world, request, now, policy)
        case RequestPhase.MOVING:
            return _moving(world, request, now, policy)
        case RequestPhase.COMMITTING:
            return _committing(world, request, now, policy)
        case RequestPhase.SWAPPING:
            return _swapping(world, request, now, policy)
        case RequestPhase.GROWING:
            return _growing(world, request, now, policy)
        case RequestPhase.RELEASING:
            return _releasing(world, request, now, policy)
        case RequestPhase.UNDOING:
            return _undoing(world, request, now, policy)
        case RequestPhase.SUCCEEDED | RequestPhase.FAILED | RequestPhase.CANCELLED | RequestPhase.PARTIALLY_MOVED:
            return _over(world, request, now)
        case _:
            assert_never(phase)


# Writing down where it is


def _write(request: Request, phase: RequestPhase, reason: Reason, message: str = "", **changes: object) -> Actions:
    """Record something, unless it stands there already."""
    status = replace(request.status, phase=phase, reason=reason, message=message, **changes)  # type: ignore[arg-type]
    return () if status == request.status else (WriteRequest(request.uid, request.version, status),)


def _wait(request: Request, reason: Reason, message: str = "") -> Actions:
    return _write(request, request.status.phase, reason, message)


def _undo(request: Request, outcome: Outcome, **changes: object) -> Actions:
    return _write(request, RequestPhase.UNDOING, Reason.UNDOING, outcome.message, outcome=outcome, **changes)


def _again(request: Request, policy: Policy, reason: Reason, message: str = "", **changes: object) -> Actions:
    """Undo and plan anew, a limited number of times."""
    if request.status.round >= policy.tries:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.TOO_MANY_TRIES, f"last: {reason} {message}".strip()))
    return _undo(request, Outcome(RequestPhase.PENDING, reason, message), **changes)


def _stop(world: World, request: Request, now: float) -> Outcome | None:
    """Return why a request should end though it is not done, or nothing."""
    claimant = world.pod(request.status.claimant)
    if request.status.phase is not RequestPhase.PENDING and (claimant is None or not claimant.lives):
        return Outcome(RequestPhase.FAILED, Reason.CLAIMANT_GONE)
    if request.deleted:
        return Outcome(RequestPhase.CANCELLED, Reason.CANCELLED)
    if (newer := _superseded_by(world, request)) is not None:
        return Outcome(RequestPhase.CANCELLED, Reason.SUPERSEDED, f"by {newer.name}")
    if _too_late(request, now):
        return Outcome(RequestPhase.FAILED, Reason.DEADLINE, f"last: {request.status.reason}")
    return Outcome(RequestPhase.PENDING, Reason.SUSPENDED) if request.suspend else None


def _too_late(request: Request, now: float, grace: float = 0.0) -> bool:
    return now > request.created_at + request.deadline + grace


def _order(request: Request) -> tuple[float, str]:
    return request.created_at, request.uid


def _same_pod(world: World, request: Request) -> list[Request]:
    """Return the other requests for this request's pod that are not over and not being called off."""
    mine = claimant_of(world, request)
    if mine is None:
        return []
    others = (other for other in world.requests_about(mine) if other.uid != request.uid and not other.dry_run)
    return [other for other in others if mine.uid == _claimant_uid(world, other)]


def claimant_of(world: World, request: Request) -> Pod | None:
    """Return the pod that a request is about: the one it has begun with, or the one it would begin with."""
    if request.status.phase is not RequestPhase.PENDING:
        return world.pod(request.status.claimant)
    return _find_claimant(world, request)


def _claimant_uid(world: World, request: Request) -> str:
    if request.status.phase is not RequestPhase.PENDING:
        return request.status.claimant
    found = _find_claimant(world, request)
    return "" if found is None else found.uid


def _superseded_by(world: World, request: Request) -> Request | None:
    newer = [
        other for other in _same_pod(world, request)
        if _order(other) > _order(request) and not other.deleted and not other.dry_run
    ]  # fmt: skip
    return max(newer, key=_order, default=None)


# Pending: find the pod, make the plan


def _find_claimant(world: World, request: Request) -> Pod | None:
    if request.pod:
        return world.pod_named(request.namespace, request.pod)
    found = _living(world, request)
    # During a move there are two; the guest is in the one that is Ready.
    ready = found if len(found) == 1 else [pod for pod in found if pod.ready]
    return ready[0] if len(ready) == 1 else None


def _living(world: World, request: Request) -> list[Pod]:
    return [pod for pod in world.pods_of_vm(request.namespace, request.vm) if pod.lives]


def _container(request: Request, claimant: Pod) -> str | None:
    names = [container.name for container in claimant.containers]
    wanted = request.container or claimant.vm_container or (names[0] if len(names) == 1 else "")
    return wanted if wanted in names else None


def _pending(world: World, request: Request, now: float, policy: Policy) -> Actions:
    status = request.status
    outcome = _stop(world, request, now)
    if outcome is not None and outcome.phase is RequestPhase.PENDING:
        return _wait(request, outcome.reason)
    if outcome is not None:
        return _undo(request, outcome)
    if status.retry_at > now:
        return _wait(request, Reason.BACKING_OFF, status.message)
    claimant = _find_claimant(world, request)
    if claimant is None:
        several = bool(request.vm and _living(world, request))
        return _wait(request, Reason.AMBIGUOUS_VM if several else Reason.VM_NOT_FOUND)
    if not claimant.lives or claimant.node not in world.nodes:
        return _wait(request, Reason.POD_NOT_RUNNING)
    container = _container(request, claimant)
    if container is None:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.CONTAINER_NOT_FOUND))
    has_guest = bool(claimant.vm) and container == claimant.vm_container
    if has_guest and claimant.uid not in world.guests:
        return _wait(request, Reason.GUEST_SILENT)
    sized = _sized(request, claimant, container, world.guests[claimant.uid] if has_guest else None, policy)
    if outside := _outside(sized, claimant.guest):
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.OUT_OF_RANGE, outside))
    return _plan(world, sized, claimant, now, policy)


def _sized(request: Request, claimant: Pod, container: str, guest: GuestSize | None, policy: Policy) -> Request:
    """Return a request that knows its pod and what that, and the guest in it, are to become."""
    had = claimant.container(container)
    wanted = Room(
        had.cpu if request.cpu is None else request.cpu, had.memory if request.memory is None else request.memory
    )
    # A second plan of the same request: a guest that was made smaller for the first one had more before.
    before = (request.status.guest_before if request.status.order else None) or guest
    status = replace(
        request.status, claimant=claimant.uid, container=container, node=claimant.node, original=had, wanted=wanted,
        target=claimant.with_container(container, wanted), guest_before=before,
        guest_after=before and _guest_after(request, before, claimant.given(container), wanted, policy),
    )  # fmt: skip
    return replace(request, status=status)


def _guest_after(request: Request, before: GuestSize, had: Room, wanted: Room, policy: Policy) -> GuestSize:
    """Return what a guest gets: of each resource that was named, what its container has and QEMU does not need."""
    cpus, memory = before
    if request.cpu is not None:
        whole = -(-wanted.cpu // 1000)
        cpus = max(cpus, whole) if wanted.cpu >= had.cpu else min(cpus, whole)
    if request.memory is not None:
        spare = min(policy.guest_spare, max(0, had.memory - memory))
        rest = (wanted.memory - spare) // GUEST_BLOCK * GUEST_BLOCK
        memory = max(memory, rest) if wanted.memory >= had.memory else min(memory, rest)
    return GuestSize(cpus, memory)


def _outside(request: Request, range_: GuestRange | None) -> str:
    """Say what a guest cannot have without a restart."""
    before, after = request.status.guest_before, request.status.guest_after
    if before is None or after is None:
        return ""
    if after.memory < GUEST_BLOCK <= before.memory:
        return "resources.memory: is not more than what QEMU itself needs"
    if range_ is None:
        return ""
    if after.cpus != before.cpus and not range_.least.cpus <= after.cpus <= range_.most.cpus:
        return f"resources.cpu: the guest can have {range_.least.cpus} to {range_.most.cpus} vCPUs, not {after.cpus}"
    if after.memory != before.memory and not range_.least.memory <= after.memory <= range_.most.memory:
        least, most, asked = (size >> 20 for size in (range_.least.memory, range_.most.memory, after.memory))
        return f"resources.memory: the guest can have {least}Mi to {most}Mi, and this would give it {asked}Mi"
    return ""


def _plan(world: World, request: Request, claimant: Pod, now: float, policy: Policy) -> Actions:
    node = world.node(claimant.node)
    status = request.status
    grows = not status.wanted.within(claimant.given(status.container))
    if not request.status.target.within(node.allocatable):
        message = f"{node.name} has {node.allocatable.cpu}m cpu and {node.allocatable.memory} bytes"
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.LARGER_THAN_NODE, message))
    if not request.dry_run and _same_pod(world, request):
        return _wait(request, Reason.OTHERS_FIRST, "an earlier request for this pod is being undone")
    if claimant.uid in moves.in_use(world, request=request.uid):
        return _wait(request, Reason.IN_USE)
    if request.dry_run and not grows:
        return _write(request, RequestPhase.SUCCEEDED, Reason.DRY_RUN, finished_at=now)
    guest_first = _guest_has(world, request, max)
    if not request.dry_run and (guest_first or not grows) and (refused := _checked(world, request)) is not None:
        return refused  # nothing is taken from a guest for a size that its pod is not allowed to have
    if not request.dry_run and guest_first:
        return _write(request, RequestPhase.SHRINKING, Reason.SHRINKING_GUEST, order=_next_order(world, request, now))
    if not grows:
        return _write(request, RequestPhase.SHRINKING, Reason.RESIZING, order=_next_order(world, request, now))
    return _plan_growth(world, request, claimant, now, policy)


def _next_order(world: World, request: Request, now: float) -> int:
    """Return a number above those of all plans for this guest: by the clock, and by what its runner says."""
    seen = world.orders.get(request.status.claimant, 0) // _STEPS_OF_A_PLAN
    return max(int(now * 1000), seen, request.status.order) + 1


def _resize_guest(request: Request, size: GuestSize) -> ResizeGuest:
    """Return the order to a guest: what a later phase says counts more than what an earlier one says late."""
    return ResizeGuest(request.status.claimant, size, _order_now(request))


def _order_now(request: Request) -> int:
    return request.status.order * _STEPS_OF_A_PLAN + _ORDERING.index(request.status.phase)


def _guest_fits(world: World, request: Request) -> bool:
    return request.status.claimant in world.guests and not _guest_has(world, request, max)


def _guest_has(world: World, request: Request, wrong: Callable[[int, int], int]) -> bool:
    """Tell whether a guest has more (`max`) or less (`min`) than it shall have. One that is silent does not."""
    guest, after = world.guests.get(request.status.claimant), request.status.guest_after
    if guest is None or after is None:
        return False
    return any(wrong(has, shall) != shall for has, shall in zip(guest, after, strict=True))


def _would_hold(request: Request, now: float, policy: Policy) -> Hold:
    status = request.status
    return Hold(
        claimant=status.claimant, request=request.uid, node=status.node, target=status.target,
        payers=tuple(Payer(planned.uid, planned.receiver) for planned in status.plan), priority=request.priority,
        created_at=request.created_at, expires_at=now + policy.hold_term, round=status.round,
    )  # fmt: skip


def _plan_growth(world: World, request: Request, claimant: Pod, now: float, policy: Policy) -> Actions:
    status = request.status
    node = world.node(claimant.node)
    lacking = ledger.shortfall(node, world.holds.values(), _would_hold(request, now, policy))
    planned: tuple[Planned, ...] = ()
    not_chosen: tuple[NotChosen, ...] = ()
    if lacking:
        if not request.moves:
            return _wait_with(request, Reason.WAITING_FOR_ROOM, shortfall=lacking)
        choice = _choose(world, request, claimant, lacking, now, policy)
        if choice.reason is not None:
            told = _not_chosen(choice)
            return _wait_with(request, choice.reason, choice.message, shortfall=lacking, not_chosen=told)
        planned = tuple(_planned(request, pod) for pod in choice.neighbours)
        not_chosen = _not_chosen(choice)
    changes: dict[str, Any] = {
        "plan": planned,
        "not_chosen": not_chosen,
        "shortfall": lacking,
        "room_appeared": False,
        "outcome": None,
        "retry_at": 0.0,
    }
    reason = Reason.PLANNED if planned else Reason.FITS
    if request.dry_run:
        return _write(request, RequestPhase.SUCCEEDED, Reason.DRY_RUN, finished_at=now, **changes)
    order = _next_order(world, request, now)
    return _write(request, RequestPhase.HOLDING, reason, round=status.round + 1, order=order, **changes)


def _wait_with(request: Request, reason: Reason, message: str = "", **changes: object) -> Actions:
    return _write(request, RequestPhase.PENDING, reason, message, **changes)


def _not_chosen(choice: Choice) -> tuple[NotChosen, ...]:
    others = [item for item in choice.rejected if item.reason is not Reason.IS_CLAIMANT]
    ordered = sorted(others, key=lambda item: (item.reason is Reason.NOT_A_VM, item.pod.namespace, item.pod.name))
    return tuple(
        NotChosen(item.pod.namespace, item.pod.name, item.reason, item.message[:_LONGEST]) for item in ordered[:_TOLD]
    )  # fmt: skip


def _planned(request: Request, pod: Pod) -> Planned:
    """Choose all names before anything is made: whoever makes it again makes the same."""
    suffix = f"{request.uid[:8]}-{request.status.round + 1}"
    return Planned(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.vm,
        pod.size,
        migration=f"{pod.vm}-{suffix}",
        receiver=f"{pod.vm}-{suffix}",
    )


def _choose(world: World, request: Request, claimant: Pod, lacking: Room, now: float, policy: Policy) -> Choice:  # noqa: PLR0913, PLR0917  # what is needed, of whom, when and by which rules
    node = world.node(claimant.node)
    busy = moves.under_way(world, now)
    crowded = [name for name, count in busy.nodes.items() if count >= policy.moves_per_node]
    elsewhere = world.places().best(besides={node.name, *crowded})
    failed = request.status.failed
    blamed = Counter(move.uid for move in failed if move.reason not in _RECEIVERS_FAULT)
    doomed = frozenset(uid for uid, times in blamed.items() if times >= policy.failures)
    # Those who want to grow themselves, and those whose moves have failed, are moved where nobody else would do.
    growing = (
        pod.uid for pod in node.pods
        if pod.movable and any(
            other.uid != request.uid and _claimant_uid(world, other) == pod.uid for other in world.requests_about(pod)
        )
    )  # fmt: skip
    unwise = doomed.union((move.uid for move in failed), growing)

    def chosen(at_most: int) -> Choice:
        rules = Rules(
            claimant=claimant, selected=lambda pod: request.selector is None or request.selector.matches(pod.labels),
            in_use=moves.in_use(world), avoid=unwise, rest_until=_resting(node, policy), at_most=at_most,
        )  # fmt: skip
        choice = policy.choose(node, lacking, rules, elsewhere, now, policy.cost)
        if choice.reason is not None and unwise != doomed:
            choice = policy.choose(node, lacking, replace(rules, avoid=doomed), elsewhere, now, policy.cost)
        return choice

    left = busy.left(node.name, request.namespace, policy)
    choice = chosen(min(request.at_most, policy.moves_per_node, policy.moves_per_namespace, policy.moves_in_cluster))
    if len(choice.neighbours) <= left:
        return choice
    fewer = chosen(left) if left > 0 else Choice(reason=Reason.BUDGET)
    if fewer.reason is None:
        return fewer
    told = (
        f"{busy.total} moves are under way in the cluster, {busy.at(node.name)} of them at {node.name}, "
        f"{busy.namespaces[request.namespace]} for requests in {request.namespace}"
    )
    return replace(choice, neighbours=(), reason=Reason.BUDGET, message=told)


def _resting(node: Node, policy: Policy) -> dict[str, float]:
    # A pod that was made to receive a guest is as old as that guest's last move.
    return {pod.uid: pod.created_at + policy.rest for pod in node.pods if pod.attempt}


# Shrinking: the guest first, then the pod


def _shrinking(world: World, request: Request, now: float, policy: Policy) -> Actions:
    status = request.status
    claimant = world.pod(status.claimant)
    if claimant is None or not claimant.lives:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.CLAIMANT_GONE))
    if status.resized:
        return _smaller_pod(request, claimant, now, policy)
    if (outcome := _stop(world, request, now)) is not None:
        return _undo(request, outcome)
    # Even a guest that is small enough has to have taken this order: one that was given before and comes late would
    # make it larger than its pod.
    obeyed = world.orders.get(claimant.uid, 0) >= _order_now(request)
    if status.guest_after is not None and not (obeyed and _guest_fits(world, request)):
        # What grows, grows after the pod.
        guest = world.guests.get(claimant.uid)
        smaller = guest and GuestSize(*(min(pair) for pair in zip(guest, status.guest_after, strict=True)))
        asking = (_resize_guest(request, smaller),) if smaller is not None else ()
        return (*asking, *_wait(request, Reason.SHRINKING_GUEST))
    if not status.wanted.within(claimant.given(status.container)):
        return _write(request, RequestPhase.PENDING, Reason.PLANNED)  # and now what grows
    return _write(request, RequestPhase.SHRINKING, Reason.RESIZING, resized=True)


def _smaller_pod(request: Request, claimant: Pod, now: float, policy: Policy) -> Actions:
    """Give the pod its smaller size. Others may have what it gave back by now, so there is no way back."""
    status = request.status
    if claimant.container(status.container) == status.wanted and claimant.resize is Resize.DONE:
        return _write(request, RequestPhase.GROWING, Reason.GROWING_GUEST)
    if _too_late(request, now, policy.grant_within):
        outcome = Outcome(RequestPhase.FAILED, Reason.RESIZE_REFUSED, f"last: {status.reason}")
        if claimant.container(status.container) != status.wanted:
            return _undo(request, outcome)  # nobody has taken anything from it yet
        return _write(request, RequestPhase.RELEASING, Reason.RESIZING, outcome=outcome)
    if claimant.container(status.container) != status.wanted:
        return (ResizePod(claimant.uid, claimant.version, status.container, status.wanted),)
    return _wait(request, Reason.RESIZING)


# Holding: the scheduler keeps the room, or says why not


def own_hold(world: World, request: Request) -> Hold | None:
    """Return the hold of this request's present round."""
    hold = world.holds.get(request.status.claimant)
    return hold if hold is not None and (hold.request, hold.round) == (request.uid, request.status.round) else None


def _holding(world: World, request: Request, now: float, policy: Policy) -> Actions:
    if (outcome := _stop(world, request, now)) is not None:
        return _undo(request, outcome)
    hold = world.holds.get(request.status.claimant)
    if hold is None:
        return (CreateHold(_would_hold(request, now, policy)),)
    if own_hold(world, request) is None:
        return _again(request, policy, Reason.HOLD_REFUSED, "the pod's room is held for another request")
    if hold.phase is HoldPhase.PENDING:
        if now > hold.expires_at:
            return _again(request, policy, Reason.WAITING_FOR_HOLD, "the scheduler did not answer")
        return _wait(request, Reason.WAITING_FOR_HOLD)
    if not hold.promised:
        return _again(request, policy, Reason.HOLD_REFUSED, f"{hold.reason} {hold.message}".strip())
    if (taint := _taint(world, hold, policy)) is not None:
        return taint
    if hold.shortfall and not request.status.plan:
        return _again(request, policy, Reason.ROOM_TAKEN, "the scheduler is placing a pod there")
    if hold.shortfall:
        return (*_renewed(hold, now, policy), *_write(request, RequestPhase.MOVING, Reason.TRANSFERRING))
    return _to_commit(world, request, room_appeared=bool(request.status.plan))


def _taint(world: World, hold: Hold, policy: Policy) -> Actions | None:
    """Return what keeps the pods of other schedulers away, where there are any, and it is not done yet."""
    needed = policy.taint and not world.node(hold.node).tainted
    return (TaintNode(hold.node),) if needed else None


def _renewed(hold: Hold, now: float, policy: Policy) -> Actions:
    if hold.committed or hold.expires_at - now > policy.hold_term / 2:
        return ()
    return (RenewHold(hold.claimant, hold.version, now + policy.hold_term),)


# Moving: neighbours to the brink, unless the room comes by itself


def migrations_of(world: World, request: Request) -> list[Migration | None]:
    """Return the migrations of the plan, with nothing for one that is not seen."""
    found = (world.migration_named(planned.namespace, planned.migration) for planned in request.status.plan)
    return [item if item is not None and item.request == request.uid else None for item in found]


def _moving(world: World, request: Request, now: float, policy: Policy) -> Actions:
    if (outcome := _stop(world, request, now)) is not None:
        return _undo(request, outcome)
    hold = own_hold(world, request)
    if hold is None or not hold.live:  # one that was renewed, and not spoken of again yet, is not lost
        return _again(request, policy, Reason.HOLD_LOST)
    if hold.promised and _has_room(world, hold):
        return _to_commit(world, request, room_appeared=True)
    found = migrations_of(world, request)
    if (failed := _failed(found)) is not None:
        return _try_another(request, failed, policy)
    missing = [planned for planned, item in zip(request.status.plan, found, strict=True) if item is None]
    if missing:
        return (*_renewed(hold, now, policy), *(CreateMigration(request.uid, planned) for planned in missing))
    if hold.promised and all(item is not None and moves.can_commit(world, item) for item in found):
        return (*_renewed(hold, now, policy), *_to_commit(world, request, room_appeared=False))
    reason = next(
        (item.status.reason for item in found if item is not None and item.status.reason), Reason.TRANSFERRING
    )
    return (*_renewed(hold, now, policy), *_wait(request, reason))


def _has_room(world: World, hold: Hold) -> bool:
    """Tell whether a claimant can grow now: we see it, and so does the scheduler, who knows what it is placing."""
    return not hold.shortfall and not ledger.shortfall(world.node(hold.node), world.holds.values(), hold)


def _failed(found: list[Migration | None]) -> Migration | None:
    return next((item for item in found if item is not None and (item.status.phase in _OVER or item.deleted)), None)


def _try_another(request: Request, failed: Migration, policy: Policy) -> Actions:
    outcome = failed.status.outcome or MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED)
    # The same doomed move is not tried for ever. One that somebody has called off was not doomed.
    blamed = () if outcome.reason in _NOBODYS_FAULT else (FailedMove(failed.pod, outcome.reason),)
    message = f"{failed.vm}: {outcome.reason} {outcome.message}".strip()
    return _again(request, policy, outcome.reason, message, failed=(*request.status.failed, *blamed))


def _to_commit(world: World, request: Request, *, room_appeared: bool) -> Actions:
    """Try the resize without doing it; then nothing stands in the way of the commit."""
    if (refused := _checked(world, request)) is not None:
        return refused
    reason = Reason.ROOM_APPEARED if room_appeared else Reason.SWITCHING_OVER
    return _write(request, RequestPhase.COMMITTING, reason, room_appeared=room_appeared)


def _checked(world: World, request: Request) -> Actions | None:
    """Return what to do before a pod may get its size: try it, or give up; nothing once it is known to be allowed."""
    status = request.status
    check = world.checks.get(request.uid)
    if check is None:
        return (CheckResize(request.uid, status.claimant, status.container, status.wanted),)
    if not check.allowed:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.RESIZE_REFUSED, check.message))
    return None


# Committing: the hold, then each migration, by one write each


def _committing(world: World, request: Request, now: float, policy: Policy) -> Actions:
    found = migrations_of(world, request)
    if any(item is not None and item.status.committed for item in found):
        return _forward(world, request, found, now, policy)
    if (outcome := _stop(world, request, now)) is not None:
        return _undo(request, outcome)
    hold = own_hold(world, request)
    if hold is None or not hold.live:  # one that was renewed, and not spoken of again yet, is not lost
        return _again(request, policy, Reason.HOLD_LOST)
    if not hold.promised:
        return _wait(request, Reason.WAITING_FOR_HOLD)
    if not hold.committed and (taint := _taint(world, hold, policy)) is not None:
        return taint
    node = world.node(request.status.node)
    if request.status.room_appeared or not request.status.plan:
        if not _has_room(world, hold):
            return _again(request, policy, Reason.ROOM_TAKEN, _by_whom(world, request))
        if not hold.committed:
            return (CommitHold(hold.claimant, hold.version),)
        return _write(request, RequestPhase.SWAPPING, Reason.RESIZING, resized=True)
    if (failed := _failed(found)) is not None:
        return _try_another(request, failed, policy)
    if not ledger.keepable(node, world.holds.values(), hold):
        return _again(request, policy, Reason.ROOM_TAKEN, _by_whom(world, request))
    if not hold.committed:
        return (CommitHold(hold.claimant, hold.version),)
    if not all(item is not None and moves.can_commit(world, item) for item in found):
        return _wait(request, Reason.TRANSFERRING)  # none of them moves before all of them can
    return tuple(moves.commit(item) for item in found if item is not None)


def _forward(world: World, request: Request, found: list[Migration | None], now: float, policy: Policy) -> Actions:
    """Bring all of them to their ends: one is committed."""
    here = [item for item in found if item is not None]
    to_do: list[Action] = [moves.commit(item) for item in here if moves.can_commit(world, item)]
    if to_do:
        return tuple(to_do)
    moving = [item for item in here if not (item.status.phase.final or item.status.phase is MigrationPhase.MOVED)]
    if moving and _too_late(request, now, policy.grant_within):
        # Nobody can tell where these guests are. Their migrations go on until somebody can; the request does not.
        names = ", ".join(item.vm for item in moving)
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.DEADLINE, f"still switching over: {names}"))
    if moving:
        return _wait(request, Reason.SWITCHING_OVER)
    stayed = [item for item in here if item.status.phase in (MigrationPhase.FAILED, MigrationPhase.CANCELLED)]
    if not stayed and len(here) == len(found):
        return _write(request, RequestPhase.SWAPPING, Reason.RESIZING, resized=True)
    if len(stayed) == len(here):
        return _try_another(request, stayed[0], policy)
    names = ", ".join(item.vm for item in stayed)
    return _undo(request, Outcome(RequestPhase.PARTIALLY_MOVED, Reason.PARTIALLY_MOVED, f"{names} could not move"))


# Swapping: resize first, neighbours leave second (migration.py deletes them when the kubelet has answered)


def _swapping(world: World, request: Request, now: float, policy: Policy) -> Actions:
    status = request.status
    claimant = world.pod(status.claimant)
    if claimant is None or not claimant.lives:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.CLAIMANT_GONE))
    granted = claimant.resize is Resize.DONE and claimant.container(status.container) == status.wanted
    if granted:
        return _write(request, RequestPhase.GROWING, Reason.GROWING_GUEST)
    found = [item for item in migrations_of(world, request) if item is not None]
    moved = [item for item in found if item.status.committed]
    leaving = any((pod := world.pod(item.status.source)) is not None and pod.counts for item in moved)
    if not moved and (outcome := _stop(world, request, now)) is not None:
        return _undo(request, outcome)  # nobody has moved for it: it can be put back
    if _too_late(request, now, policy.grant_within):
        # Somebody refuses it again and again, or the kubelet does not answer.
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.RESIZE_REFUSED, f"last: {status.reason}"))
    if claimant.container(status.container) != status.wanted:
        if moved and not _settled(world.node(status.node)):
            return _wait(request, Reason.OTHERS_STARTING)
        if moved and _another_waits(world, request):
            return _wait(request, Reason.OTHERS_GROWING)
        return (ResizePod(claimant.uid, claimant.version, status.container, status.wanted),)
    if claimant.resize is Resize.INFEASIBLE:
        return _undo(request, Outcome(RequestPhase.FAILED, Reason.RESIZE_REFUSED, "the kubelet calls it infeasible"))
    if claimant.resize is Resize.DEFERRED and not leaving:
        return _still_deferred(world, request, now, policy)
    return _wait(request, Reason.RESIZE_DEFERRED if claimant.resize is Resize.DEFERRED else Reason.RESIZING)


def _settled(node: Node) -> bool:
    """Tell whether all pods of a node have their room. One that its kubelet has not seen would lose it to us."""
    return all(pod.admitted or pod.terminating or not pod.counts for pod in node.pods)


def _another_waits(world: World, request: Request) -> bool:
    """Tell whether another claimant here has asked and waits: the kubelet might give us what is freed for it."""
    status = request.status
    for hold in world.holds.values():
        if hold.claimant != status.claimant and hold.node == status.node and hold.committed and hold.live:
            other = world.pod(hold.claimant)
            if other is not None and other.lives and other.size.minus(other.allocated).lacking:
                return True
    return False


def _still_deferred(world: World, request: Request, now: float, policy: Policy) -> Actions:
    """All neighbours have left and the kubelet has no room: somebody took it, or the kubelet is about to look."""
    status = request.status
    hold = own_hold(world, request)
    node = world.node(status.node)
    if hold is None or ledger.shortfall(node, world.holds.values(), hold):
        if _too_late(request, now):
            return _undo(request, Outcome(RequestPhase.FAILED, Reason.ROOM_TAKEN, _by_whom(world, request)))
        return _again(request, policy, Reason.ROOM_TAKEN, _by_whom(world, request))
    return _wait(request, Reason.RESIZE_DEFERRED)


def thieves(world: World, request: Request) -> list[str]:
    """Return the names of the pods that came to the claimant's node since its room was held."""
    status = request.status
    hold = own_hold(world, request)
    since = request.created_at if hold is None else hold.created_at
    payers = {planned.uid for planned in status.plan}
    return sorted(
        f"{pod.namespace}/{pod.name}" for pod in world.node(status.node).pods
        if pod.counts and pod.since >= since and pod.uid not in payers and pod.uid != status.claimant
    )  # fmt: skip


def _by_whom(world: World, request: Request) -> str:
    came, node = thieves(world, request), request.status.node
    if not came:
        return f"nobody came to {node} since it was held: somebody there has grown"
    more = f" and {len(came) - _NAMED} more" if len(came) > _NAMED else ""
    return f"taken on {node} by {', '.join(came[:_NAMED])}{more}"


# Growing: the guest gets what its pod has


def _growing(world: World, request: Request, now: float, policy: Policy) -> Actions:
    status = request.status
    claimant = world.pod(status.claimant)
    if claimant is None or not claimant.lives:
        return _write(
            request, RequestPhase.RELEASING, Reason.CLAIMANT_GONE,
            outcome=Outcome(RequestPhase.FAILED, Reason.CLAIMANT_GONE),
        )  # fmt: skip
    after = status.guest_after
    if after is None or (claimant.uid in world.guests and not _guest_has(world, request, min)):
        return _write(request, RequestPhase.RELEASING, Reason.WAITING_FOR_CLAIM)
    if _too_late(request, now, policy.grant_within):
        outcome = Outcome(RequestPhase.FAILED, Reason.GUEST_REFUSED, "the pod has its size, the guest does not")
        return _write(request, RequestPhase.RELEASING, Reason.WAITING_FOR_CLAIM, outcome=outcome)
    return (_resize_guest(request, after), *_wait(request, Reason.GROWING_GUEST))


# Releasing: the hold goes once the scheduler counts the new size


def _releasing(world: World, request: Request, now: float, policy: Policy) -> Actions:
    found = [item for item in migrations_of(world, request) if item is not None]
    for item in found:
        if _can_be_called_off(item):
            return (moves.cancel(item, MigrationOutcome(MigrationPhase.CANCELLED, Reason.ROOM_APPEARED)),)
    leaving = any(not item.status.phase.final for item in found)
    if leaving and not _too_late(request, now, _LAST_PATIENCE * policy.grant_within):
        return _wait(request, Reason.NEIGHBOUR_LEAVING)
    hold = own_hold(world, request)
    claimant = world.pod(request.status.claimant)
    if hold is not None and (hold.phase is HoldPhase.CLAIMED or _ended(claimant)):
        return (DeleteHold(hold.claimant, hold.version),)
    if hold is not None and not _too_late(request, now):
        return _wait(request, Reason.WAITING_FOR_CLAIM)
    outcome = request.status.outcome or Outcome(RequestPhase.SUCCEEDED, Reason.DONE)
    return _write(request, outcome.phase, outcome.reason, outcome.message, finished_at=now, outcome=None)


def _can_be_called_off(item: Migration) -> bool:
    phase = item.status.phase
    return not (item.status.committed or phase.final or phase is MigrationPhase.CANCELLING)


def _ended(pod: Pod | None) -> bool:
    return pod is None or pod.phase is PodPhase.ENDED


# Undoing: everything back that can be


def _undoing(world: World, request: Request, now: float, policy: Policy) -> Actions:
    status = request.status
    assert status.outcome is not None  # noqa: S101  # written together with the phase
    found = migrations_of(world, request)
    hold = own_hold(world, request)
    calling_off = [
        moves.cancel(item, MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED, "its request gave up"))
        for item in found
        if item is not None and _can_be_called_off(item)
    ]
    if calling_off:
        return tuple(calling_off)
    patient = not _too_late(request, now, policy.grant_within)
    # What is not committed by now is called off, and never will be: however long its receiver takes to end, or its
    # source says that it sends, it keeps no room. What is committed nobody may be able to tell the end of.
    if patient and any(item is not None and not item.status.phase.final for item in found):
        return _wait(request, Reason.UNDOING, status.message)
    unseen = any(item is None for item in found) and not status.room_appeared
    if hold is not None and hold.committed and unseen and patient:
        # They were there when the hold was committed: an old view of them must not decide.
        return _wait(request, Reason.UNDOING, status.message)
    if (
        not _too_late(request, now, _LAST_PATIENCE * policy.grant_within)
        and (back := _put_back(world, request)) is not None
    ):
        return back
    if hold is not None:
        return (DeleteHold(hold.claimant, hold.version),)
    outcome = status.outcome
    if outcome.phase is RequestPhase.PENDING:
        retry_at = 0.0 if outcome.reason is Reason.SUSPENDED else now + policy.backoff_after(status.round)
        return _write(
            request, RequestPhase.PENDING, outcome.reason, outcome.message, outcome=None, plan=(), shortfall=NOTHING,
            room_appeared=False, resized=False, retry_at=retry_at,
        )  # fmt: skip
    return _write(request, outcome.phase, outcome.reason, outcome.message, outcome=None, finished_at=now)


def _put_back(world: World, request: Request) -> Actions | None:
    """Give the claimant, and then its guest, the old size, where they were told another one."""
    status = request.status
    claimant = world.pod(status.claimant) if status.order else None
    if claimant is None or not claimant.lives:
        return None
    if status.resized and (back := _pod_back(request, claimant)) is not None:
        return back
    guest, before = world.guests.get(claimant.uid), status.guest_before
    if guest is None or before is None or not any(map(int.__lt__, guest, before)):
        return None
    if claimant.container(status.container) != status.original:
        return None
    # Never more than its pod has: that may wait for room that somebody has taken.
    has_room = status.original.within(claimant.given(status.container))
    return (_resize_guest(request, before),) if has_room else ()


def _pod_back(request: Request, claimant: Pod) -> Actions | None:
    status = request.status
    # One that was to become smaller, and was told so late, stays smaller: its room may be somebody else's by now.
    larger = not status.wanted.within(status.original)
    if larger and claimant.container(status.container) == status.wanted:
        return (ResizePod(claimant.uid, claimant.version, status.container, status.original),)
    fence = f"{request.uid}/{status.round}"
    if claimant.fence != fence:
        # An operator that was slow may be about to resize it: from here on that is refused.
        return (FencePod(claimant.uid, claimant.version, fence),)
    # It may have waited for that size before: only the kubelet's look at it is waited for.
    return () if claimant.resize is Resize.UNSEEN else None


# Over: the story stays for a while


def _over(world: World, request: Request, now: float) -> Actions:
    if any(hold.request == request.uid for hold in world.holds.values()):
        return ()  # sweep.py
    if request.deleted or now > request.status.finished_at + request.keep_for:
        return (Forget(request.uid, request.version),)
    return ()
