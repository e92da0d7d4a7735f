"""`make simulate NODES=100 SEED=1`: one day in a cluster, the same for each policy."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from elbowroom.core.policy import Policy

from . import report
from .cluster import Score, Simulation
from .policies import POLICIES
from .workload import GI, Day, day


def simulate(drawn: Day, nodes: int, hours: float, name: str) -> Score:
    """Run one day with one policy."""
    return Simulation(drawn, nodes, POLICIES[name], Policy()).run(hours)


def main() -> None:
    """Simulate and tell; with --write, for docs/benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--vms-per-node", type=int, default=20)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--fill", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="a folder for simulation.md and simulation.svg")
    chosen = parser.parse_args()
    vms = chosen.nodes * chosen.vms_per_node
    began = time.perf_counter()
    drawn = day(chosen.nodes, vms, chosen.hours, fill=chosen.fill, seed=chosen.seed)
    with ProcessPoolExecutor(2) as pool:
        running = {name: pool.submit(simulate, drawn, chosen.nodes, chosen.hours, name) for name in POLICIES}
        scores = {name: future.result() for name, future in running.items()}
    seconds = time.perf_counter() - began
    told = (
        f"{chosen.nodes:,} nodes of {drawn.node.cpu // 1000} cores and {drawn.node.memory // GI} GiB,\n"
        f"{vms:,} VMs at the beginning and {len(drawn.births) - vms:,} more, {len(drawn.wishes):,} wishes in "
        f"{chosen.hours:.0f} hours."
    )
    print(told + "\n\n" + report.table(scores) + "\n\n" + report.why(scores) + "\n")
    if chosen.write is not None:
        (chosen.write / "simulation.md").write_text(page(told, scores, chosen.seed, chosen.fill))
        report.plot(scores, chosen.write / "simulation.svg")
    print(f"simulate nodes={chosen.nodes} vms={vms} hours={chosen.hours:g} seed={chosen.seed} seconds={seconds:.0f}")


def page(told: str, scores: dict[str, Score], seed: int, fill: float) -> str:
    """Return the page for the documentation."""
    ours, oldest = scores["ours"], scores["oldest first"]
    waiting = 100 * (scores["none"].reasons.total() - ours.reasons.total()) / scores["none"].reasons.total()
    more = (oldest.sent / oldest.moved.total()) / (ours.sent / ours.moved.total())
    return f"""# A day in a cluster, with four policies

`make bench-simulate` writes this page; `make simulate NODES=100 SEED=2` tries another cluster. Seed {seed},
fill {fill:g}. {told}
Sizes, lifetimes and wishes are drawn from the distributions in [workload.py](../../bench/simulate/workload.py), and
each policy sees the same day. The decisions are those of the operator; scheduler, kubelets and moves are simulated with
typical times ([cluster.py](../../bench/simulate/cluster.py)): a move gets 1 GiB/s, a receiver starts in 2 s, a request
has ten minutes.

{report.table(scores)}

![How soon VMs have grown, and what was sent for it](simulation.svg)

- **ours**: the cheapest set of neighbours that frees enough. **oldest first**: the oldest neighbours, one after the
  other, as long as those that may follow can make it enough. **random**: any, likewise. **none**: nobody is moved, the
  request waits for room. All keep to the same limits: two moves a node, ten in the cluster, five minutes of rest for a
  VM that was moved.
- *had to wait for a node*: new VMs that found none when they came. Whoever lets more VMs grow has less room for new
  ones.
- *p50*, *p95* and *p99* are about the requests that were satisfied. *sent* counts moves that were called off, too.
- Of the requests that give up when nobody is moved, ours saves {waiting:.0f} %.
- For each move the oldest ones send {more:.1f} times as much memory as ours.
- *moved twice*: ours moves more VMs than once, because it makes more moves, and because the cheapest neighbour of today
  is often that of tomorrow. The rest time keeps that apart; another `Policy.cost` could weigh it.
"""


if __name__ == "__main__":
    main()
