"""The simulator: the same seed gives the same day, and at its end nothing is left behind."""

from __future__ import annotations

import pytest
from elbowroom.core.policy import Policy
from simulate.cluster import Score, Simulation
from simulate.policies import POLICIES
from simulate.report import table
from simulate.workload import day, node_size

DAY = day(10, 200, 4.0, fill=0.9, seed=7)


def run(name: str) -> Score:
    simulation = Simulation(DAY, 10, POLICIES[name], Policy())
    score = simulation.run(4.0)
    assert simulation.left_behind() == []
    return score


@pytest.mark.parametrize("name", POLICIES)
def test_a_day_leaves_nothing_behind(name: str) -> None:
    """And no node ever gives more than it has: the simulation itself looks at that after each step."""
    score = run(name)
    assert score.asked > 40
    assert score.grown + score.reasons.total() == score.asked
    assert bool(score.moved) == (name != "none")


def test_the_same_seed_gives_the_same_day() -> None:
    assert day(10, 200, 4.0, fill=0.9, seed=7) == DAY
    assert day(10, 200, 4.0, fill=0.9, seed=8) != DAY
    assert run("ours") == run("ours")
    assert run("random") == run("random")


def test_moving_neighbours_satisfies_more() -> None:
    ours, none = run("ours"), run("none")
    assert ours.grown / ours.asked > none.grown / none.asked
    assert "ours" in table({"ours": ours, "none": none})


def test_a_fuller_cluster_has_smaller_nodes() -> None:
    assert node_size(20, 0.9).within(node_size(20, 0.8))
