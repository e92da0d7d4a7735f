"""What a stock scheduler is answered, and what is said about a hold. Pure.

An extender does not see what the scheduler has assumed and not bound yet. So `filter` and `preempt` close a held node
as a whole, and `bind`, through which every pod comes, one after the other, looks at the room again. Whoever is bound
before a hold was known is in the world that the hold is judged by; whoever comes after it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from elbowroom.core import ledger
from elbowroom.core.room import NOTHING, Room
from elbowroom.core.world import HoldPhase

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from elbowroom.core.world import Hold, Node, Pod, World

BEST: Final = 10
"""The highest score that an extender may give."""


# Who is who


@dataclass(frozen=True, slots=True)
class Roles:
    """Whom holds and migrations name. What a pod says about itself is not asked."""

    spared: frozenset[str]
    """The UIDs of pods that nobody may preempt."""
    receivers: Mapping[tuple[str, str], str]
    """Receivers by namespace and name, with the node that their guests leave."""

    def avoids(self, namespace: str, name: str) -> str | None:
        """Return the node that a receiver must not come to; nothing for a pod that is none."""
        return self.receivers.get((namespace, name))


def roles(world: World) -> Roles:
    """Return who is who now."""
    spared: set[str] = set()
    receivers: dict[tuple[str, str], str] = {}
    for hold in world.holds.values():
        if hold.live:
            spared.update((hold.claimant, *(payer.uid for payer in hold.payers)))
            for payer in hold.payers:
                source = world.pod(payer.uid)
                if source is not None:
                    receivers[source.namespace, payer.receiver] = hold.node
    for item in world.active_migrations():
        spared.update(uid for uid in (item.status.source, item.status.receiver_uid) if uid)
        name = item.status.receiver or item.receiver
        if name:
            receivers[item.namespace, name] = item.status.source_node
    return Roles(frozenset(spared), receivers)


# What the scheduler asks


def closed(holds: Iterable[Hold]) -> dict[str, str]:
    """Return the nodes that nobody may come to, each with the reason."""
    return {hold.node: f"room on it is held for {hold.claimant}" for hold in holds if hold.live}


def victims_allowed(known: Roles, pod: Pod, victims: Collection[str]) -> bool:
    """Tell whether a pod may take the place of these."""
    receives = known.avoids(pod.namespace, pod.name) is not None
    return not receives and known.spared.isdisjoint(victims)


def score(node: Node | None, asked: Room) -> int:
    """Return how good a node is for a receiver: what would be left of it, of the resource that it has less of."""
    if node is None:
        return 0
    left = node.allocatable.minus(node.requested).minus(asked).lacking
    return round(
        BEST * min((part / whole for part, whole in zip(left, node.allocatable, strict=True) if whole), default=0)
    )


def may_bind(world: World, node: Node, pod: Pod, barred: Mapping[str, str]) -> str:
    """Say why a pod must not be bound to a node; nothing where it may. `barred` are nodes that nobody may come to."""
    if (why := barred.get(node.name)) is not None:
        return f"{node.name}: {why}"
    if roles(world).avoids(pod.namespace, pod.name) == node.name:
        return f"{node.name}: it is the node that its guest leaves"
    if not ledger.fits(node, (), pod.size).fits:
        return f"{node.name}: has not enough room for it, pods counted that are just being bound"
    return ""


def with_placed(node: Node, placed: Iterable[Pod]) -> Node:
    """Return a node with the pods that were bound to it, and that the watch has not shown there yet."""
    here = {pod.uid for pod in node.pods}
    more = tuple(pod for pod in placed if pod.node == node.name and pod.uid not in here)
    return replace(node, pods=(*node.pods, *more)) if more else node


# What is said about a hold


class Answer(NamedTuple):
    """A hold's next status."""

    phase: HoldPhase
    reason: str
    message: str = ""
    shortfall: Room = NOTHING


def decide(  # noqa: PLR0913  # the world, of it a node and a hold, and what is not in it
    world: World, node: Node | None, hold: Hold, now: float, *, leaving: Collection[str] = (), spoken: bool = True
) -> Answer | None:
    """Return what is to be said about a hold on a node; nothing where it was said already, or has to wait.

    `leaving` are pods whose places were given to others a moment ago: they are about to be deleted. `spoken` is false
    where what was said was said of an earlier state of the hold, or by another extender.
    """
    if not hold.live:
        return None
    if now >= hold.expires_at and not hold.committed:
        return Answer(HoldPhase.RELEASED, "Expired", "nobody has renewed it")
    claimant = None if node is None else node.pod(hold.claimant)
    if node is None or claimant is None or not claimant.counts:
        phase = HoldPhase.REFUSED if hold.phase is HoldPhase.PENDING else HoldPhase.RELEASED
        return Answer(phase, "ClaimantGone", f"its claimant is not on {hold.node}")
    if hold.phase is HoldPhase.PENDING:
        return _first(world, node, claimant, hold, leaving)
    short = ledger.shortfall(node, world.holds.values(), hold)
    claimed = hold.phase is HoldPhase.CLAIMED or hold.target.within(claimant.size)
    phase = HoldPhase.CLAIMED if claimed else HoldPhase.HELD
    news = not spoken or phase is not hold.phase or (short != hold.shortfall and not hold.committed)
    return Answer(phase, str(phase), shortfall=short) if news else None


def _first(world: World, node: Node, claimant: Pod, hold: Hold, leaving: Collection[str]) -> Answer | None:
    """Judge a hold of which nothing was said yet."""
    named = {hold.claimant, *(payer.uid for payer in hold.payers)}
    if not named.isdisjoint(leaving):
        return None  # the API will show it in a moment
    if (why := _unkeepable(world, node, claimant, hold)) is not None:
        return Answer(HoldPhase.REFUSED, *why)
    kept = f"this extender keeps all of {node.name} closed"
    return Answer(HoldPhase.HELD, "Held", kept, ledger.shortfall(node, world.holds.values(), hold))


def _unkeepable(world: World, node: Node, claimant: Pod, hold: Hold) -> tuple[str, str] | None:
    """Say why a hold cannot be kept, in a word and in a sentence."""
    if claimant.terminating:
        return "ClaimantGone", "its claimant is being deleted"
    if not hold.target.within(node.allocatable):
        return "LargerThanNode", f"{node.name} has less than that for all of its pods together"
    if (why := _conflict(world, hold)) is not None:
        return "NeighbourTaken", why
    for payer in hold.payers:
        pod = node.pod(payer.uid)
        if pod is None or pod.terminating or not pod.counts:
            return "NeighbourGone", f"the neighbour {payer.uid} is not on {node.name}, or is leaving"
    if not ledger.keepable(node, world.holds.values(), hold):
        return "NobodyMovable", "its neighbours have not enough room for it, beside what is held for others"
    return None


def _conflict(world: World, hold: Hold) -> str | None:
    """Say who else counts on a claimant or a neighbour of a hold."""
    taken = {
        item.status.source: f"the migration {item.name} moves it"
        for item in world.active_migrations() if item.status.source and item.request != hold.request
    }  # fmt: skip
    for other in world.holds.values():
        if other.promised and other.claimant != hold.claimant:
            taken[other.claimant] = "it has a hold of its own"
            taken.update((payer.uid, f"it leaves for {other.claimant}") for payer in other.payers)
    named = (hold.claimant, *(payer.uid for payer in hold.payers))
    return next((f"{uid}: {taken[uid]}" for uid in named if uid in taken), None)
