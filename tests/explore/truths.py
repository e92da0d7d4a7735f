"""The invariants, computed from allocations and from which process runs which guest: never from our own bookkeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model import UNIT, Move, Phase
from .steps import given, runs_guest

if TYPE_CHECKING:
    from .model import Setup, State


def violation(setup: Setup, state: State) -> str:
    """Return what is wrong with a state, or nothing."""
    return state.broken or _guests(state) or _nodes(setup, state) or _receivers(state)


def _guests(state: State) -> str:
    """1: no guest is run by two pods."""
    running: dict[str, str] = {}
    for pod in state.pods:
        if pod.vm and runs_guest(state, pod) and not _arrived_only(state, pod.uid):
            if pod.vm in running:
                return f"the guest {pod.vm} runs in {running[pod.vm]} and in {pod.uid}"
            running[pod.vm] = pod.uid
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
        leaving = sum(pod.allocated for pod in state.pods if pod.node == node and pod.process and pod.terminating)
        if owed > free + leaving and setup.guard:
            return f"3: room that was freed on {node} for somebody ({dict(state.freed)}) was given to somebody else"
    for pod in state.pods:
        if pod.rejected:
            return f"4: {pod.uid} ended OutOfcpu on {pod.node}"
    return ""


def _on(state: State, uid: str, node: str) -> bool:
    return any(pod.uid == uid and pod.node == node for pod in state.pods)


def _theft(state: State, node: str, capacity: int) -> str:
    """2: what is promised still fits, once those have left that are to leave for it."""
    for hold in state.holds:
        if hold.node != node or hold.claimant not in state.held:
            continue
        payers = {payer.uid for payer in hold.payers}
        promised = {item.claimant: item.target.cpu // UNIT for item in state.holds if item.claimant in state.held}
        paying = {payer.uid for item in state.holds if item.claimant in state.held for payer in item.payers} | payers
        used = 0
        for pod in state.pods:
            if pod.node == node and pod.process and pod.uid not in paying and not pod.terminating:
                used += max(pod.allocated, promised.get(pod.uid, 0))
        if used > capacity:
            return f"2: the room held for {hold.claimant} on {node} was taken"
    return ""


def _receivers(state: State) -> str:
    for item in state.migrations:
        for pod in state.pods:
            if pod.uid == item.status.receiver_uid and pod.node and pod.node == item.status.source_node and pod.process:
                return f"the receiver {pod.uid} came to its neighbour's node"
    return ""


def unfinished(setup: Setup, state: State) -> str:
    """5 and 6, for a state in which nothing can happen any more: what has not ended, or was left behind."""
    del setup
    for request in state.requests:
        if not request.status.phase.final:
            return f"6: the request {request.uid} is still {request.status.phase} ({request.status.reason})"
    for migration in state.migrations:
        if not migration.status.phase.final:
            return f"6: the migration {migration.uid} is still {migration.status.phase}"
    if state.holds:
        return f"5: a hold for {state.holds[0].claimant} was left behind"
    for pod in state.pods:
        if pod.attempt and pod.phase is not Phase.ENDED and not runs_guest(state, pod):
            return f"5: the receiver {pod.uid} was left behind"
    return ""
