"""The picture of the phases in docs/ is what the code does."""

from __future__ import annotations

import runpy
from pathlib import Path

from elbowroom.core.world import MigrationPhase, RequestPhase

ROOT = Path(__file__).resolve().parents[2]
DRAW = runpy.run_path(str(ROOT / "scripts" / "draw_states.py"))


def test_the_picture_is_up_to_date() -> None:
    """After a change of the phases: `make states`."""
    assert (ROOT / "docs" / "states.md").read_text() == DRAW["page"]()


def test_every_phase_is_in_it_and_can_be_reached() -> None:
    for module, phases in (("request", RequestPhase), ("migration", MigrationPhase)):
        machine = DRAW["Machine"](module, phases.__name__)
        assert {*machine.functions()} == {phase.name for phase in phases}
        assert {after for _, after in machine.arrows()} | {"PENDING"} == {phase.name for phase in phases}
        assert {before for before, _ in machine.arrows()} == {phase.name for phase in phases if not phase.final}
