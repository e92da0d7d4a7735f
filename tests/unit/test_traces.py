"""Traces: who goes on with one, and what is in it."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from elbowroom import spans
from elbowroom.core.reasons import Reason
from elbowroom.core.world import MigrationPhase, RequestPhase
from elbowroom.traces import NotInstalledError, Place, Sender, Silent, Span, teller
from support.collector import Collector
from support.worlds import migration, request

UID, OTHER = "0b9d6a52-6f0f-4a4e-9df5-6f0b3a3f5a01", "6f1b1f0e-0e1c-4d35-8d25-8a8f3f1f2b02"
REQUEST: dict[str, Any] = {
    "kind": "VMScaleRequest", "metadata": {"uid": UID, "namespace": "shop", "name": "grow-db", "creationTimestamp": "1970-01-01T00:00:10Z"},
    "spec": {"vm": "db"}, "status": {"node": "n1", "round": 1},
}  # fmt: skip
MIGRATION: dict[str, Any] = {
    "kind": "VMMigration", "metadata": {"uid": OTHER, "namespace": "shop", "name": "web-1", "creationTimestamp": "1970-01-01T00:00:12Z"},
    "spec": {"vm": "web", "request": {"name": "grow-db", "uid": UID}}, "status": {"downtimeMilliseconds": 84, "source": {"node": "n1"}},
}  # fmt: skip


def test_a_migration_is_in_the_trace_of_its_request() -> None:
    whole = spans.whole(REQUEST, request(RequestPhase.SUCCEEDED, reason=Reason.DONE).status, 21.0)
    moved = spans.whole(MIGRATION, migration(MigrationPhase.SUCCEEDED, reason=Reason.DONE).status, 20.0)
    assert (whole.place.trace, whole.parent) == (UID.replace("-", ""), None)
    assert (whole.began, whole.ended, whole.failed) == (10.0, 21.0, "")
    assert moved.parent == whole.place
    assert moved.place.trace == whole.place.trace
    assert moved.facts["elbowroom.downtime_ms"] == 84
    assert moved.facts["elbowroom.source.node"] == "n1"
    copied = spans.phase(MIGRATION, "Transferring", "Transferring", 13.0, 18.0)
    assert copied.parent == moved.place
    assert copied.place != moved.place
    by_hand = {**MIGRATION, "spec": {"vm": "web"}}
    assert spans.whole(by_hand, migration(MigrationPhase.FAILED, reason=Reason.DEADLINE).status, 20.0).parent is None


def test_one_that_has_failed_says_why() -> None:
    failed = spans.whole(REQUEST, request(RequestPhase.FAILED, reason=Reason.NO_PLACE).status, 21.0)
    assert failed.failed == "Failed: NoPlace"


def test_whoever_goes_on_finds_the_same_place() -> None:
    told = spans.place(MIGRATION).header()
    assert told == f"00-{UID.replace('-', '')}-{Place.of(OTHER).span}-01"
    assert Place.told(told) == spans.place(MIGRATION)
    for word in ("", "00-x", told.upper(), told + "-1", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01"):
        assert Place.told(word) is None
    assert len(Place.of("a-uid-of-another-kind").trace) == 32


def test_it_is_sent_as_opentelemetry_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sender = teller("elbowroom-test")
        assert isinstance(sender, Sender)
        place = Place.of(UID)
        sender.tell(Span("scale request", place, None, 10.0, 21.5, {"elbowroom.round": 2}, "Failed: NoPlace"))
        sender.tell(Span("Moving", place.below("Moving"), place, 12.0, 11.0))
        sender.close()
    first, second = collector.spans
    assert first[:5] == ("elbowroom-test", "scale request", place.trace, place.span, "")
    assert first[5:] == (11.5, {"elbowroom.round": 2}, "Failed: NoPlace")
    assert (second.parent, second.seconds) == (place.span, 0.0)


def test_a_collector_that_is_not_there_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/v1/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    sender = teller("elbowroom-test")
    began = time.monotonic()
    for number in range(10_000):
        sender.tell(Span("Moving", Place.of(UID).below(str(number)), None, 1.0, 2.0))
    sender.close()
    assert time.monotonic() - began < 30, "what cannot be sent is dropped"


def test_nobody_is_told_unless_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(teller("elbowroom-test"), Silent)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        NotInstalledError,
        match=r"OTEL_EXPORTER_OTLP_ENDPOINT is set, and .* is missing: pip install 'elbowroom\[traces\]'",
    ):
        teller("elbowroom-test")
