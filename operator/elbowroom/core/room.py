"""Amounts of the two resources that can be resized in place, compared and added one by one."""

from __future__ import annotations

from typing import NamedTuple


class Room(NamedTuple):
    """CPU in thousandths of a core, memory in bytes. May be negative: that much too little."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: Room) -> Room:
        """Add."""
        return Room(self[0] + other[0], self[1] + other[1])

    def minus(self, other: Room) -> Room:
        """Take away."""
        return Room(self[0] - other[0], self[1] - other[1])

    def most(self, other: Room) -> Room:
        """Return the larger of each."""
        return Room(max(self[0], other[0]), max(self[1], other[1]))

    def least(self, other: Room) -> Room:
        """Return the smaller of each."""
        return Room(min(self[0], other[0]), min(self[1], other[1]))

    def within(self, other: Room) -> bool:
        """Tell whether neither is more."""
        return self[0] <= other[0] and self[1] <= other[1]

    @property
    def lacking(self) -> Room:
        """Return what is above zero."""
        return Room(max(self[0], 0), max(self[1], 0))

    def __bool__(self) -> bool:
        return self[0] != 0 or self[1] != 0


NOTHING = Room()


def total(rooms: list[Room]) -> Room:
    """Add them up."""
    return Room(sum(room[0] for room in rooms), sum(room[1] for room in rooms))
