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
"""How many times those that no other beats are looked for, those that were found before left out."""


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
        """Return those with the most room, and those that no other beats in both; `besides` are left out."""
        most_memory = (entry[2] for entry in self._by_memory if entry[2] not in besides)
        most_cpu = (entry[2] for entry in self._by_cpu if entry[2] not in besides)
        chosen = {*islice(most_memory, _LARGEST), *islice(most_cpu, _LARGEST)}
        unbeaten: set[str] = set()
        for _ in range(_LAYERS):  # several receivers want several nodes of the same kind
            unbeaten |= {*self._unbeaten({*besides, *unbeaten})}
        chosen |= unbeaten
        return tuple(Place(entry[2], self._free[entry[2]]) for entry in sorted(self._entries(chosen)))

    def _entries(self, names: Iterable[str]) -> Iterator[_Entry]:
        return (_by_memory(name, self._free[name]) for name in names)

    def _unbeaten(self, besides: Collection[str]) -> Iterator[str]:
        most = next((-entry[0] for entry in self._by_cpu if entry[2] not in besides), None)
        best = None
        for _, cpu, name in self._by_memory:
            if name not in besides and (best is None or -cpu > best):
                best = -cpu
                yield name
                if best == most:
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
