"""How long the testbed takes to start, how much memory it takes, and how soon a Deferred resize is granted.

Run by `make bench-testbed`; the figures are in docs/testbed.md. "Ready" means that pods can be scheduled: all nodes are
Ready and free of start-up taints, the default service account exists, scheduler and controllers are healthy.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from pathlib import Path

from support.namespace import IDLE, Namespace, Size, pod, resized
from support.testbed import Testbed
from support.waiting import until

RUNS = 5
GRANTS = 20
SETTLED = 10.0  # seconds after which memory is read: the start-up's own garbage is gone by then
GIB = 2**30


def resident(pid: int) -> int:
    """Sum up the resident memory of a process and everything below it, in bytes; shared pages count each time."""
    total, waiting = 0, [str(pid)]
    while waiting:
        current = waiting.pop()
        status = Path(f"/proc/{current}/status").read_text(encoding="utf-8")
        total += int((re.search(r"VmRSS:\s+(\d+)", status) or ["", "0"])[1]) * 1024
        for task in Path(f"/proc/{current}/task").iterdir():
            waiting += (task / "children").read_text(encoding="utf-8").split()
    return total


def measure_start(nodes: int) -> tuple[float, int, int]:
    """Start a testbed once; return seconds to ready, resident and proportional bytes."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        with Testbed(Path(directory), nodes=nodes) as testbed:
            ready = time.monotonic() - began
            time.sleep(SETTLED)
            return ready, resident(testbed.process.pid), testbed.status()["proportionalBytes"]


def measure_grant(namespace: Namespace) -> tuple[float, float]:
    """Return the seconds from the delete, and from the object's end, of the neighbour to the claimant's new size."""
    for name in ("claimant", "neighbour"):
        namespace.start(pod(name, IDLE, cpu="2", memory="2Gi", node="node-1", restartPolicy="Never"))
    namespace.resize("claimant", cpu="4", memory="4Gi")
    namespace.until_deferred("claimant")
    began = time.monotonic()
    namespace.core.delete_namespaced_pod("neighbour", namespace.name)
    gone = 0.0

    def granted() -> bool:
        nonlocal gone
        gone = gone or (0.0 if namespace.pod("neighbour") else time.monotonic())
        return bool(gone) and resized(namespace.pod("claimant"), Size(4000, 4 * GIB))

    until("the resize is granted", granted)
    ended = time.monotonic()
    namespace.kubectl("delete", "pod", "claimant", "--timeout=20s")
    return ended - began, ended - gone


def spread(values: list[float], digits: int) -> str:
    """Write median and largest."""
    return f"{statistics.median(values):.{digits}f} ({max(values):.{digits}f})"


def main() -> None:
    """Measure and print the tables."""
    print(f"{os.cpu_count()} cores; median (largest) of {RUNS} runs\n")
    print("| nodes | ready, s | resident, MiB | shared pages counted once, MiB |")
    print("|---|---|---|---|")
    for nodes in (1, 3, 6):
        runs = [measure_start(nodes) for _ in range(RUNS)]
        cells = [spread([run[0] for run in runs], 1)]
        cells += [spread([run[index] / 2**20 for run in runs], 0) for index in (1, 2)]
        print(f"| {nodes} | {' | '.join(cells)} |", flush=True)

    with tempfile.TemporaryDirectory() as directory, Testbed(Path(directory), nodes=1) as testbed:
        grants = [measure_grant(Namespace(testbed, "default")) for _ in range(GRANTS)]
    print(f"\nA Deferred resize is granted, s; median (largest) of {GRANTS} runs\n")
    print("| after the neighbour's delete | after its object is gone |")
    print("|---|---|")
    print(f"| {spread([grant[0] for grant in grants], 2)} | {spread([grant[1] for grant in grants], 2)} |")


if __name__ == "__main__":
    main()
