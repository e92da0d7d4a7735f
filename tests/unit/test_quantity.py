"""Quantities are read as Kubernetes reads them; testbed/quantity_test.go runs the same cases through Go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from elbowroom.core.quantity import InvalidQuantityError, millicores, quantity_bytes

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parents[1] / "data" / "quantities.yaml").read_text())


@pytest.mark.parametrize(("text", "thousandths", "units"), CASES["valid"], ids=[case[0] for case in CASES["valid"]])
def test_valid(text: str, thousandths: int, units: int) -> None:
    assert millicores(text) == min(thousandths, 2**63 - 1)
    assert quantity_bytes(text) == units


@pytest.mark.parametrize("text", CASES["invalid"] + CASES["refused_though_go_reads_zero"])
def test_invalid(text: str) -> None:
    with pytest.raises(InvalidQuantityError, match="is not a quantity such as 2, 500m or 8Gi"):
        millicores(text)


def test_the_same_size_written_in_other_ways() -> None:
    assert millicores("4") == millicores("4000m") == millicores("4e0") == millicores(4)
    assert quantity_bytes("8Gi") == quantity_bytes("8192Mi") == quantity_bytes("8589934592")


def test_absurd_sizes_are_capped_not_computed() -> None:
    assert quantity_bytes("1e999999999") == 2**63 - 1
    assert quantity_bytes("99999999999999999999Ei") == 2**63 - 1
    assert quantity_bytes("1e-999999999") == 1
