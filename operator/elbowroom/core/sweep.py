"""What nobody owns any more: holds whose requests are over or gone, and taints of nodes on which nothing is held."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .actions import DeleteHold, TaintNode, UntaintNode
from .world import HoldPhase, MigrationPhase, PodPhase, RequestPhase

if TYPE_CHECKING:
    from .actions import Actions
    from .policy import Policy
    from .world import Hold, World


def decide(world: World, since: float = inf) -> Actions:
    """Return what to clear away. A hold made after `since` stays until the scheduler has answered to it."""
    return tuple(
        DeleteHold(hold.claimant, hold.version) for hold in world.holds.values()
        if _orphaned(world, hold) and not (hold.phase is HoldPhase.PENDING and hold.created_at > since)
    )  # fmt: skip


def taints(world: World, policy: Policy) -> Actions:
    """Return which nodes have a taint that nobody needs, and which lack one that somebody has taken off."""
    held = {hold.node for hold in world.holds.values() if hold.live}
    # Taken off by whoever finds one that nobody needs, also where taints are not used any more.
    off = tuple(UntaintNode(node.name) for node in world.nodes.values() if node.tainted and node.name not in held)
    on = (name for name in sorted(held) if name in world.nodes and not world.nodes[name].tainted)
    return (*off, *(TaintNode(name) for name in on if policy.taint))


def _orphaned(world: World, hold: Hold) -> bool:
    request = world.requests.get(hold.request)
    if request is not None and not request.status.phase.final and request.status.round <= hold.round:
        # Its request is at it. Only a hold that it cannot use any more goes.
        waiting = request.status.phase is RequestPhase.PENDING and request.status.round == hold.round
        return waiting and not hold.committed
    claimant = world.pod(hold.claimant)
    if claimant is None or claimant.phase is PodPhase.ENDED or not hold.committed:
        return True
    # A neighbour may have left for it: it goes when nobody moves for it any more, and the scheduler counts its
    # claimant's size (its cache may be behind: only it can say so), or that size was taken back.
    moving = world.migrations_for(hold.request)
    over = all(item.status.phase.final or item.status.phase is MigrationPhase.MOVED for item in moving)
    counted = not hold.live or hold.phase is HoldPhase.CLAIMED or not hold.target.within(claimant.size)
    return hold.phase is HoldPhase.CLAIMED or (over and counted)
