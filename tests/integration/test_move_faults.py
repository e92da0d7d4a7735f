"""What can go wrong with a move, and that the guest lives exactly once afterwards."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from elbowroom.core.world import TransferState
from elbowroom.drivers.interface import RefusedError, TransferLimits, UnreachableError
from elbowroom.runner.messages import GuestState, IncidentKind, OfAttempt
from support.console import assert_whole
from support.namespace import fresh_namespace
from support.vms import MIB, QUICK, Guest, Vms
from support.waiting import stays, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from elbowroom.authority.certificates import Authority
    from elbowroom.drivers.interface import VirtualMachine
    from support.inside import Inside
    from support.testbed import Testbed

BUSY = Guest(dirty_mb_per_s=20, working_set_mib=32)
# `make soak` has one hundred of them; a few show it as well, each time.
RACES = int(os.environ.get("RACES", "10"))
SLOW = TransferLimits(bandwidth=16 * MIB, timeout_seconds=60, switch_over_seconds=30)


@pytest.fixture(scope="module")
def survivor(testbed: Testbed, inside: Inside, authority: Authority) -> Iterator[tuple[Vms, VirtualMachine]]:
    """One busy guest for all tests after which it is where it was: it goes through all of them."""
    with fresh_namespace(testbed, "survivor") as namespace:
        vms = Vms(namespace, inside, authority)
        yield vms, vms.boot("db", node="node-1", guest=BUSY)
        vms.close()


def begin(
    vms: Vms, source: VirtualMachine, limits: TransferLimits = SLOW, *, node: str = "node-2"
) -> tuple[VirtualMachine, int]:
    """Start a move that takes some seconds."""
    receiver, attempt = vms.prepare(source, limits, node=node)
    vms.run(vms.driver.start(source, receiver, attempt, limits))
    return receiver, attempt


def until_percent(vms: Vms, source: VirtualMachine, attempt: int, percent: float) -> None:
    until(f"{percent} % are over", lambda: vms.run(vms.driver.observe(source, None, attempt)).percent >= percent)


def assert_lives_here(vms: Vms, source: VirtualMachine, receiver: VirtualMachine) -> None:
    """Check from the guest's own words that it runs on in the source, and nowhere else."""
    vms.until_gone(receiver)
    vms.until_ticking(source)
    assert_whole([vms.ticks(source)])
    assert not vms.ticks(receiver)
    assert vms.status(source).state is GuestState.RUNNING


def assert_moved(vms: Vms, source: VirtualMachine, receiver: VirtualMachine) -> None:
    vms.until_ticking(receiver)
    assert_whole([vms.ticks(source), vms.ticks(receiver)])
    assert vms.status(source).state is GuestState.MOVED


def test_cancel_at_several_moments_and_then_a_move_that_works(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=BUSY)
    for percent in (10, 50, 90):
        receiver, attempt = begin(vms, source)
        until_percent(vms, source, attempt, percent)
        vms.run(vms.driver.cancel(source, receiver, attempt))
        vms.run(vms.driver.cancel(source, receiver, attempt))  # and again: the same answer
        seen = vms.run(vms.driver.observe(source, receiver, attempt))
        assert (seen.state, seen.message) == (TransferState.CANCELLED, "cancelled")
        assert vms.refused(vms.driver.commit(source, attempt))[0] == "Cancelled"
        assert_lives_here(vms, source, receiver)
    receiver, _ = vms.move(source, node="node-3")
    assert_moved(vms, source, receiver)


@pytest.mark.timeout(900)
def test_cancel_in_a_race_with_the_commit(vms: Vms) -> None:
    """Again and again: the runner grants exactly one of the two, and the guest is where that one says."""
    guest = Guest(dirty_mb_per_s=5, working_set_mib=16)
    vm = vms.boot("db", node="node-1", guest=guest)
    outcomes: list[str] = []
    parts = []
    waiting = vms.receivers_ahead(vm, RACES)
    for turn in range(RACES):
        attempt, receiver = next(waiting)
        vms.run(vms.driver.prepare(vm, receiver, attempt, QUICK))
        vms.run(vms.driver.start(vm, receiver, attempt, QUICK))
        # At the brink, or, every other time, when the guest is already being sent for the last time.
        vms.until(vm, receiver, attempt, TransferState.AT_BRINK)
        outcome = vms.race(vm, attempt, head_start=(turn % 10 - 4) * 0.0005)
        outcomes.append(outcome)
        if outcome == "cancelled":
            vms.until(vm, receiver, attempt, TransferState.CANCELLED)
            vms.until_gone(receiver)
            assert not vms.ticks(receiver), "a cancelled receiver has run the guest"
            vms.discard(receiver)
        else:
            vms.until(vm, receiver, attempt, TransferState.SUCCEEDED)
            vms.until_ticking(receiver, more=3)
            vms.run(vms.driver.retire(vm, attempt))
            parts.append(vms.ticks(vm))
            vms.discard(vm)
            vm = receiver
    vms.until_ticking(vm)
    assert_whole([*parts, vms.ticks(vm)])
    assert set(outcomes) == {"cancelled", "committed"}, outcomes
    assert min(outcomes.count("cancelled"), outcomes.count("committed")) >= RACES // 20, outcomes


def test_a_receiver_killed_midway(survivor: tuple[Vms, VirtualMachine]) -> None:
    vms, source = survivor
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 30)
    vms.signal_qemu(receiver, signal.SIGKILL)
    seen = vms.until(source, receiver, attempt, TransferState.FAILED)
    assert seen.message
    assert_lives_here(vms, source, receiver)


def test_a_receivers_pod_deleted_midway(survivor: tuple[Vms, VirtualMachine]) -> None:
    vms, source = survivor
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 30)
    vms.last_words(receiver, within=20)
    vms.until(source, None, attempt, TransferState.FAILED)
    vms.until_ticking(source)
    assert_whole([vms.ticks(source)])


def test_a_connection_closed_midway(survivor: tuple[Vms, VirtualMachine]) -> None:
    vms, source = survivor
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 30)
    vms.close_connections(source, 8444)
    seen = vms.until(source, receiver, attempt, TransferState.FAILED)
    assert seen.message
    assert_lives_here(vms, source, receiver)


def test_a_network_that_goes_dead_midway(survivor: tuple[Vms, VirtualMachine], extra_node: str) -> None:
    """No socket is closed, nothing answers any more: the source's own time-out ends it."""
    vms, source = survivor
    limits = TransferLimits(bandwidth=16 * MIB, timeout_seconds=8)
    receiver, attempt = begin(vms, source, limits, node=extra_node)
    until_percent(vms, source, attempt, 20)
    vms.namespace.testbed.cli("node", "unplug", extra_node)
    seen = vms.until(source, None, attempt, TransferState.FAILED, within=30)
    assert "not ready to switch over within 8 s" in seen.message
    vms.until_ticking(source)
    assert_whole([vms.ticks(source)])
    vms.namespace.testbed.cli("node", "plug", extra_node)
    vms.until_gone(receiver)


def test_an_agent_killed_midway(vms: Vms) -> None:
    """On either side, at three moments: QEMU lives on, the next agent takes over, and the move ends as it would have."""
    vm = vms.boot("db", node="node-1", guest=BUSY)
    cases = [(side, moment) for side in ("source", "receiver") for moment in ("copying", "brink", "committed")]
    for turn, (side, moment) in enumerate(cases):
        receiver, attempt = begin(vms, vm, QUICK, node="node-2" if turn % 2 == 0 else "node-1")
        if moment == "copying":
            until_percent(vms, vm, attempt, 20)
        else:
            vms.until(vm, receiver, attempt, TransferState.AT_BRINK)
        if moment == "committed":
            vms.run(vms.driver.commit(vm, attempt))
        victim = vm if side == "source" else receiver
        known = len(vms.status(victim).incidents)
        vms.kill_agent(victim)
        vms.until_answering(victim)
        if moment != "committed":
            vms.until(vm, receiver, attempt, TransferState.AT_BRINK)
            vms.run(vms.driver.commit(vm, attempt))
        vms.until(vm, receiver, attempt, TransferState.SUCCEEDED)
        assert_moved(vms, vm, receiver)
        told = vms.until_answering(victim).incidents[known:]
        assert [incident.kind for incident in told] == [IncidentKind.RUNNER_RESTART], (side, moment)
        vms.discard(vm)
        vm = receiver


def test_a_source_killed_midway_takes_its_guest_with_it_and_says_so(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=BUSY)
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 30)
    vms.signal_qemu(source, signal.SIGKILL)
    vms.namespace.until_phase(source.pod, "Failed")
    assert "QEMU ended by signal SIGKILL, and the guest with it" in vms.log(source.pod)
    vms.until_gone(receiver)
    assert not vms.ticks(receiver)


def test_a_receiver_that_stands_still_after_the_commit_never_runs_the_guest(vms: Vms) -> None:
    """The switch-over hangs. The source takes its guest back, and the receiver, awake again, may have all of it: it must not run it."""
    source = vms.boot("db", node="node-1")
    receiver, attempt = begin(vms, source, QUICK)
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.signal_qemu(receiver, signal.SIGSTOP)
    vms.run(vms.driver.commit(source, attempt))
    seen = vms.until(source, None, attempt, TransferState.FAILED, within=40)
    assert seen.committed
    assert "the guest was resumed here" in seen.message
    vms.signal_qemu(receiver, signal.SIGCONT)
    assert_lives_here(vms, source, receiver)


def test_a_receiver_that_was_not_told_yet_waits_and_the_operator_can_tell_it(vms: Vms) -> None:
    """The receiver's agent is away when the source lets go; whoever is first releases the guest, and only once."""
    source = vms.boot("db", node="node-1")
    receiver, attempt = begin(vms, source, QUICK)
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.signal_agent(receiver, signal.SIGSTOP)
    vms.run(vms.driver.commit(source, attempt))
    until("the source has let go", lambda: vms.status(source).state is GuestState.MOVED)
    assert not vms.ticks(receiver)
    vms.signal_agent(receiver, signal.SIGCONT)
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.run(vms.driver.release(receiver, attempt))
    assert_moved(vms, source, receiver)


def test_a_guest_paused_at_the_switch_over_is_resumed_when_nobody_answers(survivor: tuple[Vms, VirtualMachine]) -> None:
    """The backstop: QEMU gets to the switch-over by itself, without a commit."""
    vms, source = survivor
    receiver, attempt = begin(vms, source, QUICK)
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.force_switch_over(source)
    seen = vms.until(source, receiver, attempt, TransferState.FAILED)
    assert "nobody committed the move, so it was resumed here" in seen.message
    assert_lives_here(vms, source, receiver)


def test_stale_calls_are_refused(vms: Vms) -> None:
    source = vms.boot("db", node="node-1")
    # An attempt that is cancelled before it comes is refused when it comes.
    vms.call(source, "cancel", OfAttempt(attempt=3))
    vms.call(source, "cancel", OfAttempt(attempt=3))
    receiver = vms.receiver(source, 3, node="node-2")
    vms.run(vms.driver.prepare(source, receiver, 3, QUICK))
    assert vms.refused(vms.driver.start(source, receiver, 3, QUICK))[0] == "StaleAttempt"
    assert vms.refused(vms.driver.start(source, receiver, 2, QUICK))[0] == "StaleAttempt"
    assert vms.refused(vms.driver.commit(source, 3))[0] == "StaleAttempt"
    assert vms.refused(vms.driver.commit(source, 7))[0] == "NotFound"
    assert vms.refused(vms.driver.prepare(source, receiver, 4, QUICK)) == (
        "StaleAttempt", "this pod was made for attempt 3, not for 4",
    )  # fmt: skip
    assert vms.refused(vms.driver.release(receiver, 9))[0] == "StaleAttempt"
    assert vms.refused(vms.driver.retire(source, 3))[0] == "GuestRunsHere"
    vms.attempts["db"] = 3
    # A second attempt while one is under way, and the same one again.
    receiver, attempt = begin(vms, source)
    assert vms.refused(vms.driver.start(source, receiver, attempt + 1, QUICK))[0] == "Busy"
    vms.run(vms.driver.start(source, receiver, attempt, SLOW))
    assert vms.refused(vms.driver.resize(source, cpus=2))[0] == "Busy"
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.run(vms.driver.commit(source, attempt))
    vms.run(vms.driver.commit(source, attempt))
    with pytest.raises(RefusedError) as refusal:
        vms.run(vms.driver.cancel(source, receiver, attempt))
    assert refusal.value.reason == "Committed"
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.run(vms.driver.retire(source, attempt))
    vms.run(vms.driver.retire(source, attempt))
    assert_moved(vms, source, receiver)


@pytest.mark.parametrize(
    ("what", "told"), [("reset", "the guest was reset (guest-reset)"), ("panic", "the guest's kernel panicked")]
)
def test_a_guest_that_breaks_after_its_move_is_no_success(vms: Vms, what: str, told: str) -> None:
    source = vms.boot("db", node="node-1", guest=Guest(extra="panic=0"))
    receiver, attempt = begin(vms, source, QUICK)
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.run(vms.driver.commit(source, attempt))
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.tell_guest(receiver, what)
    seen = until_state(vms, source, receiver, attempt, TransferState.DAMAGED)
    assert seen == told


def test_a_guest_that_dies_during_its_move_is_no_success(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=Guest(dirty_mb_per_s=20, extra="panic=0"))
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 20)
    vms.tell_guest(source, "panic")
    assert until_state(vms, source, receiver, attempt, TransferState.LOST) == "the guest's kernel panicked"


def until_state(vms: Vms, source: VirtualMachine, receiver: VirtualMachine, attempt: int, state: TransferState) -> str:
    def probe() -> str:
        seen = vms.run(vms.driver.observe(source, receiver, attempt))
        assert seen.state is state, seen
        return seen.message

    return until(f"the move is {state}", probe)


def test_draining_the_source_in_the_middle_of_a_transfer(vms: Vms) -> None:
    """SIGTERM before the commit: the move is called off, the guest is shut down cleanly where it is."""
    source = vms.boot("db", node="node-1", guest=BUSY)
    receiver, attempt = begin(vms, source)
    until_percent(vms, source, attempt, 20)
    words = vms.last_words(source, within=30)
    assert "guest powers off" in words
    vms.until_gone(receiver)
    assert not vms.ticks(receiver)


def test_draining_the_source_after_the_commit(vms: Vms) -> None:
    """SIGTERM after the commit: the guest is not shut down, it moves."""
    source = vms.boot("db", node="node-1", guest=BUSY)
    receiver, attempt = begin(vms, source, QUICK)
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    vms.run(vms.driver.commit(source, attempt))
    words = vms.last_words(source, within=40)
    assert "guest powers off" not in words
    vms.until_ready(receiver.pod)
    stays("the guest runs", lambda: vms.status(receiver).state is GuestState.RUNNING, during=1)
    with pytest.raises(UnreachableError):
        vms.status(source)
