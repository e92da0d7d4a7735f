"""What a scale request does next, phase by phase."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from elbowroom.core import request as requests
from elbowroom.core import sweep
from elbowroom.core.actions import (
    CheckResize,
    CommitHold,
    CreateHold,
    CreateMigration,
    DeleteHold,
    FencePod,
    Forget,
    RenewHold,
    ResizeGuest,
    ResizePod,
    TaintNode,
    UntaintNode,
    WriteMigration,
    WriteRequest,
)
from elbowroom.core.reasons import Reason
from elbowroom.core.room import Room
from elbowroom.core.world import (
    Check,
    Container,
    FailedMove,
    GuestRange,
    GuestSize,
    HoldPhase,
    MigrationOutcome,
    MigrationPhase,
    Node,
    Outcome,
    PodPhase,
    Request,
    RequestPhase,
    Resize,
    Transfer,
    TransferState,
)
from support.worlds import DB, NOW, POLICY, RECEIVER, WEB, WEB_PLANNED, asked, hold, migration, pod, request, world

if TYPE_CHECKING:
    from elbowroom.core.actions import Actions
    from elbowroom.core.world import Pod, RequestStatus

AT_BRINK = migration(MigrationPhase.AT_BRINK)
MOVED = migration(MigrationPhase.MOVED, committed=True)
SMALL = pod("small", 1)
BRINK: dict[str, Any] = {"migrations": (AT_BRINK,), "transfers": {"m1": Transfer(TransferState.AT_BRINK)}}


def decide(item: Request, *pods: Pod, now: float = NOW, **more: Any) -> Actions:
    others = more.pop("others", ())
    return requests.decide(world(*pods, requests=(item, *others), **more), item, now, POLICY)


def status(actions: Actions) -> RequestStatus:
    action = actions[-1]
    assert isinstance(action, WriteRequest)
    assert action.version == "r1@1"
    return action.status


def written(actions: Actions) -> tuple[RequestPhase, Reason | None]:
    return status(actions).phase, status(actions).reason


def outcome(actions: Actions) -> tuple[RequestPhase, Reason]:
    found = status(actions)
    assert found.phase is RequestPhase.UNDOING
    assert found.outcome is not None
    return found.outcome.phase, found.outcome.reason


class TestPending:
    def test_a_neighbour_is_planned_with_all_names(self) -> None:
        found = status(decide(request()))
        assert (found.phase, found.plan, found.shortfall, found.target) == (
            RequestPhase.HOLDING, (WEB_PLANNED,), Room(2000), Room(4000),
        )  # fmt: skip
        assert (found.claimant, found.node, found.original, found.wanted, found.round) == (
            "db",
            "n1",
            Room(2000),
            Room(4000),
            1,
        )

    def test_it_is_told_why_the_others_are_not_moved(self) -> None:
        pods = (DB, WEB, pod("big", 3), pod("fixed", 1, movable=False), pod("plain", 1, vm=""))
        found = status(decide(request(), *pods, capacity=9))
        assert [(item.name, item.reason) for item in found.not_chosen] == [
            ("big", Reason.COSTS_MORE), ("fixed", Reason.NOT_OPTED_IN), ("plain", Reason.NOT_A_VM),
        ]  # fmt: skip
        waiting = decide(request(), DB, replace(WEB, movable=False))
        assert [(item.name, item.reason) for item in status(waiting).not_chosen] == [("web", Reason.NOT_OPTED_IN)]

    def test_where_there_is_room_nobody_is_moved(self) -> None:
        found = status(decide(request(), capacity=6))
        assert (found.phase, found.plan, found.reason) == (RequestPhase.HOLDING, (), Reason.FITS)

    @pytest.mark.parametrize(
        ("change", "more", "reason"),
        [
            ({"vm": "nobody"}, {}, Reason.VM_NOT_FOUND),
            ({"suspend": True}, {}, Reason.SUSPENDED),
            ({"moves": False}, {}, Reason.WAITING_FOR_ROOM),
            ({"retry_at": NOW + 5}, {}, Reason.BACKING_OFF),
            ({}, {"holds": (hold(request="r2", claimant="x", payers=hold().payers),)}, Reason.NOBODY_MOVABLE),
            ({}, {"holds": (hold(request="r2"),)}, Reason.IN_USE),
        ],
    )  # fmt: skip
    def test_what_it_waits_for_is_told(self, change: dict[str, Any], more: dict[str, Any], reason: Reason) -> None:
        assert written(decide(request(**change), **more)) == (RequestPhase.PENDING, reason)

    def test_two_pods_that_both_claim_to_be_the_vm_are_not_guessed_about(self) -> None:
        twin = pod("db-2", 2)
        assert written(decide(request(), DB, twin, WEB)) == (RequestPhase.PENDING, Reason.AMBIGUOUS_VM)
        assert status(decide(request(), DB, replace(twin, ready=False), WEB, capacity=8)).claimant == "db"

    def test_a_wait_is_told_once(self) -> None:
        item = request(moves=False)
        assert decide(replace(item, status=status(decide(item)))) == ()

    def test_a_neighbour_without_a_place_is_not_moved(self) -> None:
        assert written(decide(request(), DB, WEB, pod("full", 3, "n2"))) == (RequestPhase.PENDING, Reason.NO_PLACE)

    def test_budgets_are_kept(self) -> None:
        busy = tuple(
            migration(phase, uid=f"m{index}", name=f"m{index}", pod=f"s{index}", source=f"s{index}")
            for index, phase in enumerate((MigrationPhase.TRANSFERRING, MigrationPhase.PENDING))
        )
        moving = (pod("s0", 1), pod("s1", 1))
        pods = (DB, WEB, *moving)
        assert written(decide(request(), *pods, capacity=6, migrations=busy)) == (RequestPhase.PENDING, Reason.BUDGET)
        assert written(decide(request(), *pods, capacity=6, migrations=busy[:1]))[0] is RequestPhase.HOLDING

    def test_and_moves_count_that_others_have_planned(self) -> None:
        others = tuple(
            replace(request(RequestPhase.HOLDING, claimant=f"c{index}"), uid=f"o{index}", vm=f"c{index}")
            for index in range(2)
        )
        assert written(decide(request(), others=others)) == (RequestPhase.PENDING, Reason.BUDGET)

    def test_and_nobody_is_sent_to_a_node_that_is_busy(self) -> None:
        coming = tuple(
            migration(
                MigrationPhase.TRANSFERRING,
                uid=f"m{index}",
                name=f"m{index}",
                pod="",
                source="",
                receiver_uid=f"x{index}",
            )
            for index in range(2)
        )
        there = tuple(pod(f"x{index}", 0, "n2") for index in range(2))
        assert written(decide(request(), DB, WEB, *there, migrations=coming)) == (RequestPhase.PENDING, Reason.NO_PLACE)

    def test_a_vm_that_was_moved_just_now_rests(self) -> None:
        assert written(decide(request(), DB, replace(WEB, attempt=7, created_at=NOW - 10))) == (
            RequestPhase.PENDING,
            Reason.NOBODY_MOVABLE,
        )

    def test_more_than_the_node_is_refused(self) -> None:
        assert outcome(decide(request(cpu=5000))) == (RequestPhase.FAILED, Reason.LARGER_THAN_NODE)

    def test_a_container_has_to_be_named_where_there_are_several(self) -> None:
        two = replace(
            DB, vm="", containers=(Container("vm", Room(1000)), Container("log", Room(1000))), vm_container=""
        )
        assert outcome(decide(request(vm="", pod="db"), two, WEB)) == (RequestPhase.FAILED, Reason.CONTAINER_NOT_FOUND)
        found = status(decide(replace(request(vm="", pod="db", cpu=3000), container="vm"), two, WEB))
        assert (found.wanted, found.target) == (Room(3000), Room(4000))

    def test_a_dry_run_ends_with_the_plan(self) -> None:
        found = status(decide(request(dry_run=True)))
        assert (found.phase, found.reason, found.plan) == (RequestPhase.SUCCEEDED, Reason.DRY_RUN, (WEB_PLANNED,))

    def test_a_neighbour_whose_move_failed_is_tried_again_where_nobody_else_would_do(self) -> None:
        other = pod("zoo", 2)
        once = request(failed=(FailedMove("web", Reason.TRANSFER_FAILED),))
        plan = status(decide(once, DB, WEB, other, capacity=6)).plan
        assert [planned.uid for planned in plan] == ["zoo"]
        assert [planned.uid for planned in status(decide(once)).plan] == ["web"]

    def test_but_not_for_ever(self) -> None:
        twice = request(failed=(FailedMove("web", Reason.TRANSFER_FAILED),) * 2)
        assert written(decide(twice)) == (RequestPhase.PENDING, Reason.NOBODY_MOVABLE)

    def test_unless_its_receivers_were_to_blame(self) -> None:
        thrice = request(failed=(FailedMove("web", Reason.RECEIVER_GONE),) * 3)
        assert [planned.uid for planned in status(decide(thrice)).plan] == ["web"]

    def test_a_vm_that_wants_to_grow_itself_is_moved_last(self) -> None:
        other = replace(request(), uid="r2", vm="web", created_at=NOW - 1)
        assert [planned.uid for planned in status(decide(request(), others=(other,))).plan] == ["web"]
        found = status(decide(request(), DB, WEB, pod("api", 3), others=(other,), capacity=7))
        assert [planned.uid for planned in found.plan] == ["api"]

    def test_a_newer_request_supersedes(self) -> None:
        newer = replace(request(), uid="r2", name="grow-more", created_at=NOW - 1, version="r2@1")
        assert outcome(decide(request(), others=(newer,))) == (RequestPhase.CANCELLED, Reason.SUPERSEDED)

    def test_and_waits_until_the_older_is_undone(self) -> None:
        older = replace(
            request(RequestPhase.UNDOING, outcome=Outcome(RequestPhase.CANCELLED, Reason.SUPERSEDED)),
            uid="r0",
            created_at=NOW - 50,
        )
        assert written(decide(request(), others=(older,))) == (RequestPhase.PENDING, Reason.OTHERS_FIRST)

    def test_a_smaller_size_shrinks_the_guest_first(self) -> None:
        found = decide(request(cpu=1000), guests={"db": GuestSize(2, 0)})
        assert written(found) == (RequestPhase.SHRINKING, Reason.SHRINKING_GUEST)


class TestShrinking:
    ITEM = request(RequestPhase.SHRINKING, plan=(), wanted=Room(1000), target=Room(1000), guest_after=GuestSize(1, 0))
    GIVEN_BACK = replace(ITEM, status=replace(ITEM.status, resized=True))
    SMALL_GUEST: ClassVar[dict[str, Any]] = {"guests": {"db": GuestSize(1, 0)}}

    def test_the_guest_first(self) -> None:
        assert decide(self.ITEM)[0] == ResizeGuest("db", GuestSize(1, 0), 20)

    def test_nothing_is_taken_from_it_for_a_size_that_its_pod_may_not_have(self) -> None:
        item = request(cpu=1000)
        assert decide(item, checks={}) == (CheckResize("r1", "db", "vm", Room(1000)),)
        refused = decide(item, checks={"r1": Check(allowed=False, message="too small")})
        assert outcome(refused) == (RequestPhase.FAILED, Reason.RESIZE_REFUSED)

    def test_a_guest_that_is_small_already_has_to_take_the_order_all_the_same(self) -> None:
        """Else one that was given before, and comes late, would make it larger than its pod."""
        assert decide(self.ITEM, **self.SMALL_GUEST, orders={"db": 19})[0] == ResizeGuest("db", GuestSize(1, 0), 20)

    def test_a_pod_that_was_never_told_gives_its_guest_back(self) -> None:
        late = replace(self.GIVEN_BACK, deadline=1.0, created_at=NOW - 100)
        assert outcome(decide(late, **self.SMALL_GUEST)) == (RequestPhase.FAILED, Reason.RESIZE_REFUSED)

    def test_then_it_is_written_down_that_there_is_no_way_back(self) -> None:
        assert status(decide(self.ITEM, **self.SMALL_GUEST)).resized

    def test_then_the_pod(self) -> None:
        assert decide(self.GIVEN_BACK, **self.SMALL_GUEST) == (ResizePod("db", "db@1", "vm", Room(1000)),)
        gone = replace(self.GIVEN_BACK, deleted=True)
        assert decide(gone, **self.SMALL_GUEST) == (ResizePod("db", "db@1", "vm", Room(1000)),)

    def test_then_it_is_done(self) -> None:
        small = replace(asked(DB, 1), allocated=Room(1000))
        grown = decide(self.GIVEN_BACK, small, WEB, **self.SMALL_GUEST)
        assert written(grown) == (RequestPhase.GROWING, Reason.GROWING_GUEST)

    def test_a_kubelet_that_does_not_answer_is_not_waited_for_for_ever(self) -> None:
        late = replace(self.GIVEN_BACK, deadline=1.0, created_at=NOW - 100)
        found = status(decide(late, asked(DB, 1, resize=Resize.UNSEEN), WEB, **self.SMALL_GUEST))
        assert found.outcome is not None
        assert (found.phase, found.outcome.reason) == (RequestPhase.RELEASING, Reason.RESIZE_REFUSED)

    def test_a_guest_that_cannot_be_asked_is_waited_for(self) -> None:
        assert written(decide(self.ITEM, guests={})) == (RequestPhase.SHRINKING, Reason.SHRINKING_GUEST)

    def test_what_grows_does_not_grow_before_its_pod(self) -> None:
        mixed = request(
            RequestPhase.SHRINKING, plan=(), original=Room(2000, 4), wanted=Room(1000, 8), target=Room(1000, 8),
            guest_before=GuestSize(2, 4), guest_after=GuestSize(1, 8),
        )  # fmt: skip
        assert decide(mixed, guests={"db": GuestSize(2, 4)})[0] == ResizeGuest("db", GuestSize(1, 4), 20)
        assert written(decide(mixed, guests={"db": GuestSize(1, 4)})) == (RequestPhase.PENDING, Reason.PLANNED)

    def test_a_dry_run_changes_nothing(self) -> None:
        found = decide(request(cpu=1000, dry_run=True), guests={"db": GuestSize(2, 0)})
        assert written(found) == (RequestPhase.SUCCEEDED, Reason.DRY_RUN)


MI = 1 << 20


class TestGuestSizes:
    """What the guest shall have, from what its container has."""

    @staticmethod
    def after(had: Room, guest: GuestSize, *, limits: GuestRange | None = None, **wanted: Any) -> Actions:
        containers = (Container("vm", had), Container("log", Room(100)))
        claimant = replace(DB, containers=containers, allocated=had, size=had, guest=limits)
        item = request(**{"cpu": None, **wanted})
        return requests.decide(
            replace(world(claimant, guests={"db": guest}), nodes={"n1": Node("n1", Room(99_000, 99 << 30), (claimant,))}),
            item, NOW, POLICY,
        )  # fmt: skip

    @pytest.mark.parametrize(
        ("had", "guest", "wanted", "expected"),
        [
            (Room(500, 448 * MI), GuestSize(1, 256 * MI), {"memory": 1216 * MI}, GuestSize(1, 1024 * MI)),
            (Room(500, 448 * MI), GuestSize(1, 256 * MI), {"cpu": 2000}, GuestSize(2, 256 * MI)),
            (Room(500, 448 * MI), GuestSize(1, 256 * MI), {"cpu": 2500, "memory": 449 * MI}, GuestSize(3, 256 * MI)),
            (Room(1000, 2048 * MI), GuestSize(1, 2048 * MI), {"memory": 4096 * MI}, GuestSize(1, 4096 * MI)),
            (Room(500, 1024 * MI), GuestSize(2, 2048 * MI), {"cpu": 900, "memory": 1536 * MI}, GuestSize(2, 2048 * MI)),
            (Room(4000, 4288 * MI), GuestSize(4, 4096 * MI), {"cpu": 2500}, GuestSize(3, 4096 * MI)),
            (Room(4000, 4288 * MI), GuestSize(4, 4096 * MI), {"memory": 2240 * MI}, GuestSize(4, 2048 * MI)),
            (Room(4000, 8192 * MI), GuestSize(4, 2048 * MI), {"memory": 8192 * MI}, GuestSize(4, 8000 * MI)),
        ],
        ids=["what QEMU needs stays", "vCPUs are whole", "and so are blocks of memory", "no spare, none kept",
             "one that has more keeps it", "fewer vCPUs", "less memory", "a guest that did not grow before"],
    )  # fmt: skip
    def test_it_gets_what_is_named(
        self, had: Room, guest: GuestSize, wanted: dict[str, Any], expected: GuestSize
    ) -> None:
        assert status(self.after(had, guest, **wanted)).guest_after == expected

    @pytest.mark.parametrize(
        ("wanted", "field"), [({"cpu": 5000}, "cpu"), ({"cpu": 900}, ""), ({"memory": 9 << 30}, "memory"), ({"memory": 64 * MI}, "memory")]
    )  # fmt: skip
    def test_what_it_can_never_have_is_refused_before_anything_is_done(
        self, wanted: dict[str, Any], field: str
    ) -> None:
        limits = GuestRange(GuestSize(1, 256 * MI), GuestSize(4, 1024 * MI))
        found = self.after(Room(1000, 448 * MI), GuestSize(1, 256 * MI), limits=limits, **wanted)
        if not field:
            assert status(found).phase is RequestPhase.SHRINKING
            return
        assert outcome(found) == (RequestPhase.FAILED, Reason.OUT_OF_RANGE)
        assert status(found).message.startswith(f"resources.{field}: ")

    def test_not_even_without_limits_does_it_get_less_than_nothing(self) -> None:
        found = self.after(Room(1000, 448 * MI), GuestSize(1, 256 * MI), memory=128 * MI)
        assert outcome(found) == (RequestPhase.FAILED, Reason.OUT_OF_RANGE)

    def test_the_vms_container_is_meant(self) -> None:
        assert status(self.after(Room(1000), GuestSize(1, 0), cpu=2000)).container == "vm"

    def test_another_container_has_no_guest(self) -> None:
        two = replace(DB, containers=(Container("vm", Room(1000)), Container("log", Room(1000))))
        found = status(decide(replace(request(cpu=1500), container="log"), two, WEB, capacity=6))
        assert (found.wanted, found.guest_after) == (Room(1500), None)

    def test_a_guest_that_says_nothing_is_waited_for(self) -> None:
        assert written(decide(request(), guests={})) == (RequestPhase.PENDING, Reason.GUEST_SILENT)


class TestOrders:
    """What a guest is told has a number, so that its runner can refuse what comes late."""

    def test_each_plan_has_a_higher_one(self) -> None:
        assert status(decide(request())).order == NOW * 1000 + 1
        assert status(decide(request(order=7_000_000))).order == 7_000_001
        assert status(decide(request(cpu=1000), orders={"db": 9_000_000 * 4 + 2})).order == 9_000_001

    def test_and_so_has_each_phase_of_it(self) -> None:
        shrinking = request(RequestPhase.SHRINKING, plan=(), wanted=Room(1000), guest_after=GuestSize(1, 0))
        undoing = replace(shrinking, status=replace(
            shrinking.status, phase=RequestPhase.UNDOING, outcome=Outcome(RequestPhase.FAILED, Reason.DEADLINE)
        ))  # fmt: skip
        first, second = decide(shrinking)[0], decide(undoing, guests={"db": GuestSize(1, 0)})[0]
        assert isinstance(first, ResizeGuest)
        assert isinstance(second, ResizeGuest)
        assert first.order < second.order < (shrinking.status.order + 1) * 4


class TestAClaimantThatHasAskedAlready:
    def test_a_resize_that_is_deferred_is_no_size(self) -> None:
        """Somebody has tried `kubectl patch --subresource resize` first."""
        found = status(decide(request(), asked(DB, 4, resize=Resize.DEFERRED), WEB))
        assert (found.phase, found.plan, found.original) == (RequestPhase.HOLDING, (WEB_PLANNED,), Room(4000))

    def test_what_was_asked_before_is_not_put_back_for_ever(self) -> None:
        item = request(
            RequestPhase.UNDOING, outcome=Outcome(RequestPhase.CANCELLED, Reason.CANCELLED), plan=(), resized=True,
            original=Room(4000),
        )  # fmt: skip
        waiting = asked(DB, 4, resize=Resize.DEFERRED, fence="r1/1")
        assert decide(item, waiting, WEB, holds=(hold(committed=True),)) == (DeleteHold("db", "hold@1"),)

    def test_a_guest_that_is_smaller_than_its_pod_grows(self) -> None:
        item = request(RequestPhase.SHRINKING, plan=(), resized=True)
        grown = replace(asked(DB, 4), allocated=Room(4000))
        assert written(decide(item, grown)) == (RequestPhase.GROWING, Reason.GROWING_GUEST)


class TestHolding:
    ITEM = request(RequestPhase.HOLDING)

    def test_the_room_is_asked_for(self) -> None:
        (action,) = decide(self.ITEM)
        assert isinstance(action, CreateHold)
        made = action.hold
        assert (made.claimant, made.target, made.payers, made.round, made.committed) == (
            "db",
            Room(4000),
            hold().payers,
            1,
            False,
        )

    def test_nothing_is_done_before_the_scheduler_has_said_so(self) -> None:
        assert written(decide(self.ITEM, holds=(hold(HoldPhase.PENDING),))) == (
            RequestPhase.HOLDING,
            Reason.WAITING_FOR_HOLD,
        )

    def test_a_scheduler_that_says_nothing_is_not_waited_for_for_ever(self) -> None:
        assert (
            outcome(decide(self.ITEM, holds=(hold(HoldPhase.PENDING, expires_at=NOW - 1),)))[0] is RequestPhase.PENDING
        )

    @pytest.mark.parametrize("phase", [HoldPhase.REFUSED, HoldPhase.RELEASED])
    def test_a_refusal_means_another_plan(self, phase: HoldPhase) -> None:
        assert outcome(decide(self.ITEM, holds=(hold(phase),))) == (RequestPhase.PENDING, Reason.HOLD_REFUSED)

    def test_a_hold_of_somebody_else_is_not_ours(self) -> None:
        assert outcome(decide(self.ITEM, holds=(hold(request="r2"),))) == (RequestPhase.PENDING, Reason.HOLD_REFUSED)

    def test_held_means_go(self) -> None:
        assert written(decide(self.ITEM, holds=(hold(),)))[0] is RequestPhase.MOVING

    def test_where_the_scheduler_sees_no_shortfall_nobody_moves(self) -> None:
        found = status(decide(self.ITEM, holds=(hold(shortfall=Room()),)))
        assert (found.phase, found.room_appeared) == (RequestPhase.COMMITTING, True)


class TestMoving:
    ITEM = request(RequestPhase.MOVING)

    def test_migrations_are_made(self) -> None:
        assert decide(self.ITEM, holds=(hold(),)) == (CreateMigration("r1", WEB_PLANNED),)

    def test_the_hold_is_renewed_in_time(self) -> None:
        found = decide(self.ITEM, holds=(hold(expires_at=NOW + 20),), migrations=(AT_BRINK,))
        assert RenewHold("db", "hold@1", NOW + 60) in found

    def test_all_at_the_brink_means_commit(self) -> None:
        assert written(decide(self.ITEM, DB, WEB, RECEIVER, holds=(hold(),), **BRINK))[0] is RequestPhase.COMMITTING

    def test_but_first_the_resize_is_tried(self) -> None:
        more: dict[str, Any] = {"holds": (hold(),), **BRINK}
        assert decide(self.ITEM, DB, WEB, RECEIVER, checks={}, **more) == (CheckResize("r1", "db", "vm", Room(4000)),)
        refused = decide(self.ITEM, DB, WEB, RECEIVER, checks={"r1": Check(allowed=False, message="quota")}, **more)
        assert outcome(refused) == (RequestPhase.FAILED, Reason.RESIZE_REFUSED)

    def test_room_that_appears_by_itself_is_taken_and_nobody_moves(self) -> None:
        moving = migration(MigrationPhase.TRANSFERRING)
        found = status(decide(self.ITEM, holds=(hold(shortfall=Room()),), capacity=6, migrations=(moving,)))
        assert (found.phase, found.room_appeared) == (RequestPhase.COMMITTING, True)

    def test_but_not_before_the_scheduler_sees_it_too(self) -> None:
        """It may be placing a pod there, of which we cannot know."""
        moving = migration(MigrationPhase.TRANSFERRING)
        assert written(decide(self.ITEM, holds=(hold(),), capacity=6, migrations=(moving,)))[0] is RequestPhase.MOVING
        item = request(RequestPhase.COMMITTING, room_appeared=True)
        assert outcome(decide(item, holds=(hold(),), capacity=6)) == (RequestPhase.PENDING, Reason.ROOM_TAKEN)
        in_place = request(RequestPhase.HOLDING, plan=())
        assert outcome(decide(in_place, holds=(hold(),), capacity=6)) == (RequestPhase.PENDING, Reason.ROOM_TAKEN)

    def test_never_with_room_that_another_one_waits_for(self) -> None:
        other = replace(asked(pod("other", 1), 3, resize=Resize.DEFERRED), uid="other")
        held = hold(claimant="other", request="r2", payers=(), target=Room(3000), committed=True, created_at=NOW)
        found = decide(
            self.ITEM,
            DB,
            WEB,
            other,
            holds=(hold(), held),
            capacity=7,
            migrations=(migration(MigrationPhase.TRANSFERRING),),
        )
        assert written(found)[0] is RequestPhase.MOVING

    def test_a_failed_move_is_tried_with_another_neighbour(self) -> None:
        failed = migration(
            MigrationPhase.FAILED, outcome=MigrationOutcome(MigrationPhase.FAILED, Reason.TRANSFER_FAILED)
        )
        found = decide(self.ITEM, holds=(hold(),), migrations=(failed,))
        assert outcome(found) == (RequestPhase.PENDING, Reason.TRANSFER_FAILED)
        assert status(found).failed == (FailedMove("web", Reason.TRANSFER_FAILED),)

    def test_and_not_for_ever(self) -> None:
        failed = migration(
            MigrationPhase.FAILED, outcome=MigrationOutcome(MigrationPhase.FAILED, Reason.TRANSFER_FAILED)
        )
        last = request(RequestPhase.MOVING, round=POLICY.tries)
        assert outcome(decide(last, holds=(hold(round=POLICY.tries),), migrations=(failed,))) == (
            RequestPhase.FAILED,
            Reason.TOO_MANY_TRIES,
        )

    @pytest.mark.parametrize("holds", [(), (hold(HoldPhase.RELEASED),), (hold(round=2),)])
    def test_a_hold_that_is_lost_means_another_plan(self, holds: tuple[Any, ...]) -> None:
        assert outcome(decide(self.ITEM, holds=holds)) == (RequestPhase.PENDING, Reason.HOLD_LOST)


class TestCommitting:
    ITEM = request(RequestPhase.COMMITTING)
    PODS = (DB, WEB, RECEIVER)

    def test_the_hold_first(self) -> None:
        assert decide(self.ITEM, *self.PODS, holds=(hold(),), **BRINK) == (CommitHold("db", "hold@1"),)

    def test_then_the_migration_by_one_write(self) -> None:
        (action,) = decide(self.ITEM, *self.PODS, holds=(hold(committed=True),), **BRINK)
        assert isinstance(action, WriteMigration)
        assert (action.status.committed, action.version) == (True, "m1@1")

    def test_none_is_committed_before_all_can_be(self) -> None:
        failed = {**BRINK, "transfers": {"m1": Transfer(TransferState.FAILED)}}
        assert (
            written(decide(self.ITEM, *self.PODS, holds=(hold(committed=True),), **failed))[0]
            is RequestPhase.COMMITTING
        )

    def test_a_hold_that_was_renewed_is_waited_for(self) -> None:
        found = decide(self.ITEM, *self.PODS, holds=(hold(HoldPhase.PENDING),), **BRINK)
        assert written(found) == (RequestPhase.COMMITTING, Reason.WAITING_FOR_HOLD)

    def test_somebody_slipped_in_meanwhile(self) -> None:
        found = decide(self.ITEM, *self.PODS, replace(SMALL, since=NOW), holds=(hold(),), **BRINK)
        assert outcome(found) == (RequestPhase.PENDING, Reason.ROOM_TAKEN)
        assert status(found).message == f"taken on {SMALL.node} by {SMALL.namespace}/{SMALL.name}"

    def test_somebody_who_was_there_has_grown(self) -> None:
        older = replace(SMALL, since=NOW - 10_000)
        found = decide(self.ITEM, *self.PODS, older, holds=(hold(created_at=NOW - 5_000),), **BRINK)
        assert "somebody there has grown" in status(found).message

    def test_room_that_appeared_needs_no_migration(self) -> None:
        item = request(RequestPhase.COMMITTING, room_appeared=True)
        free = hold(shortfall=Room())
        assert decide(item, holds=(free,), capacity=6) == (CommitHold("db", "hold@1"),)
        assert written(decide(item, holds=(replace(free, committed=True),), capacity=6))[0] is RequestPhase.SWAPPING

    def test_all_moved_means_swap(self) -> None:
        assert (
            written(decide(self.ITEM, *self.PODS, holds=(hold(committed=True),), migrations=(MOVED,)))[0]
            is RequestPhase.SWAPPING
        )

    @pytest.mark.parametrize("change", [{"deleted": True}, {"deadline": 1.0}, {"suspend": True}])
    def test_after_the_commit_nothing_stops_it(self, change: dict[str, Any]) -> None:
        found = decide(replace(self.ITEM, **change), *self.PODS, holds=(hold(committed=True),), migrations=(MOVED,))
        assert written(found)[0] is RequestPhase.SWAPPING

    def test_a_guest_that_nobody_can_find_ends_the_request_and_not_the_migration(self) -> None:
        late = request(RequestPhase.COMMITTING, deadline=1.0, created_at=NOW - 100)
        silent = migration(MigrationPhase.SWITCHING_OVER, committed=True)
        assert outcome(decide(late, *self.PODS, holds=(hold(committed=True),), migrations=(silent,))) == (
            RequestPhase.FAILED,
            Reason.DEADLINE,
        )
        undoing = replace(late, status=replace(late.status, phase=RequestPhase.UNDOING, outcome=Outcome(
            RequestPhase.FAILED, Reason.DEADLINE)))  # fmt: skip
        assert decide(undoing, *self.PODS, holds=(hold(committed=True),), migrations=(silent,)) == (
            DeleteHold("db", "hold@1"),
        )

    def test_one_of_two_could_not_move(self) -> None:
        other = WEB_PLANNED._replace(uid="api", vm="api", migration="api-r1-1")
        item = request(RequestPhase.COMMITTING, plan=(WEB_PLANNED, other))
        stayed = replace(migration(MigrationPhase.FAILED), uid="m2", name="api-r1-1", vm="api", pod="api")
        found = decide(item, *self.PODS, holds=(hold(committed=True),), migrations=(MOVED, stayed))
        assert outcome(found) == (RequestPhase.PARTIALLY_MOVED, Reason.PARTIALLY_MOVED)


class TestSwapping:
    ITEM = request(RequestPhase.SWAPPING)
    HELD = hold(committed=True)

    def test_the_claimant_asks_first(self) -> None:
        found = decide(self.ITEM, DB, WEB, RECEIVER, holds=(self.HELD,), migrations=(MOVED,))
        assert found == (ResizePod("db", "db@1", "vm", Room(4000)),)

    def test_a_pod_that_was_placed_before_gets_its_room_first(self) -> None:
        new = pod("new", 1, phase=PodPhase.PENDING, admitted=False)
        pods = (DB, WEB, RECEIVER, new)
        found = decide(self.ITEM, *pods, holds=(self.HELD,), migrations=(MOVED,), capacity=5)
        assert written(found) == (RequestPhase.SWAPPING, Reason.OTHERS_STARTING)

    def test_another_claimant_that_has_asked_gets_its_room_first(self) -> None:
        other = hold(claimant="api", request="r2", committed=True, target=Room(2000), payers=())
        pods = (DB, WEB, RECEIVER, asked(pod("api", 1), 2, resize=Resize.DEFERRED))
        found = decide(self.ITEM, *pods, holds=(self.HELD, other), migrations=(MOVED,), capacity=5)
        assert written(found) == (RequestPhase.SWAPPING, Reason.OTHERS_GROWING)

    @pytest.mark.parametrize(
        ("state", "reason"), [(Resize.UNSEEN, Reason.RESIZING), (Resize.DEFERRED, Reason.RESIZE_DEFERRED)]
    )
    def test_then_it_waits(self, state: Resize, reason: Reason) -> None:
        found = decide(self.ITEM, asked(DB, 4, resize=state), WEB, RECEIVER, holds=(self.HELD,), migrations=(MOVED,))
        assert written(found) == (RequestPhase.SWAPPING, reason)

    def test_granted(self) -> None:
        grown = replace(asked(DB, 4), allocated=Room(4000))
        assert written(decide(self.ITEM, grown, RECEIVER, holds=(self.HELD,)))[0] is RequestPhase.GROWING

    def test_a_neighbour_that_is_ending_is_no_thief(self) -> None:
        ending = replace(WEB, terminating=True)
        found = decide(
            self.ITEM, asked(DB, 4, resize=Resize.DEFERRED), ending, RECEIVER, holds=(self.HELD,),
            migrations=(migration(MigrationPhase.SUCCEEDED, committed=True),),
        )  # fmt: skip
        assert written(found) == (RequestPhase.SWAPPING, Reason.RESIZE_DEFERRED)

    def test_a_theft_means_another_plan(self) -> None:
        gone = migration(MigrationPhase.SUCCEEDED, committed=True)
        waiting = asked(DB, 4, resize=Resize.DEFERRED)
        found = decide(self.ITEM, waiting, SMALL, RECEIVER, holds=(self.HELD,), migrations=(gone,))
        assert outcome(found) == (RequestPhase.PENDING, Reason.ROOM_TAKEN)

    def test_a_resize_that_is_refused_for_ever_ends(self) -> None:
        late = request(RequestPhase.SWAPPING, deadline=1.0, created_at=NOW - 100)
        found = decide(late, DB, WEB, RECEIVER, holds=(self.HELD,), migrations=(MOVED,))
        assert outcome(found) == (RequestPhase.FAILED, Reason.RESIZE_REFUSED)

    def test_a_claimant_that_dies_ends_it(self) -> None:
        assert outcome(decide(self.ITEM, WEB, RECEIVER, holds=(self.HELD,))) == (
            RequestPhase.FAILED,
            Reason.CLAIMANT_GONE,
        )

    def test_in_place_it_can_still_be_called_off(self) -> None:
        item = request(RequestPhase.SWAPPING, plan=(), deleted=True)
        waiting = asked(DB, 4, resize=Resize.UNSEEN)
        assert outcome(decide(item, waiting, WEB, holds=(self.HELD,))) == (RequestPhase.CANCELLED, Reason.CANCELLED)


class TestGrowing:
    ITEM = request(RequestPhase.GROWING)
    GROWN = replace(asked(DB, 4), allocated=Room(4000))

    def test_the_guest_gets_what_its_pod_has(self) -> None:
        assert decide(self.ITEM, self.GROWN, RECEIVER)[0] == ResizeGuest("db", GuestSize(4, 0), 21)

    def test_until_it_has_it(self) -> None:
        assert (
            written(decide(self.ITEM, self.GROWN, RECEIVER, guests={"db": GuestSize(4, 0)}))[0]
            is RequestPhase.RELEASING
        )

    def test_a_plain_pod_has_no_guest(self) -> None:
        plain = request(RequestPhase.GROWING, guest_before=None, guest_after=None)
        assert written(decide(plain, replace(self.GROWN, vm=""), RECEIVER))[0] is RequestPhase.RELEASING

    def test_a_guest_that_does_not_grow_is_a_failure(self) -> None:
        late = request(RequestPhase.GROWING, deadline=1.0)
        assert decide(late, self.GROWN, RECEIVER)[0] == ResizeGuest("db", GuestSize(4, 0), 21)
        late = request(RequestPhase.GROWING, deadline=1.0, created_at=NOW - 100)
        found = status(decide(late, self.GROWN, RECEIVER))
        assert found.outcome is not None
        assert (found.phase, found.outcome.reason) == (RequestPhase.RELEASING, Reason.GUEST_REFUSED)


class TestReleasing:
    ITEM = request(RequestPhase.RELEASING)
    OVER = migration(MigrationPhase.SUCCEEDED, committed=True)

    def test_the_hold_stays_until_the_scheduler_counts_the_new_size(self) -> None:
        found = decide(self.ITEM, migrations=(self.OVER,), holds=(hold(committed=True),))
        assert written(found) == (RequestPhase.RELEASING, Reason.WAITING_FOR_CLAIM)

    def test_then_it_goes(self) -> None:
        found = decide(self.ITEM, migrations=(self.OVER,), holds=(hold(HoldPhase.CLAIMED, committed=True),))
        assert found == (DeleteHold("db", "hold@1"),)

    def test_then_it_is_done(self) -> None:
        assert written(decide(self.ITEM, migrations=(self.OVER,))) == (RequestPhase.SUCCEEDED, Reason.DONE)

    def test_a_neighbour_that_cannot_be_removed_is_not_waited_for_for_ever(self) -> None:
        item = replace(self.ITEM, created_at=NOW - 100_000)
        assert written(decide(item, migrations=(MOVED,)))[0] is RequestPhase.SUCCEEDED

    def test_migrations_that_are_not_needed_are_called_off(self) -> None:
        (action,) = decide(self.ITEM, migrations=(AT_BRINK,), holds=(hold(committed=True),))
        assert isinstance(action, WriteMigration)
        assert action.status.phase is MigrationPhase.CANCELLING


class TestUndoing:
    ITEM = request(RequestPhase.UNDOING, outcome=Outcome(RequestPhase.CANCELLED, Reason.CANCELLED))
    RESIZED = replace(ITEM, status=replace(ITEM.status, resized=True))
    OFF = migration(MigrationPhase.CANCELLED)

    def test_migrations_are_called_off_first(self) -> None:
        (action,) = decide(self.ITEM, migrations=(AT_BRINK,), holds=(hold(),))
        assert isinstance(action, WriteMigration)
        assert (action.status.phase, action.version) == (MigrationPhase.CANCELLING, "m1@1")

    @pytest.mark.parametrize("item", [MOVED, migration(MigrationPhase.SWITCHING_OVER, committed=True)])
    def test_committed_ones_come_to_their_end(self, item: Any) -> None:
        assert written(decide(self.ITEM, migrations=(item,), holds=(hold(committed=True),)))[0] is RequestPhase.UNDOING

    def test_one_that_is_called_off_and_does_not_end_keeps_no_room_for_ever(self) -> None:
        ending = migration(
            MigrationPhase.CANCELLING, outcome=MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED)
        )
        late = replace(self.ITEM, created_at=NOW - 700)
        seen: dict[str, Any] = {"migrations": (ending,), "holds": (hold(),)}
        assert decide(late, **seen) == (DeleteHold("db", "hold@1"),)
        assert decide(late, DB, WEB, replace(RECEIVER, terminating=True), **seen) == (DeleteHold("db", "hold@1"),)
        assert written(decide(self.ITEM, **seen))[0] is RequestPhase.UNDOING

    def test_then_the_hold_goes(self) -> None:
        assert decide(self.ITEM, migrations=(self.OFF,), holds=(hold(),)) == (DeleteHold("db", "hold@1"),)

    def test_a_committed_hold_stays_while_a_migration_is_not_seen(self) -> None:
        assert written(decide(self.ITEM, holds=(hold(committed=True),)))[0] is RequestPhase.UNDOING

    @pytest.mark.parametrize("holds", [(hold(committed=True),), ()], ids=["held", "somebody has deleted the hold"])
    def test_the_claimant_gets_its_old_size_back(self, holds: tuple[Any, ...]) -> None:
        waiting = asked(DB, 4, resize=Resize.DEFERRED)
        found = decide(self.RESIZED, waiting, WEB, migrations=(self.OFF,), holds=holds)
        assert found == (ResizePod("db", "db@1", "vm", Room(2000)),)

    def test_and_a_fence_against_late_resizes(self) -> None:
        found = decide(self.RESIZED, migrations=(self.OFF,), holds=(hold(committed=True),))
        assert found == (FencePod("db", "db@1", "r1/1"),)
        fenced = replace(DB, fence="r1/1")
        assert decide(self.RESIZED, fenced, WEB, migrations=(self.OFF,), holds=(hold(committed=True),)) == (
            DeleteHold("db", "hold@1"),
        )

    def test_a_guest_that_was_made_smaller_gets_its_size_back(self) -> None:
        found = decide(self.ITEM, migrations=(self.OFF,), holds=(hold(),), guests={"db": GuestSize(1, 0)})
        assert found == (ResizeGuest("db", GuestSize(2, 0), 22),)

    def test_but_never_more_than_its_pod_has(self) -> None:
        mixed = replace(self.RESIZED, status=replace(
            self.RESIZED.status, original=Room(2000, 8), wanted=Room(4000, 4), guest_before=GuestSize(2, 8), plan=()
        ))  # fmt: skip
        waiting = replace(
            DB, containers=(Container("vm", Room(2000, 8), Room(4000, 4)),), resize=Resize.DEFERRED, fence="r1/1"
        )
        assert decide(mixed, waiting, WEB, guests={"db": GuestSize(2, 4)}) == ()

    def test_a_pod_that_has_become_smaller_stays_so(self) -> None:
        """To grow again it would need a hold: the scheduler may have given its room to somebody."""
        shrunk = replace(asked(DB, 1), allocated=Room(1000), fence="r1/1", containers=(Container("vm", Room(1000)),))
        item = request(
            RequestPhase.UNDOING, outcome=Outcome(RequestPhase.FAILED, Reason.DEADLINE), plan=(), resized=True,
            wanted=Room(1000), target=Room(1000), guest_after=GuestSize(1, 0),
        )  # fmt: skip
        found = decide(item, shrunk, WEB, guests={"db": GuestSize(1, 0)})
        assert written(found) == (RequestPhase.FAILED, Reason.DEADLINE)

    def test_a_dry_run_puts_nothing_back(self) -> None:
        dry = request(
            RequestPhase.UNDOING, outcome=Outcome(RequestPhase.FAILED, Reason.DEADLINE), plan=(), order=0, dry_run=True
        )
        assert written(decide(dry, guests={"db": GuestSize(1, 0)})) == (RequestPhase.FAILED, Reason.DEADLINE)

    @pytest.mark.parametrize("state", [Resize.UNSEEN, Resize.DEFERRED])
    def test_what_nobody_lets_us_put_back_is_not_tried_for_ever(self, state: Resize) -> None:
        stuck = replace(self.RESIZED, created_at=NOW - 100_000)
        found = decide(stuck, asked(DB, 4, resize=state), WEB, migrations=(self.OFF,))
        assert written(found) == (RequestPhase.CANCELLED, Reason.CANCELLED)

    def test_then_it_has_ended(self) -> None:
        assert written(decide(self.ITEM, migrations=(self.OFF,))) == (RequestPhase.CANCELLED, Reason.CANCELLED)

    def test_or_begins_again_a_little_later(self) -> None:
        again = request(RequestPhase.UNDOING, outcome=Outcome(RequestPhase.PENDING, Reason.ROOM_TAKEN), round=3)
        found = status(decide(again))
        assert (found.phase, found.plan, found.retry_at) == (RequestPhase.PENDING, (), NOW + 20)


BEFORE_THE_COMMIT = [RequestPhase.HOLDING, RequestPhase.MOVING, RequestPhase.COMMITTING]


@pytest.mark.parametrize("phase", BEFORE_THE_COMMIT)
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"deleted": True}, (RequestPhase.CANCELLED, Reason.CANCELLED)),
        ({"deadline": 1.0}, (RequestPhase.FAILED, Reason.DEADLINE)),
        ({"suspend": True}, (RequestPhase.PENDING, Reason.SUSPENDED)),
        ({"suspend": True, "deadline": 1.0}, (RequestPhase.FAILED, Reason.DEADLINE)),
    ],
)
def test_anytime_before_the_commit_it_can_be_stopped(
    phase: RequestPhase, change: dict[str, Any], expected: tuple[RequestPhase, Reason]
) -> None:
    assert outcome(decide(request(phase, **change), DB, WEB, RECEIVER, holds=(hold(),), **BRINK)) == expected


@pytest.mark.parametrize("phase", BEFORE_THE_COMMIT)
def test_a_claimant_that_dies_before_the_commit_ends_it(phase: RequestPhase) -> None:
    assert outcome(decide(request(phase), WEB, RECEIVER, holds=(hold(),), **BRINK)) == (
        RequestPhase.FAILED,
        Reason.CLAIMANT_GONE,
    )


class TestOver:
    def test_its_story_stays_for_a_while(self) -> None:
        assert decide(request(RequestPhase.SUCCEEDED, finished_at=NOW - 5)) == ()
        assert decide(request(RequestPhase.SUCCEEDED, finished_at=NOW - 5, keep_for=1.0)) == (Forget("r1", "r1@1"),)

    def test_or_until_it_is_deleted(self) -> None:
        assert decide(request(RequestPhase.SUCCEEDED, finished_at=NOW, deleted=True)) == (Forget("r1", "r1@1"),)


class TestSweeping:
    def test_a_hold_in_use_stays(self) -> None:
        assert sweep.decide(world(requests=(request(RequestPhase.MOVING),), holds=(hold(),))) == ()

    @pytest.mark.parametrize("items", [(), (request(RequestPhase.FAILED),), (request(RequestPhase.MOVING, round=2),)])
    def test_a_hold_that_nobody_needs_goes(self, items: tuple[Any, ...]) -> None:
        assert sweep.decide(world(requests=items, holds=(hold(),))) == (DeleteHold("db", "hold@1"),)

    def test_not_before_whoever_made_it_could_hear_an_answer(self) -> None:
        young = hold(HoldPhase.PENDING, created_at=NOW - 4)
        assert sweep.decide(world(holds=(young,)), NOW - 5) == ()
        assert sweep.decide(world(holds=(replace(young, created_at=NOW - 6),)), NOW - 5) != ()
        assert sweep.decide(world(holds=(replace(young, phase=HoldPhase.REFUSED),)), NOW - 5) != ()

    def test_a_committed_hold_stays_until_it_is_claimed(self) -> None:
        over = (request(RequestPhase.SUCCEEDED),)
        waiting = asked(DB, 4, resize=Resize.DEFERRED)
        assert sweep.decide(world(waiting, WEB, requests=over, holds=(hold(committed=True),))) == ()
        assert sweep.decide(world(requests=over, holds=(hold(HoldPhase.CLAIMED, committed=True),))) == (
            DeleteHold("db", "hold@1"),
        )

    def test_a_size_that_only_the_kubelet_knows_of_is_not_claimed(self) -> None:
        """The scheduler's cache may be behind: it would give the room to somebody else."""
        grown = replace(asked(DB, 4), allocated=Room(4000))
        held = hold(committed=True)
        assert sweep.decide(world(grown, RECEIVER, requests=(request(RequestPhase.FAILED),), holds=(held,))) == ()
        assert sweep.decide(world(requests=(request(RequestPhase.FAILED),), holds=(held,))) == (
            DeleteHold("db", "hold@1"),
        )

    def test_or_its_claimant_is_gone(self) -> None:
        assert sweep.decide(world(WEB, requests=(request(RequestPhase.FAILED),), holds=(hold(committed=True),))) == (
            DeleteHold("db", "hold@1"),
        )


TAINTING = replace(POLICY, taint=True)
TAINTED = Node("n1", Room(4000), (DB, WEB), tainted=True)


class TestTaints:
    """Where another scheduler places pods on the same nodes."""

    def test_the_room_is_not_counted_on_before_the_taint_is_there(self) -> None:
        item = request(RequestPhase.HOLDING, plan=(WEB_PLANNED,))
        known = world(requests=(item,), holds=(hold(shortfall=Room(2000)),))
        assert requests.decide(known, item, NOW, TAINTING) == (TaintNode("n1"),)
        assert not any(isinstance(action, TaintNode) for action in requests.decide(known, item, NOW, POLICY))
        known = replace(known, nodes={**known.nodes, "n1": TAINTED})
        assert written(requests.decide(known, item, NOW, TAINTING))[0] is RequestPhase.MOVING

    def test_a_taint_that_somebody_has_taken_off_is_put_on_again_before_the_commit(self) -> None:
        item = request(RequestPhase.COMMITTING, plan=(WEB_PLANNED,))
        known = world(requests=(item,), holds=(hold(shortfall=Room(2000)),), **BRINK)
        assert requests.decide(known, item, NOW, TAINTING) == (TaintNode("n1"),)

    def test_it_is_swept_when_nobody_holds_anything_there(self) -> None:
        bare = replace(world(), nodes={"n1": TAINTED})
        assert sweep.taints(bare, TAINTING) == (UntaintNode("n1"),)
        assert sweep.taints(bare, POLICY) == (UntaintNode("n1"),)  # also where taints are not used any more
        over = replace(world(holds=(hold(HoldPhase.RELEASED),)), nodes={"n1": TAINTED})
        assert sweep.taints(over, TAINTING) == (UntaintNode("n1"),)

    def test_it_stays_and_comes_back_while_somebody_does(self) -> None:
        held = world(holds=(hold(),))
        assert sweep.taints(held, TAINTING) == (TaintNode("n1"),)
        assert sweep.taints(held, POLICY) == ()
        assert sweep.taints(replace(held, nodes={"n1": TAINTED}), TAINTING) == ()
