"""A move away from here: up to its commit point, and beyond.

Before the commit QEMU cannot switch over (pacing.py); should it come to it all the same, the guest is paused, and a
watchdog resumes it unless the commit arrives. After the commit QEMU goes on by itself. The receiver takes the guest's
state in without running it. Only when QEMU here has said `completed`, and so will never run this guest again, is the
receiver told to: whatever breaks on the way, at most one of the two can run the guest. When it fails instead, QEMU
resumes the guest here at once, and the receiver, never told, ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from elbowroom.traces import Place, Span

from . import pacing
from .command import FLOOR, FLOOR_GRANULARITY
from .messages import GuestState, Limits, Outgoing, Progress, TransferPhase
from .monitor import LostError, MonitorError
from .pacing import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.traces import Teller

    from .monitor import Monitor
    from .peer import Peer
    from .record import OutgoingRecord
    from .tls import Identity

log = logging.getLogger(__name__)
CAPABILITIES = ("events", "return-path", "pause-before-switchover", "late-block-activate", "dirty-bitmaps")
_LOOK_SECONDS = 2.0
_GLANCE_SECONDS = 0.5
_PROGRESS_SECONDS = 0.25
_RELEASE_SECONDS = 600.0
_STANDSTILL_SECONDS = 10.0
_DEAD = ("failed", "cancelled", "none", "postcopy-paused")
_STANDING = ("pre-switchover", "device")


def capabilities(limits: Limits) -> dict[str, Any]:
    """Return what QEMU has to be told on both sides: all of them, since they stay from one attempt to the next."""
    wanted = dict.fromkeys(CAPABILITIES, True) | {
        "auto-converge": limits.auto_converge,
        "multifd": limits.multifd_channels > 0,
        "postcopy-ram": limits.post_copy,
    }
    return {"capabilities": [{"capability": name, "state": state} for name, state in wanted.items()]}


class Transfer:
    """One attempt."""

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        monitor: Monitor | None,
        record: OutgoingRecord,
        peer: Peer,
        identity: Identity,
        changed: Callable[[], None],
        traces: Teller,
    ) -> None:
        """Take the record, which is the truth; `changed` writes it down. QEMU may be gone already."""
        self._traces, self._since = traces, time.time()
        self._qemu, self.record, self._peer, self._identity, self._changed = monitor, record, peer, identity, changed
        self.phase = record.ended or (TransferPhase.COMMITTED if record.committed else TransferPhase.STARTING)
        self.progress = Progress()
        self._pace = Pace()
        self._wake = asyncio.Event()
        self._passes = asyncio.Event()
        self._status = "none"
        self._stopped_at: float | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._settled_at = 0.0
        self._post_copy = False
        self._told = False
        self._told_at = 0.0
        self._parameters: pacing.Parameters = {}
        self._releasing: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def _monitor(self) -> Monitor:
        if self._qemu is None:
            raise LostError("QEMU has ended")
        return self._qemu

    # What others see and say

    def view(self) -> Outgoing:
        """Return what is told about it."""
        record = self.record
        return Outgoing(
            attempt=record.attempt, phase=self.phase, committed=record.committed, to=record.to, limits=record.limits,
            progress=self.progress, message=record.message, downtime_ms=record.downtime_ms, total_ms=record.total_ms,
            stopped_ms=record.stopped_ms,
        )  # fmt: skip

    @property
    def guest_state(self) -> GuestState | None:
        """Return what this move means for the guest, where it means something."""
        if self.phase in (TransferPhase.COMPLETED, TransferPhase.RELEASED):
            return GuestState.MOVED
        if self._status in _STANDING and not self.phase.over:
            return GuestState.SWITCHING
        return None

    def commit(self) -> None:
        """Let it switch over. The caller has checked that it may."""
        self.record.committed_at = time.monotonic()
        self._changed()  # on disk before QEMU hears of it
        if self._watchdog is not None:
            self._watchdog.cancel()
        if self._status == "pre-switchover":
            self._continue()
        elif not self.phase.over:
            self._enter(TransferPhase.COMMITTED)
            self._call(self._peer.warm_up(self.record.to))
        self._wake.set()

    def cancel(self, why: str, *, phase: TransferPhase = TransferPhase.CANCELLED) -> None:
        """End it, the guest stays here. The caller has checked that it is not committed, or knows why it may."""
        self.record.cancelled = True
        self.record.message = why
        self.record.ending = phase
        self._changed()
        self._wake.set()

    def change_limits(self, limits: Limits) -> None:
        """Go on with other limits."""
        self.record.limits = limits
        self._pace = Pace()  # what was measured under other limits tells nothing
        self._changed()
        self._wake.set()

    # Events, in QEMU's order

    def on_event(self, name: str, data: dict[str, Any]) -> None:
        """Take note of what QEMU says."""
        if name == "STOP":
            self._stopped_at = time.monotonic()
        elif name == "MIGRATION_PASS":
            self._passes.set()
        elif name == "MIGRATION":
            self._on_status(str(data["status"]))

    def _on_status(self, status: str) -> None:
        self._status = status
        self._wake.set()
        self._passes.set()
        if status == "completed":
            self._let_go()
        elif status == "postcopy-active":
            self._have_it_run()
        elif status == "pre-switchover":
            self._at_switch_over()
        self._changed()

    def _at_switch_over(self) -> None:
        """QEMU has stopped the guest and asks: also seen by an agent whose predecessor died before it could answer."""
        if self.record.committed:
            if self.phase is not TransferPhase.SWITCHING:
                self._continue()
        elif not self.record.cancelled and self._watchdog is None:
            self._wait_for_commit()

    def _continue(self) -> None:
        self._call(self._monitor.run("migrate-continue", {"state": "pre-switchover"}))
        self._enter(TransferPhase.SWITCHING)

    def _wait_for_commit(self) -> None:
        hold = self.record.limits.hold_ms
        log.warning("guest paused before its commit", extra={"attempt": self.record.attempt, "hold_ms": hold})
        loop = asyncio.get_running_loop()
        self._watchdog = loop.call_later(hold / 1000, self._give_up_waiting, hold)

    def _give_up_waiting(self, hold: int) -> None:
        if not self.record.committed and not self.record.cancelled:
            self.cancel(
                f"the guest stood still for {hold} ms and nobody committed the move, so it was resumed here",
                phase=TransferPhase.FAILED,
            )

    def _call(self, awaitable: Any) -> None:  # noqa: ANN401  # a coroutine of any answer
        async def run() -> None:
            try:
                await awaitable
            except MonitorError as error:
                log.warning("QEMU refused", extra={"attempt": self.record.attempt, "error": str(error)})

        task = asyncio.create_task(run())
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _enter(self, phase: TransferPhase) -> None:
        if phase is not self.phase:
            log.info("transfer", extra={"attempt": self.record.attempt, "phase": phase, "detail": self.record.message})
            self._trace_phase()
            self.phase = phase
            self._changed()

    def _trace_phase(self) -> None:
        """Tell of the phase that is over."""
        now, whole = time.time(), self._place()
        if whole is not None:
            phase = whole.below(self.phase, f"{self._since:.3f}")
            self._traces.tell(Span(str(self.phase), phase, whole, self._since, now))
        self._since = now

    def _trace_whole(self) -> None:
        """Tell of all of it, once nothing follows and QEMU's last figures are here."""
        record, parent, whole = self.record, Place.told(self.record.trace), self._place()
        if whole is None or not self.phase.settled:
            return
        facts: dict[str, str | int | float] = {
            "elbowroom.vm": self._identity.name, "k8s.namespace.name": self._identity.namespace,
            "elbowroom.attempt": record.attempt, "elbowroom.phase": str(self.phase),
            "elbowroom.bytes": self.progress.transferred_bytes, "elbowroom.passes": self.progress.passes,
        }  # fmt: skip
        if record.downtime_ms is not None:
            facts["elbowroom.downtime_ms"] = record.downtime_ms
        failed = "" if self.phase is TransferPhase.RELEASED else record.message
        lasted = time.monotonic() - record.started_at
        self._traces.tell(Span("transfer", whole, parent, time.time() - lasted, time.time(), facts, failed))

    def _place(self) -> Place | None:
        parent = Place.told(self.record.trace)
        return None if parent is None else parent.below("transfer", str(self.record.attempt))

    # The course of it

    async def run(self, *, resumed: bool) -> None:
        """Bring it to its end, whatever that is."""
        try:
            if not resumed:
                await self._start()
            if self.phase is not TransferPhase.FAILED:
                await self._steer()
        finally:
            # Nothing is said about a move that QEMU cannot be asked about: it may have succeeded. The next agent asks.
            try:
                if self._releasing is not None:
                    await self._releasing
            finally:
                self._trace_whole()

    async def _start(self) -> None:
        record, attempt = self.record, self.record.attempt
        credentials = f"tls-{attempt}"
        try:
            await self._monitor.run("migrate-set-capabilities", capabilities(record.limits))
            tls = {"qom-type": "tls-creds-x509", "id": credentials, "endpoint": "client", "verify-peer": True}
            await self._monitor.run("object-add", {**tls, "dir": self._peer.credentials()})
            await self._add_floor()
            channels = {"multifd-channels": record.limits.multifd_channels} if record.limits.multifd_channels else {}
            await self._monitor.run(
                "migrate-set-parameters",
                {"tls-creds": credentials, "tls-hostname": self._identity.host, **channels, **self._first_parameters()},
            )
            host = f"[{record.to.host}]" if ":" in record.to.host else record.to.host
            await self._monitor.run("migrate", {"uri": f"tcp:{host}:{record.to.migration_port}"})
        except LostError:
            raise
        except MonitorError as error:
            self.record.message = str(error)
            self._end(TransferPhase.FAILED)

    def _first_parameters(self) -> pacing.Parameters:
        return pacing.released(self.record.limits, 0) if self.record.committed else pacing.sending(self.record.limits)

    async def _add_floor(self) -> None:
        nodes = await self._monitor.run("query-named-block-nodes", {"flat": True})
        if not any(node["node-name"] == FLOOR and node.get("dirty-bitmaps") for node in nodes):
            bitmap = {"node": FLOOR, "name": FLOOR, "granularity": FLOOR_GRANULARITY}
            await self._monitor.run("block-dirty-bitmap-add", bitmap)

    async def _steer(self) -> None:
        while True:
            self._wake.clear()
            info = await self._look()
            if self.phase.over:
                return
            if self.record.cancelled:
                await self._cancel_in_qemu()
            elif self._overdue():
                continue
            elif self.record.committed:
                await self._after_commit()
            else:
                await self._before_commit(info)

    async def _look(self) -> dict[str, Any]:
        info = await self._monitor.ask("query-migrate")
        self._status = info.get("status", "none")
        self._note(info)
        if self._status in _STANDING and self._stopped_at is None:
            self._stopped_at = time.monotonic()
        if self._status == "completed" and "ram" in info:
            await self._completed(info)
        elif self._status in _DEAD or self._status == "completed":
            # Without figures, "completed" is about the move that once brought the guest here: this one never began.
            self._ended_badly(info)
        elif self._status == "postcopy-active":
            self._have_it_run()
        elif self._status == "pre-switchover":
            self._at_switch_over()
        return info

    async def _after_commit(self) -> None:
        if self._status == "active":
            await self._set(pacing.released(self.record.limits, self._pace.fastest))
        await self._sleep(_GLANCE_SECONDS if self._pace.fastest else 0.1)
        # While the guest stands still QEMU is not bothered: its events say all.
        end = time.monotonic() + _GLANCE_SECONDS
        while self._status in _STANDING and not self.record.cancelled and time.monotonic() < end:
            self._wake.clear()
            await self._sleep(end - time.monotonic())

    async def _set(self, parameters: pacing.Parameters) -> None:
        """Tell QEMU what it has not been told yet."""
        if parameters != self._parameters:
            await self._monitor.run("migrate-set-parameters", parameters)
            self._parameters = parameters

    async def _before_commit(self, info: dict[str, Any]) -> None:
        if self._status != "active" or not info.get("ram"):
            await self._sleep(0.1)
            return
        if self.phase is TransferPhase.STARTING:
            self._enter(TransferPhase.COPYING)
        if remaining := int(info["ram"]["remaining"]):
            if time.monotonic() < self._settled_at and not pacing.outlasts_window(remaining, self.record.limits):
                await self._sleep(self._settled_at - time.monotonic())
                return
            await self._set(pacing.sending(self.record.limits))
            await self._sleep(pacing.until_next_look(remaining, self._pace.fastest))
            return
        if self.phase is TransferPhase.BRINK:
            await self._set(pacing.waiting())
            await self._sleep(self._pace.hold)
            if self._wake.is_set():
                return
        await self._next_pass()

    async def _next_pass(self) -> None:
        self._passes.clear()
        await self._set(pacing.looking())
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._passes.wait()
        except TimeoutError:
            log.warning("QEMU did not begin a pass", extra={"attempt": self.record.attempt})
        if self.record.committed or self._status != "active":
            return
        await self._set(pacing.waiting())
        self._settled_at = time.monotonic() + pacing.SETTLES
        info = await self._monitor.ask("query-migrate")
        if info.get("status") == "active":
            dirty = int(info["ram"]["remaining"])
            self._pace = self._pace.saw_pass(dirty, self.record.limits)
            self._enter(TransferPhase.BRINK if self._pace.converging else TransferPhase.COPYING)
            self._note(info)

    def _overdue(self) -> bool:
        """Give up what takes too long. True when it has just done so."""
        record, now = self.record, time.monotonic()
        if record.committed_at is None:
            if now - record.started_at <= record.limits.timeout_seconds:
                return False
            self._give_up(f"not ready to switch over within {record.limits.timeout_seconds:g} s")
            return True
        if self._status == "active" and now - record.committed_at > record.limits.switch_over_seconds:
            if record.limits.post_copy:
                self._start_post_copy()
                return False
            self._give_up(f"no switch-over within {record.limits.switch_over_seconds:g} s of the commit")
            return True
        stands_since = max(self._stopped_at or now, record.committed_at)
        if self._status in _STANDING and now - stands_since > _STANDSTILL_SECONDS:
            # The receiver was not told to run the guest, and will not be: it is safe to resume it here.
            self._give_up(
                f"the switch-over did not end within {_STANDSTILL_SECONDS:g} s, so the guest was resumed here"
            )
            return True
        return False

    def _start_post_copy(self) -> None:
        if not self._post_copy:
            self._post_copy = True
            self._call(self._monitor.run("migrate-start-postcopy"))

    def _give_up(self, what: str) -> None:
        seen = self.progress
        dirty = "" if seen.dirty_bytes is None else f", {seen.dirty_bytes >> 20} MiB dirty after the last pass"
        sent = f"{seen.bytes_per_second / 2**20:.1f} MiB/s sent{dirty}, {seen.passes} passes"
        self.cancel(f"{what} ({sent})", phase=TransferPhase.FAILED)

    async def _cancel_in_qemu(self) -> None:
        if self._status != "cancelling":
            await self._monitor.run("migrate_cancel")
        await self._sleep(0.2)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not past a word from anybody."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _note(self, info: dict[str, Any]) -> None:
        ram = info.get("ram") or {}
        if not ram:
            return
        speed = float(ram.get("mbps", 0)) * 1e6 / 8
        self._pace = self._pace.saw_speed(speed, self.record.limits)
        total, remaining = int(ram["total"]), int(ram["remaining"])
        over = info.get("status") == "completed"
        self.progress = Progress(
            percent=100.0 if over else self._percent(remaining, total),
            total_bytes=total, remaining_bytes=remaining, transferred_bytes=int(ram["transferred"]),
            bytes_per_second=self._pace.fastest if over else speed, passes=int(ram.get("dirty-sync-count", 0)),
            dirty_bytes=self._pace.dirty, converging=self._pace.converging,
            throttle_percent=int(info.get("cpu-throttle-percentage", 0)), elapsed_ms=int(info.get("total-time", 0)),
        )  # fmt: skip
        if over or time.monotonic() > self._told_at + _PROGRESS_SECONDS:
            self._told_at = time.monotonic()
            self._changed()

    def _percent(self, remaining: int, total: int) -> float:
        # Later passes are small: what counts is how much of the guest has been sent at least once.
        return 99.0 if self._pace.dirty is not None else max(0.0, round(99.0 * (1 - remaining / total), 1))

    def _let_go(self) -> None:
        """QEMU will never run the guest here again: have the receiver run it, before anything else."""
        if not self.phase.over:
            self._end(TransferPhase.COMPLETED)
        self._have_it_run()
        if self._told:
            self._released()

    def _have_it_run(self) -> None:
        """Tell the receiver, once. In post-copy that is before the end: QEMU cannot go back then either."""
        if self._releasing is None and self.phase is not TransferPhase.RELEASED:
            self._releasing = asyncio.create_task(self.tell_receiver())

    async def _completed(self, info: dict[str, Any]) -> None:
        self._let_go()
        for _ in range(50):  # `completed` can show before its figures do
            if info.get("downtime") is not None and info.get("total-time"):
                break
            await asyncio.sleep(0.002)
            info = await self._monitor.ask("query-migrate")
        self.record.downtime_ms = info.get("downtime")
        self.record.total_ms = info.get("total-time")
        self._note(info)

    def _ended_badly(self, info: dict[str, Any]) -> None:
        self.record.message = self.record.message or info.get("error-desc") or f"QEMU says {self._status}"
        self._end(self.record.ending if self.record.cancelled else TransferPhase.FAILED)

    def _end(self, phase: TransferPhase) -> None:
        self.record.ended = phase
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._enter(phase)
        self._changed()
        if phase in (TransferPhase.CANCELLED, TransferPhase.FAILED):
            self._call(self._peer.quit(self.record.to, self.record.attempt))
            self._call(self._monitor.run("object-del", {"id": f"tls-{self.record.attempt}"}))

    async def finish(self) -> None:
        """Do what a former agent has left to do of a move that QEMU has completed."""
        await self.tell_receiver()
        self._trace_whole()

    async def tell_receiver(self) -> None:
        """Tell the receiver to run the guest, until it has said that it does. The operator may be faster."""
        if await self._peer.release(self.record.to, self.record.attempt, within=_RELEASE_SECONDS):
            self._told = True
            if self._stopped_at is not None:
                self.record.stopped_ms = round((time.monotonic() - self._stopped_at) * 1000, 1)
            if self.phase is TransferPhase.COMPLETED:
                self._released()

    def _released(self) -> None:
        self.record.ended = TransferPhase.RELEASED
        self._enter(TransferPhase.RELEASED)
