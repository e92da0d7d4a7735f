"""What a migration does next, phase by phase."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from elbowroom.core import migration as moves
from elbowroom.core.actions import (
    CancelTransfer,
    CommitTransfer,
    CreateReceiver,
    DeletePod,
    DetachReceiver,
    Forget,
    LookForPod,
    ReleaseTransfer,
    StartTransfer,
    WriteMigration,
)
from elbowroom.core.reasons import Reason
from elbowroom.core.world import (
    Check,
    HoldPhase,
    Migration,
    MigrationOutcome,
    MigrationPhase,
    PodPhase,
    RequestPhase,
    Resize,
    Transfer,
    TransferState,
)
from support.worlds import DB, NOW, POLICY, RECEIVER, WEB, asked, hold, migration, pod, request, world

if TYPE_CHECKING:
    from elbowroom.core.actions import Actions
    from elbowroom.core.world import Pod

MOVING = request(RequestPhase.MOVING)
OWNED = replace(RECEIVER, owner="m1")
GOES = (DeletePod("web"),)


def decide(item: Migration, *pods: Pod, **more: Any) -> Actions:
    present = pods or (DB, WEB, RECEIVER)
    gone = {"web", "web-r1-1"} - {pod.uid for pod in present}
    seen = world(*present, migrations=(item,), **{"requests": (MOVING,), "gone": gone, **more})
    return moves.decide(seen, item, NOW, POLICY)


def at_silent_node(name: str, item: Migration, *pods: Pod, **more: Any) -> Actions:
    seen = world(*pods, migrations=(item,), requests=(MOVING,), **more)
    nodes = {**seen.nodes, name: replace(seen.nodes[name], ready=False)}
    return moves.decide(replace(seen, nodes=nodes), item, NOW, POLICY)


def written(actions: Actions) -> tuple[MigrationPhase, Reason | None]:
    (action,) = actions
    assert isinstance(action, WriteMigration)
    assert action.version == "m1@1"
    return action.status.phase, action.status.reason


def transfer(state: TransferState) -> dict[str, Any]:
    return {"transfers": {"m1": Transfer(state)}}


class TestPending:
    def test_names_and_attempt_are_stored_before_anything_is_made(self) -> None:
        (action,) = decide(migration(MigrationPhase.PENDING), DB, WEB)
        assert isinstance(action, WriteMigration)
        status = action.status
        assert (status.phase, status.source, status.source_node, status.receiver) == (
            MigrationPhase.BINDING, "web", "n1", "web-r1-1",
        )  # fmt: skip
        assert status.attempt > NOW

    def test_an_attempt_is_higher_than_the_last_one(self) -> None:
        before = migration(MigrationPhase.FAILED, attempt=5000)
        now = replace(migration(MigrationPhase.PENDING), uid="m2", version="m2@1")
        seen = world(DB, WEB, requests=(MOVING,), migrations=(before, now))
        (action,) = moves.decide(seen, now, NOW, POLICY)
        assert isinstance(action, WriteMigration)
        assert action.status.attempt == 5001

    def test_a_vm_that_has_not_opted_in_is_not_moved(self) -> None:
        fixed = replace(WEB, movable=False)
        assert written(decide(migration(MigrationPhase.PENDING), DB, fixed)) == (
            MigrationPhase.CANCELLING,
            Reason.NOT_OPTED_IN,
        )

    def test_a_vm_that_is_part_of_another_hold_waits(self) -> None:
        other = hold(request="r2", claimant="web")
        assert written(decide(migration(MigrationPhase.PENDING), DB, WEB, holds=(other,))) == (
            MigrationPhase.PENDING,
            Reason.IN_USE,
        )

    def test_one_by_hand_finds_its_vm(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        (action,) = decide(by_hand, DB, WEB)
        assert isinstance(action, WriteMigration)
        assert (action.status.source, action.status.receiver) == ("web", "web-m1")

    def test_of_two_by_hand_the_younger_waits(self) -> None:
        first = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        second = replace(first, uid="m2", created_at=NOW - 1, version="m1@1")
        seen = world(DB, WEB, migrations=(first, second))
        assert written(moves.decide(seen, second, NOW, POLICY)) == (MigrationPhase.PENDING, Reason.IN_USE)
        assert written(moves.decide(seen, first, NOW, POLICY))[0] is MigrationPhase.BINDING

    def test_one_by_hand_keeps_to_the_budgets(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        busy = tuple(
            migration(
                MigrationPhase.TRANSFERRING, uid=f"x{index}", name=f"x{index}", vm="api", pod="", source=f"x{index}"
            )
            for index in range(2)
        )
        others = tuple(replace(by_hand, uid=f"y{index}", vm=f"y{index}", created_at=NOW) for index in range(5))
        moving = tuple(pod(f"x{index}", 1) for index in range(2))
        seen = world(DB, WEB, *moving, migrations=(by_hand, *busy, *others), requests=(MOVING,))
        assert written(moves.decide(seen, by_hand, NOW, POLICY)) == (MigrationPhase.PENDING, Reason.BUDGET)
        # Those that wait as well do not count: else all would wait for each other.
        seen = world(DB, WEB, *moving, migrations=(by_hand, busy[0], *others), requests=())
        assert written(moves.decide(seen, by_hand, NOW, POLICY))[0] is MigrationPhase.BINDING

    def test_nobody_takes_all_moves_of_a_cluster_for_one_namespace(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        busy = tuple(
            migration(MigrationPhase.TRANSFERRING, uid=f"x{index}", name=f"x{index}", request="", pod="", source="gone")
            for index in range(4)
        )
        seen = world(DB, WEB, migrations=(by_hand, *busy))
        assert written(moves.decide(seen, by_hand, NOW, POLICY)) == (MigrationPhase.PENDING, Reason.BUDGET)
        elsewhere = tuple(replace(item, namespace="other") for item in busy)
        seen = world(DB, WEB, migrations=(by_hand, *elsewhere))
        assert written(moves.decide(seen, by_hand, NOW, POLICY))[0] is MigrationPhase.BINDING
        # What is moved for a request counts for that one's namespace, wherever the neighbour is.
        foreign = replace(MOVING, namespace="other", status=replace(MOVING.status, plan=()))
        theirs = tuple(replace(item, request=foreign.uid) for item in busy)
        seen = world(DB, WEB, migrations=(by_hand, *theirs), requests=(foreign,))
        assert written(moves.decide(seen, by_hand, NOW, POLICY))[0] is MigrationPhase.BINDING

    def test_one_that_nobody_can_tell_the_end_of_keeps_nobody_waiting(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        stuck = tuple(
            migration(
                MigrationPhase.SWITCHING_OVER, uid=f"x{index}", name=f"x{index}", vm=f"x{index}", request="", pod="",
                deadline=5.0, committed=True, source="gone",
            )
            for index in range(9)
        )  # fmt: skip
        seen = world(DB, WEB, migrations=(by_hand, *stuck))
        assert written(moves.decide(seen, by_hand, NOW, POLICY))[0] is MigrationPhase.BINDING
        in_time = tuple(replace(item, deadline=1800.0) for item in stuck)
        seen = world(DB, WEB, migrations=(by_hand, *in_time))
        assert written(moves.decide(seen, by_hand, NOW, POLICY)) == (MigrationPhase.PENDING, Reason.BUDGET)

    def test_one_that_is_called_off_and_has_no_receiver_counts_no_more(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="")
        ending = tuple(
            migration(
                MigrationPhase.CANCELLING, uid=f"x{index}", name=f"x{index}", vm=f"x{index}", request="", pod="",
                source="gone", receiver_uid=f"y{index}", outcome=MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED),
            )
            for index in range(9)
        )  # fmt: skip
        seen = world(DB, WEB, migrations=(by_hand, *ending), gone={f"y{index}" for index in range(9)})
        assert written(moves.decide(seen, by_hand, NOW, POLICY))[0] is MigrationPhase.BINDING
        # A receiver that is not seen may be there all the same.
        seen = world(DB, WEB, migrations=(by_hand, *ending))
        assert written(moves.decide(seen, by_hand, NOW, POLICY)) == (MigrationPhase.PENDING, Reason.BUDGET)

    def test_one_by_hand_that_waits_keeps_no_request_waiting(self) -> None:
        by_hand = replace(
            migration(MigrationPhase.PENDING), uid="m0", request="", pod="", receiver="", created_at=NOW - 9
        )
        mine = migration(MigrationPhase.PENDING)
        seen = world(DB, WEB, migrations=(by_hand, mine), requests=(MOVING,))
        assert written(moves.decide(seen, mine, NOW, POLICY))[0] is MigrationPhase.BINDING
        assert "web" in moves.in_use(world(DB, WEB, migrations=(by_hand,)))  # and nobody plans with it

    def test_one_by_hand_for_a_vm_that_is_not_there_fails(self) -> None:
        by_hand = replace(migration(MigrationPhase.PENDING), request="", pod="", receiver="", vm="nobody")
        assert written(decide(by_hand, DB, WEB)) == (MigrationPhase.CANCELLING, Reason.VM_NOT_FOUND)


class TestBinding:
    def test_the_receiver_is_made(self) -> None:
        assert decide(migration(MigrationPhase.BINDING), DB, WEB) == (CreateReceiver("m1", "web", "web-r1-1", 1001),)

    def test_the_receivers_uid_is_kept(self) -> None:
        (action,) = decide(migration(MigrationPhase.BINDING), DB, WEB, replace(OWNED, phase=PodPhase.PENDING))
        assert isinstance(action, WriteMigration)
        assert action.status.receiver_uid == "web-r1-1"

    def test_a_receiver_that_runs_gets_the_guest(self) -> None:
        start, write = decide(migration(MigrationPhase.BINDING, receiver_uid="web-r1-1"), DB, WEB, OWNED)
        assert start == StartTransfer("m1", 1001)
        assert written((write,)) == (MigrationPhase.TRANSFERRING, Reason.TRANSFERRING)

    def test_a_runner_that_will_not_begin_ends_the_move_and_says_why(self) -> None:
        said = {"m1": Check(allowed=False, message="a vCPU was unplugged")}
        for item in (
            migration(MigrationPhase.BINDING, receiver_uid="web-r1-1"),
            migration(MigrationPhase.TRANSFERRING),
        ):
            actions = decide(item, DB, WEB, OWNED, checks=said)
            assert written(actions) == (MigrationPhase.CANCELLING, Reason.TRANSFER_FAILED)
            (action,) = actions
            assert isinstance(action, WriteMigration)
            assert action.status.message == "a vCPU was unplugged"

    def test_a_receiver_on_the_neighbours_own_node_is_called_off(self) -> None:
        here = replace(OWNED, node="n1")
        assert written(decide(migration(MigrationPhase.BINDING), DB, WEB, here)) == (
            MigrationPhase.CANCELLING,
            Reason.NO_PLACE,
        )

    def test_a_receiver_that_finds_no_node_is_given_up(self) -> None:
        late = migration(MigrationPhase.BINDING, receiver_uid="web-r1-1", started_at=NOW - 61)
        unbound = replace(OWNED, node="", phase=PodPhase.PENDING)
        assert written(decide(late, DB, WEB, unbound)) == (MigrationPhase.CANCELLING, Reason.RECEIVER_UNBOUND)

    def test_a_receiver_that_has_gone_is_a_failure(self) -> None:
        item = migration(MigrationPhase.BINDING, receiver_uid="web-r1-1")
        assert written(decide(item, DB, WEB)) == (MigrationPhase.CANCELLING, Reason.RECEIVER_GONE)

    def test_another_pod_of_that_name_is_no_receiver(self) -> None:
        assert written(decide(migration(MigrationPhase.BINDING), DB, WEB, replace(OWNED, attempt=7))) == (
            MigrationPhase.CANCELLING, Reason.RECEIVER_GONE,
        )  # fmt: skip

    def test_a_strangers_pod_of_that_name_is_left_alone(self) -> None:
        stranger = replace(OWNED, owner="", attempt=0)
        late = migration(MigrationPhase.BINDING, started_at=NOW - 61)
        assert written(decide(late, DB, WEB, stranger)) == (MigrationPhase.CANCELLING, Reason.RECEIVER_UNBOUND)
        over = migration(
            MigrationPhase.CANCELLING,
            receiver_uid="",
            outcome=MigrationOutcome(MigrationPhase.FAILED, Reason.RECEIVER_UNBOUND),
        )
        assert written(decide(over, DB, WEB, stranger))[0] is MigrationPhase.FAILED


class TestTransferring:
    ITEM = migration(MigrationPhase.TRANSFERRING)

    def test_a_copy_takes_its_time(self) -> None:
        assert decide(self.ITEM, DB, WEB, OWNED, **transfer(TransferState.COPYING)) == ()

    def test_a_copy_that_was_never_begun_is_begun(self) -> None:
        assert decide(self.ITEM, DB, WEB, OWNED) == (StartTransfer("m1", 1001),)

    def test_at_the_brink_the_receiver_is_detached_first(self) -> None:
        found = decide(self.ITEM, DB, WEB, OWNED, **transfer(TransferState.AT_BRINK))
        assert found == (DetachReceiver("web-r1-1", "web-r1-1@1"),)

    def test_and_only_then_it_may_be_committed(self) -> None:
        brink = migration(MigrationPhase.AT_BRINK)
        at_brink = transfer(TransferState.AT_BRINK)
        assert not moves.can_commit(world(DB, WEB, OWNED, **at_brink), brink)
        assert not moves.can_commit(world(DB, WEB, RECEIVER, **transfer(TransferState.FAILED)), brink)
        assert not moves.can_commit(world(DB, replace(WEB, terminating=True), RECEIVER, **at_brink), brink)
        assert moves.can_commit(world(DB, WEB, RECEIVER, **at_brink), brink)
        assert (
            written(decide(self.ITEM, DB, WEB, RECEIVER, **transfer(TransferState.AT_BRINK)))[0]
            is MigrationPhase.AT_BRINK
        )

    def test_a_request_commits_its_migrations_itself(self) -> None:
        assert decide(migration(MigrationPhase.AT_BRINK), **transfer(TransferState.AT_BRINK)) == ()

    def test_one_by_hand_commits_itself(self) -> None:
        by_hand = replace(migration(MigrationPhase.AT_BRINK), request="")
        (action,) = decide(by_hand, **transfer(TransferState.AT_BRINK))
        assert isinstance(action, WriteMigration)
        assert action.status.committed

    @pytest.mark.parametrize("state", [TransferState.FAILED, TransferState.CANCELLED, TransferState.LOST])
    def test_a_copy_that_ends_early_is_a_failure(self, state: TransferState) -> None:
        assert written(decide(self.ITEM, **transfer(state))) == (MigrationPhase.CANCELLING, Reason.TRANSFER_FAILED)


BEFORE_THE_COMMIT = [
    MigrationPhase.PENDING,
    MigrationPhase.BINDING,
    MigrationPhase.TRANSFERRING,
    MigrationPhase.AT_BRINK,
]


@pytest.mark.parametrize("phase", BEFORE_THE_COMMIT)
class TestAnytimeBeforeTheCommit:
    def test_deleting_it_calls_it_off(self, phase: MigrationPhase) -> None:
        assert written(decide(migration(phase, deleted=True))) == (MigrationPhase.CANCELLING, Reason.CANCELLED)

    def test_so_does_its_request(self, phase: MigrationPhase) -> None:
        for other in (
            request(RequestPhase.UNDOING),
            request(RequestPhase.MOVING, plan=()),
            request(RequestPhase.COMMITTING, room_appeared=True),
        ):
            assert written(decide(migration(phase), requests=(other,))) == (MigrationPhase.CANCELLING, Reason.CANCELLED)
        assert written(decide(migration(phase), requests=())) == (MigrationPhase.CANCELLING, Reason.CANCELLED)

    def test_and_its_deadline(self, phase: MigrationPhase) -> None:
        assert written(decide(migration(phase, deadline=1.0))) == (MigrationPhase.CANCELLING, Reason.DEADLINE)

    def test_a_neighbour_that_is_gone_ends_it(self, phase: MigrationPhase) -> None:
        expected = Reason.VM_NOT_FOUND if phase is MigrationPhase.PENDING else Reason.NEIGHBOUR_GONE
        assert written(decide(migration(phase), DB, RECEIVER)) == (MigrationPhase.CANCELLING, expected)


class TestSwitchingOver:
    ITEM = migration(MigrationPhase.SWITCHING_OVER, committed=True)

    @pytest.mark.parametrize("state", [TransferState.COPYING, TransferState.AT_BRINK])
    def test_the_runner_is_told(self, state: TransferState) -> None:
        assert decide(self.ITEM, **transfer(state)) == (CommitTransfer("m1", 1001),)

    @pytest.mark.parametrize("state", [TransferState.COPYING, TransferState.AT_BRINK])
    def test_a_guest_does_not_go_into_a_receiver_that_somebody_has_deleted(self, state: TransferState) -> None:
        doomed = replace(RECEIVER, terminating=True)
        assert decide(self.ITEM, DB, WEB, doomed, **transfer(state)) == (CancelTransfer("m1", 1001),)

    @pytest.mark.parametrize("state", [TransferState.COMMITTED, TransferState.SWITCHING])
    def test_it_waits(self, state: TransferState) -> None:
        assert written(decide(self.ITEM, **transfer(state))) == (MigrationPhase.SWITCHING_OVER, Reason.SWITCHING_OVER)

    @pytest.mark.parametrize(
        "state", [TransferState.UNKNOWN, TransferState.LEFT, TransferState.COMPLETE, TransferState.INCOMPLETE]
    )
    def test_a_side_that_is_silent_is_not_dead(self, state: TransferState) -> None:
        assert written(decide(self.ITEM, **transfer(state))) == (MigrationPhase.SWITCHING_OVER, Reason.RUNNER_SILENT)

    @pytest.mark.parametrize("ended", [(), (replace(WEB, phase=PodPhase.ENDED),)], ids=["gone", "ended"])
    def test_a_source_that_is_dead_cannot_take_its_guest_back(self, ended: tuple[Pod, ...]) -> None:
        assert decide(self.ITEM, DB, RECEIVER, *ended, **transfer(TransferState.COMPLETE)) == (
            ReleaseTransfer("m1", 1001),
        )

    @pytest.mark.parametrize(
        ("pods", "state"),
        [
            ((DB,), TransferState.UNKNOWN),
            ((DB, WEB), TransferState.LEFT),
            ((DB, RECEIVER), TransferState.INCOMPLETE),
        ],
        ids=["both dead", "let go, receiver dead", "source dead, not all of it there"],
    )
    def test_a_guest_that_nobody_has_is_lost(self, pods: tuple[Pod, ...], state: TransferState) -> None:
        assert written(decide(self.ITEM, *pods, **transfer(state))) == (MigrationPhase.CANCELLING, Reason.GUEST_LOST)

    @pytest.mark.parametrize("state", [TransferState.LEFT, TransferState.COMPLETE, TransferState.UNKNOWN])
    def test_a_cache_that_does_not_have_a_pod_proves_nothing(self, state: TransferState) -> None:
        """It may be older than the receiver."""
        assert decide(self.ITEM, DB, WEB, gone=frozenset(), **transfer(state)) == (LookForPod("m1", "web-r1-1"),)
        assert decide(self.ITEM, DB, RECEIVER, gone=frozenset(), **transfer(state)) == (LookForPod("m1", "web"),)

    @pytest.mark.parametrize(
        ("pods", "state"), [((DB, RECEIVER), TransferState.UNKNOWN), ((DB, WEB), TransferState.UNKNOWN)]
    )
    def test_one_side_alone_proves_nothing(self, pods: tuple[Pod, ...], state: TransferState) -> None:
        assert written(decide(self.ITEM, *pods, **transfer(state)))[1] is Reason.RUNNER_SILENT

    def test_a_guest_that_has_arrived_is_released(self) -> None:
        assert decide(self.ITEM, **transfer(TransferState.ARRIVED)) == (ReleaseTransfer("m1", 1001),)

    def test_a_guest_that_runs_there_has_moved(self) -> None:
        assert written(decide(self.ITEM, **transfer(TransferState.SUCCEEDED)))[0] is MigrationPhase.MOVED

    def test_a_guest_that_stayed_is_a_failure(self) -> None:
        assert written(decide(self.ITEM, **transfer(TransferState.FAILED))) == (
            MigrationPhase.CANCELLING,
            Reason.TRANSFER_FAILED,
        )

    def test_a_guest_that_was_damaged_is_no_success(self) -> None:
        (action,) = decide(self.ITEM, **transfer(TransferState.DAMAGED))
        assert isinstance(action, WriteMigration)
        assert (action.status.phase, action.status.outcome and action.status.outcome.phase) == (
            MigrationPhase.MOVED,
            MigrationPhase.FAILED,
        )

    @pytest.mark.parametrize("change", [{"deleted": True}, {"deadline": 1.0}])
    def test_nothing_calls_it_off(self, change: dict[str, Any]) -> None:
        found = decide(replace(self.ITEM, **change), **transfer(TransferState.COMMITTED))
        assert written(found)[0] is MigrationPhase.SWITCHING_OVER


class TestMoved:
    ITEM = migration(MigrationPhase.MOVED, committed=True)

    @pytest.mark.parametrize(
        ("claimant", "phase", "leaves"),
        [
            (DB, RequestPhase.COMMITTING, ()),
            (DB, RequestPhase.SWAPPING, ()),
            (asked(DB, 4, resize=Resize.UNSEEN), RequestPhase.SWAPPING, ()),
            (asked(DB, 4, resize=Resize.DEFERRED), RequestPhase.SWAPPING, GOES),
            (asked(DB, 4, resize=Resize.IN_PROGRESS), RequestPhase.SWAPPING, GOES),
            (DB, RequestPhase.GROWING, GOES),
            (DB, RequestPhase.UNDOING, GOES),
            (DB, RequestPhase.FAILED, GOES),
        ],
    )
    def test_what_is_left_goes_when_the_kubelet_has_heard_of_the_new_size(
        self, claimant: Pod, phase: RequestPhase, leaves: tuple[DeletePod, ...]
    ) -> None:
        found = decide(self.ITEM, claimant, WEB, RECEIVER, requests=(request(phase),))
        assert found == leaves

    def test_a_claimant_that_is_gone_needs_no_room(self) -> None:
        assert decide(self.ITEM, WEB, RECEIVER, requests=(request(RequestPhase.SWAPPING),)) == (DeletePod("web"),)

    def test_it_is_over_when_the_pod_is_gone(self) -> None:
        assert written(decide(self.ITEM, DB, RECEIVER))[0] is MigrationPhase.SUCCEEDED

    def test_a_pod_that_is_ending_is_waited_for(self) -> None:
        assert decide(self.ITEM, DB, replace(WEB, terminating=True), RECEIVER) == ()

    def test_unless_its_node_does_not_answer(self) -> None:
        assert written(at_silent_node("n1", self.ITEM, DB, replace(WEB, terminating=True), RECEIVER))[0] is (
            MigrationPhase.SUCCEEDED
        )


class TestCancelling:
    ITEM = migration(MigrationPhase.CANCELLING, outcome=MigrationOutcome(MigrationPhase.CANCELLED, Reason.CANCELLED))

    @pytest.mark.parametrize("state", [TransferState.COPYING, TransferState.AT_BRINK, TransferState.UNKNOWN])
    def test_the_copy_is_stopped_and_the_receiver_goes(self, state: TransferState) -> None:
        """What was never committed cannot have moved, so nobody has to be waited for."""
        assert decide(self.ITEM, **transfer(state)) == (CancelTransfer("m1", 1001), DeletePod("web-r1-1"))

    def test_a_copy_that_has_ended_needs_no_call(self) -> None:
        assert decide(self.ITEM, **transfer(TransferState.CANCELLED)) == (DeletePod("web-r1-1"),)
        assert (
            decide(self.ITEM, DB, WEB, replace(RECEIVER, terminating=True), **transfer(TransferState.CANCELLED)) == ()
        )

    def test_then_it_is_over(self) -> None:
        assert written(decide(self.ITEM, DB, WEB, **transfer(TransferState.CANCELLED)))[0] is MigrationPhase.CANCELLED

    @pytest.mark.parametrize("state", [TransferState.SUCCEEDED, TransferState.ARRIVED, TransferState.COMPLETE])
    def test_a_guest_that_was_taken_for_lost_and_is_not_goes_forward_again(self, state: TransferState) -> None:
        lost = migration(
            MigrationPhase.CANCELLING,
            committed=True,
            outcome=MigrationOutcome(MigrationPhase.FAILED, Reason.GUEST_LOST),
        )
        assert written(decide(lost, DB, RECEIVER, **transfer(state)))[0] is MigrationPhase.SWITCHING_OVER
        assert decide(lost, DB, RECEIVER, **transfer(TransferState.INCOMPLETE)) == (DeletePod("web-r1-1"),)

    def test_once_the_api_server_has_said_that_the_receiver_is_gone(self) -> None:
        found = decide(self.ITEM, DB, WEB, gone=frozenset(), **transfer(TransferState.CANCELLED))
        assert found == (LookForPod("m1", "web-r1-1"),)

    def test_a_source_that_is_silent_is_not_waited_for(self) -> None:
        assert written(decide(self.ITEM, DB, WEB, **transfer(TransferState.UNKNOWN)))[0] is MigrationPhase.CANCELLED
        assert decide(self.ITEM, DB, WEB, **transfer(TransferState.COPYING)) == (CancelTransfer("m1", 1001),)

    def test_one_that_says_for_ever_that_it_sends_is_waited_for_until_the_deadline(self) -> None:
        late = replace(self.ITEM, deadline=5.0)
        assert written(decide(late, DB, WEB, **transfer(TransferState.COPYING)))[0] is MigrationPhase.CANCELLED

    def test_nor_is_a_receiver_whose_node_does_not_answer(self) -> None:
        ending = replace(RECEIVER, terminating=True)
        found = at_silent_node("n2", self.ITEM, DB, WEB, ending, **transfer(TransferState.FAILED))
        assert written(found)[0] is MigrationPhase.CANCELLED


class TestOver:
    ITEM = migration(MigrationPhase.CANCELLED, finished_at=NOW - 10)

    def test_its_story_stays(self) -> None:
        assert decide(self.ITEM, DB, WEB) == ()

    def test_until_its_time_is_over(self) -> None:
        assert decide(replace(self.ITEM, keep_for=5.0), DB, WEB) == (Forget("m1", "m1@1"),)

    def test_or_somebody_has_deleted_it(self) -> None:
        assert decide(replace(self.ITEM, deleted=True), DB, WEB) == (Forget("m1", "m1@1"),)

    def test_but_not_before_its_hold_is_gone(self) -> None:
        assert decide(replace(self.ITEM, deleted=True), DB, WEB, holds=(hold(HoldPhase.HELD),)) == ()

    def test_a_receiver_that_came_late_is_cleared_away(self) -> None:
        assert decide(self.ITEM, DB, WEB, pod("late", 2, "n2", owner="m1")) == (DeletePod("late", "late@1"),)

    def test_a_vm_that_has_moved_is_not(self) -> None:
        assert decide(migration(MigrationPhase.SUCCEEDED, finished_at=NOW), DB, RECEIVER) == ()
