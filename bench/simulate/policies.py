"""Which neighbours are moved: ours, and what others do. All of them keep to the same rules about who may be moved."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from elbowroom.core.plan import Choice, obstacle, placeable
from elbowroom.core.policy import Policy
from elbowroom.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.core.places import Place
    from elbowroom.core.plan import Cost, Rules
    from elbowroom.core.room import Room
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
    chosen: list[Pod] = []
    left = need
    for pod in sorted((pod for pod in node.pods if pod.counts), key=order):
        if len(chosen) == rules.at_most or not left:
            break
        if obstacle(pod, rules, left, now) is None and placeable((*chosen, pod), elsewhere):
            chosen.append(pod)
            left = left.minus(pod.size).lacking
    return Choice((), (), Reason.NOBODY_MOVABLE) if left else Choice(tuple(chosen))


POLICIES: dict[str, Policy | None] = {
    "ours": Policy(),
    "oldest first": Policy(choose=oldest_first),
    "random": Policy(choose=at_random),
    "none": None,
}
"""Nothing stands for: nobody is moved, the pod waits until its node has room."""
