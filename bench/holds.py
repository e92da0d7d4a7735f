"""How soon the scheduler says what it keeps: from a hold's creation to `Held`, from the claimant's resize to `Claimed`.

Run by `make bench-holds`; prints a table and ends with one line. HOLDS=40 by default, one after the other.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from support.holds import Holds, install
from support.namespace import IDLE, Namespace, fresh_namespace, pod
from support.testbed import ROOT, Testbed

COUNT = int(os.environ.get("HOLDS", "40"))
_PATIENCE = 30.0


def until_phase(holds: Holds, name: str, phase: str) -> float:
    """Ask without a pause until the scheduler has said it; return how long that took, in milliseconds."""
    began = time.perf_counter()
    while holds.get(name).get("status", {}).get("phase") != phase:
        assert time.perf_counter() - began < _PATIENCE, holds.get(name)
    return (time.perf_counter() - began) * 1000


def measure(space: Namespace) -> dict[str, list[float]]:
    """Grow pods by a hundredth of a core, one after the other, while pods that find no room hammer the scheduler."""
    holds = Holds(space)
    space.apply(*(pod(f"crowd-{number}", IDLE, cpu="5", node="node-1") for number in range(200)))
    found: dict[str, list[float]] = {"Held": [], "Claimed": []}
    for number in range(COUNT):
        name = f"claimant-{number}"
        (claimant,) = space.start(pod(name, IDLE, cpu="10m", nodeName="node-1"))
        hold = holds.create(claimant, "20m")
        found["Held"].append(until_phase(holds, hold, "Held"))
        space.resize(name, cpu="20m", memory="64Mi")
        found["Claimed"].append(until_phase(holds, hold, "Claimed"))
        holds.delete(hold)
    return found


def main() -> None:
    """Measure, and say it."""
    with tempfile.TemporaryDirectory() as folder, Testbed(Path(folder) / "bed", nodes=1) as testbed:
        install(testbed, ROOT)
        with fresh_namespace(testbed, "holds") as space:
            found = measure(space)
    for phase, values in found.items():
        ordered = sorted(values)
        median, most = statistics.median(ordered), ordered[int(0.9 * len(ordered))]
        print(f"{phase:8} median {median:.0f} ms, 90 % within {most:.0f} ms, all within {ordered[-1]:.0f} ms")
    held, claimed = (statistics.median(found[phase]) for phase in ("Held", "Claimed"))
    print(f"holds held_ms={held:.0f} claimed_ms={claimed:.0f} worst_ms={max(map(max, found.values())):.0f}")


if __name__ == "__main__":
    main()
