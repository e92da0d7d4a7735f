"""Observe, decide, act, record: for one request or one migration at a time, whenever something has happened to it.

Each object has one worker at most, so that no two of our own decisions about it cross each other; what others do
meanwhile is caught by preconditions. Events only wake a worker up: it decides on the whole world each time. Nothing is
remembered here that matters: after a restart everything is looked at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from elbowroom import metrics, spans
from elbowroom.cluster import kinds
from elbowroom.cluster.act import Actor
from elbowroom.cluster.client import ApiError, ConflictError, NotFoundError
from elbowroom.cluster.events import WARNINGS, sentence
from elbowroom.core import migration as moves
from elbowroom.core import request as requests
from elbowroom.core import sweep
from elbowroom.core.actions import WriteMigration, WriteRequest
from elbowroom.core.reasons import Reason
from elbowroom.core.world import MigrationPhase, RequestPhase, Transfer
from elbowroom.drivers.interface import DriverError, UnreachableError, VirtualMachine
from elbowroom.traces import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from elbowroom.cluster.client import Api
    from elbowroom.cluster.events import Recorder
    from elbowroom.cluster.view import View
    from elbowroom.core.actions import Action, Actions
    from elbowroom.core.policy import Policy
    from elbowroom.core.world import Migration, MigrationStatus, Pod, Request, RequestStatus
    from elbowroom.drivers import interface
    from elbowroom.drivers.interface import Driver
    from elbowroom.traces import Teller

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_SWEEP: Final = ""
"""What stands for the holds that nobody owns, among the UIDs of what does."""
_GUESTS: Final = (RequestPhase.PENDING, RequestPhase.SHRINKING, RequestPhase.GROWING, RequestPhase.UNDOING)
"""The phases in which it matters what a guest has."""
_MOVES: Final = (
    MigrationPhase.TRANSFERRING, MigrationPhase.AT_BRINK, MigrationPhase.SWITCHING_OVER, MigrationPhase.CANCELLING,
)  # fmt: skip
"""The phases in which it matters what runners say about a move."""
_LOOKS: Final = 5
_STEPS_AT_ONCE: Final = 20
_AT_ONCE, _SHORTLY, _SOON, _NOW_AND_THEN, _SELDOM = 0.0, 0.2, 1.0, 5.0, 30.0
_PROGRESS_SECONDS: Final = 1.0
_LISTEN_SECONDS: Final = 10.0
_LEAST_LISTEN_SECONDS: Final = 0.05
_HEARD_WITHIN: Final = 5.0
"""For how long a hold that nobody needs waits for the scheduler's answer: `elbowroom check` makes one to hear it."""


class Reconciler:
    """The operator's main loop."""

    def __init__(  # noqa: PLR0913
        self, api: Api, driver: Driver, view: View, policy: Policy, recorder: Recorder, *,
        clock: Callable[[], float] = time.time, traces: Teller | None = None,
    ) -> None:  # fmt: skip
        """Take what it looks at, decides by and acts with, and who is told what took how long."""
        self._traces: Teller = traces or Silent()
        self._driver, self._view, self._policy, self._recorder, self._clock = driver, view, policy, recorder, clock
        self._actor = Actor(api, driver, view, clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._dirty: set[str] = set()
        self._busy: set[str] = set()
        self._last: dict[str, Actions] = {}
        self._listening: dict[str, asyncio.Task[None]] = {}
        self._told_at: dict[str, float] = {}
        self._progress: dict[str, interface.Transfer] = {}
        self._since: dict[str, float] = {}
        """Since when something is in its phase, as far as we have seen that begin."""
        self._in_a_row: dict[str, int] = {}
        """How many turns have followed each other at once."""
        self._hindered: dict[str, tuple[float, float]] = {}
        """Since when something does not get on, and when that was last posted."""
        self._started = False

    # Waking up

    async def run(self) -> None:
        """Look at everything once, and then from time to time at what nobody tells us about: deadlines, above all."""
        self._started = True
        self._view.on_pod = self.pod_changed
        store = self._view.store
        for uid in (*store.requests, *store.migrations, _SWEEP):
            self.wake(uid)
        turn = 0
        while True:
            await asyncio.sleep(_SOON)
            turn += 1
            for request in list(store.requests.values()):
                if turn % self._pause(request.status.phase.final, request.status.phase is RequestPhase.PENDING) == 0:
                    self.wake(request.uid)
            for migration in list(store.migrations.values()):
                if turn % self._pause(migration.status.phase.final, waits=False) == 0:
                    self.wake(migration.uid)
            if turn % int(_NOW_AND_THEN) == 0:
                self.wake(_SWEEP)

    @staticmethod
    def _pause(over: bool, waits: bool) -> int:  # noqa: FBT001
        return int(_SELDOM if over else _NOW_AND_THEN if waits else _SOON)

    def wake(self, *uids: str) -> None:
        """Have these looked at."""
        for uid in uids:
            self._dirty.add(uid)
            if self._started and uid not in self._busy:
                self._busy.add(uid)
                self._spawn(self._work(uid))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def pod_changed(self, pod: Pod) -> None:
        """Wake those for whom a pod matters."""
        uid, node, namespace = pod.uid, pod.node, pod.namespace
        store = self._view.store
        for request in store.active_requests():
            mine = request.namespace == namespace and (request.pod == pod.name or (pod.vm and request.vm == pod.vm))
            if mine or request.status.claimant == uid or (node and request.status.node == node):
                self.wake(request.uid)
        for migration in store.active_migrations():
            status = migration.status
            if uid in (status.source, status.receiver_uid, migration.pod) or (
                namespace == migration.namespace and pod.name == status.receiver
            ):
                self.wake(migration.uid)

    def request_changed(self, uid: str) -> None:
        """Wake a request and its migrations."""
        self.wake(uid, *(item.uid for item in self._view.store.migrations_for(uid)))

    def migration_changed(self, uid: str) -> None:
        """Wake a migration and its request."""
        found = self._view.store.migrations.get(uid)
        self.wake(uid, *([found.request] if found is not None and found.request else []))

    def hold_changed(self, request: str) -> None:
        """Wake the request of a hold, and who sweeps."""
        self.wake(request, _SWEEP)

    def guard_changed(self, up: bool) -> None:  # noqa: FBT001
        """Tell all requests that are under way that the guard is down, or up again."""
        before, self._view.guarded = self._view.guarded, up
        active = [request.uid for request in self._view.store.active_requests()]
        self.wake(*active)
        reason = Reason.GUARDED if up else Reason.GUARD_DOWN
        for uid in active if not up or before is not None else ():
            body, said = self._view.bodies[uid], sentence("VMScaleRequest", reason, "")
            self._spawn(self._recorder.post(body, reason, said, warning=reason in WARNINGS))

    def waiting(self) -> int:
        """Return how many wait to be looked at, or are."""
        return len(self._busy)

    # One turn

    async def _work(self, uid: str) -> None:
        try:
            while uid in self._dirty:
                self._dirty.discard(uid)
                pause = await self._turn(uid)
                if pause is not None and pause > 0:
                    asyncio.get_running_loop().call_later(pause, self.wake, uid)
                elif pause is not None:
                    self._dirty.add(uid)
        finally:
            self._busy.discard(uid)

    async def _turn(self, uid: str) -> float | None:
        """Look at one thing. Return when to look again, though nothing happens."""
        try:
            actions = await self._decide(uid)
            for action in actions:
                await (self._do(action) if uid != _SWEEP else self._do_alone(action))
            await self._tell_progress(uid)  # after what matters more
            await self._actor.tell_guarded(uid)
        except ConflictError as error:
            _log.debug("%s: somebody was faster: %s", uid, error)
            return 0.05
        except NotFoundError as error:
            _log.debug("%s: %s", uid, error)
            return _SOON
        except UnreachableError as error:
            self._say_why(uid, error)
            return _SHORTLY  # a runner that is just starting
        except (ApiError, DriverError) as error:
            self._say_why(uid, error)
            return _SOON
        self._hindered.pop(uid, None)
        again = bool(actions) and actions != self._last.get(uid)
        self._last[uid] = actions
        if not again:
            self._in_a_row.pop(uid, None)
            return _SOON if actions else None
        # A few steps follow each other at once. Whoever has us go to and fro does not have all of our time.
        self._in_a_row[uid] = self._in_a_row.get(uid, 0) + 1
        return _AT_ONCE if self._in_a_row[uid] <= _STEPS_AT_ONCE else _SOON

    async def _decide(self, uid: str) -> Actions:
        store = self._view.store
        if uid in store.requests:
            await self._adopt(uid)
            await self._look_at_guest(store.requests.get(uid))
            request = store.requests.get(uid)
            self._first_seen(request)
            return () if request is None else self._timed(requests.decide, request)
        if uid in store.migrations:
            await self._adopt(uid)
            await self._look_at_move(uid)
            migration = store.migrations.get(uid)
            self._first_seen(migration)
            return () if migration is None else self._timed(moves.decide, migration)
        for known in (self._last, self._told_at, self._hindered, self._since, self._in_a_row):
            known.pop(uid, None)
        if uid != _SWEEP:
            return ()
        return (*sweep.decide(store, self._clock() - _HEARD_WITHIN), *sweep.taints(store, self._policy))

    def _first_seen(self, item: Request | Migration | None) -> None:
        """Note when something began that nobody has looked at before."""
        if item is not None and item.status.reason is None and item.uid not in self._since:
            self._since[item.uid] = time.monotonic() - max(0.0, self._clock() - item.created_at)

    def _timed(self, decide: Callable[..., Actions], item: Request | Migration) -> Actions:
        with metrics.DECISIONS.time():
            return decide(self._view.store, item, self._clock(), self._policy)

    async def _adopt(self, uid: str) -> None:
        body = self._view.bodies[uid]
        meta = body["metadata"]
        if "deletionTimestamp" not in meta and kinds.FINALIZER not in meta.get("finalizers", ()):
            await self._actor.adopt(body)

    async def _look_at_guest(self, request: Request | None) -> None:
        """Ask the claimant's guest for its size, where that matters."""
        if request is None or request.status.phase not in _GUESTS:
            return
        claimant = requests.claimant_of(self._view.store, request)
        if claimant is not None and claimant.vm:
            await self._actor.look_at_guest(claimant.uid)

    async def _look_at_move(self, uid: str) -> None:
        """Ask the runners where a move is, after the pods were looked at: what they say has to be the newer news."""
        store = self._view.store
        for _ in range(_LOOKS):
            migration = store.migrations.get(uid)
            if migration is None or migration.status.phase not in _MOVES:
                self._stop_listening(uid)
                await self._ask_for_downtime(migration)
                return
            before = self._lives_of(migration)
            told = await self._ask(migration)
            store.put_transfer(uid, Transfer(told.state, round(told.percent), told.message))
            if before == self._lives_of(migration):
                self._listen(migration, told.revision)
                self._progress[uid] = told
                return
        raise ConflictError(409, "its pods come and go")

    async def _ask_for_downtime(self, migration: Migration | None) -> None:
        """Ask a source that its guest has left for how long that took: QEMU may say so a moment after it has."""
        if migration is None or migration.status.phase is not MigrationPhase.MOVED:
            return
        status: Json = self._view.bodies[migration.uid].get("status", {})
        if "downtimeMilliseconds" not in status and migration.status.source in self._view.vms:
            self._progress[migration.uid] = await self._ask(migration)

    def _lives_of(self, migration: Migration) -> list[tuple[object, ...] | None]:
        """Return what matters of its pods' lives. Their owners may write all else of them as often as they like."""
        store, status = self._view.store, migration.status
        pods = (store.pod(uid) for uid in (status.source, status.receiver_uid))
        return [None if pod is None else (pod.uid, pod.phase, pod.terminating, pod.node) for pod in pods]

    async def _ask(self, migration: Migration, *, after: int = -1, wait: float = 0.0) -> interface.Transfer:
        vms, status = self._view.vms, migration.status
        source = vms.get(status.source) or VirtualMachine(
            name=migration.vm, namespace=migration.namespace, pod="", uid=status.source, node=None, address=None,
            movable=False, why_not_movable="its pod is gone", attempt=0,
        )  # fmt: skip
        return await self._driver.observe(source, vms.get(status.receiver_uid), status.attempt, after=after, wait=wait)

    def _listen(self, migration: Migration, revision: int) -> None:
        """Wake a migration as soon as its source's runner has news."""
        known = self._listening.get(migration.uid)
        if known is None or known.done():
            task = asyncio.get_running_loop().create_task(self._until_news(migration, revision))
            self._listening[migration.uid] = task

    async def _until_news(self, migration: Migration, revision: int) -> None:
        began = time.monotonic()
        try:
            await self._ask(migration, after=revision, wait=_LISTEN_SECONDS)
        except DriverError as error:
            _log.debug("%s: %s", migration.name, error)
        # One that has news all the time is not asked all the time.
        await asyncio.sleep(began + _LEAST_LISTEN_SECONDS - time.monotonic())
        self.wake(migration.uid)

    def _stop_listening(self, uid: str) -> None:
        task = self._listening.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _tell_progress(self, uid: str) -> None:
        """Write how far a copy is, now and then."""
        told, migration = self._progress.pop(uid, None), self._view.store.migrations.get(uid)
        if told is None or migration is None:
            return
        now = time.monotonic()
        status: Json = self._view.bodies[migration.uid].get("status", {})
        progress: Json = {
            "percent": min(100, round(told.percent)), "transferredBytes": told.transferred_bytes,
            "remainingBytes": told.remaining_bytes,
        }  # fmt: skip
        if told.downtime_ms is not None:
            progress["downtimeMilliseconds"] = told.downtime_ms
        final = told.downtime_ms is not None and "downtimeMilliseconds" not in status
        due = now - self._told_at.get(migration.uid, 0.0) > _PROGRESS_SECONDS
        if (final or due) and any(status.get(key) != value for key, value in progress.items()):
            self._told_at[migration.uid] = now
            await self._actor.tell_progress(migration, progress)
            if migration.request in self._view.store.requests:
                await self._actor.tell_moving(migration.request)

    # Acting, and telling

    async def _do(self, action: Action) -> None:
        before = self._status_of(action)
        await self._actor.do(action)
        if isinstance(action, WriteRequest | WriteMigration):
            await self._told(action, before)

    async def _do_alone(self, action: Action) -> None:
        """Do something that nothing else waits for: where it cannot be done now, the rest is."""
        try:
            await self._do(action)
        except ApiError as error:
            _log.warning("%s could not be done, it will be tried again: %s", action, error)

    def _status_of(self, action: Action) -> RequestStatus | MigrationStatus | None:
        store = self._view.store
        if isinstance(action, WriteRequest) and action.uid in store.requests:
            return store.requests[action.uid].status
        if isinstance(action, WriteMigration) and action.uid in store.migrations:
            return store.migrations[action.uid].status
        return None

    async def _told(
        self, action: WriteRequest | WriteMigration, before: RequestStatus | MigrationStatus | None
    ) -> None:
        """Log and post what has changed, and wake those who wait for it."""
        now = action.status
        if isinstance(action, WriteRequest):
            self._view.store.put_check(action.uid, None)  # what was tried was tried for the step before
            self.request_changed(action.uid)
        else:
            self.migration_changed(action.uid)
        if before is not None and (before.phase, before.reason) == (now.phase, now.reason):
            return
        body = self._view.bodies.get(action.uid)
        if body is not None and before is not None and before.phase is not now.phase:
            self._count(action, before, body)
        reason = now.outcome.reason if now.outcome is not None else now.reason
        if body is None or reason is None:
            return
        message = now.message or (now.outcome.message if now.outcome is not None else "")
        if isinstance(action, WriteRequest) and now.outcome is not None and reason is Reason.ROOM_TAKEN:
            self._count_thieves(self._view.store.requests[action.uid])
        _log.info(
            "%s is %s", body["kind"], now.phase,
            extra={
                "kind": body["kind"], "object": f"{body['metadata']['namespace']}/{body['metadata']['name']}",
                "phase": str(now.phase), "reason": str(reason), "note": message,
            },
        )  # fmt: skip
        said = sentence(body["kind"], reason, message)
        self._spawn(self._recorder.post(body, str(reason), said, warning=reason in WARNINGS))

    def _count(
        self, action: WriteRequest | WriteMigration, before: RequestStatus | MigrationStatus, body: Json
    ) -> None:
        """Count and tell the end of a phase, and of what has come to its end."""
        uid, now, moment, clock = action.uid, action.status, time.monotonic(), self._clock()
        if (since := self._since.pop(uid, None)) is not None:
            metrics.PHASE_SECONDS.labels(kind=body["kind"], phase=str(before.phase)).observe(moment - since)
            began = clock - (moment - since)
            self._traces.tell(spans.phase(body, str(before.phase), str(before.reason), began, clock))
        if not now.phase.final:
            self._since[uid] = moment
            return
        self._traces.tell(spans.whole(body, now, clock))
        phase, reason = str(now.phase), str(now.reason)
        if isinstance(action, WriteRequest):
            metrics.ENDED.labels(phase=phase, reason=reason).inc()
            lasted = clock - self._view.store.requests[uid].created_at
            metrics.REQUEST_SECONDS.labels(phase=phase).observe(max(lasted, 0.0))
            return
        metrics.MOVES_ENDED.labels(phase=phase, reason=reason).inc()
        if now.phase is MigrationPhase.SUCCEEDED:
            told: Json = body.get("status", {})
            metrics.MOVED_BYTES.inc(told.get("transferredBytes", 0))
            if "downtimeMilliseconds" in told:
                metrics.DOWNTIME.observe(told["downtimeMilliseconds"] / 1000)

    def _count_thieves(self, request: Request) -> None:
        for name in requests.thieves(self._view.store, request) or ["unknown"]:
            metrics.THEFTS.labels(thief=name, node=request.status.node).inc()

    def _say_why(self, uid: str, error: Exception) -> None:
        """Log what hinders something, and post it where it goes on for a while."""
        body, now = self._view.bodies.get(uid), time.monotonic()
        metrics.HINDERED.labels(kind="sweep" if body is None else body["kind"]).inc()
        _log.info("%s is hindered: %s", uid if body is None else body["metadata"]["name"], error)
        first, posted = self._hindered.get(uid, (now, -_SELDOM))
        if body is not None and now - first > _NOW_AND_THEN and now - posted > _SELDOM:
            posted = now
            self._spawn(self._recorder.post(body, "Hindered", f"It will be tried again: {error}", warning=True))
        self._hindered[uid] = (first, posted)
