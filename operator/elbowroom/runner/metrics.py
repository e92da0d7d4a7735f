"""What a runner tells Prometheus: its status, in other words. Pure; docs/metrics.md has the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .messages import GuestState, IncidentKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from .messages import Outgoing, Status


def exposition(status: Status) -> bytes:
    """Return a status as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(Told(status))
    return generate_latest(registry)


class Told(Collector):
    """One status."""

    def __init__(self, status: Status) -> None:
        """Take it."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Return all that it says."""
        status = self._status
        state = GaugeMetricFamily("elbowroom_runner_guest", "1 for the state that the guest is in.", labels=["state"])
        for known in GuestState:
            state.add_metric([known], status.state is known)
        yield state
        if status.size is not None:
            yield GaugeMetricFamily("elbowroom_runner_cpus", "vCPUs that are online in the guest.", status.size.cpus)
            yield GaugeMetricFamily("elbowroom_runner_memory_bytes", "Memory that the guest has.", status.size.memory)
        found = Counter(item.kind for item in status.incidents)
        name = "elbowroom_runner_incidents_total"
        incidents = CounterMetricFamily(name, "What happened to the guest that nobody asked for.", labels=["kind"])
        for kind in IncidentKind:
            incidents.add_metric([kind], found[kind])
        yield incidents
        if status.outgoing is not None:
            yield from _move(status.outgoing)


def _move(outgoing: Outgoing) -> Iterator[Metric]:
    """Return what is told of the last move away from here."""
    progress, prefix = outgoing.progress, "elbowroom_runner_transfer"
    yield GaugeMetricFamily(f"{prefix}_percent", "How far the last copy is.", progress.percent)
    yield GaugeMetricFamily(f"{prefix}_sent_bytes", "What the last copy has sent.", progress.transferred_bytes)
    yield GaugeMetricFamily(f"{prefix}_left_bytes", "What is left of the last copy's pass.", progress.remaining_bytes)
    yield GaugeMetricFamily(f"{prefix}_passes", "How often the last copy has gone through memory.", progress.passes)
    yield GaugeMetricFamily(
        f"{prefix}_throttle_ratio", "By how much the guest is slowed down so that the copy converges.",
        progress.throttle_percent / 100,
    )  # fmt: skip
    if outgoing.downtime_ms is not None:
        yield GaugeMetricFamily(
            f"{prefix}_downtime_seconds",
            "For how long the guest stood still, as QEMU says.",
            outgoing.downtime_ms / 1000,
        )
