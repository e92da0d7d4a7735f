"""The explorer: small worlds have nothing wrong with them, and every mutant of the core is found out."""

from __future__ import annotations

import pytest
from elbowroom.core.world import RequestPhase
from explore.mutants import MUTANTS, Mutant
from explore.scenarios import worlds
from explore.search import Search, explore


@pytest.mark.parametrize(
    ("name", "faults"),
    [("in place", 1), ("two in place", 0), ("nobody else", 0), ("a filler", 0), ("waiting for room", 0)],
)
def test_a_small_world_keeps_all_promises(name: str, faults: int) -> None:
    """`make explore` does the same with larger ones and more faults."""
    world = worlds()[name](faults)
    result = explore(world.setup, world.start)
    assert not result.violation, "\n".join((result.violation, *result.story))
    assert result.states > 100
    assert not result.steps, "not all of it was visited"


def test_of_a_world_that_is_too_large_all_is_visited_up_to_some_number_of_steps() -> None:
    world = worlds()["nobody else"](1)
    few, more = (explore(world.setup, world.start, most=most) for most in (500, 2_000))
    assert (few.states, more.states) == (500, 2_000)
    assert 1 < few.steps < more.steps


@pytest.mark.parametrize("name", ["in place", "nobody else", "a thief"])
def test_a_request_can_succeed(name: str) -> None:
    """A world in which nothing ever works would have nothing wrong with it, either."""
    world = worlds()[name](0)
    end = Search(world.setup, world.start).first(
        lambda state: any(request.status.phase is RequestPhase.SUCCEEDED for request in state.requests)
    )
    grown = {
        item.status.claimant: item.status.wanted.cpu // 1000
        for item in end.requests
        if item.status.phase is RequestPhase.SUCCEEDED
    }
    for uid, size in grown.items():
        assert [pod.allocated for pod in end.pods if pod.uid == uid] == [size]
        assert [item[1] for item in end.guests if item[0] == uid] == [size]


@pytest.mark.parametrize("name", worlds())
def test_walks_with_three_faults_keep_all_promises(name: str) -> None:
    world = worlds()[name](3)
    result = Search(world.setup, world.start).wander(walks=30)
    assert not result.violation, "\n".join((result.violation, *result.story))
    assert result.states > 100


def test_a_walk_that_goes_wrong_is_told_without_what_it_does_not_need() -> None:
    mutant = next(item for item in MUTANTS if item.name == "the guest grows before its pod")
    setup, start = mutant.scenario().setup, mutant.start()
    with mutant.applied():
        shortest = explore(setup, start, brain=mutant.brain, most=400_000)
        found = Search(setup, start, brain=mutant.brain).wander(walks=400)
    assert found.violation == shortest.violation
    assert len(shortest.story) <= len(found.story) <= len(shortest.story) + 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_found_out(mutant: Mutant) -> None:
    start, setup = mutant.start(), mutant.scenario().setup
    with mutant.applied():
        result = explore(setup, start, brain=mutant.brain, most=400_000)
    assert result.violation
    assert result.story
