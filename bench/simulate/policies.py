"""Which neighbours are moved: ours, and what others do. All of them keep to the same rules about who may be moved."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from elbowroom.core.plan import Choice, obstacle, placeable
from elbowroom.core.policy import Policy
from elbowroom.core.reasons import Reason
from elbowroom.core.room import Room

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.core.places import Place
    from elbowroom.core.plan import Cost, Rules
    from elbowroom.core.world import Node, Pod

Order = Callable[["Pod"], Any]


def oldest_first(  # noqa: PLR0913, PLR0917  # the signature of `choose`
    node: Node, need: Room, rules: Rules, elsewhere: Sequence[Place], now: float, cost: Cost
) -> Choice:
    """Take the oldest ones until it is enough, as Neon's autoscaler did."""
    del cost
    return _in_order(node, need, rules, elsewhere, now, lambda pod: (pod.created_at, pod.uid))


def at_random(  # noqa: PLR0913, PLR0917  # the signature of `choose`
    node: Node, need: Room, rules: Rules, elsewhere: Sequence[Place], now: float, cost: Cost
) -> Choice:
    """Take any until it is enough. The same ones for the same request at the same time."""
    del cost
    chance = random.Random(f"{rules.claimant.uid} {now}")
    places = {pod.uid: chance.random() for pod in node.pods}
    return _in_order(node, need, rules, elsewhere, now, lambda pod: places[pod.uid])


def _in_order(  # noqa: PLR0913, PLR0917  # the signature of `choose`, and an order
    node: Node, need: Room, rules: Rules, elsewhere: Sequence[Place], now: float, order: Order
) -> Choice:
    able = [pod for pod in node.pods if pod.counts and obstacle(pod, rules, need, now) is None]
    most = reduce(Room.most, (pod.size for pod in able), Room())
    chosen: list[Pod] = []
    left = need
    for pod in sorted(able, key=order):
        slots = rules.at_most - len(chosen) - 1
        rest = left.minus(pod.size).lacking
        # One is taken only where those that may follow can still make it enough.
        enough = slots >= 0 and rest.within(Room(most.cpu * slots, most.memory * slots))
        if enough and any(map(min, pod.size, left)) and placeable((*chosen, pod), elsewhere):
            chosen.append(pod)
            left = rest
    return Choice((), (), Reason.NOBODY_MOVABLE) if left else Choice(tuple(chosen))


POLICIES: dict[str, Policy | None] = {
    # All VMs of a simulated cluster are in one namespace.
    "ours": Policy(moves_per_namespace=10),
    "oldest first": Policy(moves_per_namespace=10, choose=oldest_first),
    "random": Policy(moves_per_namespace=10, choose=at_random),
    "none": None,
}
"""Nothing stands for: nobody is moved, the pod waits until its node has room."""
