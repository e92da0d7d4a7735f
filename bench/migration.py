"""What the runner costs: its moves against those of bare QEMU driven by hand, in turns, on the same machine.

Run by `make bench-migration`; writes docs/benchmarks/migration.md and its plot, and ends with one line. MOVES=20 by
default.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from bare_qemu import BareGuest
from elbowroom.authority.certificates import issue_vm
from elbowroom.core.world import TransferState
from elbowroom.drivers.interface import TransferLimits, VirtualMachine
from elbowroom.runner.tls import Files, Identity
from kubernetes import client
from support.console import assert_whole, gap
from support.inside import Inside
from support.namespace import Namespace
from support.testbed import Testbed
from support.vms import MIB, Guest, Vms, new_authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from support.vms import InPod

mpl.use("svg")
import matplotlib.pyplot as plt

MOVES = int(os.environ.get("MOVES", "20"))
LIMITS = TransferLimits(
    bandwidth=32 * MIB, downtime_ms=300, timeout_seconds=120, switch_over_seconds=60, auto_converge=False
)
LOAD = Guest(dirty_mb_per_s=10, working_set_mib=64, tick_ms=10)
MEMORY = "256Mi"
TARGET = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"


@dataclass(frozen=True)
class Move:
    """What one move took, in milliseconds."""

    total: float
    downtime: float
    gap: float


@contextmanager
def frozen(vms: Vms, guest: InPod) -> Iterator[None]:
    """Stop a guest's QEMU: two guests on two cores would measure each other."""
    process = vms.qemu_process(guest)
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


class Ours:
    """The guest that the runner moves, between pods of a testbed."""

    def __init__(self, vms: Vms) -> None:
        """Boot it."""
        self._vms = vms
        self._vm = vms.boot("bench", node="node-1", guest=LOAD, memory=MEMORY)
        self._node = 1

    def move(self) -> Move:
        """Move it as the operator does: commit as soon as the runner says that it can."""
        vms, source = self._vms, self._vm
        self._node = 3 - self._node
        receiver, attempt = vms.prepare(source, LIMITS, node=f"node-{self._node}")
        began = time.monotonic()
        vms.run(self._steer(source, receiver, attempt), within=180)
        total = (time.monotonic() - began) * 1000
        seen = vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
        vms.until_ticking(receiver, more=20)
        before, after = vms.ticks(source), vms.ticks(receiver)
        assert_whole([before, after])
        vms.run(vms.driver.retire(source, attempt))
        vms.discard(source)
        self._vm = receiver
        assert seen.downtime_ms is not None
        return Move(total, float(seen.downtime_ms), gap(before, after))

    def frozen(self) -> AbstractContextManager[None]:
        """Keep it still while the other one is measured."""
        return frozen(self._vms, self._vm)

    async def _steer(self, source: VirtualMachine, receiver: VirtualMachine, attempt: int) -> None:
        driver = self._vms.driver
        await driver.start(source, receiver, attempt, LIMITS)
        seen = await driver.observe(source, receiver, attempt)
        committed = False
        while seen.state is not TransferState.SUCCEEDED:
            if seen.state is TransferState.AT_BRINK and not committed:
                await driver.commit(source, attempt)
                committed = True
            seen = await driver.observe(source, receiver, attempt, after=seen.revision, wait=10)


class Bare:
    """The guest that is moved by hand."""

    def __init__(self, folder: Path, vms: Vms) -> None:
        """Boot it."""
        identity = Identity("bench", "bare")
        pair = issue_vm(vms.authority, identity, datetime.now(UTC))
        secret = folder / "secret"
        secret.mkdir()
        contents = {"ca.crt": vms.authority.bundle(), "tls.crt": pair.certificate, "tls.key": pair.key}
        for name, content in contents.items():
            (secret / name).write_bytes(content)
        self._loop = asyncio.new_event_loop()
        options = {"guest": LOAD, "memory": MEMORY}
        self._guest = BareGuest(vms, folder / "qemu", Files(secret), identity, options)
        self._loop.run_until_complete(self._guest.boot())
        self._vms = vms

    def move(self) -> Move:
        """Move it."""
        return Move(*self._loop.run_until_complete(self._guest.move(LIMITS.bandwidth, LIMITS.downtime_ms)))

    def frozen(self) -> AbstractContextManager[None]:
        """Keep it still while the other one is measured."""
        return frozen(self._vms, self._guest.current)

    def end(self) -> None:
        """End it."""
        self._loop.run_until_complete(self._guest.current.end())


def measure() -> tuple[list[Move], list[Move]]:
    """Move both guests in turns."""
    ours: list[Move] = []
    bare: list[Move] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Testbed(Path(folder) / "bed", nodes=2) as testbed,
        Inside(testbed) as inside,
    ):
        testbed.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="bench")))
        vms = Vms(Namespace(testbed, "bench"), inside, new_authority())
        by_hand = Bare(Path(folder), vms)
        try:
            by_runner = Ours(vms)
            for turn in range(MOVES):
                with by_runner.frozen():
                    bare.append(by_hand.move())
                with by_hand.frozen():
                    ours.append(by_runner.move())
                print(
                    f"  {turn + 1:3d} of {MOVES}: bare {bare[-1].total:6.0f} ms, runner {ours[-1].total:6.0f} ms",
                    flush=True,
                )
        finally:
            by_hand.end()
            vms.close()
    return bare, ours


def ratio(bare: list[float], ours: list[float]) -> float:
    """Compare medians: single moves vary with whatever else the machine does."""
    return statistics.median(ours) / statistics.median(bare)


def percentile(values: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def write(bare: list[Move], ours: list[Move]) -> None:
    """Write the table and the plot."""
    TARGET.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, title in (("total", "in all"), ("downtime", "downtime, as QEMU says"), ("gap", "silence on the console")):
        left, right = ([getattr(move, name) for move in moves] for moves in (bare, ours))
        cells = [f"{statistics.median(values):.0f} ({max(values):.0f})" for values in (left, right)]
        rows.append(f"| {title}, ms | {cells[0]} | {cells[1]} | {ratio(left, right):.2f} |")
    text = f"""# The cost of the runner

`make bench-migration`: the runner's moves against those of bare QEMU, driven by hand over QMP, in turns on one
machine of two cores, under TCG. Both run in pods of the same cluster, on the same network, with TLS; while one is
measured the other is kept still. {MOVES} moves each of a guest of {MEMORY}B that dirties {LOAD.dirty_mb_per_s} MB/s in
{LOAD.working_set_mib} MiB, at a bandwidth of {LIMITS.bandwidth >> 20} MiB/s with an allowed downtime of
{LIMITS.downtime_ms} ms.

Bare QEMU switches over as soon as it can, and its destination starts the guest by itself. The runner holds the guest
at the brink until it is committed, and its receiver waits for the source's word. Median (largest):

| | bare QEMU | runner | ratio |
|---|---|---|---|
{chr(10).join(rows)}

![Each move, bare QEMU and runner](migration.svg)
"""
    (TARGET / "migration.md").write_text(text)
    plot(bare, ours)


def plot(bare: list[Move], ours: list[Move]) -> None:
    """Show every move: a median hides too much."""
    mpl.rcParams["svg.hashsalt"] = "elbowroom"
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), constrained_layout=True)
    for axis, (name, title) in zip(
        axes,
        (("total", "In all"), ("downtime", "Downtime, as QEMU says"), ("gap", "Silence on the console")),
        strict=True,
    ):
        values = [[getattr(move, name) for move in moves] for moves in (bare, ours)]
        axis.boxplot(values, tick_labels=["bare QEMU", "runner"], widths=0.5, showfliers=False)
        for position, column in enumerate(values, start=1):
            axis.scatter([position] * len(column), column, s=12, alpha=0.5, color="tab:blue")
        axis.set_title(title)
        axis.set_ylabel("ms")
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", alpha=0.3)
    figure.savefig(TARGET / "migration.svg", metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    """Measure, write, and end with one line."""
    print(f"Moving two guests in turns, {MOVES} times each ...", flush=True)
    bare, ours = measure()
    write(bare, ours)
    total = ratio([move.total for move in bare], [move.total for move in ours])
    downtime = ratio([move.downtime for move in bare], [move.downtime for move in ours])
    gaps = percentile([move.gap for move in ours], 0.95)
    print(f"migration total_ratio={total:.2f} downtime_ratio={downtime:.2f} gap_ms_p95={gaps:.0f} moves={len(ours)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
