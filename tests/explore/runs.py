"""One world, in a process of its own."""

from __future__ import annotations

import os

from .scenarios import worlds
from .search import Result, Search, explore

WALKS = 500


def visit(name: str, faults: int, most: int) -> Result:
    """Explore one world, up to so many states."""
    world = worlds()[name](faults)
    return explore(world.setup, world.start, most=most)


def stroll(name: str, faults: int) -> Result:
    """Go through one world at random."""
    world = worlds()[name](faults)
    return Search(world.setup, world.start).wander(
        int(os.environ.get("WALKS", WALKS)), int(os.environ.get("SEED", "1"))
    )
