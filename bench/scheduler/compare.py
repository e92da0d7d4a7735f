"""What the plugins cost: Kubernetes' own scheduler benchmarks, stock against ours, without and with 1,000 holds.

Run by `make bench-scheduler` (NODES="500 5000", TURNS=5); writes docs/benchmarks/scheduler.md and its plot, and ends
with one line. On a shared machine the cores' speed changes by a fifth from one minute to the next, so runs one after the
other say little. Here all variants are started together, and then only one of them runs at a time, for half a second:
the others are stopped (SIGSTOP). What the machine does meanwhile hits all of them alike.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
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
TURNS = int(os.environ.get("TURNS", "5"))
CLAIMANTS = 1000
SLICE = 0.5
LONGEST = 3000
VARIANTS = ("stock", "stock again", "no holds", "1,000 holds")
OURS = VARIANTS[2:]
Json = dict[str, Any]
PAGE = """# What the plugins cost the scheduler

Kubernetes' own benchmark (`test/integration/scheduler_perf`: a real API server and etcd, nodes without kubelets),
after its workloads of these names. {claimants:,} claimants are there in all variants; in the last one each has a hold
for more. Each variant has an API server, etcd and scheduler of its own. They begin together, and take the machine in
turns of half a second, in which the others are stopped; throughput is the pods bound, by the time that a variant had the
machine, from its first pod to its last. Stock runs twice: "stock again" shows what this way of measuring cannot tell
apart. {turns} such runs; the median of their ratios is shown with the smallest and the largest. Filter is our plugin's
part, for one node. What an acknowledgement takes is not in here: that is `make bench-holds`.

Measured on {day:%Y-%m-%d} with `make bench-scheduler` on {cores} cores.

| nodes | workload | stock, pods/s | stock again | no holds | 1,000 holds | Filter p99 in µs |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Run:
    """What one variant showed, while it had the machine."""

    throughput: float
    filter_p99_us: float | None


@dataclass(frozen=True)
class Turn:
    """All variants, in slices of time."""

    runs: dict[str, Run]

    def ratio(self, variant: str) -> float:
        """Return its throughput against stock's."""
        return self.runs[variant].throughput / self.runs["stock"].throughput


@dataclass
class Contender:
    """A variant that runs, as a process group with the etcd that it starts."""

    variant: str
    results: Path
    process: subprocess.Popen[bytes]
    slices: list[tuple[float, float]] = field(default_factory=list)

    def send(self, what: signal.Signals) -> None:
        """Send a signal to all of the group, if it is still there."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, what)

    def go_on(self) -> None:
        """Give it the machine for a slice."""
        start = time.time()
        self.send(signal.SIGCONT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=SLICE)
        self.send(signal.SIGSTOP)
        self.slices.append((start, time.time()))

    def end(self) -> None:
        """End it, if it still runs because another one failed."""
        self.send(signal.SIGKILL)
        self.process.wait()

    def had(self, first: float, last: float) -> float:
        """Return for how many seconds between two times it had the machine."""
        return sum(max(0.0, min(end, last) - max(start, first)) for start, end in self.slices)

    def outcome(self) -> Run:
        """Read what it showed."""
        files = list(self.results.glob("*.json"))
        if self.process.returncode or not files:
            sys.exit(f"{self.variant} failed:\n{(self.results / 'log').read_text(errors='replace')[-3000:]}")
        items: list[Json] = json.loads(files[0].read_text())["dataItems"]
        measured: Json = json.loads((self.results / "stopwatch").read_text())
        p99 = [
            item["data"]["Perc99"] * 1000 for item in items
            if item["labels"]["Metric"] == "scheduler_plugin_execution_duration_seconds"
            and item["labels"].get("plugin") == "Elbowroom" and item["labels"].get("extension_point") == "Filter"
        ]  # fmt: skip
        seconds = self.had(measured["first"], measured["last"])
        return Run(measured["bound"] / seconds, max(p99, default=None))


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
    "signal": pod("signal", "1m", priority=10, signal="yes"),
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
    together = pods("signal", 1)
    churn = {
        "opcode": "churn", "mode": "recreate", "number": 1, "intervalMilliseconds": 1000,
        "templatePaths": [str(folder / f"{name}.yaml") for name in ("node", "large", "service")],
    }  # fmt: skip
    return {
        "SchedulingBasic": [*start, together, pods("plain", max(4000, nodes), measured=True)],
        "PreemptionBasic": [
            *start,
            pods("low", 3 * nodes),
            together,
            pods("high", min(nodes * 4 // 5, 500), measured=True),
        ],
        "SchedulingWithMixedChurn": [*start, together, churn, pods("plain", max(4000, nodes), measured=True)],
    }


def prepare(folder: Path, nodes: int) -> None:
    """Write the benchmark's configuration: each workload once for stock and once for ours."""
    for name, template in TEMPLATES.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(template))
    shipped = yaml.safe_load((ROOT / "scheduler" / "config" / "replace.yaml").read_text())
    del shipped["leaderElection"]
    stock = {**shipped, "profiles": [{"schedulerName": "default-scheduler", "plugins": {}}]}
    for name, config in (("stock", stock), ("ours", shipped)):
        for point in ("preBind", "postBind"):
            config["profiles"][0]["plugins"][point] = {"enabled": [{"name": "Stopwatch"}]}
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


def begin(binary: Path, folder: Path, place: Path, variant: str, case: str) -> Contender:
    """Start one variant; it gets as far as the gate and waits there for the others."""
    results = place / variant
    results.mkdir()
    kind, workload, size = "ours" if variant in OURS else "stock", *case.split("/")
    with (results / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                binary, "-test.run=^$", f"-test.bench=^BenchmarkPerfScheduling$/^{kind}-{workload}$/^{size}$",
                "-test.benchtime=1x", "-test.timeout=60m", "-data-items-dir", results, "-v=0",
            ],
            cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={
                **os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PERF_CONFIG": str(folder / "config.yaml"),
                "HOLDS": "yes" if variant == VARIANTS[-1] else "", "STOPWATCH": str(results / "stopwatch"),
                "GATE": str(place / "gate"), "PEERS": str(len(VARIANTS)),
            },
        )  # fmt: skip
    return Contender(variant, results, process)


def take_turn(binary: Path, folder: Path, case: str) -> Turn:
    """Run one workload in all variants: together up to the gate, then slice by slice."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        place = Path(name)
        (place / "gate").mkdir()
        contenders = []
        for variant in VARIANTS:
            contenders.append(begin(binary, folder, place, variant, case))
            stack.callback(contenders[-1].end)
        deadline = time.monotonic() + LONGEST
        while len(list((place / "gate").iterdir())) < len(VARIANTS):
            if time.monotonic() > deadline or any(item.process.poll() is not None for item in contenders):
                break
            time.sleep(0.02)
        for item in contenders:
            item.send(signal.SIGSTOP)
        while running := [item for item in contenders if item.process.poll() is None]:
            if time.monotonic() > deadline:
                sys.exit(f"{case}: not done after {LONGEST} s: {', '.join(item.variant for item in running)}")
            random.shuffle(running)
            for item in running:
                item.go_on()
        return Turn({item.variant: item.outcome() for item in contenders})


def measure(binary: Path) -> dict[tuple[int, str], list[Turn]]:
    """Run everything."""
    found: dict[tuple[int, str], list[Turn]] = {}
    for nodes in NODES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, nodes)
            (folder / "etcd").symlink_to(ROOT / "bin" / "testbed")
            for workload in workloads(folder, nodes):
                turns = found[nodes, workload] = []
                for _ in range(TURNS):
                    turns.append(take_turn(binary, folder, f"{workload}/{nodes}Nodes"))
                    shown = ", ".join(f"{variant} {turns[-1].runs[variant].throughput:.1f}" for variant in VARIANTS)
                    print(f"{nodes} nodes, {workload}, pods/s: {shown}", flush=True)
    return found


def p99s(turns: list[Turn]) -> list[float]:
    """Return what Filter took, where it was asked."""
    known = (turn.runs[variant].filter_p99_us for turn in turns for variant in OURS)
    return [value for value in known if value is not None]


def report(found: dict[tuple[int, str], list[Turn]]) -> None:
    """Write the page and the plot."""
    lines = [PAGE.format(claimants=CLAIMANTS, turns=TURNS, day=datetime.now(UTC), cores=os.cpu_count())]
    for (nodes, workload), turns in found.items():
        cells = [f"{statistics.median(turn.runs['stock'].throughput for turn in turns):.0f}"]
        for variant in VARIANTS[1:]:
            values = [turn.ratio(variant) for turn in turns]
            cells.append(f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        cells.append(f"{statistics.median(p99s(turns)):.0f}" if p99s(turns) else "not asked")
        lines.append(f"| {nodes:,} | {workload} | {' | '.join(cells)} |")
    lines += ["", "![ratios of throughput](scheduler.svg)", ""]
    (TARGET / "scheduler.md").write_text("\n".join(lines))
    figure, axes = plt.subplots(figsize=(9, 4))
    labels = [f"{workload}\n{nodes:,} nodes" for nodes, workload in found]
    for offset, (variant, color) in enumerate(zip(VARIANTS[1:], ("grey", "tab:blue", "tab:orange"), strict=True)):
        for at, turns in enumerate(found.values()):
            values = [turn.ratio(variant) for turn in turns]
            place = at + (offset - 1) * 0.25
            axes.plot([place] * len(values), values, "o", color=color, alpha=0.5, label=variant if not at else None)
            axes.plot([place - 0.1, place + 0.1], [statistics.median(values)] * 2, color=color, linewidth=2)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylabel("throughput, against stock")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left")
    figure.tight_layout()
    figure.savefig(TARGET / "scheduler.svg", metadata={"Date": None})


def main() -> None:
    """Measure, write, and say it in one line."""
    found = measure(ROOT / ".cache" / "scheduler-perf")
    if os.environ.get("WRITE", "yes") == "yes":
        report(found)
    turns = [turn for some in found.values() for turn in some]
    medians = {variant: statistics.median(turn.ratio(variant) for turn in turns) for variant in VARIANTS[1:]}
    print(f"stock against stock: {medians['stock again']:.3f}")
    print(
        f"scheduler ratio_no_holds={medians['no holds']:.3f} ratio_1000_holds={medians['1,000 holds']:.3f} "
        f"filter_p99_us={max(p99s(turns), default=0):.0f}"
    )


if __name__ == "__main__":
    main()
