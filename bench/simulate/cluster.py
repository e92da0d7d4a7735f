"""Scheduler, kubelets, QEMU and API server with times instead of interleavings; the decisions are the shipped ones.

It behaves as the explorer's model does, and as was measured: the scheduler counts the largest of spec, allocated and
actual, kubelets grant what fits and defer what does not, in the order in which they were asked, and a pod takes its
room until it is gone. Times are typical ones, below. Nothing dies in here but VMs whose time is over: what happens when
things go wrong is the explorer's.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from elbowroom.core import actions as act
from elbowroom.core import ledger, sweep
from elbowroom.core import migration as moves
from elbowroom.core import request as requests
from elbowroom.core.reasons import Reason
from elbowroom.core.room import Room, total
from elbowroom.core.store import Store
from elbowroom.core.world import (
    Check,
    Container,
    GuestSize,
    Hold,
    HoldPhase,
    Migration,
    Pod,
    PodPhase,
    Request,
    RequestPhase,
    Resize,
    Transfer,
    TransferState,
)

from .workload import HOUR, Birth, Day, Wish

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.core.policy import Policy

ACKNOWLEDGE: Final = 0.05
BIND: Final = 0.1
START: Final = 2.0
SWITCH_OVER: Final = 0.3
STOP: Final = 2.0
LOOK: Final = 0.2
"""A kubelet's look at a pod whose size has changed."""
PLUG: Final = 1.0
BANDWIDTH: Final = float(1 << 30)
"""Bytes a second that one move gets."""
RESENT: Final = 1.3
"""How often a guest's memory is sent: it writes while it is copied."""
RESYNC: Final = 15.0
KEEP: Final = 600.0
_MOST_DECISIONS: Final = 2_000


@dataclass
class Score:
    """What came of a day."""

    grown: int = 0
    in_place: int = 0
    asked: int = 0
    waits: list[float] = field(default_factory=list)
    """Seconds from the wish to its fulfilment."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Why others were not satisfied."""
    moved: Counter[str] = field(default_factory=Counter)
    """How often each VM was moved."""
    sent: float = 0.0
    """Bytes that were sent, those of moves that were called off included."""
    unplaced: set[str] = field(default_factory=set)
    """VMs that found no node when they came, and had to wait for one."""
    decisions: int = 0


class Simulation:
    """One day with one policy."""

    def __init__(self, day: Day, nodes: int, policy: Policy | None, usual: Policy) -> None:
        """Make the nodes; nobody moves where there is no policy."""
        self.score = Score()
        self._moves, self._policy = policy is not None, policy or usual
        self._store = Store()
        self._now = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._dirty: dict[tuple[str, str], None] = {}
        self._home: dict[str, str] = {}
        """The UID of the pod that runs a VM's guest."""
        self._deferred: dict[str, list[str]] = defaultdict(list)
        """UIDs of pods whose resizes wait, by their node."""
        self._asking: dict[str, dict[str, None]] = defaultdict(dict)
        """UIDs of requests that are not over, by their node."""
        self._growth: dict[str, bool] = {}
        self._copying: dict[str, float] = {}
        """When a transfer began."""
        self._does: dict[type, Callable[[Any], None]] = {
            act.WriteRequest: self._write_request,
            act.WriteMigration: self._write_migration,
            act.CreateHold: self._create_hold,
            act.RenewHold: self._renew_hold,
            act.CommitHold: self._commit_hold,
            act.DeleteHold: self._delete_hold,
            act.CreateMigration: self._create_migration,
            act.CreateReceiver: self._create_receiver,
            act.DetachReceiver: self._detach_receiver,
            act.DeletePod: self._delete_pod,
            act.StartTransfer: self._start_transfer,
            act.CommitTransfer: self._commit_transfer,
            act.CancelTransfer: self._cancel_transfer,
            act.ReleaseTransfer: self._release_transfer,
            act.CheckResize: self._check_resize,
            act.ResizePod: self._resize_pod,
            act.FencePod: self._fence_pod,
            act.ResizeGuest: self._resize_guest,
            act.LookForPod: self._look_for_pod,
            act.Forget: self._forget,
        }
        for number in range(nodes):
            self._store.put_node(f"n{number:04}", day.node)
        for birth in day.births:
            self._at(birth.at, self._born, birth)
        for wish in day.wishes:
            self._at(wish.at, self._wish, wish)
        self._at(60.0, self._sweep)

    def run(self, hours: float) -> Score:
        """Let the time pass, and an hour more for those who have asked last."""
        end = (hours + 1) * HOUR
        while self._queue and self._queue[0][0] <= end:
            self._now, _, happens, what = heapq.heappop(self._queue)
            happens(*what)
            self._settle()
        return self.score

    def left_behind(self) -> list[str]:
        """Return what is not over: nothing, once there was time enough."""
        store = self._store
        moving = [item.uid for item in store.active_migrations()]
        waiting = [uid for uids in self._deferred.values() for uid in uids]
        return [*store.holds, *(item.uid for item in store.active_requests()), *moving, *waiting]

    def _at(self, when: float, happens: Callable[..., None], *what: Any) -> None:
        self._count += 1
        heapq.heappush(self._queue, (when, self._count, happens, what))

    def _after(self, seconds: float, happens: Callable[..., None], *what: Any) -> None:
        self._at(self._now + seconds, happens, *what)

    # The operator

    def _settle(self) -> None:
        """Decide until there is nothing to do, as the operator does after every event."""
        for _ in range(_MOST_DECISIONS):
            if not self._dirty:
                return
            kind, uid = next(iter(self._dirty))
            del self._dirty[kind, uid]
            self.score.decisions += 1
            for action in self._decide(kind, uid):
                self._does[type(action)](action)
        raise AssertionError(f"the decisions do not settle: {list(self._dirty)[:5]}")

    def _decide(self, kind: str, uid: str) -> act.Actions:
        if kind == "request":
            request = self._store.requests.get(uid)
            return () if request is None else requests.decide(self._store, request, self._now, self._policy)
        migration = self._store.migrations.get(uid)
        return () if migration is None else moves.decide(self._store, migration, self._now, self._policy)

    def _touch(self, request: str, migration: str = "") -> None:
        if request:
            self._dirty["request", request] = None
        if migration:
            self._dirty["migration", migration] = None

    def _sweep(self) -> None:
        for action in sweep.decide(self._store):
            self._does[type(action)](action)
        self._after(60.0, self._sweep)

    def _look_again(self, uid: str) -> None:
        request = self._store.requests.get(uid)
        if request is None:
            return
        self._touch(uid)
        if not request.status.phase.final:
            self._after(RESYNC, self._look_again, uid)

    # VMs and what they want

    def _born(self, birth: Birth) -> None:
        if birth.dies_at <= self._now:
            return
        node = self._place(birth.size)
        if node is None:
            self.score.unplaced.add(birth.vm)
            self._after(300.0, self._born, birth)
            return
        pod = _pod(f"{birth.vm}.0", birth.vm, birth.size, node, created_at=self._now)
        self._home[birth.vm] = pod.uid
        self._put(replace(pod, phase=PodPhase.RUNNING))
        self._store.put_guest(pod.uid, _guest(birth.size))
        self._at(birth.dies_at, self._die, birth.vm)

    def _die(self, vm: str) -> None:
        if any(item.vm == vm for item in self._store.active_migrations()):
            self._after(30.0, self._die, vm)  # its owner waits until it has arrived
            return
        self._stop(self._home.pop(vm))

    def _wish(self, wish: Wish) -> None:
        pod = self._store.pod(self._home.get(wish.vm, ""))
        self.score.asked += wish.grows
        if pod is None or not pod.lives:
            self.score.reasons["no node"] += wish.grows
            return
        if pod.containers[0].request == wish.size:
            # An earlier wish was not fulfilled, and now suits it.
            if wish.grows:
                self._fulfilled(0.0, in_place=True)
            return
        uid = f"r{self._count:07}"
        self._count += 1
        self._growth[uid] = wish.grows
        self._store.put_request(
            Request(
                uid=uid, namespace="x", name=uid, vm=wish.vm, cpu=wish.size.cpu, memory=wish.size.memory,
                moves=self._moves, created_at=self._now, keep_for=KEEP,
            )
        )  # fmt: skip
        self._touch(uid)
        self._after(RESYNC, self._look_again, uid)

    # The scheduler

    def _place(self, size: Room, besides: str = "") -> str | None:
        """Return the emptiest node that has room, holds counted."""
        found = (place.node for place in self._store.places().emptiest() if size.within(place.free))
        return next((node for node in found if node != besides), None)

    def _bind(self, uid: str, besides: str) -> None:
        pod = self._store.pod(uid)
        if pod is None or pod.terminating or pod.node:
            return
        node = self._place(pod.spec(), besides)
        if node is None:
            self._after(5.0, self._bind, uid, besides)
            return
        self._put(replace(pod, node=node))
        self._after(START, self._start, uid)

    def _acknowledge(self, claimant: str) -> None:
        hold = self._store.holds.get(claimant)
        if hold is None or hold.phase is not HoldPhase.PENDING:
            return
        node = self._store.node(hold.node)
        others = [other for other in self._store.holds.values() if other.live and other.claimant != claimant]
        taken = {uid for other in others for uid in (other.claimant, *(payer.uid for payer in other.payers))}
        payers = [self._store.pod(payer.uid) for payer in hold.payers]
        here = all(pod is not None and pod.lives and pod.node == hold.node for pod in payers)
        fair = not taken & {claimant, *(payer.uid for payer in hold.payers)}
        if here and fair and ledger.keepable(node, self._store.holds.values(), hold):
            short = ledger.shortfall(node, self._store.holds.values(), hold)
            self._put_hold(replace(hold, phase=HoldPhase.HELD, shortfall=short))
        else:
            self._put_hold(replace(hold, phase=HoldPhase.REFUSED))

    def _say_again(self, claimant: str) -> None:
        """Keep what a hold says about the room up to date."""
        hold = self._store.holds.get(claimant)
        if hold is not None and hold.phase is HoldPhase.HELD:
            short = ledger.shortfall(self._store.node(hold.node), self._store.holds.values(), hold)
            if short != hold.shortfall:
                self._put_hold(replace(hold, shortfall=short))

    def _claimed(self, claimant: str) -> None:
        hold = self._store.holds.get(claimant)
        if hold is not None and hold.phase is HoldPhase.HELD:
            self._put_hold(replace(hold, phase=HoldPhase.CLAIMED))

    def _put_hold(self, hold: Hold) -> None:
        self._store.put_hold(hold)
        self._touch(hold.request)

    # Kubelets

    def _put(self, pod: Pod) -> None:
        """Take in a pod, check its node, and wake whom it concerns."""
        self._store.put_pod(pod)
        self._wake(pod)
        hold = self._store.holds.get(pod.uid)
        if hold is not None and hold.phase is HoldPhase.HELD and hold.target.within(pod.size):
            self._after(ACKNOWLEDGE, self._claimed, pod.uid)
        if pod.node:
            used = _allocated(self._store.node(pod.node).pods)
            assert used.within(self._store.node(pod.node).allocatable), f"{pod.node} has given away {used}"

    def _wake(self, pod: Pod) -> None:
        for uid in self._asking[pod.node]:
            self._dirty["request", uid] = None
            hold = self._store.holds.get(self._store.requests[uid].status.claimant)
            if hold is not None and hold.phase is HoldPhase.HELD and not hold.committed:
                self._after(ACKNOWLEDGE, self._say_again, hold.claimant)
        for item in self._store.active_migrations():
            if pod.uid in (item.status.source, item.status.receiver_uid) or pod.owner == item.uid:
                self._touch(item.request, item.uid)

    def _start(self, uid: str) -> None:
        pod = self._store.pod(uid)
        if pod is not None and not pod.terminating:
            self._put(replace(pod, phase=PodPhase.RUNNING, allocated=pod.spec()))

    def _stop(self, uid: str) -> None:
        pod = self._store.pod(uid)
        if pod is None or pod.terminating:
            return
        if not pod.node:
            self._gone(uid)
            return
        self._put(replace(pod, terminating=True, ready=False))
        self._after(STOP, self._gone, uid)

    def _gone(self, uid: str) -> None:
        pod = self._store.pod(uid)
        if pod is None:
            return
        self._store.drop_pod(uid)
        self._wake(pod)
        for waiting in [*self._deferred[pod.node]]:
            self._grant(waiting)

    def _grant(self, uid: str) -> None:
        """Look at the size that a pod asks for."""
        pod = self._store.pod(uid)
        if pod is None or pod.terminating or pod.resize is Resize.DONE:
            return
        node = self._store.node(pod.node)
        wanted = pod.spec()
        waiting = self._deferred[pod.node]
        if wanted.minus(pod.allocated).within(node.allocatable.minus(_allocated(node.pods)).most(Room())):
            if uid in waiting:
                waiting.remove(uid)
            given = tuple(container._replace(given=None) for container in pod.containers)
            self._put(replace(pod, allocated=wanted, size=wanted, containers=given, resize=Resize.DONE))
            for other in [*waiting] if not pod.allocated.within(wanted) else ():
                self._grant(other)
        elif pod.resize is not Resize.DEFERRED:
            waiting.append(uid)
            self._put(replace(pod, resize=Resize.DEFERRED))

    # QEMU

    def _progress(self, migration: str, attempt: int, before: TransferState, after: TransferState) -> None:
        item = self._store.migrations.get(migration)
        transfer = self._store.transfers.get(migration)
        if item is None or transfer is None or (item.status.attempt, transfer.state) != (attempt, before):
            return
        if after is TransferState.SUCCEEDED:
            guest = self._store.guests[item.status.source]
            self._store.put_guest(item.status.source, None)
            self._store.put_guest(item.status.receiver_uid, guest)
            self._home[item.vm] = item.status.receiver_uid
            self.score.moved[item.vm] += 1
        self._store.put_transfer(migration, Transfer(after))
        self._touch(item.request, migration)

    # What the operator does

    def _write_request(self, action: act.WriteRequest) -> None:
        before = self._store.requests[action.uid]
        status = action.status
        self._store.put_request(replace(before, status=status))
        self._asking[before.status.node].pop(action.uid, None)
        if status.phase.final:
            self._finished(before, action)
        else:
            self._asking[status.node][action.uid] = None
            if status.retry_at > self._now:
                self._at(status.retry_at, self._touch, action.uid)
        if status.phase is not before.status.phase:
            self._touch(action.uid)
            self._store.put_check(action.uid, None)
        for planned in status.plan:
            found = self._store.migration_named(planned.namespace, planned.migration)
            if found is not None:
                self._touch("", found.uid)

    def _finished(self, before: Request, action: act.WriteRequest) -> None:
        status = action.status
        self._at(self._now + KEEP + 1.0, self._touch, action.uid)
        if not self._growth[action.uid]:
            return
        if status.phase is RequestPhase.SUCCEEDED:
            self._fulfilled(self._now - before.created_at, in_place=not status.plan or status.room_appeared)
        else:
            late = status.reason is Reason.DEADLINE
            self.score.reasons[f"{status.reason} ({status.message})" if late else str(status.reason)] += 1

    def _fulfilled(self, seconds: float, *, in_place: bool) -> None:
        self.score.grown += 1
        self.score.in_place += in_place
        self.score.waits.append(seconds)

    def _write_migration(self, action: act.WriteMigration) -> None:
        before = self._store.migrations[action.uid]
        self._store.put_migration(replace(before, status=action.status))
        self._touch(before.request, action.uid)
        if action.status.phase.final:
            self._at(self._now + KEEP + 1.0, self._touch, "", action.uid)

    def _create_hold(self, action: act.CreateHold) -> None:
        if action.hold.claimant not in self._store.holds:
            self._store.put_hold(action.hold)
            self._after(ACKNOWLEDGE, self._acknowledge, action.hold.claimant)

    def _renew_hold(self, action: act.RenewHold) -> None:
        self._put_hold(replace(self._store.holds[action.claimant], expires_at=action.expires_at))

    def _commit_hold(self, action: act.CommitHold) -> None:
        self._put_hold(replace(self._store.holds[action.claimant], committed=True))

    def _delete_hold(self, action: act.DeleteHold) -> None:
        hold = self._store.holds.get(action.claimant)
        if hold is not None:
            self._store.drop_hold(action.claimant)
            self._touch(hold.request)
            for uid in self._asking[hold.node]:
                self._touch(uid)

    def _create_migration(self, action: act.CreateMigration) -> None:
        planned = action.neighbour
        if self._store.migration_named(planned.namespace, planned.migration) is None:
            self._count += 1
            item = Migration(
                uid=f"m{self._count:07}", namespace=planned.namespace, name=planned.migration, vm=planned.vm,
                request=action.request, pod=planned.uid, receiver=planned.receiver, created_at=self._now, keep_for=KEEP,
            )  # fmt: skip
            self._store.put_migration(item)
            self._touch(action.request, item.uid)

    def _create_receiver(self, action: act.CreateReceiver) -> None:
        source = self._store.pod(action.source)
        if source is not None and self._store.pod_named("x", action.name) is None:
            pod = _pod(action.name, source.vm, source.allocated, "", created_at=self._now)
            self._put(replace(pod, owner=action.migration, attempt=action.attempt))
            self._after(BIND, self._bind, pod.uid, source.node)

    def _detach_receiver(self, action: act.DetachReceiver) -> None:
        pod = self._store.pod(action.uid)
        if pod is not None:
            self._touch("", pod.owner)
            self._put(replace(pod, owner=""))

    def _delete_pod(self, action: act.DeletePod) -> None:
        self._stop(action.uid)

    def _start_transfer(self, action: act.StartTransfer) -> None:
        if action.migration in self._store.transfers:
            return
        item = self._store.migrations[action.migration]
        self._store.put_transfer(action.migration, Transfer(TransferState.COPYING))
        self._copying[action.migration] = self._now
        source = self._store.pod(item.status.source)
        assert source is not None
        self._after(
            source.size.memory * RESENT / BANDWIDTH, self._at_brink, action.migration, action.attempt,
            source.size.memory * RESENT,
        )  # fmt: skip

    def _at_brink(self, migration: str, attempt: int, sent: float) -> None:
        if self._store.transfers.get(migration) == Transfer(TransferState.COPYING):
            self.score.sent += sent
            del self._copying[migration]
        self._progress(migration, attempt, TransferState.COPYING, TransferState.AT_BRINK)

    def _commit_transfer(self, action: act.CommitTransfer) -> None:
        self._store.put_transfer(action.migration, Transfer(TransferState.COMMITTED))
        self._after(
            SWITCH_OVER,
            self._progress,
            action.migration,
            action.attempt,
            TransferState.COMMITTED,
            TransferState.SUCCEEDED,
        )

    def _cancel_transfer(self, action: act.CancelTransfer) -> None:
        began = self._copying.pop(action.migration, None)
        if began is not None:
            self.score.sent += (self._now - began) * BANDWIDTH
        self._store.put_transfer(action.migration, Transfer(TransferState.CANCELLED))
        self._touch("", action.migration)

    def _release_transfer(self, action: act.ReleaseTransfer) -> None:
        raise AssertionError(f"nothing dies in here, so nobody has to release {action.migration}")

    def _look_for_pod(self, action: act.LookForPod) -> None:
        self._store.put_gone(action.uid, gone=True)
        self._touch("", action.migration)

    def _check_resize(self, action: act.CheckResize) -> None:
        self._store.put_check(action.request, Check(allowed=True))
        self._touch(action.request)

    def _resize_pod(self, action: act.ResizePod) -> None:
        pod = self._store.pod(action.uid)
        if pod is not None:
            containers = (Container(action.container, action.wanted, pod.allocated),)
            size = action.wanted.most(pod.allocated)
            self._put(replace(pod, containers=containers, size=size, resize=Resize.UNSEEN))
            self._after(LOOK, self._grant, action.uid)

    def _fence_pod(self, action: act.FencePod) -> None:
        pod = self._store.pod(action.uid)
        if pod is not None:
            self._put(replace(pod, fence=action.fence))

    def _resize_guest(self, action: act.ResizeGuest) -> None:
        self._after(PLUG, self._plugged, action.uid, action.size, action.order)

    def _plugged(self, uid: str, size: GuestSize, order: int) -> None:
        pod = self._store.pod(uid)
        if pod is not None and self._store.orders.get(uid, 0) < order:
            self._store.put_order(uid, order)
            assert size.memory <= pod.allocated.memory, f"the guest of {uid} would be larger than its pod"
            self._store.put_guest(uid, size)
            self._wake(pod)

    def _forget(self, action: act.Forget) -> None:
        self._growth.pop(action.uid, None)
        self._store.drop_request(action.uid)
        self._store.drop_migration(action.uid)


def _allocated(pods: tuple[Pod, ...]) -> Room:
    return total([pod.allocated for pod in pods if pod.counts])


def _guest(size: Room) -> GuestSize:
    return GuestSize(-(-size.cpu // 1000), size.memory)


def _pod(uid: str, vm: str, size: Room, node: str, *, created_at: float) -> Pod:
    return Pod(
        uid=uid, namespace="x", name=uid, node=node, allocated=size if node else Room(), size=size,
        containers=(Container("vm", size),), phase=PodPhase.PENDING, vm=vm, vm_container="vm", movable=True,
        created_at=created_at,
    )  # fmt: skip
