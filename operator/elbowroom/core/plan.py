"""Which neighbours are moved: the cheapest set that frees what lacks, and whose receivers have a place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from .reasons import Reason
from .room import NOTHING, Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .places import Place
    from .world import Node, Pod

_STEPS: Final = 5_000
"""How many sets are looked at, at most; then the best so far is taken. Hundreds of odd sizes make millions of sets."""

Cost = Callable[["Pod"], int]


class Rejected(NamedTuple):
    """A neighbour that is not moved, and why."""

    pod: Pod
    reason: Reason
    message: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What came out."""

    neighbours: tuple[Pod, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    reason: Reason | None = None
    """Why there is no set, where there is none."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What keeps a neighbour from being moved for one request."""

    claimant: Pod
    selected: Callable[[Pod], bool]
    in_use: AbstractSet[str] = frozenset()
    """UIDs of pods that are part of another hold or move."""
    avoid: AbstractSet[str] = frozenset()
    """UIDs of pods whose move has failed for this request."""
    rest_until: Mapping[str, float] = field(default_factory=dict)
    """When a VM may be moved again, by its pod's UID."""
    at_most: int = 4


def memory_cost(pod: Pod) -> int:
    """Return what a move costs: the memory that has to be sent. CPU breaks ties."""
    return pod.size.memory + pod.size.cpu


def obstacle(pod: Pod, rules: Rules, need: Room, now: float) -> Rejected | None:  # noqa: C901, PLR0911  # a list of rules
    """Return why a neighbour must not be moved, or would be moved for nothing."""
    if pod.uid == rules.claimant.uid:
        return Rejected(pod, Reason.IS_CLAIMANT)
    if not pod.vm:
        return Rejected(pod, Reason.NOT_A_VM)
    if not pod.movable:
        return Rejected(pod, Reason.NOT_OPTED_IN, pod.why_fixed)
    if not pod.lives:
        return Rejected(pod, Reason.NOT_RUNNING, "it is ending" if pod.terminating else "")
    if pod.uid in rules.in_use:
        return Rejected(pod, Reason.IN_USE)
    if pod.priority > rules.claimant.priority:
        return Rejected(pod, Reason.HIGHER_PRIORITY, f"{pod.priority}, the claimant's is {rules.claimant.priority}")
    if not rules.selected(pod):
        return Rejected(pod, Reason.NOT_SELECTED)
    if pod.uid in rules.avoid:
        return Rejected(pod, Reason.FAILED_BEFORE)
    resting = rules.rest_until.get(pod.uid, 0.0)
    if resting > now:
        return Rejected(pod, Reason.RESTING, f"for another {resting - now:.0f} s")
    if not pod.size.least(need):
        return Rejected(pod, Reason.DOES_NOT_HELP)
    return None


def choose(  # noqa: PLR0913, PLR0917  # what is needed, of whom, where to, when and at what cost
    node: Node, need: Room, rules: Rules, elsewhere: Sequence[Place], now: float, cost: Cost = memory_cost
) -> Choice:
    """Return the cheapest set of neighbours that frees the need."""
    rejected: list[Rejected] = []
    candidates: list[Pod] = []
    for pod in node.pods:
        if not pod.counts:
            continue
        why = obstacle(pod, rules, need, now)
        if why is None:
            candidates.append(pod)
        else:
            rejected.append(why)
    search = _Search(need, [place for place in elsewhere if place.node != node.name], rules.at_most, cost)
    found = search.run(candidates)
    if found is not None:
        moved = {pod.uid for pod in found}
        rejected += [Rejected(pod, Reason.COSTS_MORE) for pod in candidates if pod.uid not in moved]
        return Choice(found, tuple(rejected))
    if search.lacked_place:
        rejected += [Rejected(pod, Reason.NO_PLACE) for pod in candidates]
        return Choice((), tuple(rejected), Reason.NO_PLACE, "no other node has room for the neighbours that would do")
    rejected += [Rejected(pod, Reason.DOES_NOT_HELP, "not enough, even with others") for pod in candidates]
    return Choice((), tuple(rejected), Reason.NOBODY_MOVABLE, _nobody(need, candidates, rules.at_most))


def _nobody(need: Room, candidates: list[Pod], at_most: int) -> str:
    if not candidates:
        return "no neighbour may be moved"
    wanted = f"{need.cpu}m cpu and {need.memory} bytes"
    return f"{len(candidates)} neighbours may be moved, and no {at_most} of them free {wanted}"


Chooser = Callable[["Node", Room, Rules, "Sequence[Place]", float, Cost], Choice]
"""What may stand in for `choose`."""


class _Search:
    """Branch and bound: all single neighbours, then all pairs and so on, the cheapest first."""

    def __init__(self, need: Room, elsewhere: Sequence[Place], at_most: int, cost: Cost) -> None:
        self._need, self._elsewhere, self._at_most, self._cost = need, elsewhere, at_most, cost
        self._best: tuple[Pod, ...] | None = None
        self._bound = 0
        self._steps = 0
        self.lacked_place = False

    def run(self, candidates: Iterable[Pod]) -> tuple[Pod, ...] | None:
        """Return the cheapest set, the same one for the same pods in whatever order."""
        priced = sorted(((self._cost(pod), pod) for pod in candidates), key=lambda item: (item[0], item[1].uid))
        self._pods = [pod for _, pod in priced]
        self._costs = [price for price, _ in priced]
        # The most that one of those that follow could free.
        self._most = [NOTHING] * (len(self._pods) + 1)
        for index in range(len(self._pods) - 1, -1, -1):
            self._most[index] = self._most[index + 1].most(self._pods[index].size)
        # What a unit of each resource costs at least: no set can be cheaper than that.
        self._rate = tuple(
            min((price / pod.size[index] for price, pod in priced if pod.size[index]), default=0.0) for index in (0, 1)
        )
        for count in range(1, self._at_most + 1):
            self._extend((), 0, 0, self._need, count)
        return self._best

    def _extend(self, chosen: tuple[int, ...], start: int, spent: int, left: Room, count: int) -> None:
        """Add as many as `count` says to those that are chosen."""
        cheapest = spent + max(left[0] * self._rate[0], left[1] * self._rate[1])
        if self._best is not None and cheapest >= self._bound:
            return
        for index in range(start, len(self._pods)):
            # Sorted by cost: each that follows costs as much, or more.
            if self._best is not None and spent + self._costs[index] * count >= self._bound:
                return
            most = self._most[index]
            if left[0] > most[0] * count or left[1] > most[1] * count or self._steps >= _STEPS:
                return
            self._steps += 1
            size = self._pods[index].size
            if count > 1:
                after = Room(left[0] - size[0], left[1] - size[1])
                self._extend((*chosen, index), index + 1, spent + self._costs[index], after, count - 1)
            elif left[0] <= size[0] and left[1] <= size[1]:
                self._consider((*chosen, index), spent + self._costs[index])

    def _consider(self, chosen: tuple[int, ...], spent: int) -> None:
        if self._best is not None and spent >= self._bound:
            return
        pods = tuple(self._pods[index] for index in chosen)
        if self._placeable(pods):
            self._best, self._bound = pods, spent
        else:
            self.lacked_place = True

    def _placeable(self, pods: tuple[Pod, ...]) -> bool:
        """Tell whether each receiver finds a node: the largest first, each where it leaves the least."""
        free = {place.node: place.free for place in self._elsewhere}
        for pod in sorted(pods, key=lambda pod: pod.size.memory, reverse=True):
            fitting = [name for name, room in free.items() if pod.size.within(room)]
            if not fitting:
                return False
            tightest = min(fitting, key=lambda name: (free[name].minus(pod.size), name))
            free[tightest] = free[tightest].minus(pod.size)
        return True
