"""What the operator counts, for Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

THEFTS: Final = Counter(
    "elbowroom_thefts_total", "Times that somebody took room which was held for a claimant.", ["thief", "node"]
)
DECISIONS: Final = Histogram(
    "elbowroom_decision_seconds", "What it took to decide about one request or migration.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)  # fmt: skip
CALLS: Final = Counter("elbowroom_api_calls_total", "Calls to the API server, watches not counted.", ["method"])
GUARD_ANSWERS: Final = Counter(
    "elbowroom_guard_answers_total", "What this replica of the guard was asked, and what it said.", ["what", "answer"]
)
GUARD_SECONDS: Final = Histogram(
    "elbowroom_guard_seconds", "What an answer of the guard took.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0),
)  # fmt: skip
GUARD_UP: Final = Gauge("elbowroom_guard_up", "1 while the API server asks the guard, as the leading operator sees it.")
