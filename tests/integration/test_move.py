"""Moves of real guests between pods on different nodes: nothing lost, nothing doubled, and found again by their Service."""

from __future__ import annotations

import os
import threading
import time
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import pytest
from elbowroom.core.world import TransferState
from elbowroom.drivers.interface import TransferLimits
from elbowroom.runner.messages import GuestState
from support.console import assert_whole, gap
from support.namespace import condition
from support.testbed import run
from support.vms import MIB, QUICK, Guest
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.vms import Vms

MOVES = int(os.environ.get("MOVES", "6"))
BUSY = Guest(dirty_mb_per_s=20, working_set_mib=32)
LIMITED = TransferLimits(bandwidth=80 * MIB, timeout_seconds=60, switch_over_seconds=30)


@pytest.mark.timeout(600)
def test_moves_in_a_row_of_a_busy_guest(vms: Vms, record_property: Callable[[str, object], None]) -> None:
    vm = vms.boot("db", node="node-1", guest=BUSY)
    parts, gaps, downtimes, stopped = [], [], [], []
    for turn in range(MOVES):
        receiver, seen = vms.move(vm, LIMITED, node="node-2" if turn % 2 == 0 else "node-1")
        vms.until_ticking(receiver)
        parts.append(vms.ticks(vm))
        gaps.append(gap(parts[-1], vms.ticks(receiver)))
        downtimes.append(seen.downtime_ms)
        stopped.append(seen.stopped_ms)
        vms.discard(vm)
        vm = receiver
    # A round over the whole working set after the last move: every page has been looked at.
    vms.until_tick(vm, lambda tick: tick.checked - parts[-1][-1].checked > 2 * 32 * 256)
    assert_whole([*parts, vms.ticks(vm)])
    record_property("downtime_ms_by_qemu", downtimes)
    record_property("gap_ms_on_the_console", [round(value) for value in gaps])
    record_property("stopped_ms_by_the_runner", stopped)
    assert all(value is not None for value in (*downtimes, *stopped))
    assert max(gaps) < 2000, gaps


def test_a_guest_that_writes_to_a_shared_disk(vms: Vms, tmp_path: Path) -> None:
    image = tmp_path / "disk.qcow2"
    run("qemu-img", "create", "-f", "qcow2", str(image), "256M")
    disks = [{"path": str(image)}]
    vm = vms.boot("db", node="node-1", guest=Guest(disk="/dev/vda"), disks=disks)
    parts = []
    for node in ("node-2", "node-1", "node-3"):
        receiver, _ = vms.move(vm, node=node)
        vms.until_ticking(receiver)
        parts.append(vms.ticks(vm))
        vm = receiver
    written = vms.ticks(vm)[-1].disk
    assert_whole([*parts, vms.ticks(vm)])
    assert written > parts[0][-1].disk, "the guest has stopped writing"
    vms.last_words(vm, within=30)
    assert_every_record_once(image, tmp_path / "disk.raw", written)


def assert_every_record_once(image: Path, raw: Path, written: int) -> None:
    """Check the image itself, then that block N holds record N, as many as the guest was told are on the medium."""
    run("qemu-img", "check", str(image))
    run("qemu-img", "convert", "-O", "raw", str(image), str(raw))
    with raw.open("rb") as file:
        numbers = []
        while block := file.read(4096):
            number = int.from_bytes(block[:8], "little")
            if number == 0:
                break
            assert int.from_bytes(block[8:12], "little") == zlib.crc32(block[:8]), f"record {number} is damaged"
            numbers.append(number)
        assert not any(file.read()), "there are records behind the end"
    assert numbers[:1] == [1]
    assert all(after == before + 1 for before, after in pairwise(numbers))
    # The one that was under way when the guest was asked to end may be there as well.
    assert written <= len(numbers)


class Asker:
    """Asks a VM through its Service all the time, and remembers when it answered."""

    def __init__(self, vms: Vms, url: str) -> None:
        self._vms, self._url = vms, url
        self.answers: list[tuple[float, int]] = []
        self.wrong: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.is_set():
            status, text = self._vms.ask(self._url, seconds=0.3)
            if status == 200 and text.startswith("n="):
                self.answers.append((time.monotonic(), int(text.split()[0].removeprefix("n="))))
            elif status:
                self.wrong.append(f"{status} {text}")
            time.sleep(0.02)


def test_a_service_finds_the_guest_again(vms: Vms) -> None:
    vms.namespace.apply(
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
            "spec": {"selector": {"elbowroom.dev/vm": "db"}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
    )  # fmt: skip
    source = vms.boot("db", node="node-1")
    address = vms.namespace.kubectl("get", "service", "db", "-o", "jsonpath={.spec.clusterIP}")
    until("the Service answers", lambda: vms.ask(f"http://{address}/", seconds=0.5)[0] == 200)
    with Asker(vms, f"http://{address}/") as asker:
        until("some answers", lambda: len(asker.answers) > 20)
        receiver, attempt = vms.prepare(source, QUICK, node="node-2")
        assert condition(vms.namespace.pod(receiver.pod), "Ready")["status"] == "False", "ready while incoming"
        vms.run(vms.driver.start(source, receiver, attempt, QUICK))
        vms.until(source, receiver, attempt, TransferState.AT_BRINK)
        before = len(asker.answers)
        vms.run(vms.driver.commit(source, attempt))
        vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
        until("some answers after the move", lambda: len(asker.answers) > before + 60)
    vms.until_ready(receiver.pod)
    assert condition(vms.namespace.pod(source.pod), "Ready")["status"] == "False", "ready though the guest has left"
    silence = max(after[0] - before[0] for before, after in pairwise(asker.answers))
    assert silence < 2.0, f"no answer for {silence:.2f} s"
    assert not asker.wrong
    counts = [count for _, count in asker.answers]
    assert counts == sorted(counts), "the guest was older after the move than before"


def test_the_source_pod_stays_until_it_is_deleted_and_then_ends_at_once(vms: Vms) -> None:
    """Its room must not become free before the operator says so."""
    source = vms.boot("db", node="node-1")
    receiver, _ = vms.move(source, node="node-2")
    assert vms.status(source).state is GuestState.MOVED
    vms.kill_agent(source)  # and its successor knows as well
    assert vms.until_answering(source).state is GuestState.MOVED
    assert vms.namespace.pod(source.pod)["status"]["phase"] == "Running"
    started = time.monotonic()
    words = vms.last_words(source, within=15)
    assert '"detail": "the guest has moved away"' in words
    assert "guest powers off" not in words
    assert time.monotonic() - started < 10
    vms.until_ticking(receiver)


def test_a_transfer_that_cannot_converge_ends_by_its_time_out(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=Guest(dirty_mb_per_s=60, working_set_mib=40))
    slow = TransferLimits(bandwidth=16 * MIB, timeout_seconds=14, auto_converge=False)
    receiver, attempt = vms.prepare(source, slow, node="node-2")
    vms.run(vms.driver.start(source, receiver, attempt, slow))
    seen = vms.until(source, receiver, attempt, TransferState.FAILED)
    assert "not ready to switch over within 14 s" in seen.message
    assert not seen.committed
    vms.until_gone(receiver)
    vms.until_ticking(source)
    assert_whole([vms.ticks(source)])


def test_a_transfer_converges_once_its_limits_are_raised(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=Guest(dirty_mb_per_s=40, working_set_mib=40))
    slow = TransferLimits(bandwidth=16 * MIB, timeout_seconds=60, auto_converge=False)
    receiver, attempt = vms.prepare(source, slow, node="node-2")
    vms.run(vms.driver.start(source, receiver, attempt, slow))
    until(
        "it is known not to converge",
        lambda: vms.run(vms.driver.observe(source, receiver, attempt)).converging is False,
    )
    fast = TransferLimits(bandwidth=512 * MIB, timeout_seconds=60, auto_converge=False)
    vms.run(vms.driver.change_limits(source, attempt, fast))
    vms.until(source, receiver, attempt, TransferState.AT_BRINK, within=20)
    vms.run(vms.driver.commit(source, attempt))
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.until_ticking(receiver)
    assert_whole([vms.ticks(source), vms.ticks(receiver)])


def test_a_transfer_waits_at_its_brink_without_pausing_the_guest(vms: Vms) -> None:
    """Also a guest that does nothing at all, which QEMU would switch over at once."""
    source = vms.boot("db", node="node-1")
    receiver, attempt = vms.prepare(source, QUICK, node="node-2")
    vms.run(vms.driver.start(source, receiver, attempt, QUICK))
    vms.until(source, receiver, attempt, TransferState.AT_BRINK)
    seen = vms.until_ticking(source, more=400)
    longest = max((after.at - before.at for before, after in pairwise(seen[-400:])), default=0)
    assert longest < 0.5, f"the guest was silent for {longest:.2f} s"
    assert vms.run(vms.driver.observe(source, receiver, attempt)).state is TransferState.AT_BRINK
    status = vms.status(source)
    assert not status.incidents
    assert status.outgoing is not None
    assert status.outgoing.progress.passes < 12, "QEMU was not kept from looking again and again"
    vms.run(vms.driver.commit(source, attempt))
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.until_ticking(receiver)
    assert_whole([vms.ticks(source), vms.ticks(receiver)])


@pytest.mark.parametrize(
    "limits",
    [
        TransferLimits(bandwidth=48 * MIB, timeout_seconds=60, multifd_channels=2),
        TransferLimits(bandwidth=48 * MIB, timeout_seconds=60, downtime_ms=20, switch_over_seconds=2, post_copy=True),
    ],
    ids=["multifd", "post-copy"],
)
def test_other_ways_to_send(vms: Vms, limits: TransferLimits) -> None:
    # Post-copy waits for pages by userfaultfd, which takes a privilege unless a sysctl gives it to everybody.
    source = vms.boot("db", node="node-1", guest=BUSY, capabilities=("SYS_PTRACE",) if limits.post_copy else ())
    receiver, _ = vms.move(source, limits, node="node-2")
    vms.until_tick(receiver, lambda tick: tick.checked > vms.ticks(source)[-1].checked + 2 * 32 * 256)
    assert_whole([vms.ticks(source), vms.ticks(receiver)])


def test_a_move_may_be_committed_before_it_begins_to_converge(vms: Vms) -> None:
    source = vms.boot("db", node="node-1", guest=BUSY)
    receiver, attempt = vms.prepare(source, QUICK, node="node-2")
    vms.run(vms.driver.start(source, receiver, attempt, QUICK))
    vms.run(vms.driver.commit(source, attempt))
    vms.until(source, receiver, attempt, TransferState.SUCCEEDED)
    vms.until_ticking(receiver)
    assert_whole([vms.ticks(source), vms.ticks(receiver)])


def test_the_receiver_is_never_on_the_same_node(vms: Vms) -> None:
    source = vms.boot("db", node="node-1")
    receivers = [vms.receiver(source, attempt) for attempt in (1, 2, 3)]
    assert all(receiver.node != "node-1" for receiver in receivers)


def test_a_tap_device_takes_the_place_of_user_networking(vms: Vms) -> None:
    """Where a pod may make one: here an init container does, and gives the pod's side an address."""
    vms.give_certificate("db")
    description = vms.pod("db", ports=None, ready=None, network={"kind": "tap", "tap": "vm0"})
    make = "ip tuntap add vm0 mode tap && ip addr add 10.0.2.2/24 dev vm0 && ip link set vm0 up"
    description["spec"]["initContainers"] = [
        {
            "name": "tap",
            "image": "elbowroom.test/shell",
            "command": ["sh", "-c", make],
            "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}},
        }
    ]
    vms.namespace.apply(description)
    vm = vms.until_ready("db")
    vms.until_ticking(vm)
    ask = "import urllib.request; print(urllib.request.urlopen('http://10.0.2.15:8080/', timeout=2).read().decode())"
    until("the guest answers through its tap", lambda: "n=" in vms.exec(vm, "python3", "-c", ask, check=False))
