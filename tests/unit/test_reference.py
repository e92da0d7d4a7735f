"""The pages about kinds and reasons are what the code says."""

from __future__ import annotations

import runpy

import pytest
from elbowroom.core.reasons import MEANING
from elbowroom.telling.advice import ADVICE
from support.testbed import ROOT

PAGES = runpy.run_path(str(ROOT / "scripts" / "write_reference.py"))["PAGES"]


@pytest.mark.parametrize("name", PAGES)
def test_it_is_up_to_date(name: str) -> None:
    """After a change of models or reasons: `make reference`."""
    assert (ROOT / "docs" / name).read_text() == PAGES[name]()


def test_whatever_can_be_seen_has_its_line() -> None:
    page = PAGES["reasons.md"]()
    for reason in MEANING:
        assert f"| {reason} |" in page or f"| **{reason}** |" in page
    assert all(told in page for told in ADVICE.values())
