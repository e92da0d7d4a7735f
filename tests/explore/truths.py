"""The invariants, computed from allocations and from which process runs which guest: never from our own bookkeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elbowroom.core.world import RequestPhase

from .model import UNIT, Move, Phase, find
from .steps import given, runs_guest

if TYPE_CHECKING:
    from elbowroom.core.world import Migration, Request

    from .model import Pod, Setup, State


def violation(setup: Setup, state: State) -> str:
    """Return what is wrong with a state, or nothing."""
    return state.broken or _guests(state) or _sizes(state) or _lost(state) or _nodes(setup, state) or _receivers(state)


def _guests(state: State) -> str:
    """1: no guest is run by two pods."""
    running: dict[str, str] = {}
    for pod in state.pods:
        if pod.vm and runs_guest(state, pod) and not _arrived_only(state, pod.uid):
            if pod.vm in running:
                return f"the guest {pod.vm} runs in {running[pod.vm]} and in {pod.uid}"
            running[pod.vm] = pod.uid
    return ""


def _sizes(state: State) -> str:
    """No guest is larger than its pod."""
    for uid, size, _ in state.guests:
        pod = find(state.pods, uid)
        if pod is not None and pod.process and size > pod.allocated:
            return f"the guest of {uid} has {size}, its pod {pod.allocated}"
    return ""


def _lost(state: State) -> str:
    """1: every guest is somewhere, unless somebody else has killed it."""
    there = {pod.vm for pod in state.pods if runs_guest(state, pod)}
    for vm in state.vms:
        if vm not in there and vm not in state.killed:
            return f"1: the guest {vm} is lost, and nobody has killed it"
    return ""


def _arrived_only(state: State, uid: str) -> bool:
    return any(item.receiver == uid and item.move is Move.ARRIVED for item in state.transfers)


def _nodes(setup: Setup, state: State) -> str:
    for node, capacity in setup.nodes:
        if node in state.dead:
            continue
        used = given(state, node)
        if used > capacity:
            return f"4: {node} has given away {used} of {capacity}"
        if setup.guard and (thief := _theft(state, node, capacity)):
            return thief
        free = capacity - used
        owed = sum(amount for uid, amount in state.freed if _on(state, uid, node))
        moved = _moved_for(state, {uid for uid, _ in state.freed})
        leaving = sum(
            pod.allocated for pod in state.pods
            if pod.node == node and pod.process and (pod.terminating or pod.uid in moved)
        )  # fmt: skip
        if owed > free + leaving and setup.guard:
            return f"3: room that was freed on {node} for somebody ({dict(state.freed)}) was given to somebody else"
    for pod in state.pods:
        if pod.rejected:
            return f"4: {pod.uid} ended OutOfcpu on {pod.node}"
    return ""


def _moved_for(state: State, claimants: set[str]) -> set[str]:
    """Return the pods whose guests have moved for somebody: they leave, too."""
    requests = {item.uid for item in state.requests if item.status.claimant in claimants}
    return {item.status.source for item in state.migrations if item.status.committed and item.request in requests}


def _on(state: State, uid: str, node: str) -> bool:
    return any(pod.uid == uid and pod.node == node for pod in state.pods)


def _theft(state: State, node: str, capacity: int) -> str:
    """2: what is promised still fits, once those have left that are to leave for it."""
    here = [item for item in state.held if item.node == node]
    if not here:
        return ""
    promised = {item.claimant: item.target for item in here}
    paying = {uid for item in here for uid in item.payers}
    used = 0
    for pod in state.pods:
        if pod.node != node or not pod.process or pod.uid in paying or pod.terminating:
            continue
        if not _is_empty(state, pod):
            used += max(pod.allocated, promised.get(pod.uid, 0))
    return f"2: the room held for {', '.join(promised)} on {node} was taken" if used > capacity else ""


def _is_empty(state: State, pod: Pod) -> bool:
    """Tell whether a pod's guest has moved: what is left of it leaves."""
    return bool(pod.vm) and not pod.attempt and not runs_guest(state, pod)


def _receivers(state: State) -> str:
    for item in state.migrations:
        for pod in state.pods:
            if pod.uid == item.status.receiver_uid and pod.node and pod.node == item.status.source_node and pod.process:
                return f"the receiver {pod.uid} came to its neighbour's node"
    return ""


def _unknowable(setup: Setup, state: State, migration: Migration) -> bool:
    """Tell whether nobody can say where a guest is: somebody has to vouch for the death of what is silent for ever."""
    ends = (migration.status.source, migration.status.receiver_uid)
    cut_off = not setup.heals and any(uid in state.cut for uid in ends)
    dead = not setup.clears and any(pod.uid in ends and pod.node in state.dead for pod in state.pods)
    return migration.status.committed and not migration.status.phase.final and (cut_off or dead)


def _promises(setup: Setup, state: State) -> str:
    """Tell whether each request that has succeeded has done what it was asked to do, the last one about a pod."""
    if any(new.uid not in {item.uid for item in state.requests} for new in setup.comes):
        return ""  # it may have come, and be forgotten again
    last = {item.status.claimant: item for item in state.requests if item.status.phase is RequestPhase.SUCCEEDED}
    for uid, request in last.items():
        pod, wanted = find(state.pods, uid), request.status.wanted.cpu // UNIT
        if (
            pod is None
            or not pod.process
            or pod.tampered
            or any(item.created_at > request.created_at for item in state.requests)
        ):
            continue
        if pod.allocated != wanted or uid not in {item[0] for item in state.guests if item[1] == wanted}:
            return f"{request.uid} has succeeded, and {uid} has {pod.allocated} instead of {wanted}"
    return ""


def unfinished(setup: Setup, state: State) -> str:
    """5 and 6, for a state in which nothing can happen any more: what has not ended, or was left behind."""
    return _promises(setup, state) or _not_over(setup, state) or _left_behind(setup, state)


def _hindered(state: State, request: Request) -> bool:
    """Tell whether others keep a request from putting back what it has changed: a quota, or somebody past the scheduler.

    It gives that up later than the clock goes in here; tests of that phase show it.
    """
    undoing = request.status.phase is RequestPhase.UNDOING
    return undoing and (not state.quota or any(pod.tampered for pod in state.pods if pod.node == request.status.node))


def _not_over(setup: Setup, state: State) -> str:
    for request in state.requests:
        if not request.status.phase.final and not _hindered(state, request):
            return f"6: the request {request.uid} is still {request.status.phase} ({request.status.reason})"
    for migration in state.migrations:
        # Nobody can tell where a guest is whose runners are cut off for ever; its request has ended all the same.
        if not migration.status.phase.final and not _unknowable(setup, state, migration):
            return f"6: the migration {migration.uid} is still {migration.status.phase}"
    return ""


def _left_behind(setup: Setup, state: State) -> str:
    hindered = {item.status.claimant for item in state.requests if _hindered(state, item)}
    for hold in state.holds:
        if hold.claimant not in hindered:
            return f"5: a hold for {hold.claimant} was left behind"
    waiting = {item.status.receiver_uid for item in state.migrations if _unknowable(setup, state, item)}
    for pod in state.pods:
        if pod.node in state.dead or pod.uid in state.cut or pod.uid in waiting:
            continue
        if pod.attempt and pod.phase is not Phase.ENDED and not runs_guest(state, pod):
            return f"5: the receiver {pod.uid} was left behind"
        if pod.process and pod.spec != pod.allocated and not pod.tampered and pod.uid not in hindered:
            return f"5: {pod.uid} still asks for {pod.spec} and has {pod.allocated}"
    return ""
