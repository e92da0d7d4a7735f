"""Where receivers could go: the free room of every node, kept in order as nodes change one by one."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from . import ledger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from .room import Room
    from .world import Hold, Node

_LARGEST: Final = 16
"""How many of the emptiest nodes are looked at, by each resource, besides those that no other beats in both."""


_LAYERS: Final = 4
"""By how many others a node may be beaten, at most, to be looked at all the same, and one more."""


class Place(NamedTuple):
    """Room on another node."""

    node: str
    free: Room


_Entry = tuple[int, int, str]
"""The emptiest first, and nodes of the same room by their names."""


class Places:
    """Nodes that take pods, by what is left on them when everybody who holds has grown."""

    def __init__(self) -> None:
        """Begin without any."""
        self._free: dict[str, Room] = {}
        self._by_memory: list[_Entry] = []
        self._by_cpu: list[_Entry] = []

    @classmethod
    def of(cls, nodes: Iterable[Node], holds: Iterable[Hold]) -> Places:
        """Return those of a few nodes."""
        held: dict[str, list[Hold]] = {}
        for hold in holds:
            held.setdefault(hold.node, []).append(hold)
        places = cls()
        for node in nodes:
            places.put(node, held.get(node.name, ()))
        return places

    def put(self, node: Node, holds: Iterable[Hold]) -> None:
        """Take in what a node, and the holds on it, have become."""
        free = _free(node, holds) if node.ready and node.takes_pods else None
        before = self._free.get(node.name)
        if free == before:
            return
        self.drop(node.name)
        if free is not None:
            self._free[node.name] = free
            insort(self._by_memory, _by_memory(node.name, free))
            insort(self._by_cpu, _by_cpu(node.name, free))

    def drop(self, name: str) -> None:
        """Forget a node."""
        free = self._free.pop(name, None)
        if free is not None:
            del self._by_memory[bisect_left(self._by_memory, _by_memory(name, free))]
            del self._by_cpu[bisect_left(self._by_cpu, _by_cpu(name, free))]

    def emptiest(self) -> Iterator[Place]:
        """Return all of them, those with the most memory first."""
        return (Place(entry[2], self._free[entry[2]]) for entry in self._by_memory)

    def best(self, besides: Collection[str] = ()) -> tuple[Place, ...]:
        """Return those with the most room, and those that few others beat in both; `besides` are left out."""
        most_memory = [*islice((entry for entry in self._by_memory if entry[2] not in besides), _LARGEST)]
        most_cpu = [*islice((entry for entry in self._by_cpu if entry[2] not in besides), _LARGEST)]
        chosen = {entry[2] for entry in (*most_memory, *most_cpu)}
        # Whoever has more cpu than the last of these is one of them.
        chosen.update(self._unbeaten(besides, enough=-most_cpu[-1][0] if most_cpu else 0))
        return tuple(
            Place(name, self._free[name])
            for _, _, name in sorted(_by_memory(name, self._free[name]) for name in chosen)
        )

    def _unbeaten(self, besides: Collection[str], enough: int) -> Iterator[str]:
        """Return those that no other beats in both, and for several receivers those that only one does, or two."""
        layers: list[int] = []
        for _, less_cpu, name in self._by_memory:
            cpu = -less_cpu
            if name in besides or (len(layers) == _LAYERS and cpu <= layers[-1]):
                continue
            # Those before it have as much memory: it is beaten by the best of each layer that has as much cpu, too.
            layer = next((number for number, best in enumerate(layers) if best < cpu), len(layers))
            layers[layer : layer + 1] = [cpu]
            yield name
            if len(layers) == _LAYERS and layers[-1] >= enough:
                return


def _by_memory(name: str, free: Room) -> _Entry:
    return -free.memory, -free.cpu, name


def _by_cpu(name: str, free: Room) -> _Entry:
    return -free.cpu, -free.memory, name


def _free(node: Node, holds: Iterable[Hold]) -> Room | None:
    free = node.allocatable.minus(node.requested)
    for hold in holds:
        if not hold.live:
            continue
        kept = ledger.outstanding(node, hold)
        if kept is None:
            return None
        free = free.minus(kept)
    return free
