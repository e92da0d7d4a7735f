"""The CRDs in `crds/` are those that the models say, and the models read what Kubernetes writes."""

from __future__ import annotations

from typing import Any

import pytest
from elbowroom.api import crds
from elbowroom.api.hold import HoldSpec
from elbowroom.api.migration import MigrationSpec
from elbowroom.api.scale_request import ScaleRequestSpec, ScaleRequestStatus, Strategy
from elbowroom.core.duration import InvalidDurationError, seconds
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.core.world import MigrationPhase, RequestPhase
from pydantic import ValidationError
from support.testbed import ROOT


def test_the_crds_are_up_to_date() -> None:
    """After a change of the models: `make crds`."""
    for folder in ("crds", "charts/elbowroom/files/crds"):
        written = {path.name: path.read_text() for path in (ROOT / folder).iterdir()}
        assert written == crds.files()


def schemas(node: Any) -> Any:
    if isinstance(node, dict):
        yield node
        for child in node.values():
            yield from schemas(child)
    elif isinstance(node, list):
        for child in node:
            yield from schemas(child)


@pytest.mark.parametrize("kind", crds.KINDS, ids=lambda kind: kind.name)
def test_nothing_is_left_of_what_kubernetes_does_not_take(kind: crds.Kind) -> None:
    schema = crds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    words = {key for node in schemas(schema) for key in node}
    assert not words & {"$ref", "$defs", "title", "const", "exclusiveMinimum", "prefixItems", "examples", "quantity"}


def test_a_request_is_read_with_its_defaults() -> None:
    spec = ScaleRequestSpec.model_validate({"vm": "db", "resources": {"cpu": 4, "memory": "8Gi"}, "future": "field"})
    assert spec.strategy == (Strategy.IN_PLACE, Strategy.MOVE_NEIGHBOUR)
    assert (spec.resources.cpu, spec.resources.memory) == ("4", "8Gi")
    assert (spec.deadline, spec.transfer.downtime) == ("10m", "300ms")


def test_sizes_of_a_status_are_called_from_and_to() -> None:
    status = ScaleRequestStatus(before="2 cpu", after="4 cpu")
    assert status.model_dump(by_alias=True)["from"] == "2 cpu"


@pytest.mark.parametrize("spec", [ScaleRequestSpec, MigrationSpec, HoldSpec])
def test_every_field_of_a_spec_is_explained_or_explains_itself(spec: Any) -> None:
    unexplained = {name for name, field in spec.model_fields.items() if field.description is None}
    assert unexplained <= {"neighbours", "transfer", "target", "node", "claimant", "request", "payers", "priority"}


def test_bad_quantities_and_durations_are_named() -> None:
    with pytest.raises(ValidationError, match=r"'8GB' is not a quantity such as 2, 500m or 8Gi"):
        ScaleRequestSpec.model_validate({"vm": "db", "resources": {"memory": "8GB"}})
    with pytest.raises(InvalidDurationError, match=r"'soon' is not a duration such as 10m, 90s or 1h30m"):
        seconds("soon")


@pytest.mark.parametrize(
    ("text", "expected"), [("10m", 600), ("1h30m", 5400), ("300ms", 0.3), ("90s", 90), ("1h1m1s1ms", 3661.001)]
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "10", "m", "1.5h", "-1s", "1d", "1h 30m", "1s1s1s1s1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidDurationError):
        seconds(text)


def test_every_reason_has_a_meaning() -> None:
    assert set(MEANING) == set(Reason)
    assert all(reason.value.isalpha() and len(reason.value) <= 64 for reason in Reason)


def test_phases_are_words() -> None:
    assert all(phase.value.isalpha() for phase in (*RequestPhase, *MigrationPhase))
