"""Which neighbours are moved: the cheapest set that frees what lacks, and whose receivers have a place."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from .reasons import Reason
from .room import Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from .places import Place
    from .world import Node, Pod

_STEPS: Final = 500
"""How many sets are looked at, at most; then the best so far is taken. Hundreds of odd sizes make millions of sets."""

_WAYS: Final = 64
"""How many ways to place the receivers of a set are tried."""
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
        return Rejected(pod, Reason.RESTING)
    if not any(map(min, pod.size, need)):
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
    """Branch and bound: all single neighbours, then all pairs and so on, each set from its dearest one down.

    So the first sets that are found are made of neighbours that are no larger than they have to be.
    """

    def __init__(self, need: Room, elsewhere: Sequence[Place], at_most: int, cost: Cost) -> None:
        self._need, self._elsewhere, self._at_most, self._cost = need, elsewhere, at_most, cost
        self._best: tuple[Pod, ...] | None = None
        self._bound: float = math.inf
        """What the best one costs: the others have to be cheaper."""
        self._steps = 0
        self.lacked_place = False

    def run(self, candidates: Iterable[Pod]) -> tuple[Pod, ...] | None:
        """Return the cheapest set, the same one for the same pods in whatever order."""
        priced = sorted(((self._cost(pod), pod) for pod in candidates), key=lambda item: (item[0], item[1].uid))
        self._pods = [pod for _, pod in priced]
        self._costs = [price for price, _ in priced]
        self._sizes = [pod.size for pod in self._pods]
        # The most that one of those up to here could free.
        self._most_cpu = [*accumulate((size.cpu for size in self._sizes), max)]
        self._most_memory = [*accumulate((size.memory for size in self._sizes), max)]
        # What a unit of each resource costs at least: no set can be cheaper than that.
        self._rate = tuple(
            min((price / pod.size[index] for price, pod in priced if pod.size[index]), default=0.0) for index in (0, 1)
        )
        for count in range(1, self._at_most + 1):
            self._extend((), len(self._pods), 0, self._need.cpu, self._need.memory, count)
        return self._best

    def _extend(self, chosen: tuple[int, ...], end: int, spent: int, cpu: int, memory: int, count: int) -> None:  # noqa: PLR0913, PLR0917  # numbers, because it is called thousands of times
        """Add as many as `count` says to those that are chosen, all of them before `end`."""
        # Where even the largest ones up to here are too small together, none of them can be the dearest.
        first = max(
            bisect_left(self._most_cpu, -(-cpu // count)),
            bisect_left(self._most_memory, -(-memory // count)),
            count - 1,
        )
        costs, sizes, rate = self._costs, self._sizes, self._rate
        for index in range(first, end):
            size = sizes[index]
            if index + 1 < end and size == sizes[index + 1] and costs[index] == costs[index + 1]:
                continue  # as good as the next one
            now = spent + costs[index]
            if now >= self._bound or self._steps >= _STEPS:
                return
            self._steps += 1
            less_cpu, less_memory = cpu - size[0], memory - size[1]
            if count == 1:
                if less_cpu <= 0 and less_memory <= 0 and self._consider((*chosen, index), now):
                    return  # those that follow cost as much, or more
            elif now + max(less_cpu * rate[0], less_memory * rate[1], 0) < self._bound:
                self._extend((*chosen, index), index, now, less_cpu, less_memory, count - 1)

    def _consider(self, chosen: tuple[int, ...], spent: int) -> bool:
        pods = tuple(self._pods[index] for index in chosen)
        if not placeable(pods, self._elsewhere):
            self.lacked_place = True
            return False
        self._best, self._bound = pods, spent
        return True


def placeable(pods: Iterable[Pod], elsewhere: Iterable[Place]) -> bool:
    """Tell whether each receiver finds a node: the largest first, where it leaves the least, and else elsewhere."""
    sizes = sorted((pod.size for pod in pods), key=lambda size: (size.memory, size.cpu), reverse=True)
    return _place(sizes, [place.free for place in elsewhere], [_WAYS])


def _place(sizes: list[Room], free: list[Room], ways: list[int]) -> bool:
    if not sizes:
        return True
    size = sizes[0]
    for room in sorted({room for room in free if size.within(room)}):
        if not ways[0]:
            return False
        ways[0] -= 1
        index = free.index(room)
        if _place(sizes[1:], [*free[:index], room.minus(size), *free[index + 1 :]], ways):
            return True
    return False
