"""One guest: who runs it, what it has, and what happened to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from elbowroom import __version__
from elbowroom.traces import Silent

from . import hotplug
from .command import arguments, default_shape
from .messages import (
    GuestState,
    Incident,
    IncidentKind,
    Incoming,
    Reason,
    Size,
    Status,
    TransferPhase,
)
from .monitor import Monitor, MonitorError, TooOldError
from .outgoing import Transfer
from .process import Qemu, choose_accelerator
from .record import IncomingRecord, OutgoingRecord, Record, RecordFile

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from elbowroom.traces import Teller

    from .command import Paths
    from .config import VMConfig
    from .messages import Shape
    from .peer import Peer
    from .tls import Identity

log = logging.getLogger(__name__)
_CANCEL_SECONDS = 15.0
_QUIT_SECONDS = 5.0
_LAST_WORDS_SECONDS = 1.0
_WAIT_SECONDS = 900.0
_NEWS_SECONDS = 0.01
_UNPLUGGED = "a vCPU was unplugged, and under TCG QEMU waits for it for ever when it begins to migrate"


class RefusedError(Exception):
    """A call that is not granted, with the reason that its caller gets."""

    def __init__(self, reason: Reason, message: str) -> None:
        """Say why."""
        super().__init__(message)
        self.reason, self.message = reason, message


class ExitCode(IntEnum):
    """How a pod can end."""

    OK = 0
    FAILED = 1


@dataclass(frozen=True)
class End:
    """Why the agent ends, and with it the pod."""

    code: ExitCode
    message: str


class Machine:
    """One guest in this pod."""

    def __init__(  # noqa: PLR0913
        self, config: VMConfig, identity: Identity, paths: Paths, peer: Peer, *, receiving: int | None,
        traces: Teller | None = None,
    ) -> None:  # fmt: skip
        """Say what to run; `receiving` is the attempt that this pod was made for, if it was made for one."""
        self._traces: Teller = traces or Silent()
        self.config, self.identity, self.paths, self.peer, self.receiving = config, identity, paths, peer, receiving
        self.accelerator = choose_accelerator(config.accelerator)
        self.record = Record(last_attempt=0)
        self._file = RecordFile(paths.record)
        self._written = ""
        self.finished: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.qemu: Qemu | None = None
        self._monitor: Monitor | None = None
        self.transfer: Transfer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._run_state = "none"
        self.taking_in = False
        self.arrived = False
        self._complete = False
        self._resumed = False
        self._panicked = False
        self._shut_down = ""
        self._quitting = False
        self.size: Size | None = None
        self.revision = 0
        self._news = asyncio.Event()
        self._telling: asyncio.TimerHandle | None = None

    # Its life

    async def open(self) -> None:
        """Boot the guest, wait to receive one, or take over what a former agent has left."""
        self.record = self._file.load() or Record(last_attempt=self.receiving or 0)
        if self.record.qemu is not None:
            self.qemu = Qemu.find(self.record.qemu)
            await self._take_over()
        elif (found := Qemu.find_by_note(self.paths.pid)) is not None:
            # Its agent died between starting it and writing that down.
            self.qemu, self.record.qemu = found, found.process
            self.record.shape = self.record.shape or default_shape(self.config, self.accelerator)
            await self._take_over()
        elif self.receiving is None:
            await self.boot(default_shape(self.config, self.accelerator), incoming=False)
        self.changed()
        if self.receiving is not None:
            self.spawn(self._wait_for_guest())

    async def _wait_for_guest(self) -> None:
        """End a receiver that nobody has sent anything to: whoever made it has forgotten it."""
        await asyncio.sleep(_WAIT_SECONDS)
        if self.state is GuestState.WAITING or (self.state is GuestState.INCOMING and not self.taking_in):
            await self.quit_qemu()
            self.finish(End(ExitCode.FAILED, f"nobody has sent a guest within {_WAIT_SECONDS:g} s"))

    async def boot(self, shape: Shape, *, incoming: bool) -> None:
        """Start QEMU."""
        command = arguments(self.identity.name, self.config, shape, self.paths, incoming=incoming)
        log.info("starting QEMU", extra={"command": command})
        self.record.shape = shape
        self.qemu = Qemu.start(command)
        self.record.qemu = self.qemu.process
        self.changed()
        await self._attach()

    async def _take_over(self) -> None:
        self._incident(IncidentKind.RUNNER_RESTART, "the runner's agent was restarted")
        if self.qemu is not None:
            await self._attach()
        outgoing = self.record.outgoing
        if outgoing is not None:
            self._take_over_transfer(outgoing)
        if self.qemu is None:
            self._on_qemu_end("while no agent was there")
            return
        incoming = self.record.incoming
        if incoming is not None and outgoing is None:
            self.arrived = self._run_state != "inmigrate"
            self._on_incoming(str((await self.connection.ask("query-migrate")).get("status", "setup")))
            if incoming.released:
                await self.resume()

    def _take_over_transfer(self, outgoing: OutgoingRecord) -> None:
        if outgoing.ended is None and self.qemu is not None:
            self.start_transfer(outgoing, resumed=True)
            return
        self.transfer = self._transfer_of(outgoing)
        if outgoing.ended is TransferPhase.COMPLETED:
            self.spawn(self.transfer.finish())

    async def _attach(self) -> None:
        assert self.qemu is not None  # noqa: S101
        self.spawn(self._watch_end(self.qemu))
        try:
            self._monitor = await Monitor.connect(
                self.paths.monitor, alive=lambda: self.qemu is not None and self.qemu.alive
            )
        except TooOldError:
            self.qemu.kill()
            raise
        self.spawn(self._listen(self._monitor))
        self._run_state = str((await self._monitor.ask("query-status"))["status"])
        await self.note_shape()

    async def note_shape(self) -> None:
        """Write down what is plugged into the guest: a receiver has to have the same."""
        if self.record.shape is None or self.qemu is None or not self.qemu.alive:
            return
        with contextlib.suppress(MonitorError):  # then the next agent does it
            self.record.shape = await hotplug.shape(self.connection, self.record.shape)
        self.changed()

    def spawn(self, awaitable: Coroutine[Any, Any, None]) -> None:
        """Have something done besides; when it fails, the agent does."""
        task = asyncio.create_task(awaitable)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The agent ends; its successor looks at QEMU with fresh eyes. The guest does not notice.
            log.error("the agent gives up", exc_info=error)
            if not self.finished.done():
                self.finished.set_exception(error)

    async def close(self) -> None:
        """Let go; QEMU runs on if it does."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._monitor is not None:
            await self._monitor.close()

    def finish(self, end: End) -> None:
        """Have the agent end."""
        if not self.finished.done():
            self.finished.set_result(end)
        self.changed()

    # What QEMU says

    async def _listen(self, monitor: Monitor) -> None:
        async for event in monitor.events():
            self._on_event(str(event["event"]), event.get("data") or {})
        await asyncio.sleep(_LAST_WORDS_SECONDS)  # when QEMU has ended, `_watch_end` says why
        if self.qemu is not None and self.qemu.alive and not self._quitting:
            raise MonitorError("the connection to QEMU is lost")

    def _on_event(self, name: str, data: dict[str, Any]) -> None:
        if self.transfer is not None:
            self.transfer.on_event(name, data)
        if name == "MIGRATION_PASS":
            return
        log.info("QEMU", extra={"event": name, "data": data})
        match name:
            case "STOP" | "RESUME":
                self._run_state = "running" if name == "RESUME" else "paused"
            case "MIGRATION":
                self._on_incoming(str(data["status"]))
            case "RESET":
                self._panicked = False
                self._incident(IncidentKind.RESET, f"the guest was reset ({data.get('reason', 'unknown')})")
            case "GUEST_PANICKED":
                self._panicked = True
                self._incident(IncidentKind.PANIC, "the guest's kernel panicked")
            case "SHUTDOWN":
                self._shut_down = str(data.get("reason", "unknown"))
            case "DEVICE_DELETED" if hotplug.is_cpu(str(data["path"])):
                self.record.obstacle = _UNPLUGGED if self.accelerator == "tcg" else ""
                self.spawn(self.note_shape())
            case "BLOCK_IO_ERROR":
                self._incident(IncidentKind.IO_ERROR, f"{data.get('operation')} failed: {data.get('reason')}")
        self.changed()

    def _on_incoming(self, status: str) -> None:
        if self.transfer is None:
            self.taking_in = self.taking_in or status != "setup"
            # In post-copy the guest may run as soon as its vCPUs are here; QEMU fetches its memory while it does.
            self.arrived = self.arrived or status in ("postcopy-active", "completed")
            self._complete = self._complete or status == "completed"

    async def _watch_end(self, qemu: Qemu) -> None:
        await qemu.ended()
        await asyncio.sleep(0.05)  # its last events may still be in the socket
        self._on_qemu_end(qemu.how_it_ended())

    def _on_qemu_end(self, how: str) -> None:
        state = self.state
        self._run_state = "ended"
        if state is GuestState.MOVED or self._quitting:
            self.changed()
        elif state in (GuestState.INCOMING, GuestState.ARRIVED):
            self.finish(End(ExitCode.FAILED, f"the guest did not arrive: QEMU ended {how}"))
        elif self._shut_down.startswith("guest-shutdown"):
            self._incident(IncidentKind.SHUTDOWN, "the guest shut itself down")
            self.finish(End(ExitCode.OK, "the guest shut itself down"))
        else:
            self._incident(IncidentKind.DEATH, f"QEMU ended {how}, and the guest with it")
            self.finish(End(ExitCode.FAILED, f"QEMU ended {how}, and the guest with it"))

    def _incident(self, kind: IncidentKind, message: str) -> None:
        transfer, incoming = self.transfer, self.record.incoming
        moving = transfer.record.attempt if transfer is not None and not transfer.phase.over else None
        attempt = moving or (incoming.attempt if incoming is not None else None)
        log.warning("incident", extra={"kind": kind, "detail": message, "attempt": attempt})
        self.record.add(Incident(kind=kind, at=datetime.now(UTC), attempt=attempt, message=message))
        self.changed()

    # What others see

    @property
    def state(self) -> GuestState:
        """Tell who runs the guest, as far as this pod knows."""
        if self.transfer is not None and (moved := self.transfer.guest_state) is not None:
            return moved
        if self._run_state == "ended":
            return GuestState.ENDED
        if self.record.qemu is None:
            return GuestState.STARTING if self.receiving is None else GuestState.WAITING
        if self.record.incoming is not None and not self.record.incoming.released:
            return GuestState.ARRIVED if self.arrived else GuestState.INCOMING
        if self._panicked:
            return GuestState.PANICKED
        known = {"running": GuestState.RUNNING, "none": GuestState.STARTING, "prelaunch": GuestState.STARTING}
        return known.get(self._run_state, GuestState.PAUSED)

    @property
    def moving(self) -> bool:
        """Tell whether a transfer is under way."""
        return self.transfer is not None and not self.transfer.phase.over

    async def status(self) -> Status:
        """Return all that is known."""
        if self.state is GuestState.RUNNING and not self.moving and self.record.shape is not None:
            with contextlib.suppress(MonitorError):  # QEMU may be ending: the old answer is the best there is
                self.size = await hotplug.size(self.connection, self.record.shape)
        incoming = self.record.incoming
        return Status(
            revision=self.revision, vm=self.identity.name, namespace=self.identity.namespace, runner=__version__,
            qemu=self._monitor.version if self._monitor else None, state=self.state, size=self.size,
            shape=self.record.shape, last_attempt=self.record.last_attempt, obstacle=self.record.obstacle,
            incidents=tuple(self.record.incidents),
            incoming=None if incoming is None else self._incoming(incoming),
            outgoing=None if self.transfer is None else self.transfer.view(),
        )  # fmt: skip

    def _incoming(self, incoming: IncomingRecord) -> Incoming:
        complete = self._complete or self.record.outgoing is not None
        return Incoming(attempt=incoming.attempt, released=incoming.released, complete=complete)

    async def news(self, after: int, within: float) -> None:
        """Wait until something has changed since a revision. A new agent counts from the start: that is news, too."""
        end = time.monotonic() + within
        with contextlib.suppress(TimeoutError):
            while self.revision == after and time.monotonic() < end:
                async with asyncio.timeout(end - time.monotonic()):
                    await self._news.wait()

    def changed(self) -> None:
        """Write the record, and tell who waits for news: a moment later, QEMU's next event may be urgent."""
        self.revision += 1
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_NEWS_SECONDS, self._tell)
        text = self.record.model_dump_json()
        if text != self._written:
            self._file.save(self.record)
            self._written = text

    def _tell(self) -> None:
        self._telling = None
        self._news.set()
        self._news = asyncio.Event()

    @property
    def connection(self) -> Monitor:
        """QEMU's monitor."""
        if self._monitor is None:
            raise RefusedError(Reason.NOT_RUNNING, f"there is no QEMU here: the guest is {self.state}")
        return self._monitor

    async def ask(self, command: str, arguments: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        """Have QEMU do something, and return its answer."""
        return await self.connection.run(command, arguments)

    def check_running(self, what: str) -> None:
        """Refuse what takes a guest that runs here."""
        if self.state is not GuestState.RUNNING:
            reason = Reason.NOT_YET if self.state is GuestState.STARTING else Reason.NOT_RUNNING
            raise RefusedError(reason, f"there is no running guest here to {what}: it is {self.state}")

    async def resume(self) -> None:
        """Run the guest that was released to us, once: a guest that is paused later has other reasons."""
        if not self._resumed and self.record.outgoing is None:
            if self._run_state != "running":
                await self.ask("cont")
                log.info("the guest runs here")
            self._resumed = True

    async def answers(self) -> None:
        """Fail when QEMU should answer and does not."""
        if self._monitor is not None and self.qemu is not None and self.qemu.alive:
            await self._monitor.run("query-status")

    # Moves

    def start_transfer(self, record: OutgoingRecord, *, resumed: bool) -> None:
        """Begin a move, or go on with one that a former agent has begun."""
        self.transfer = self._transfer_of(record)
        self.spawn(self._run_transfer(self.transfer, resumed=resumed))

    async def _run_transfer(self, transfer: Transfer, *, resumed: bool) -> None:
        try:
            await transfer.run(resumed=resumed)
        except MonitorError:
            await asyncio.sleep(_LAST_WORDS_SECONDS)
            if self.qemu is not None and self.qemu.alive:
                raise  # else `_watch_end` says what has happened

    def _transfer_of(self, record: OutgoingRecord) -> Transfer:
        return Transfer(self._monitor, record, self.peer, self.identity, self.changed, self._traces)

    # The end

    async def quit_qemu(self) -> None:
        """End QEMU, whatever it does: the caller knows that the guest is not in it, or has to go."""
        self._quitting = True
        if self.qemu is None or not self.qemu.alive:
            return
        with contextlib.suppress(MonitorError, RefusedError):
            await self.ask("quit")
        try:
            async with asyncio.timeout(_QUIT_SECONDS):
                await self.qemu.ended()
        except TimeoutError:
            self.qemu.kill()
            await self.qemu.ended()
