"""What a stock scheduler is answered, and what is said about holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from elbowroom.core.room import Room
from elbowroom.core.world import HoldPhase, MigrationPhase, Node, PodPhase
from elbowroom.extender import rules
from elbowroom.extender.rules import Answer
from support.worlds import DB, NOW, RECEIVER, WEB, asked, hold, migration, pod, world

FRESH = hold(HoldPhase.PENDING, shortfall=Room())
ELSEWHERE = pod("late", 1, "")


def said(*pods: Any, item: Any = FRESH, holds: tuple[Any, ...] = (), **more: Any) -> Answer | None:
    known = world(*pods, holds=(item, *holds), migrations=more.pop("migrations", ()), capacity=more.pop("capacity", 4))
    return rules.decide(known, known.nodes.get(item.node), item, more.pop("now", NOW), **more)


def spoken(answer: Answer | None) -> tuple[HoldPhase, str]:
    assert answer is not None
    return answer.phase, answer.reason


class TestHolds:
    def test_a_hold_that_can_be_kept_is_held_with_what_lacks(self) -> None:
        found = said()
        assert found == Answer(HoldPhase.HELD, "Held", "this extender keeps all of n1 closed", Room(2000))

    @pytest.mark.parametrize(
        ("pods", "more", "reason"),
        [
            ((WEB,), {}, "ClaimantGone"),
            ((replace(DB, phase=PodPhase.ENDED), WEB), {}, "ClaimantGone"),
            ((replace(DB, terminating=True), WEB), {}, "ClaimantGone"),
            ((DB, WEB), {"capacity": 3}, "LargerThanNode"),
            ((DB, pod("other", 2)), {}, "NeighbourGone"),
            ((DB, replace(WEB, terminating=True)), {}, "NeighbourGone"),
            ((DB, pod("web", 1), pod("other", 1)), {}, "NobodyMovable"),
            ((DB, WEB), {"migrations": (migration(MigrationPhase.BINDING, request=""),)}, "NeighbourTaken"),
        ],
    )
    def test_one_that_cannot_be_kept_is_refused_with_the_reason(self, pods: Any, more: Any, reason: str) -> None:
        assert spoken(said(*pods, **more)) == (HoldPhase.REFUSED, reason)

    def test_nobody_is_neighbour_to_two(self) -> None:
        other = hold(claimant="mail", request="r2")
        assert spoken(said(DB, WEB, pod("mail", 0), holds=(other,))) == (HoldPhase.REFUSED, "NeighbourTaken")

    def test_its_own_migration_is_no_conflict(self) -> None:
        assert spoken(said(migrations=(migration(MigrationPhase.BINDING),)))[0] is HoldPhase.HELD

    def test_it_waits_for_victims_that_are_about_to_be_deleted(self) -> None:
        assert said(leaving={"web"}) is None

    def test_what_was_said_is_not_said_again_unless_it_is_of_an_earlier_state(self) -> None:
        assert said(item=hold()) is None
        assert spoken(said(item=hold(), spoken=False)) == (HoldPhase.HELD, "Held")

    def test_a_committed_hold_is_not_judged_again(self) -> None:
        """Its neighbour is leaving: that is what it is for."""
        leaving = replace(WEB, terminating=True)
        assert spoken(said(DB, leaving, item=hold(committed=True), spoken=False)) == (HoldPhase.HELD, "Held")

    def test_what_lacks_is_kept_up_to_date_until_the_commit(self) -> None:
        found = said(DB, item=hold())
        assert found is not None
        assert (found.phase, found.shortfall) == (HoldPhase.HELD, Room(0))
        assert said(DB, item=hold(committed=True)) is None

    def test_it_is_claimed_when_the_claimant_counts_with_its_new_size(self) -> None:
        assert spoken(said(asked(DB, 4), WEB, item=hold(committed=True))) == (HoldPhase.CLAIMED, "Claimed")

    def test_it_is_released_when_nobody_renews_it_but_never_once_committed(self) -> None:
        assert spoken(said(item=hold(), now=NOW + 61)) == (HoldPhase.RELEASED, "Expired")
        assert said(item=hold(committed=True), now=NOW + 61) is None
        assert said(item=hold(HoldPhase.RELEASED), now=NOW + 61) is None

    def test_it_is_released_when_its_claimant_is_gone(self) -> None:
        assert spoken(said(WEB, item=hold(committed=True))) == (HoldPhase.RELEASED, "ClaimantGone")


class TestBinding:
    def may(self, name: str, item: Any, **more: Any) -> str:
        known = world(*more.pop("pods", (DB, WEB, ELSEWHERE)), **more)
        return rules.may_bind(known, known.nodes[name], item, rules.closed(known.holds.values()))

    def test_a_held_node_is_closed_to_everybody(self) -> None:
        assert "room on it is held for db" in self.may("n1", ELSEWHERE, holds=(FRESH,), capacity=9)
        assert not self.may("n2", ELSEWHERE, holds=(FRESH,))
        assert not self.may("n1", ELSEWHERE, holds=(hold(HoldPhase.RELEASED),), capacity=9)

    def test_room_is_counted_again_with_those_that_are_just_being_bound(self) -> None:
        node = Node("n2", Room(1000))
        assert not rules.may_bind(world(), node, ELSEWHERE, {})
        full = rules.with_placed(node, [pod("first", 1, "n2"), pod("elsewhere", 1, "n1")])
        assert "has not enough room" in rules.may_bind(world(), full, ELSEWHERE, {})
        assert rules.with_placed(full, [pod("first", 1, "n2")]) == full

    def test_a_receiver_does_not_come_to_the_node_that_its_guest_leaves(self) -> None:
        moving = (migration(MigrationPhase.BINDING),)
        receiver = replace(RECEIVER, node="")
        assert "the node that its guest leaves" in self.may("n1", receiver, migrations=moving, capacity=9)
        assert not self.may("n2", receiver, migrations=moving)


class TestPreemption:
    def test_nobody_takes_the_place_of_who_is_part_of_a_hold_or_a_move(self) -> None:
        known = rules.roles(
            world(DB, WEB, RECEIVER, holds=(hold(),), migrations=(migration(MigrationPhase.TRANSFERRING),))
        )
        for uid in ("db", "web", "web-r1-1"):
            assert not rules.victims_allowed(known, ELSEWHERE, ["api", uid])
        assert rules.victims_allowed(known, ELSEWHERE, ["api"])

    def test_a_receiver_takes_nobody_s_place(self) -> None:
        known = rules.roles(world(holds=(hold(),)))
        assert not rules.victims_allowed(known, RECEIVER, ["api"])


def test_a_receiver_s_best_node_is_the_emptiest() -> None:
    half, full = Node("n", Room(4000), (pod("a", 2),)), Node("n", Room(4000), (pod("a", 4),))
    scores = [rules.score(node, Room(1000)) for node in (Node("n", Room(4000)), half, full, None)]
    assert scores == [8, 2, 0, 0]
