"""What the operator's care costs: from a request to the grown pod, against a script that makes the same calls blindly.

Run by `make bench-scaleup` (RUNS=8); writes docs/benchmarks/scaleup.md and its plot, and ends with one line. Both in
turns on one testbed. What is compared is the time without the copy of the guest's memory, which nobody can make
shorter.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from elbowroom.authority.keeper import Keeper
from elbowroom.core.world import TransferState
from elbowroom.drivers.client import RunnerClient
from elbowroom.drivers.interface import TransferLimits, UnreachableError
from elbowroom.drivers.qemu import QemuDriver
from support.holds import install
from support.inside import Inside
from support.operators import SYSTEM, start_operator
from support.scenes import scene
from support.testbed import ROOT, Testbed
from support.waiting import until
from support.witness import Witness

if TYPE_CHECKING:
    from elbowroom.drivers.interface import VirtualMachine
    from support.namespace import Json
    from support.scenes import Scene

mpl.use("svg")
import matplotlib.pyplot as plt

RUNS = int(os.environ.get("RUNS", "8"))
TARGET = ROOT / "docs" / "benchmarks"
LIMITS = TransferLimits(bandwidth=1 << 30, downtime_ms=300, timeout_seconds=600, switch_over_seconds=60)


@dataclass(frozen=True)
class Run:
    """What one growth took, in seconds."""

    whole: float
    copy: float

    @property
    def rest(self) -> float:
        """Return all but the copy."""
        return self.whole - self.copy


async def until_brink(driver: QemuDriver, source: VirtualMachine, receiver: VirtualMachine, attempt: int) -> float:
    """Return how long the copy took, as somebody sees it who waits for it. The same for both."""
    began = None
    seen = await driver.observe(source, receiver, attempt)
    while seen.state in (TransferState.NOT_STARTED, TransferState.COPYING):
        if seen.state is TransferState.COPYING and began is None:
            began = time.monotonic()
        seen = await driver.observe(source, receiver, attempt, after=seen.revision, wait=0.02 if began is None else 10)
    return 0.0 if began is None else time.monotonic() - began


def grown(stage: Scene) -> bool:
    """Tell whether the kubelet has given the claimant its size."""
    return stage.has("db").cpu == 4000  # noqa: PLR2004


def by_operator(stage: Scene, inside: Inside, driver: QemuDriver) -> Run:
    """Ask the operator, and look on."""
    began = time.monotonic()
    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    moving = until("a receiver runs", lambda: ready_to_receive(stage), within=60)
    source, receiver = stage.guest("web"), stage.guest(moving["status"]["receiver"]["name"])
    copy = inside.run(until_brink(driver, source, receiver, moving["status"]["attempt"]))
    until("the claimant has grown", lambda: grown(stage), within=60)
    whole = time.monotonic() - began
    stage.requests.until("grow", "Succeeded")
    return Run(whole, copy)


def ready_to_receive(stage: Scene) -> Json | None:
    """Return the migration once its receiver has an address."""
    found = stage.requests.all("vmmigrations")
    status = found[0].get("status", {}) if found else {}
    pod = stage.space.pod(status["receiver"]["name"]) if status.get("receiver") else {}
    return found[0] if pod.get("status", {}).get("podIP") else None


def by_hand(stage: Scene, inside: Inside, driver: QemuDriver) -> Run:
    """Make the same calls, and trust that all goes well."""
    space, attempt = stage.space, 1
    began = time.monotonic()
    found = space.pod("web")
    source = driver.describe(found)
    body: Any = driver.receiver_pod(found, name="web-1", attempt=attempt)
    space.core.create_namespaced_pod(space.name, body)
    until("the receiver has an address", lambda: space.pod("web-1").get("status", {}).get("podIP"))
    receiver = driver.describe(space.pod("web-1"))

    async def move() -> float:
        while True:  # until the receiver answers, which the caller's patience ends
            try:
                await driver.prepare(source, receiver, attempt, LIMITS)
                break
            except UnreachableError:
                await asyncio.sleep(0.05)
        await driver.start(source, receiver, attempt, LIMITS)
        copy = await until_brink(driver, source, receiver, attempt)
        await driver.commit(source, attempt)
        seen = await driver.observe(source, receiver, attempt)
        while seen.state is not TransferState.SUCCEEDED:
            seen = await driver.observe(source, receiver, attempt, after=seen.revision, wait=10)
        return copy

    copy = inside.run(move())
    sizes = {"containers": [{"name": "runner", "resources": {"requests": {"cpu": "4"}}}]}
    space.core.patch_namespaced_pod_resize("db", space.name, {"spec": sizes})
    space.core.delete_namespaced_pod("web", space.name)
    until("the claimant has grown", lambda: grown(stage), within=60)
    return Run(time.monotonic() - began, copy)


def measure() -> tuple[list[Run], list[Run]]:
    """Grow in turns."""
    ours: list[Run] = []
    hand: list[Run] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Testbed(Path(folder) / "bed", nodes=2, flags=("--cpu", "4", "--memory", "8Gi")) as testbed,
        Inside(testbed) as inside,
    ):
        install(testbed, ROOT)
        start_operator(testbed)
        keeper = Keeper(testbed.core, SYSTEM, lambda: datetime.now(UTC))
        context = asyncio.run(keeper.operator_context())
        driver = QemuDriver(RunnerClient(lambda: context, tries=2))
        with Witness(testbed) as witness:
            for turn in range(RUNS):
                pair = [("by hand", by_hand, hand), ("operator", by_operator, ours)]
                for name, grow, kept in pair if turn % 2 else pair[::-1]:
                    with scene(testbed, inside, witness, f"{name} {turn}") as stage:
                        stage.boot(db="2", web="2")
                        kept.append(grow(stage, inside, driver))
                        if grow is by_operator:
                            witness.assert_kept(stage.space.name)
                    last = kept[-1]
                    print(f"  {turn + 1} of {RUNS}, {name}: {last.whole:.2f} s, copy {last.copy:.2f} s", flush=True)
        inside.run(driver._client.close())  # noqa: SLF001
    return hand, ours


def write(hand: list[Run], ours: list[Run], ratio: float) -> None:
    """Write the table and the plot."""
    rows = []
    for title, name in (("in all", "whole"), ("the copy", "copy"), ("all but the copy", "rest")):
        left, right = ([getattr(run, name) for run in runs] for runs in (hand, ours))
        cells = [
            f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})" for values in (left, right)
        ]
        rows.append(
            f"| {title}, s | {cells[0]} | {cells[1]} | {statistics.median(right) / statistics.median(left):.2f} |"
        )
    text = f"""# What the operator's care costs

`make bench-scaleup`: a node of 4 cores is full with two VMs of two cores each, and one of them grows to four. Once a
`VMScaleRequest` is applied; the other time a script makes the same calls with no hold, no plan, no check, no condition
and no event: create the receiver, copy, switch over, resize, delete. {RUNS} times each, in turns, on one testbed of
two cores. From the first call to the kubelet's word that the claimant has its new size; the ratio that counts is
{ratio:.2f}. Median (smallest to largest):

| | by hand | operator | ratio |
|---|---|---|---|
{chr(10).join(rows)}

Both wait for the same two things most of the time: the receiver's start, and the kubelet, which gives the claimant its
size when it has seen that the neighbour's pod has ended.

![Each growth, by hand and by the operator](scaleup.svg)
"""
    (TARGET / "scaleup.md").write_text(text)
    mpl.rcParams["svg.hashsalt"] = "elbowroom"
    figure, axis = plt.subplots(figsize=(6, 3.4), constrained_layout=True)
    values = [[run.rest for run in runs] for runs in (hand, ours)]
    axis.boxplot(values, tick_labels=["by hand", "operator"], widths=0.5, showfliers=False)
    for position, column in enumerate(values, start=1):
        axis.scatter([position] * len(column), column, s=14, alpha=0.6, color="tab:blue")
    axis.set_ylabel("s, without the copy")
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", alpha=0.3)
    figure.savefig(TARGET / "scaleup.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure, write, and end with one line."""
    hand, ours = measure()
    ratio = statistics.median(run.rest for run in ours) / statistics.median(run.rest for run in hand)
    write(hand, ours, ratio)
    print(f"scaleup overhead_ratio={ratio:.2f} runs={len(ours)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
