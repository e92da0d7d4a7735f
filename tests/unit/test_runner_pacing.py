"""How a transfer is kept short of its switch-over, and when it is at its brink."""

from __future__ import annotations

import pytest
from elbowroom.runner import pacing
from elbowroom.runner.command import FLOOR_BYTES
from elbowroom.runner.messages import Limits
from elbowroom.runner.pacing import Pace, Parameters

MIB = 1 << 20
LIMITS = Limits(bandwidth=32 * MIB, downtime_ms=300)


def threshold(parameters: Parameters) -> float:
    """Return the bytes at which QEMU switches over."""
    return float(parameters["avail-switchover-bandwidth"]) / 1000 * float(parameters["downtime-limit"])


def test_before_the_commit_qemu_cannot_get_below_its_threshold() -> None:
    assert 0 < threshold(pacing.sending(LIMITS)) < FLOOR_BYTES
    assert 0 < threshold(pacing.waiting()) < FLOOR_BYTES


def test_looking_lets_qemu_see_new_pages_but_takes_one_step_at_a_time() -> None:
    parameters = pacing.looking()
    assert threshold(parameters) == FLOOR_BYTES + 1
    assert parameters["max-bandwidth"] == 10


@pytest.mark.parametrize("downtime", [1, 20, 300, 2000])
def test_after_the_commit_the_floor_does_not_count_against_the_allowance(downtime: int) -> None:
    limits = Limits(bandwidth=32 * MIB, downtime_ms=downtime)
    parameters = pacing.released(limits, 16 * MIB)
    assert parameters["max-bandwidth"] == 32 * MIB
    assert parameters["downtime-limit"] == downtime
    allowed = 16 * MIB * downtime / 1000
    assert allowed + FLOOR_BYTES <= threshold(parameters) <= allowed + FLOOR_BYTES + downtime


def test_without_a_measurement_qemu_uses_its_own() -> None:
    assert pacing.released(LIMITS, 0)["avail-switchover-bandwidth"] == 0


def passes(*dirty_mib: float, speed: float = 32 * MIB) -> list[bool | None]:
    pace = Pace().saw_speed(speed, LIMITS)
    judged: list[bool | None] = []
    for dirty in dirty_mib:
        pace = pace.saw_pass(int(dirty * MIB), LIMITS)
        judged.append(pace.converging)
    return judged


def test_a_guest_that_dirties_less_than_the_allowance_is_at_its_brink_at_once() -> None:
    assert passes(9) == [True]  # 32 MiB/s for 300 ms are 9.6 MiB


def test_passes_that_shrink_prove_that_we_are_faster() -> None:
    assert passes(38, 27) == [False, True]


def test_passes_that_stay_the_same_prove_nothing() -> None:
    assert passes(64, 64, 62, 63) == [False, False, False, False]


def test_at_the_brink_it_stays_there_unless_the_guest_gets_busy() -> None:
    assert passes(9, 12, 40) == [True, True, False]


def test_a_quiet_guest_is_looked_at_less_and_less() -> None:
    pace = Pace().saw_speed(32 * MIB, LIMITS)
    holds = []
    for _ in range(8):
        pace = pace.saw_pass(MIB, LIMITS)
        holds.append(pace.hold)
    assert holds == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_the_measured_speed_is_never_above_the_limit() -> None:
    assert Pace().saw_speed(500 * MIB, LIMITS).fastest == 32 * MIB


def test_a_small_pass_has_to_wait_until_the_low_threshold_counts() -> None:
    assert not pacing.outlasts_window(MIB, LIMITS)
    assert pacing.outlasts_window(8 * MIB, LIMITS)


def test_qemu_is_left_alone_until_a_pass_should_be_over() -> None:
    assert pacing.until_next_look(32 * MIB, 32 * MIB) == 0.1
    assert pacing.until_next_look(MIB, 32 * MIB) == pytest.approx(1 / 32)
    assert pacing.until_next_look(0, 32 * MIB) == 0.02
    assert pacing.until_next_look(5, 0) == 0.02
