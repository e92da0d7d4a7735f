"""What operator and guard count, for Prometheus. docs/metrics.md has the same, and a test compares both.

What can be derived from what is known is derived when somebody asks: nothing has to be kept in step.
"""

from __future__ import annotations

from collections import Counter as Count
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from elbowroom.core.reasons import Reason
from elbowroom.core.world import HoldPhase, MigrationPhase, RequestPhase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from enum import StrEnum

    from elbowroom.core.store import Store

_SECONDS: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

# Requests and migrations
ENDED: Final = Counter(
    "elbowroom_requests_ended_total", "Requests that have come to an end, by how and why.", ["phase", "reason"]
)
REQUEST_SECONDS: Final = Histogram(
    "elbowroom_request_seconds", "From a request's creation to its end.", ["phase"], buckets=_SECONDS
)
PHASE_SECONDS: Final = Histogram(
    "elbowroom_phase_seconds", "How long requests and migrations were in a phase.", ["kind", "phase"], buckets=_SECONDS
)
MOVES_ENDED: Final = Counter(
    "elbowroom_migrations_ended_total", "Migrations that have come to an end, by how and why.", ["phase", "reason"]
)
MOVED_BYTES: Final = Counter("elbowroom_migrated_bytes_total", "What was sent by migrations that have succeeded.")
DOWNTIME: Final = Histogram(
    "elbowroom_migration_downtime_seconds", "For how long guests stood still at their switch-over, as QEMU says.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0),
)  # fmt: skip
THEFTS: Final = Counter(
    "elbowroom_thefts_total", "Times that somebody took room which was held for a claimant.", ["thief", "node"]
)

# What alerts count is there from the start: of a series that is new Prometheus cannot say by how much it has grown.
for _phase in (RequestPhase.SUCCEEDED, RequestPhase.FAILED, RequestPhase.CANCELLED, RequestPhase.PARTIALLY_MOVED):
    REQUEST_SECONDS.labels(phase=str(_phase))
for _reason in (Reason.GUEST_LOST, Reason.GUEST_DAMAGED):
    MOVES_ENDED.labels(phase=str(MigrationPhase.FAILED), reason=str(_reason))

# The operator itself
DECISIONS: Final = Histogram(
    "elbowroom_decision_seconds", "What it took to decide about one request or migration.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)  # fmt: skip
CALLS: Final = Counter("elbowroom_api_calls_total", "Calls to the API server, watches not counted.", ["method"])
RETRIES: Final = Counter(
    "elbowroom_api_retries_total", "Calls to the API server that were made again because nobody answered.", ["method"]
)
HINDERED: Final = Counter(
    "elbowroom_hindered_total",
    "Turns that could not be carried out because of an error, and are tried again.",
    ["kind"],
)
LEADS: Final = Gauge("elbowroom_leads", "1 while this operator leads and is sure of it.")

# The guard
GUARD_ANSWERS: Final = Counter(
    "elbowroom_guard_answers_total", "What this replica of the guard was asked, and what it said.", ["what", "answer"]
)
GUARD_SECONDS: Final = Histogram(
    "elbowroom_guard_seconds", "What an answer of the guard took.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0),
)  # fmt: skip
GUARD_UP: Final = Gauge("elbowroom_guard_up", "1 while the API server asks the guard, as the leading operator sees it.")


class Known(Collector):
    """What the leading operator knows of, counted when it is asked for."""

    def __init__(self, store: Store, waiting: Callable[[], int]) -> None:
        """Take what is known, and who knows how much of it waits to be looked at."""
        self._store, self._waiting = store, waiting

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Return what there will be, so that names are checked when this is registered."""
        return self._families((), (), (), 0)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Count. This is another thread than the operator's: copies are taken in one step each."""
        store = self._store
        return self._families(
            [item.status.phase for item in list(store.requests.values())],
            [item.status.phase for item in list(store.migrations.values())],
            [item.phase for item in list(store.holds.values())],
            self._waiting(),
        )

    @staticmethod
    def _families(
        requests: Iterable[StrEnum], migrations: Iterable[StrEnum], holds: Iterable[StrEnum], waiting: int
    ) -> Iterator[GaugeMetricFamily]:
        yield _by_phase("elbowroom_requests", "Requests that there are.", requests, RequestPhase)
        yield _by_phase("elbowroom_migrations", "Migrations that there are.", migrations, MigrationPhase)
        yield _by_phase("elbowroom_holds", "Holds that there are, by what the scheduler says.", holds, HoldPhase)
        queue = "elbowroom_queue_length", "Requests and migrations that wait to be looked at, or are being looked at."
        yield GaugeMetricFamily(*queue, value=waiting)


def _by_phase(name: str, told: str, found: Iterable[StrEnum], phases: Any) -> GaugeMetricFamily:  # noqa: ANN401  # an enumeration
    family, counts = GaugeMetricFamily(name, told, labels=["phase"]), Count(found)
    for phase in phases:
        family.add_metric([str(phase)], counts[phase])
    return family
