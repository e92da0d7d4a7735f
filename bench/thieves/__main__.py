"""Run by `make bench-thieves` (N=100); writes docs/benchmarks/thieves.md and its plot, and ends with one line."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import yaml
from support.holds import install
from support.inside import Inside
from support.namespace import priority_class
from support.operators import SYSTEM, start_operator
from support.scenes import scene
from support.schedulers import extender, stock
from support.testbed import ROOT, Testbed
from support.witness import Witness

from .gang import IMPORTANT, STOCK
from .swaps import CORES, Stage, Swap

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.scenes import Scene

mpl.use("svg")
import matplotlib.pyplot as plt

N = int(os.environ.get("N", "100"))
FULL = 100
"""From so many on it is a result to be kept. A short form is about the orders in which nothing may be stolen."""
SLOW, UNSAFE = (20, N) if N >= FULL else (1, 1)
TARGET = ROOT / "docs" / "benchmarks"
EXTENDER = f"system:serviceaccount:{SYSTEM}:elbowroom-extender"
EVERYTHING, EXTENDED = "plugin, guard and taint", "extender, guard and taint"
SETTINGS: dict[str, Any] = {"rest": "0s", "backoff": "1s", "bindWithin": "15s"}


class Order(NamedTuple):
    """One way to do it, and what became of its swaps."""

    name: str
    swaps: list[Swap]
    out_of_cpu: int

    @property
    def stolen(self) -> int:
        """Return how often the claimant did not get the room."""
        return sum(swap.seconds is None for swap in self.swaps)

    @property
    def killed(self) -> int:
        """Return how often it was removed itself."""
        return sum(swap.killed for swap in self.swaps)

    def times(self) -> list[float]:
        """Return how long the others took."""
        return sorted(swap.seconds for swap in self.swaps if swap.seconds is not None)


def p95(times: list[float]) -> float:
    """Return what 95 of 100 stay below."""
    return times[min(len(times) - 1, round(0.95 * len(times)))]


def run(name: str, how_many: int, swap: Callable[[int], Swap], sent_away: Callable[[], int] = lambda: 0) -> Order:
    """Do one order again and again. `sent_away` counts the pods that came while room was held and that a kubelet refused."""
    began = time.monotonic()
    swaps = [swap(number) for number in range(how_many)]
    order = Order(name, swaps, sum(swap.out_of_cpu for swap in swaps) + sent_away())
    print(
        f"{name}: stolen {order.stolen}/{how_many}, claimant killed {order.killed}, OutOfcpu {order.out_of_cpu}, "
        f"{time.monotonic() - began:.0f} s", flush=True,
    )  # fmt: skip
    return order


def by_hand(cast: Cast) -> list[Order]:
    """Do what one does without us."""
    with scene(*cast, "by-hand") as made:
        stage = Stage(made.space, made.requests)
        return [
            run("delete, then resize", SLOW, lambda _: stage.naive("node-1")),
            run("resize first, by hand", SLOW, lambda _: stage.resize_first("node-1")),
        ]


def by_request(name: str, how_many: int, made: Scene, witness: Witness) -> Order:
    """Have a VM move to and fro between two nodes, each time for a claimant on the one that it leaves."""
    stage = Stage(made.space, made.requests)

    def swap(_: int) -> Swap:
        alive = "status.phase=Running"
        if not made.space.core.list_namespaced_pod(made.space.name, field_selector=alive).items:
            made.boot(web="3")  # somebody has killed it
        return stage.by_request(str(made.home_of("web")["spec"]["nodeName"]))

    return run(name, how_many, swap, lambda: len(witness.sent_away(made.space.name)))


class Cast(NamedTuple):
    """Where it happens, and who looks on."""

    testbed: Testbed
    inside: Inside
    witness: Witness


def operated(cast: Cast, name: str, how_many: int, **settings: Any) -> Order:
    """Run one order with an operator of these settings."""
    testbed, inside, witness = cast
    start_operator(testbed, **SETTINGS, **settings)
    testbed.kubectl("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=60s", within=70)
    try:
        with scene(testbed, inside, witness, name) as made:
            made.boot(web="3")
            return by_request(name, how_many, made, witness)
    finally:
        testbed.kubectl("-n", SYSTEM, "delete", "deployment", "--all", "--timeout=60s", within=70)
        testbed.kubectl("delete", "validatingwebhookconfiguration", "elbowroom-guard", "--ignore-not-found")


def measure(folder: Path) -> list[Order]:
    """Run all of them."""
    flags = ("--cpu", str(CORES), "--memory", "8Gi")
    with Testbed(folder / "testbed", nodes=2, flags=flags) as testbed, ExitStack() as stack:
        install(testbed, ROOT)
        testbed.kubectl("apply", "-f", str(ROOT / "examples" / "extender.yaml"))
        testbed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(priority_class(IMPORTANT)))
        cast = Cast(testbed, stack.enter_context(Inside(testbed)), stack.enter_context(Witness(testbed)))
        with stock(testbed, folder, STOCK):
            orders = by_hand(cast)
            orders += [
                operated(cast, "plugin only", UNSAFE),
                operated(cast, "plugin and guard", UNSAFE, guard={}),
                operated(cast, EVERYTHING, N, guard={}, taint=True),
            ]
            testbed.cli("kill", "kube-scheduler")
            shipped: Any = yaml.safe_load((ROOT / "examples" / "extender-scheduler.yaml").read_text())
            process = stack.enter_context(extender(testbed, folder))
            process.until_said('"message": "ready"')
            stack.enter_context(stock(testbed, folder, "default-scheduler", extenders=shipped["extenders"]))
            guard = {"schedulers": [EXTENDER]}
            orders.append(operated(cast, EXTENDED, N, guard=guard, taint=True))
    return orders


def page(orders: list[Order]) -> str:
    """Write the page."""
    rows = []
    for order in orders:
        times = order.times()
        shown = f"{statistics.median(times):.1f} | {p95(times):.1f}" if times else "- | -"
        rows.append(
            f"| {order.name} | {order.stolen}/{len(order.swaps)} | {order.killed} | {order.out_of_cpu} | {shown} |"
        )
    return f"""# Who gets the room that a neighbour leaves

`make bench-thieves`: a node of {CORES} cores is full, a neighbour of three cores leaves, and the claimant wants two of them; the third is for a pod whose resize
has waited for it. All of these want them too, at once: three pending pods of our scheduler and three of a stock scheduler beside it, a preemptor of higher priority of
each, a loop of bare Bindings, a loop of pods that name the node, a resize that comes in this very moment, and a second scale request. By hand the neighbour is a pod
that is deleted; with Elbowroom it is a VM that is moved to the other node, there and back again, and the thieves come as soon as the room is held: before that nobody
has promised it to anybody. Stolen: by hand, the claimant did not get its size within 15 s; with Elbowroom, somebody else took room that was held, or the claimant did not get its
size by its request's deadline. Killed: it was removed itself. OutOfcpu: pods of thieves that a kubelet has sent away, with Elbowroom those that came while the room was held. Seconds are from the first call to the new
size; with Elbowroom that has plan, hold, receiver and copy in it.

Measured on {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores.

| order | stolen | claimant killed | OutOfcpu | median, s | p95, s |
|---|---|---|---|---|---|
{chr(10).join(rows)}

![shares of swaps that were stolen](thieves.svg)

The plugin alone keeps the room from the pods of its own scheduler; it is not asked about the others. The guard refuses who comes past the scheduler. What is left to a
stock scheduler beside ours is to preempt: its victims are deleted through the API in its own name, and only the taint keeps it from looking at the node at all.
"""


def plot(orders: list[Order]) -> None:
    """Draw the shares."""
    figure, axes = plt.subplots(figsize=(8, 0.5 * len(orders) + 1.2))
    names = [order.name for order in orders][::-1]
    shares = [100 * order.stolen / len(order.swaps) for order in orders][::-1]
    bars = axes.barh(names, shares, color=["#2b8a3e" if not share else "#c92a2a" for share in shares])
    axes.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=3)
    axes.set_xlim(0, 112)
    axes.set_xlabel("swaps in which somebody else got the room, %")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(TARGET / "thieves.svg", metadata={"Date": None})


def main() -> int:
    """Measure, write, and say it in a line. Nothing may be stolen with everything on."""
    with tempfile.TemporaryDirectory() as folder:
        orders = measure(Path(folder))
    text = page(orders)
    if N >= FULL:
        (TARGET / "thieves.md").write_text(text)
        plot(orders)
    print("\n".join(line for line in text.splitlines() if line.startswith("|")))
    best = next(order for order in orders if order.name == EVERYTHING)
    times = best.times()
    median = statistics.median(times) if times else float("nan")
    print(f"thieves swaps={len(best.swaps)} stolen={best.stolen} out_of_cpu={best.out_of_cpu} median_s={median:.1f}")
    safe = [order for order in orders if order.name in (EVERYTHING, EXTENDED)]
    return 1 if any(order.stolen or order.out_of_cpu for order in safe) else 0


if __name__ == "__main__":
    sys.exit(main())
