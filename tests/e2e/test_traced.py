"""One trace tells a whole request, though operator and runner know nothing of each other's spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.collector import Collector
from support.holds import install
from support.operators import SYSTEM, start_operator
from support.testbed import ROOT, Testbed
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.collector import Collected
    from support.inside import Inside
    from support.scenes import Scene

CONTROL_PLANE = "10.96.0.1"
"""An address of the testbed's that pods can reach."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    with Testbed(tmp_path_factory.mktemp("traced"), nodes=2, flags=("--cpu", "4", "--memory", "8Gi")) as running:
        install(running, ROOT)
        start_operator(running, backoff="1s")
        yield running


@pytest.fixture
def collector(standing: Inside) -> Iterator[Collector]:
    async def listening() -> Collector:
        return Collector(CONTROL_PLANE)

    with standing.run(listening()) as found:
        yield found


def test_a_request_is_told_by_operator_and_runner_together(
    stage: Scene, cluster: Testbed, collector: Collector
) -> None:
    told = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    words = [f"{name}={value}" for name, value in told.items()]
    cluster.kubectl("-n", SYSTEM, "set", "env", "deployment/elbowroom-operator", *words)
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/elbowroom-operator", "--timeout=60s", within=70)
    machines = [stage.described(name, "2") for name in ("db", "web")]
    for machine in machines:
        machine["spec"]["containers"][0]["env"] += [{"name": name, "value": value} for name, value in told.items()]
    stage.space.apply(*machines)
    for name in ("db", "web"):
        stage.vms.until_ticking(stage.vms.until_ready(name), more=5)

    stage.requests.grow("grow", vm="db", resources={"cpu": "4"})
    request = stage.requests.until("grow", "Succeeded")
    (migration,) = stage.requests.all("vmmigrations")
    trace = request["metadata"]["uid"].replace("-", "")

    def spans() -> dict[str, list[Collected]]:
        found: dict[str, list[Collected]] = {}
        for span in collector.spans:
            if span.trace == trace:
                found.setdefault(span.name, []).append(span)
        assert {"scale request", "migration", "transfer"} <= found.keys(), sorted(found)
        return found

    found = until("all has been told", spans, within=30)
    (whole,), (moved,), (sent,) = found["scale request"], found["migration"], found["transfer"]
    assert (whole.service, whole.parent, whole.failed) == ("elbowroom-operator", "", "")
    assert (moved.service, moved.parent) == ("elbowroom-operator", whole.id)
    assert (sent.service, sent.parent, sent.failed) == ("elbowroom-runner", moved.id, "")
    assert whole.facts["elbowroom.name"] == "grow"
    assert moved.facts["elbowroom.receiver.node"] == "node-2"
    assert sent.facts["elbowroom.bytes"] == pytest.approx(migration["status"]["transferredBytes"], rel=0.2)
    assert sent.facts["elbowroom.downtime_ms"] == migration["status"]["downtimeMilliseconds"]
    steps = {
        whole.id: ["Pending", "Holding", "Moving", "Committing", "Swapping", "Growing", "Releasing"],
        moved.id: ["Pending", "Binding", "Transferring", "AtBrink", "SwitchingOver", "Moved"],
        sent.id: ["Starting", "Copying", "AtBrink", "Committed", "Completed"],
    }
    for span in (whole, moved, sent):
        below = [item for items in found.values() for item in items if item.parent == span.id]
        assert {*steps[span.id]} <= {item.name for item in below}
        phases = sum(item.seconds for item in below if item.name in steps[span.id])
        assert phases == pytest.approx(span.seconds, abs=2.0)
    ids = {item.id for items in found.values() for item in items}
    assert all(item.parent in ids for items in found.values() for item in items if item.parent)
    stage.witness.assert_kept(stage.space.name)
