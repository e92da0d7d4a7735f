"""All that can happen that is not the operator's doing: kubelets, scheduler, QEMU, tenants, users, deaths and the clock.

Each step is a sentence and the state after it. What is a fault costs one of the few that a run may have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from elbowroom.core.room import Room
from elbowroom.core.world import HoldPhase, Migration, Request, RequestPhase

from .model import UNIT, Held, Move, Phase, Pod, Seen, Setup, State, Transfer, drop, find, forget, put

if TYPE_CHECKING:
    from elbowroom.core.world import Hold

_Item = TypeVar("_Item", Request, Migration)
Steps = Iterator[tuple[str, State]]
BEFORE_COMMIT = (Move.COPYING, Move.BRINK)
_RELYING = (RequestPhase.HOLDING, RequestPhase.MOVING, RequestPhase.COMMITTING, RequestPhase.SWAPPING)
_GAVE_UP = (RequestPhase.FAILED, RequestPhase.CANCELLED, RequestPhase.PARTIALLY_MOVED)
AT_SOURCE = (Move.COPYING, Move.BRINK, Move.COMMITTED, Move.COMPLETE)


def steps(setup: Setup, state: State) -> Steps:
    """Return everything that can happen next."""
    yield from _kubelets(setup, state)
    yield from _scheduler(setup, state)
    yield from _qemu(state)
    yield from _collector(setup, state)
    if state.now < setup.end:
        yield f"time passes ({state.now + 1})", state._replace(now=state.now + 1)
    if state.faults:
        yield from _faults(setup, state._replace(faults=state.faults - 1))


# Kubelets


def given(state: State, node: str) -> int:
    """Return what a kubelet has given away: a pod counts until its processes have stopped."""
    return sum(pod.allocated for pod in state.pods if pod.node == node and pod.process)


def _kubelets(setup: Setup, state: State) -> Steps:
    for node, capacity in setup.nodes:
        if node in state.dead:
            continue
        free = capacity - given(state, node)
        stopped = any(pod.node == node and pod.terminating and not pod.process for pod in state.pods)
        for pod in state.pods:
            if pod.node == node:
                yield from _kubelet(state, pod, free, stopped=stopped)


def _kubelet(state: State, pod: Pod, free: int, *, stopped: bool) -> Steps:
    if pod.phase is Phase.PENDING and not pod.terminating:
        if pod.spec <= free:
            new = pod._replace(phase=Phase.RUNNING, allocated=pod.spec, process=True)
            yield f"the kubelet starts {pod.uid}", state._replace(pods=put(state.pods, new))
        else:
            tampered = any(other.tampered for other in state.pods if other.node == pod.node)
            new = pod._replace(phase=Phase.ENDED, rejected=not tampered)
            yield f"the kubelet has no room for {pod.uid}: OutOfcpu", state._replace(pods=put(state.pods, new))
    if pod.terminating and pod.process:
        yield f"{pod.uid} stops", _stop_process(state, pod)
    elif pod.terminating:
        yield f"{pod.uid} is gone", _gone(state, pod)
    elif pod.phase is Phase.RUNNING and pod.seen is Seen.IN_PROGRESS:
        yield f"{pod.uid} has its size", state._replace(pods=put(state.pods, pod._replace(seen=Seen.DONE)))
    elif pod.phase is Phase.RUNNING and pod.seen is not Seen.DONE:
        yield from _resize(state, pod, free, stopped=stopped)


def _resize(state: State, pod: Pod, free: int, *, stopped: bool) -> Steps:
    more = pod.spec - pod.allocated
    if pod.seen is Seen.UNSEEN and more > free:
        since = 1 + max((other.since for other in state.pods if other.seen is Seen.DEFERRED), default=0)
        new = pod._replace(seen=Seen.DEFERRED, since=since)
        yield f"the kubelet defers {pod.uid}", state._replace(pods=put(state.pods, new))
        return
    if more > free or (pod.seen is Seen.DEFERRED and stopped and not _looks(state, pod.node)):
        return  # pending resizes are tried again when the API has shown that somebody has gone, or with a new one
    first = min(
        (
            other for other in state.pods
            if other.node == pod.node and other.seen is Seen.DEFERRED and other.phase is Phase.RUNNING
            and other.spec - other.allocated <= free
        ),
        key=lambda other: (-other.priority, other.since),
        default=pod,
    )  # fmt: skip
    if first.uid == pod.uid or (pod.seen is Seen.UNSEEN and (more <= 0 or pod.priority > first.priority)):
        new = pod._replace(allocated=pod.spec, seen=Seen.IN_PROGRESS if more > 0 else Seen.DONE, since=0)
        grown = forget(state._replace(pods=put(state.pods, new)), pod.uid)
        phases = [item.status.phase for item in state.requests if item.status.claimant == pod.uid]
        given_up = bool(phases) and all(phase in _GAVE_UP for phase in phases)
        if given_up and more > 0 and not pod.tampered:
            grown = grown._replace(broken=f"{pod.uid} grew after its request had given up")
        yield f"the kubelet grants {pod.uid} its size", grown


def _looks(state: State, node: str) -> bool:
    """Tell whether a kubelet has a new resize: it tries all pending ones with it, by priority, then age."""
    return any(pod.node == node and pod.seen is Seen.UNSEEN and pod.phase is Phase.RUNNING for pod in state.pods)


def _stop_process(state: State, pod: Pod) -> State:
    """End a pod's processes, and what they were doing for a guest."""
    transfers = tuple(_without(item, pod.uid) for item in state.transfers)
    return state._replace(pods=put(state.pods, pod._replace(process=False)), transfers=transfers)


def _without(item: Transfer, uid: str) -> Transfer:
    """Return what becomes of a transfer when one of its sides dies."""
    if uid == item.source and item.move in AT_SOURCE and item.move is not Move.COMPLETE:
        return item._replace(move=Move.LOST)
    if uid == item.receiver and item.move in AT_SOURCE:
        return item._replace(move=Move.FAILED)  # QEMU resumes the guest where it was
    if uid == item.receiver and item.move is Move.ARRIVED:
        return item._replace(move=Move.LOST)
    return item


def _gone(state: State, pod: Pod) -> State:
    pods = drop(state.pods, pod.uid)
    if pod.kept:
        pods = put(pods, Pod(uid=f"{pod.uid}+", spec=pod.spec, phase=Phase.PENDING, process=False, movable=False))
    return forget(state._replace(pods=pods), pod.uid)


# The scheduler, with the plugin as the protocol describes it


def sizes(state: State) -> tuple[tuple[str, str, int], ...]:
    """Return pods, their nodes and sizes as they are."""
    return tuple((pod.uid, pod.node, pod.counted) for pod in state.pods)


def _cached(state: State) -> list[tuple[str, str, int]]:
    """Return what the cache has: pods with the nodes that they have, or that it has just given them."""
    memory = state.scheduler
    assumed = dict(memory.assumed)
    seen = sizes(state) if memory.behind is None else memory.behind
    return [(uid, node or assumed.get(uid, ""), size) for uid, node, size in seen]


def _taken(state: State, node: str) -> int:
    return sum(size for _, place, size in _cached(state) if place == node)


def _lacking(state: State, hold: Hold) -> int | None:
    """Return what a claimant has not asked for yet; nothing where it is not on its node."""
    for uid, node, size in _cached(state):
        if uid == hold.claimant and node == hold.node and size:
            return max(0, hold.target.cpu // UNIT - size)
    return None


def _scheduler(setup: Setup, state: State) -> Steps:
    memory = state.scheduler
    for uid, node in memory.flight:
        rest = memory._replace(flight=tuple(item for item in memory.flight if item[0] != uid))
        pod = find(state.pods, uid)
        if pod is not None and not pod.node and not pod.terminating:
            bound = put(state.pods, pod._replace(node=node))
            yield f"{uid} is bound to {node} by the old scheduler", state._replace(pods=bound, scheduler=rest)
        yield f"{uid} is not bound by the old scheduler", state._replace(scheduler=rest)
    if not memory.loaded:
        if not memory.flight or not setup.patient:
            new = memory._replace(loaded=True, ledger=state.holds)
            yield "the new scheduler has read all holds", state._replace(scheduler=new)
        return
    if memory.ledger != state.holds:
        yield "the scheduler hears of a hold", state._replace(scheduler=memory._replace(ledger=state.holds))
    yield from _acknowledge(setup, state)
    if memory.behind is not None:
        caught_up = memory._replace(behind=None)
        yield "the scheduler's watch of pods catches up", state._replace(scheduler=caught_up)
    for item in memory.nominated:
        yield from _preemption(setup, state, *item)
    heard_of = {uid for uid, _, _ in _cached(state)}
    for pod in state.pods:
        if not pod.node and pod.phase is Phase.PENDING and not pod.terminating and pod.uid in heard_of:
            yield from _schedule(setup, state, pod)


def _schedule(setup: Setup, state: State, pod: Pod) -> Steps:
    memory = state.scheduler
    chosen = dict(memory.assumed).get(pod.uid)
    if chosen is not None:
        if _permitted(state, pod):
            rest = tuple(item for item in memory.assumed if item[0] != pod.uid)
            bound = put(state.pods, pod._replace(node=chosen))
            seen = memory.behind and tuple(
                (uid, chosen if uid == pod.uid else node, size) for uid, node, size in memory.behind
            )
            new = state._replace(pods=bound, scheduler=memory._replace(assumed=rest, behind=seen))
            yield f"{pod.uid} is bound to {chosen}", new
        return
    fits = False
    for node, capacity in _distinct(setup, state):
        allowed = not setup.elsewhere or node not in _forbidden(state, pod)
        if node not in state.dead and allowed and _filter(state, pod, node, capacity):
            fits = True
            assumed = tuple(sorted((*memory.assumed, (pod.uid, node))))
            served = tuple(item for item in memory.nominated if item[0] != pod.uid)
            new = state._replace(scheduler=memory._replace(assumed=assumed, nominated=served))
            yield f"the scheduler gives {pod.uid} a place on {node}", new
    if pod.priority and not fits and all(uid != pod.uid for uid, _, _ in memory.nominated):
        yield from _preempt(setup, state, pod)


def _preempt(setup: Setup, state: State, pod: Pod) -> Steps:
    """Choose a victim whose leaving would let a pod pass Filter; nobody who is part of a hold or a move.

    It is removed later, when the cycle is over.
    """
    memory = state.scheduler
    spared = _part_of_a_hold_or_move(state)
    for victim in state.pods:
        if victim.node in ("", *state.dead) or victim.terminating or victim.phase is Phase.ENDED:
            continue
        if victim.priority >= pod.priority or victim.name in spared:
            continue
        if _filter(state, pod, victim.node, dict(setup.nodes)[victim.node], without=victim.uid):
            nominated = tuple(sorted((*memory.nominated, (pod.uid, victim.node, victim.uid))))
            new = state._replace(scheduler=memory._replace(nominated=nominated))
            yield f"{pod.uid} is to have the place of {victim.uid} on {victim.node}", new


def _part_of_a_hold_or_move(state: State) -> set[str]:
    live = [hold for hold in state.scheduler.ledger if hold.phase not in (HoldPhase.RELEASED, HoldPhase.REFUSED)]
    found = {name for hold in live for payer in hold.payers for name in (payer.uid, payer.receiver)}
    found |= {hold.claimant for hold in live}
    for item in state.migrations:
        if not item.status.phase.final:
            found |= {item.status.source, item.status.receiver}
    return found


def _preemption(setup: Setup, state: State, uid: str, node: str, victim: str) -> Steps:
    """Remove the victim of a preemptor; drop a nomination that is of no use any more."""
    memory = state.scheduler
    pod, doomed = find(state.pods, uid), find(state.pods, victim)
    rest = tuple(item for item in memory.nominated if item[0] != uid)
    if doomed is not None and not doomed.terminating and doomed.phase is not Phase.ENDED:
        yield f"{victim} is removed for {uid}", _killed(state, terminate(state, doomed, by_us=False), doomed)
        return
    waits = doomed is not None and doomed.phase is not Phase.ENDED
    useful = pod is not None and not pod.node and _filter(state, pod, node, dict(setup.nodes)[node])
    if not waits and not useful:
        new = state._replace(scheduler=memory._replace(nominated=rest))
        yield f"{uid} is not to have a place on {node} any more", new


def _distinct(setup: Setup, state: State) -> Iterator[tuple[str, int]]:
    """Return the nodes, but of those that are alike and that nothing has touched yet only the first: symmetry."""
    touched = {pod.node for pod in state.pods} | {
        node for _, node in (*state.scheduler.assumed, *state.scheduler.flight)
    }
    touched |= {hold.node for hold in state.holds} | {*state.dead}
    fresh: set[int] = set()
    for node, capacity in setup.nodes:
        if node in touched or capacity not in fresh:
            yield node, capacity
        if node not in touched:
            fresh.add(capacity)


def _filter(state: State, pod: Pod, node: str, capacity: int, *, without: str = "") -> bool:
    """Tell whether a pod passes Filter on a node, maybe with a victim imagined away."""
    cached = _cached(state)
    free = capacity - sum(size for uid, place, size in cached if place == node and uid != without)
    for uid, place, _ in state.scheduler.nominated:
        other = find(state.pods, uid)
        if place == node and other is not None and uid != pod.uid and other.priority >= pod.priority:
            free -= other.spec
    for hold in state.scheduler.ledger:
        if hold.node != node or hold.phase in (HoldPhase.RELEASED, HoldPhase.REFUSED):
            continue
        lacking = _lacking(state, hold)
        if lacking is None or hold.claimant == without:
            return False
        free -= lacking
    return pod.spec <= free


def _forbidden(state: State, pod: Pod) -> list[str]:
    """Return the nodes that a receiver must not come to. A migration says that it is one, not the pod."""
    return [item.status.source_node for item in state.migrations if item.status.receiver == pod.name]


def _permitted(state: State, pod: Pod) -> bool:
    """Tell whether a pod may be bound: a receiver when all of its siblings have a place."""
    memory = state.scheduler
    for hold in memory.ledger:
        names = [payer.receiver for payer in hold.payers]
        if pod.name in names:
            placed = {uid for uid, _ in memory.assumed} | {other.name for other in state.pods if other.node}
            return hold.phase in (HoldPhase.HELD, HoldPhase.CLAIMED) and all(name in placed for name in names)
    return True


def _acknowledge(setup: Setup, state: State) -> Steps:
    for hold in state.scheduler.ledger:
        current = next((item for item in state.holds if item.claimant == hold.claimant), None)
        if current != hold:
            continue  # its write would be refused: it has seen an older one
        if hold.phase is HoldPhase.PENDING and not (setup.settles and hold.node in _unsettled(state)):
            answer = _answer(setup, state, hold)
            held = state.held
            if answer.phase is HoldPhase.HELD and _counts_on_it(state, hold):
                payers = tuple(payer.uid for payer in hold.payers)
                promise = Held(hold.claimant, hold.node, hold.target.cpu // UNIT, payers)
                held = tuple(sorted((*(item for item in held if item.claimant != hold.claimant), promise)))
            yield (
                f"the scheduler says {answer.phase} to the hold of {hold.claimant}",
                _write_hold(state, answer)._replace(held=held),
            )
        elif hold.phase is HoldPhase.HELD and _lacking(state, hold) == 0:
            answer = replace(hold, phase=HoldPhase.CLAIMED)
            yield f"the scheduler says Claimed to the hold of {hold.claimant}", _write_hold(state, answer)
        elif hold.phase is HoldPhase.HELD and state.now > hold.expires_at and not (hold.committed and setup.permanent):
            answer = replace(hold, phase=HoldPhase.RELEASED, reason="Expired")
            released = _write_hold(state, answer)
            yield (
                f"the hold of {hold.claimant} expires",
                released if hold.committed else forget(released, hold.claimant),
            )
        elif hold.claimant in state.stale or (
            hold.live and not hold.committed and _short(setup, state, hold) != hold.shortfall
        ):
            answer = replace(hold, shortfall=_short(setup, state, hold))
            yield f"the scheduler says {hold.phase} to the hold of {hold.claimant} again", _write_hold(state, answer)


def _unsettled(state: State) -> list[str]:
    """Return the nodes that the scheduler has promised to pods which are not bound yet."""
    memory = state.scheduler
    return [*(node for _, node in memory.assumed), *(node for _, node, _ in memory.nominated)]


def _counts_on_it(state: State, hold: Hold) -> bool:
    """Tell whether anybody relies on the promise: a request that is giving up does not."""
    found = next((item for item in state.requests if item.uid == hold.request), None)
    return found is not None and found.status.phase in _RELYING and found.status.round == hold.round


def _write_hold(state: State, answer: Hold) -> State:
    holds = tuple(answer if hold.claimant == answer.claimant else hold for hold in state.holds)
    ledger = tuple(answer if hold.claimant == answer.claimant else hold for hold in state.scheduler.ledger)
    stale = tuple(claimant for claimant in state.stale if claimant != answer.claimant)
    return state._replace(holds=holds, scheduler=state.scheduler._replace(ledger=ledger), stale=stale)


def _answer(setup: Setup, state: State, hold: Hold) -> Hold:
    lacking = _lacking(state, hold)
    claimant = find(state.pods, hold.claimant)
    if lacking is None or claimant is None or claimant.terminating:
        return replace(hold, phase=HoldPhase.REFUSED, reason="ClaimantGone")
    others = [] if not setup.serialised else [
        item for item in state.scheduler.ledger
        if item.claimant != hold.claimant and item.phase in (HoldPhase.HELD, HoldPhase.CLAIMED)
    ]  # fmt: skip
    mine = {payer.uid for payer in hold.payers}
    theirs = {uid for item in others for uid in (item.claimant, *(payer.uid for payer in item.payers))}
    theirs |= {
        item.status.source for item in state.migrations
        if item.request != hold.request and item.status.source and not item.status.phase.final
    }  # fmt: skip
    if mine & theirs or hold.claimant in theirs:
        return replace(hold, phase=HoldPhase.REFUSED, reason="NeighbourTaken")
    payers = [find(state.pods, uid) for uid in mine]
    if any(pod is None or pod.terminating or pod.node != hold.node for pod in payers):
        return replace(hold, phase=HoldPhase.REFUSED, reason="NeighbourGone")
    free = _free(setup, state, hold)
    for item in others:
        # What another one lacks and its own neighbours do not pay is taken from the free room.
        paid = sum(
            pod.counted for pod in state.pods if pod.node == hold.node and pod.uid in {p.uid for p in item.payers}
        )
        asked = find(state.pods, item.claimant)
        waiting = 0 if asked is None else max(item.target.cpu // UNIT, asked.counted) - asked.allocated
        counted = 0 if asked is None else asked.counted - asked.allocated
        free -= max(0, waiting - paid) - counted
    paying = sum(pod.counted for pod in payers if pod is not None)
    if free + paying < 0:
        return replace(hold, phase=HoldPhase.REFUSED, reason="NobodyMovable")
    return replace(hold, phase=HoldPhase.HELD, shortfall=_short(setup, state, hold))


def _free(setup: Setup, state: State, hold: Hold) -> int:
    """Return what is left on a node once a claimant has grown, pods that are just being placed counted."""
    return dict(setup.nodes)[hold.node] - _taken(state, hold.node) - (_lacking(state, hold) or 0)


def _short(setup: Setup, state: State, hold: Hold) -> Room:
    return Room(max(0, -_free(setup, state, hold)) * UNIT)


# QEMU: what happens by itself once it was told


def _qemu(state: State) -> Steps:
    for item in state.transfers:
        for sentence, move in _advance(state, item):
            after = _set_transfer(state, item._replace(move=move))
            yield sentence, handed_over(after, item) if move is Move.DONE else after


def _advance(state: State, item: Transfer) -> Iterator[tuple[str, Move]]:
    match item.move:
        case Move.COPYING:
            yield f"the guest of {item.source} is at the brink", Move.BRINK
        case Move.COMMITTED:
            yield f"all of the guest of {item.source} is in {item.receiver}", Move.COMPLETE
        case Move.COMPLETE if runs(state, item.source):
            yield f"{item.source} lets its guest go", Move.ARRIVED
        case Move.ARRIVED if runs(state, item.source) and runs(state, item.receiver):
            yield f"{item.source} tells {item.receiver} to run the guest", Move.DONE


def _set_transfer(state: State, new: Transfer) -> State:
    rest = (item for item in state.transfers if (item.source, item.attempt) != (new.source, new.attempt))
    return state._replace(transfers=tuple(sorted((*rest, new))))


def handed_over(state: State, item: Transfer) -> State:
    """Let a guest take its size with it."""
    size = next((size for uid, size, _ in state.guests if uid == item.source), 0)
    rest = (guest for guest in state.guests if guest[0] not in (item.source, item.receiver))
    return state._replace(guests=tuple(sorted((*rest, (item.receiver, size, 0)))))


def runs(state: State, uid: str) -> bool:
    """Tell whether a pod's processes are there."""
    pod = find(state.pods, uid)
    return pod is not None and pod.process


# Garbage collection by owner, and of what was on a dead node


def _collector(setup: Setup, state: State) -> Steps:
    for pod in state.pods:
        if pod.node in state.dead and not pod.terminating:
            evicted = pod._replace(terminating=True)
            yield f"{pod.uid} is evicted from its dead node", state._replace(pods=put(state.pods, evicted))
        elif pod.node in state.dead and setup.clears:
            yield f"{pod.uid} is cleared away with its node", _gone(state, pod)
    for uid in state.cut if setup.heals else ():
        rest = tuple(other for other in state.cut if other != uid)
        yield f"the runner of {uid} can be reached again", state._replace(cut=rest)
    for request in state.requests:
        if request.suspend:
            yield f"somebody resumes the request {request.uid}", _request(state, changed(request, "suspend", on=False))
    known = {item.uid for item in state.migrations} | {item.uid for item in state.requests}
    for pod in state.pods:
        if pod.owner and pod.owner not in known and not pod.terminating:
            yield f"{pod.uid} is collected with its owner", terminate(state, pod, by_us=True)


def terminate(state: State, pod: Pod, *, by_us: bool) -> State:
    """Mark a pod as terminating. Where that ends a guest that nobody else runs, say so."""
    broken = state.broken
    if by_us and runs_guest(state, pod):
        broken = f"{pod.uid} was removed while it ran the guest {pod.vm}"
    return state._replace(pods=put(state.pods, pod._replace(terminating=True)), broken=broken)


def runs_guest(state: State, pod: Pod) -> bool:
    """Tell from the processes whether a pod has the guest, running or about to."""
    if not pod.vm or not pod.process or pod.phase is not Phase.RUNNING:
        return False
    for item in state.transfers:
        if item.source == pod.uid and item.move in (Move.ARRIVED, Move.DONE):
            return False
    if not pod.attempt:
        return True
    return any(item.receiver == pod.uid and item.move in (Move.ARRIVED, Move.DONE) for item in state.transfers)


# Faults, and what tenants do


def _faults(setup: Setup, state: State) -> Steps:
    yield from _deaths(setup, state)
    yield from _tenants(setup, state)
    yield from _users(setup, state)
    for item in state.transfers:
        if item.move in AT_SOURCE and runs(state, item.source):
            yield f"the transfer from {item.source} fails", _set_transfer(state, item._replace(move=Move.FAILED))
        for uid in (item.source, item.receiver):
            if item.move is not Move.CANCELLED and uid not in state.cut and runs(state, uid):
                cut = tuple(sorted((*state.cut, uid)))
                yield f"nobody can reach the runner of {uid} any more", state._replace(cut=cut)
    if state.scheduler.loaded and (state.scheduler.ledger or state.scheduler.assumed):
        fresh = state.scheduler._replace(
            loaded=False, assumed=(), ledger=(), behind=None, flight=state.scheduler.assumed, nominated=()
        )
        yield "the scheduler dies, another takes over", state._replace(scheduler=fresh)
    if setup.views and state.scheduler.loaded and state.scheduler.behind is None:
        slow = state.scheduler._replace(behind=sizes(state))
        yield "the scheduler's watch of pods falls behind", state._replace(scheduler=slow)
    if state.quota:
        yield "the quota has no room for the claimant's size any more", state._replace(quota=False)


def _users(setup: Setup, state: State) -> Steps:
    """Do what those may do whose objects these are. A hold that somebody deletes stays: it has our finalizer."""
    for request in state.requests:
        if request.status.phase.final:
            continue
        if not request.deleted:
            yield f"somebody deletes the request {request.uid}", _request(state, changed(request, "deleted"))
        if not request.suspend:
            yield f"somebody suspends the request {request.uid}", _request(state, changed(request, "suspend"))
    for migration in state.migrations:
        if not migration.deleted and not migration.status.phase.final:
            off = tuple(changed(item, "deleted") if item is migration else item for item in state.migrations)
            yield f"somebody deletes the migration {migration.name}", state._replace(migrations=off)
    for new in setup.comes:
        if not state.now and all(item.uid != new.uid for item in state.requests):  # so that its deadline comes
            made = replace(new, created_at=state.now + 0.1)
            yield f"somebody makes the request {new.uid}", state._replace(requests=(*state.requests, made))


_changed: dict[tuple[int, str, bool], tuple[Any, Any]] = {}


def changed(item: _Item, switch: str, *, on: bool = True) -> _Item:
    """Return an object with one switch turned. Most states share their objects, so it is remembered by identity."""
    known = _changed.get((id(item), switch, on))
    if known is None:
        changes: Any = {switch: on}
        known = _changed[id(item), switch, on] = (item, replace(item, **changes))
    new: _Item = known[1]
    return new


def _request(state: State, new: Request) -> State:
    return state._replace(requests=tuple(new if item.uid == new.uid else item for item in state.requests))


def _deaths(setup: Setup, state: State) -> Steps:
    for pod in state.pods:
        if pod.process and pod.phase is Phase.RUNNING:
            ended = _stop_process(state, pod)
            died = pod._replace(process=False, phase=Phase.ENDED)
            yield f"{pod.uid} dies", forget(_killed(state, ended._replace(pods=put(ended.pods, died)), pod), pod.uid)
        if not pod.terminating and pod.node:
            yield f"somebody deletes {pod.uid}", _killed(state, terminate(state, pod, by_us=False), pod)
        elif pod.attempt and not pod.terminating:
            assumed = tuple(item for item in state.scheduler.assumed if item[0] != pod.uid)
            unplaced = state._replace(scheduler=state.scheduler._replace(assumed=assumed))
            yield f"somebody deletes {pod.uid}", _gone(unplaced, pod)
        # Whoever has seen its guest grow cannot see that it boots anew right afterwards.
        phases = [item.status.phase for item in state.requests]
        growing = any(phase is not RequestPhase.RELEASING and not phase.final for phase in phases)
        if pod.restarts and growing and runs_guest(state, pod):
            booted = tuple(
                (uid, min(size, 1) if uid == pod.uid else size, 0 if uid == pod.uid else order)
                for uid, size, order in state.guests
            )
            yield f"the container of {pod.uid} is started again", state._replace(guests=booted)
    for node, _ in _distinct(setup, state):
        if node not in state.dead:
            yield f"{node} dies", _kill_node(state, node)


def _kill_node(state: State, node: str) -> State:
    """All of a node's processes end; its pods stay at the API server until somebody clears them away."""
    for pod in state.pods:
        if pod.node == node:
            state = forget(_killed(state, _stop_process(state, pod), pod), pod.uid)
    return state._replace(dead=tuple(sorted((*state.dead, node))))


def _killed(before: State, after: State, pod: Pod) -> State:
    """Note whose guest that was: a receiver without one can die without anybody being lost."""
    committed = any(
        pod.uid in (item.source, item.receiver) and item.move in (Move.COMMITTED, Move.COMPLETE)
        for item in before.transfers
    )
    if not pod.vm or not (runs_guest(before, pod) or committed):
        return after
    return after._replace(killed=tuple(sorted({*after.killed, pod.vm})))


def _tenants(setup: Setup, state: State) -> Steps:
    guarded = {hold.node for hold in state.holds if hold.phase not in (HoldPhase.RELEASED, HoldPhase.REFUSED)}
    for node, capacity in setup.nodes:
        if node in state.dead or (setup.guard and node in guarded):
            continue
        for pod in state.pods:
            if not pod.node and not pod.vm and pod.phase is Phase.PENDING:
                rest = tuple(item for item in state.scheduler.assumed if item[0] != pod.uid)
                bound = state._replace(
                    pods=put(state.pods, pod._replace(node=node, tampered=True)),
                    scheduler=state.scheduler._replace(assumed=rest),
                )
                yield f"somebody binds {pod.uid} to {node} past the scheduler", bound
            if (
                pod.node == node
                and (setup.foreign or not pod.vm)
                and pod.phase is Phase.RUNNING
                and pod.seen is Seen.DONE
                and pod.spec < capacity
            ):
                more = pod._replace(spec=pod.spec + 1, seen=Seen.UNSEEN, tampered=True)
                yield f"somebody resizes {pod.uid}", state._replace(pods=put(state.pods, more))
