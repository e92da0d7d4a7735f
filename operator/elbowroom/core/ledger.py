"""Whose room is it? The arithmetic of holds on one node.

The scheduler has a twin of this in Go; both answer the cases in tests/data/ledger alike.

Three questions, and each has its own answer on purpose:

`fits`       may a pod that no hold names come here? It gets what is left after everybody's growth is kept.
`shortfall`  what lacks for a claimant to grow now? Room that is free belongs to those who precede it first, and room
             that a committed hold is waiting for to that hold, even while the neighbours that pay for it are here.
`keepable`   may a hold be promised? Everybody who holds takes from the free room what its own neighbours do not pay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .room import NOTHING, Room, total

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .world import Hold, Node


class Fit(NamedTuple):
    """Whether a pod fits, and else whose hold is in its way."""

    fits: bool
    resolvable: bool = True
    """False where it would not help to remove pods from the node."""
    holds: tuple[str, ...] = ()
    """The claimants whose room it would take."""


def outstanding(node: Node, hold: Hold) -> Room | None:
    """Return what the scheduler does not count yet of a claimant's new size. Nothing where it is not there."""
    claimant = node.pod(hold.claimant)
    return None if claimant is None or not claimant.counts else hold.target.minus(claimant.size).lacking


def fits(node: Node, holds: Iterable[Hold], request: Room) -> Fit:
    """Tell whether a pod that no hold names fits on a node."""
    here = [hold for hold in holds if hold.live and hold.node == node.name]
    kept = [outstanding(node, hold) for hold in here]
    if any(room is None for room in kept):
        # The claimant is the victim that a preemptor imagines away, or it has gone and its hold is about to.
        missing = tuple(hold.claimant for hold, room in zip(here, kept, strict=True) if room is None)
        return Fit(fits=False, resolvable=False, holds=missing)
    free = node.allocatable.minus(node.requested)
    for room in kept:
        free = free.minus(room or NOTHING)
    # As the scheduler does: what a pod does not ask for it may find lacking.
    if all(wanted == 0 or wanted <= left for wanted, left in zip(request, free, strict=True)):
        return Fit(fits=True)
    return Fit(fits=False, holds=tuple(hold.claimant for hold, room in zip(here, kept, strict=True) if room))


def growth(node: Node, hold: Hold) -> Room:
    """Return what the kubelet has yet to give a claimant. Nothing to one that is not there."""
    claimant = node.pod(hold.claimant)
    if claimant is None or not claimant.counts:
        return NOTHING
    return hold.target.most(claimant.size).minus(claimant.allocated).lacking


def payment(node: Node, hold: Hold) -> Room:
    """Return what the neighbours that pay for a hold still have here."""
    uids = {payer.uid for payer in hold.payers}
    return total([pod.size for pod in node.pods if pod.uid in uids and pod.counts])


def common(node: Node, holds: Iterable[Hold]) -> Room:
    """Return what is free before any claimant has grown. Negative where others wait for more than there is."""
    claimants = {hold.claimant for hold in holds if hold.live and hold.node == node.name}
    taken = [pod.allocated if pod.uid in claimants else pod.size for pod in node.pods if pod.counts]
    return node.allocatable.minus(total(taken))


def shortfall(node: Node, holds: Iterable[Hold], hold: Hold) -> Room:
    """Return what lacks for a claimant to grow now, though none of its neighbours leave."""
    others = _others(node, holds, hold)
    free = common(node, [*others, hold])
    for other in others:
        if other.committed or other.precedes(hold):
            free = free.minus(growth(node, other))
        elif other.promised:
            free = free.minus(_from_the_free(node, other))
    wanted = growth(node, hold)
    # What it does not want more of it does not lack, however much others do.
    return Room(*(max(0, more - left) if more else 0 for more, left in zip(wanted, free, strict=True)))


def keepable(node: Node, holds: Iterable[Hold], hold: Hold) -> bool:
    """Tell whether a hold can be promised beside those that are."""
    others = _others(node, holds, hold)
    free = common(node, [*others, hold])
    for other in others:
        if other.promised or other.precedes(hold):
            free = free.minus(_from_the_free(node, other))
    wanted, paid = growth(node, hold), payment(node, hold)
    return all(more == 0 or more - own <= left for more, own, left in zip(wanted, paid, free, strict=True))


def _from_the_free(node: Node, hold: Hold) -> Room:
    """Return what a claimant takes of the free room: what its own neighbours do not pay."""
    return growth(node, hold).minus(payment(node, hold)).lacking


def _others(node: Node, holds: Iterable[Hold], hold: Hold) -> list[Hold]:
    return [other for other in holds if other.live and other.node == node.name and other.claimant != hold.claimant]
