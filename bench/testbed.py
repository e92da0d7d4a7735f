"""How long the testbed takes to start, and how much memory it takes: the figures in docs/testbed.md.

Run by `make bench-testbed`. "Ready" means that pods can be scheduled: all nodes are Ready and free of start-up taints,
the default service account exists, scheduler and controllers are healthy.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTBED = Path(__file__).resolve().parents[1] / "bin" / "testbed"
RUNS = 5
SETTLED = 10.0  # seconds after which memory is read: the start-up's own garbage is gone by then


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


def measure(nodes: int) -> tuple[float, int, int]:
    """Start a testbed once; return seconds to ready, resident and proportional bytes."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        command = [str(TESTBED), "up", "--dir", directory, "--nodes", str(nodes), "--cpu", "4", "--memory", "8Gi"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stdout or ():
                    if line.startswith("Ready after"):
                        break
                else:
                    sys.exit("the testbed did not start")
                ready = time.monotonic() - began
                time.sleep(SETTLED)
                status = json.loads(
                    subprocess.check_output([str(TESTBED), "status", "-o", "json", "--dir", directory], text=True)
                )
                return ready, resident(process.pid), status["proportionalBytes"]
            finally:
                process.terminate()


def main() -> None:
    """Measure and print a table."""
    print(f"{os.cpu_count()} cores, median (and largest) of {RUNS} runs")
    print("| nodes | ready, s | resident, MiB | shared pages counted once, MiB |")
    print("|---|---|---|---|")
    for nodes in (1, 3, 6):
        seconds, bytes_resident, bytes_proportional = zip(*(measure(nodes) for _ in range(RUNS)), strict=True)
        mebibytes = [[value / 2**20 for value in column] for column in (bytes_resident, bytes_proportional)]
        cells = [f"{statistics.median(seconds):.1f} ({max(seconds):.1f})"]
        cells += [f"{statistics.median(column):.0f} ({max(column):.0f})" for column in mebibytes]
        print(f"| {nodes} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
