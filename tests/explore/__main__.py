"""`make explore`: every world in turn, two at a time; first every state of it, then walks with more faults."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TYPE_CHECKING

from .runs import stroll, visit
from .scenarios import worlds

if TYPE_CHECKING:
    from .search import Result

# With how many faults each world is explored: fewer where it is large already. The largest come first, so that the end is not one of them alone.
FAULTS = {
    "two requests, committing": 1, "two neighbours, copying": 1, "nobody else, copying": 2, "two neighbours, committing": 1,
    "two requests, swapping": 1, "another neighbour": 1, "without a guard": 1, "a thief": 1, "another try": 1,
    "a filler": 1, "a tight filler": 1, "two in place": 1, "waiting for room": 0,
    "nobody else": 1, "in place": 2, "superseded in place": 2, "shrinking": 2, "by hand": 2,
    "old views in place": 1, "deferred already": 1, "cut off for ever": 1, "dead for ever": 1, "old views": 1,
    "a controller": 1, "superseded": 1, "by hand, and a request": 1, "a large filler": 1,
    "nobody else, committing": 2, "nobody else, swapping": 3, "a thief, swapping": 2,
    "two neighbours, swapping": 2, "each other's neighbour": 0,
    "a preemptor": 1, "a preemptor of VMs": 1, "an autoscaler": 1, "an autoscaler without a guard": 1, "a container that restarts": 1,
}  # fmt: skip
WALKED_FAULTS = 3
MOST = 3_000_000
"""How many states of a world are visited. A few have more, and there it is every state up to some number of steps."""


def main() -> int:
    """Explore them, or those that are named; MORE_FAULTS adds to the faults of each, MOST states of each are visited."""
    chosen = sys.argv[1:] or [*FAULTS]
    more, most = int(os.environ.get("MORE_FAULTS", "0")), int(os.environ.get("MOST", MOST))
    began, states, violations = time.perf_counter(), 0, 0
    # A process for each: what a world has taken, some of them gigabytes, is given back when it is done.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running: dict[Future[Result], tuple[str, int, str]] = {}
        if os.environ.get("ONLY") != "walks":
            for name in chosen:
                running[pool.submit(visit, name, FAULTS[name] + more, most)] = (name, FAULTS[name] + more, "in all")
        if os.environ.get("WALKS") != "0":
            for name in sys.argv[1:] or worlds():
                running[pool.submit(stroll, name, WALKED_FAULTS)] = (name, WALKED_FAULTS, "on walks")
        for future in as_completed(running):
            name, faults, how = running[future]
            result = future.result()
            states += result.states
            if result.steps:
                how = f"within {result.steps} steps and some beyond"
            print(f"{name}, {faults} faults: {result.states:,} states {how}, {result.seconds:.0f} s", flush=True)
            if result.violation:
                violations += 1
                print(f"  {result.violation}")
                print("\n".join(f"  {number:3d}. {said}" for number, said in enumerate(result.story, start=1)))
    print(f"explore states={states} violations={violations} seconds={time.perf_counter() - began:.0f}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
