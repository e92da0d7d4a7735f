"""What is counted: by what is known when somebody asks, and as docs/metrics.md says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from elbowroom import metrics
from elbowroom.core.store import Store
from elbowroom.core.world import MigrationPhase, RequestPhase
from elbowroom.runner.messages import (
    Destination,
    GuestState,
    Incident,
    IncidentKind,
    Limits,
    Outgoing,
    Progress,
    Size,
    Status,
    TransferPhase,
)
from elbowroom.runner.metrics import Told, exposition
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from support.testbed import ROOT
from support.worlds import hold, migration, request

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

MOVING = Status(
    revision=1, vm="db", namespace="shop", runner="1", qemu="10.0.2", state=GuestState.RUNNING, size=Size(cpus=2, memory=1),
    incidents=(Incident(kind=IncidentKind.RESET, at=datetime.now(UTC), message=""),),
    outgoing=Outgoing(
        attempt=3, phase=TransferPhase.COPYING, committed=False, to=Destination(host="10.0.0.1"), limits=Limits(),
        progress=Progress(percent=40.5, throttle_percent=20), downtime_ms=84,
    ),
)  # fmt: skip


def store() -> Store:
    found = Store()
    for number, phase in enumerate((RequestPhase.MOVING, RequestPhase.MOVING, RequestPhase.FAILED)):
        found.put_request(request(phase, uid=f"r{number}"))
    found.put_migration(migration(MigrationPhase.TRANSFERRING))
    found.put_hold(hold())
    return found


def test_what_is_known_is_counted_when_it_is_asked_for() -> None:
    known, registry = store(), CollectorRegistry()
    registry.register(metrics.Known(known, lambda: 7))
    assert registry.get_sample_value("elbowroom_requests", {"phase": "Moving"}) == 2
    assert registry.get_sample_value("elbowroom_requests", {"phase": "Pending"}) == 0
    assert registry.get_sample_value("elbowroom_migrations", {"phase": "Transferring"}) == 1
    assert registry.get_sample_value("elbowroom_holds", {"phase": "Held"}) == 1
    assert registry.get_sample_value("elbowroom_queue_length") == 7
    known.drop_request("r0")
    assert registry.get_sample_value("elbowroom_requests", {"phase": "Moving"}) == 1


def test_the_page_says_what_there_is() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(elbowroom_\w+)` \| (\w+) \|(.*?)\| (.*) \|$", page, re.MULTILINE)
    told = {name: (kind, set(re.findall(r"`(\w+)`", labels)), what) for name, kind, labels, what in rows}
    assert len(told) == len(rows)
    assert told == {
        **dict(of_objects()),
        **dict(of_families(metrics.Known(store(), int))),
        **dict(of_families(Told(MOVING))),
    }


def test_a_runner_says_what_its_status_says() -> None:
    text = exposition(MOVING).decode()
    for line in (
        'elbowroom_runner_guest{state="Running"} 1.0', 'elbowroom_runner_guest{state="Moved"} 0.0',
        "elbowroom_runner_cpus 2.0", 'elbowroom_runner_incidents_total{kind="GuestReset"} 1.0',
        "elbowroom_runner_transfer_percent 40.5", "elbowroom_runner_transfer_throttle_ratio 0.2",
        "elbowroom_runner_transfer_downtime_seconds 0.084",
    ):  # fmt: skip
        assert f"{line}\n" in text
    quiet = exposition(MOVING.model_copy(update={"outgoing": None, "size": None})).decode()
    assert "transfer" not in quiet
    assert "_cpus" not in quiet


def of_objects() -> list[tuple[str, tuple[str, set[str], str]]]:
    found = []
    for item in vars(metrics).values():
        if isinstance(item, MetricWrapperBase):
            (family,) = item.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found.append((name, (family.type, set(item._labelnames), family.documentation)))  # noqa: SLF001
    return found


def of_families(collector: Collector) -> list[tuple[str, tuple[str, set[str], str]]]:
    found = []
    for item in collector.collect():
        name = f"{item.name}_total" if item.type == "counter" else item.name
        found.append((name, (item.type, set(item.samples[0].labels), item.documentation)))
    return found
