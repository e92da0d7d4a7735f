"""What the plugins cost: Kubernetes' own scheduler benchmarks, stock against ours, without and with 1,000 holds.

Run by `make bench-scheduler` (NODES="500 5000", PAIRS=5); writes docs/benchmarks/scheduler.md and its plot, and ends
with one line. They run in turns, one after the other on the same machine, and the ratios are those of one turn.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import yaml

mpl.use("svg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "benchmarks"
NODES = [int(part) for part in os.environ.get("NODES", "500 5000").split()]
PAIRS = int(os.environ.get("PAIRS", "5"))
CLAIMANTS = 1000
VARIANTS = ("stock", "no holds", "1,000 holds")
Json = dict[str, Any]
PAGE = """# What the plugins cost the scheduler

Kubernetes' own benchmark (`test/integration/scheduler_perf`: a real API server and etcd, nodes without kubelets),
after its workloads of these names. {claimants:,} claimants are there in all variants; in the last one each has a hold
for more. Throughput is from the first pod that the scheduler hears of to the last one that is bound. Stock and ours in
turns, {turns} turns; a ratio is that of two runs of the same turn, and the median of all turns is shown with the
smallest and the largest. Filter is our plugin's part, for one node. What an acknowledgement takes is not in here:
that is `make bench-holds`.

Measured on {day:%Y-%m-%d} with `make bench-scheduler` on {cores} cores, which API server, etcd and scheduler share.

| nodes | workload | stock, pods/s | no holds, ratio | 1,000 holds, ratio | Filter p99 in µs | with holds |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Run:
    """What one run of a workload showed."""

    throughput: float
    filter_p99_us: float | None


def pod(name: str, cpu: str, *, priority: int = 0, **labels: str) -> Json:
    """Describe pods that only the scheduler sees: there is no kubelet."""
    room = {"cpu": cpu, "memory": "100Mi"}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": f"{name}-", "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0, "priority": priority,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": room, "limits": room}}],
        },
    }  # fmt: skip


TEMPLATES: dict[str, Json] = {
    "node": {
        "apiVersion": "v1", "kind": "Node", "metadata": {"generateName": "node-"},
        "status": {
            "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"}, "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    },
    # As important as the preemptors, so that stock does not kill them, either, and all have the same work to do.
    "claimant": pod("claimant", "100m", priority=10, claimant="yes"),
    "plain": pod("plain", "100m", measured="yes"), "low": pod("low", "900m"),
    "high": pod("high", "2500m", priority=10, measured="yes"),
    "large": pod("large", "9", priority=10),
    "service": {
        "apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "service-"},
        "spec": {"selector": {"app": "foo"}, "ports": [{"protocol": "TCP", "port": 8080, "targetPort": 8080}]},
    },
}  # fmt: skip


def workloads(folder: Path, nodes: int) -> dict[str, list[Json]]:
    """Describe what is done, after the workloads of the same names in Kubernetes' own benchmark."""

    def pods(template: str, count: int, *, measured: bool = False) -> Json:
        found: Json = {"opcode": "createPods", "count": count, "podTemplatePath": str(folder / f"{template}.yaml")}
        return {**found, "collectMetrics": True} if measured else found

    start = [
        {"opcode": "createNodes", "count": nodes, "nodeTemplatePath": str(folder / "node.yaml")},
        pods("claimant", CLAIMANTS),
    ]
    churn = {
        "opcode": "churn", "mode": "recreate", "number": 1, "intervalMilliseconds": 1000,
        "templatePaths": [str(folder / f"{name}.yaml") for name in ("node", "large", "service")],
    }  # fmt: skip
    return {
        "SchedulingBasic": [*start, pods("plain", max(4000, nodes), measured=True)],
        "PreemptionBasic": [*start, pods("low", 3 * nodes), pods("high", min(nodes * 4 // 5, 1000), measured=True)],
        "SchedulingWithMixedChurn": [*start, churn, pods("plain", max(4000, nodes), measured=True)],
    }


def prepare(folder: Path, nodes: int) -> None:
    """Write the benchmark's configuration: each workload once for stock and once for ours."""
    for name, template in TEMPLATES.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(template))
    shipped = yaml.safe_load((ROOT / "scheduler" / "config" / "replace.yaml").read_text())
    del shipped["leaderElection"]
    stock = {**shipped, "profiles": [{"schedulerName": "default-scheduler", "plugins": {}}]}
    for name, config in (("stock", stock), ("ours", shipped)):
        config["profiles"][0]["plugins"]["postBind"] = {"enabled": [{"name": "Stopwatch"}]}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(config))
    # Batching is on by default in a cluster, and off by default in this benchmark.
    gates = {"OpportunisticBatching": True}
    asked = [{"label": "plugin", "values": ["Elbowroom"]}, {"label": "extension_point", "values": ["Filter"]}]
    metrics = {"metrics": {"scheduler_plugin_execution_duration_seconds": asked}}
    size: Json = {"name": f"{nodes}Nodes", "params": {}, "labels": ["performance"]}
    cases = [
        {
            "name": f"{kind}-{name}",
            "workloadTemplate": steps,
            "workloads": [size],
            "featureGates": gates,
            "metricsCollectorConfig": metrics,
            "schedulerConfigPath": str(folder / f"{kind}.yaml"),
        }
        for name, steps in workloads(folder, nodes).items()
        for kind in ("stock", "ours")
    ]
    (folder / "config.yaml").write_text(yaml.safe_dump(cases))


def run(binary: Path, folder: Path, variant: str, workload: str, nodes: int) -> Run:
    """Run one workload in one variant."""
    name = f"{'stock' if variant == 'stock' else 'ours'}-{workload}"
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run(
            [
                binary, "-test.run=^$", f"-test.bench=^BenchmarkPerfScheduling$/^{name}$/^{nodes}Nodes$",
                "-test.benchtime=1x", "-test.timeout=30m", "-data-items-dir", results, "-v=0",
            ],
            cwd=folder, capture_output=True, text=True, check=False, timeout=2400,
            env={
                **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PERF_CONFIG": str(folder / "config.yaml"),
                "HOLDS": "yes" if variant == VARIANTS[2] else "", "STOPWATCH": f"{results}/stopwatch",
            },
        )  # fmt: skip
        files = list(Path(results).glob("*.json"))
        if done.returncode or not files:
            sys.exit(f"{variant} {workload} failed:\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        items: list[Json] = json.loads(files[0].read_text())["dataItems"]
        measured: Json = json.loads((Path(results) / "stopwatch").read_text())
    p99 = [
        item["data"]["Perc99"] * 1000 for item in items
        if item["labels"]["Metric"] == "scheduler_plugin_execution_duration_seconds"
        and item["labels"].get("plugin") == "Elbowroom" and item["labels"].get("extension_point") == "Filter"
    ]  # fmt: skip
    return Run(measured["bound"] / measured["seconds"], max(p99, default=None))


def measure(binary: Path) -> dict[tuple[int, str], dict[str, list[Run]]]:
    """Run everything, in turns: what the machine does meanwhile hits all of them."""
    found: dict[tuple[int, str], dict[str, list[Run]]] = {}
    for nodes in NODES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, nodes)
            (folder / "etcd").symlink_to(ROOT / "bin" / "testbed")
            for workload in workloads(folder, nodes):
                runs = found[nodes, workload] = {variant: [] for variant in VARIANTS}
                for turn in range(PAIRS):
                    for place_in_turn in range(len(VARIANTS)):
                        variant = VARIANTS[(turn + place_in_turn) % len(VARIANTS)]
                        runs[variant].append(run(binary, folder, variant, workload, nodes))
                        print(
                            f"{nodes} nodes, {workload}, {variant}: {runs[variant][-1].throughput:.0f} pods/s",
                            flush=True,
                        )
    return found


def ratios(runs: dict[str, list[Run]], variant: str) -> list[float]:
    """Return ours against stock, turn by turn."""
    return [ours.throughput / stock.throughput for ours, stock in zip(runs[variant], runs["stock"], strict=True)]


def report(found: dict[tuple[int, str], dict[str, list[Run]]]) -> None:
    """Write the page and the plot."""
    lines = [PAGE.format(claimants=CLAIMANTS, turns=PAIRS, day=datetime.now(UTC), cores=os.cpu_count())]
    for (nodes, workload), runs in found.items():
        cells = [f"{statistics.median(item.throughput for item in runs['stock']):.0f}"]
        for variant in VARIANTS[1:]:
            values = ratios(runs, variant)
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        for variant in VARIANTS[1:]:
            known = [item.filter_p99_us for item in runs[variant] if item.filter_p99_us is not None]
            cells.append(f"{statistics.median(known):.0f}" if known else "not asked")
        lines.append(f"| {nodes:,} | {workload} | {' | '.join(cells)} |")
    lines += ["", "![ratios of throughput](scheduler.svg)", ""]
    (TARGET / "scheduler.md").write_text("\n".join(lines))
    figure, axes = plt.subplots(figsize=(9, 4))
    labels = [f"{workload}\n{nodes:,} nodes" for nodes, workload in found]
    for offset, (variant, color) in enumerate(zip(VARIANTS[1:], ("tab:blue", "tab:orange"), strict=True)):
        for at, runs in enumerate(found.values()):
            values = ratios(runs, variant)
            place = at + (offset - 0.5) * 0.3
            axes.plot([place] * len(values), values, "o", color=color, alpha=0.5, label=variant if not at else None)
            axes.plot([place - 0.1, place + 0.1], [statistics.median(values)] * 2, color=color, linewidth=2)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylabel("throughput, ours / stock")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left")
    figure.tight_layout()
    figure.savefig(TARGET / "scheduler.svg", metadata={"Date": None})


def main() -> None:
    """Measure, write, and say it in one line."""
    binary = ROOT / ".cache" / "scheduler-perf"
    found = measure(binary)
    if os.environ.get("WRITE", "yes") == "yes":
        report(found)
    none, some = ([value for runs in found.values() for value in ratios(runs, variant)] for variant in VARIANTS[1:])
    p99 = [
        item.filter_p99_us
        for runs in found.values()
        for variant in VARIANTS[1:]
        for item in runs[variant]
        if item.filter_p99_us
    ]
    print(
        f"scheduler ratio_no_holds={statistics.median(none):.3f} ratio_1000_holds={statistics.median(some):.3f} "
        f"filter_p99_us={max(p99, default=0):.0f}"
    )


if __name__ == "__main__":
    main()
