"""Every call about a guest, decided one at a time.

Decisions are made on the record, without waiting in between: so commit and cancel cannot both be granted. The record
is written before QEMU hears of a decision; an agent that takes over from a dead one finds it there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from typing import TYPE_CHECKING

from elbowroom.traces import Place

from . import hotplug
from .command import WrongShapeError, check_shape
from .machine import End, ExitCode, Machine, RefusedError
from .messages import MIGRATION_PORT, GuestState, Limits, Reason, Size, TransferPhase
from .monitor import MonitorError
from .outgoing import capabilities
from .record import IncomingRecord, OutgoingRecord

if TYPE_CHECKING:
    from .messages import ChangeLimits, Migrate, Receive, Resize
    from .outgoing import Transfer

log = logging.getLogger(__name__)
_CANCEL_SECONDS = 15.0
_YANK_SECONDS = 5.0
_FIXED_LIMITS = ("multifd_channels", "post_copy", "auto_converge")


class Calls:
    """What can be asked of one machine."""

    def __init__(self, machine: Machine) -> None:
        """Take the machine."""
        self._machine = machine
        self._receiving = asyncio.Lock()
        self._releasing = asyncio.Lock()
        self._resizing = asyncio.Lock()

    # Moving in

    async def receive(self, call: Receive) -> None:
        """Start a QEMU that waits for the guest."""
        machine = self._machine
        if machine.receiving != call.attempt:
            made_for = machine.receiving or "none"
            raise RefusedError(
                Reason.STALE_ATTEMPT, f"this pod was made for attempt {made_for}, not for {call.attempt}"
            )
        async with self._receiving:  # a call that is repeated waits for the first one
            incoming = machine.record.incoming
            if incoming is not None and incoming.listening:
                return
            if incoming is not None:
                await self._cannot_receive("an earlier call was cut short")
            try:
                check_shape(machine.config, machine.accelerator, call.shape)
            except WrongShapeError as error:
                raise RefusedError(Reason.WRONG_SHAPE, str(error)) from error
            machine.record.incoming = IncomingRecord(attempt=call.attempt)
            machine.changed()
            try:
                await machine.boot(call.shape, incoming=True)
                await self._listen(call)
            except (MonitorError, OSError) as error:
                await self._cannot_receive(str(error))

    async def _cannot_receive(self, why: str) -> None:
        # Half a receiver is none; the next attempt gets a new one.
        await self._machine.quit_qemu()
        self._machine.finish(End(ExitCode.FAILED, f"this pod cannot receive a guest: {why}"))
        raise RefusedError(Reason.CANNOT_RECEIVE, why)

    async def _listen(self, call: Receive) -> None:
        machine = self._machine
        limits = Limits(multifd_channels=call.multifd_channels, post_copy=call.post_copy)
        await machine.ask("migrate-set-capabilities", capabilities(limits))
        credentials = {"endpoint": "server", "verify-peer": True, "dir": machine.peer.credentials()}
        await machine.ask("object-add", {"qom-type": "tls-creds-x509", "id": "tls-in", **credentials})
        # The stream of another VM is refused by QEMU itself.
        names = machine.identity.distinguished_names
        rules = [{"match": name, "policy": "allow", "format": "exact"} for name in names]
        await machine.ask("object-add", {"qom-type": "authz-list", "id": "sender", "policy": "deny", "rules": rules})
        channels = {"multifd-channels": call.multifd_channels} if call.multifd_channels else {}
        await machine.ask("migrate-set-parameters", {"tls-creds": "tls-in", "tls-authz": "sender", **channels})
        host = "[::]" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
        await machine.ask("migrate-incoming", {"uri": f"tcp:{host}:{MIGRATION_PORT}"})
        assert machine.record.incoming is not None  # noqa: S101
        machine.record.incoming.listening = True
        machine.changed()

    async def release(self, attempt: int) -> None:
        """Run the guest that has arrived: its source has said that it will never run it again."""
        machine, incoming = self._machine, self._machine.record.incoming
        if incoming is None or incoming.attempt != attempt:
            raise RefusedError(Reason.STALE_ATTEMPT, f"attempt {attempt} is not the one that this pod was made for")
        async with self._releasing:  # who asks again waits for the answer
            if not incoming.released:
                if not machine.arrived:
                    raise RefusedError(Reason.NOT_YET, f"the guest has not arrived yet: it is {machine.state}")
                incoming.released = True
                machine.changed()
            await machine.resume()

    # Moving away

    async def migrate(self, call: Migrate, trace: str = "") -> None:
        """Begin to send the guest away."""
        machine, current = self._machine, self._machine.record.outgoing
        if current is not None and current.attempt == call.attempt:
            if current.to != call.to:
                where = f"attempt {call.attempt} goes to {current.to.host}, not to {call.to.host}"
                raise RefusedError(Reason.BUSY, where)
            if current.ended in (TransferPhase.CANCELLED, TransferPhase.FAILED):
                raise RefusedError(Reason.ENDED, f"attempt {call.attempt} is over: {current.message}")
            return
        self._check_may_move(call.attempt)
        machine.record.last_attempt = call.attempt
        machine.record.outgoing = OutgoingRecord(
            attempt=call.attempt, to=call.to, limits=call.limits, started_at=time.monotonic(),
            trace=trace if Place.told(trace) else "",
        )  # fmt: skip
        machine.changed()
        machine.start_transfer(machine.record.outgoing, resumed=False)

    def _check_may_move(self, attempt: int) -> None:
        machine = self._machine
        newest = machine.record.last_attempt
        if attempt <= newest:
            raise RefusedError(Reason.STALE_ATTEMPT, f"attempt {attempt} is not newer than {newest}")
        if machine.moving and machine.transfer is not None:
            under_way = machine.transfer.record.attempt
            raise RefusedError(Reason.BUSY, f"attempt {under_way} is under way; cancel it first")
        machine.check_running("move")
        if machine.record.obstacle:
            raise RefusedError(Reason.NOT_MOVABLE, machine.record.obstacle)
        if self._resizing.locked():
            raise RefusedError(Reason.BUSY, "the guest is being resized")

    def _current(self, attempt: int) -> Transfer:
        transfer = self._machine.transfer
        if transfer is None or transfer.record.attempt != attempt:
            newest = self._machine.record.last_attempt
            reason = Reason.STALE_ATTEMPT if attempt <= newest else Reason.NOT_FOUND
            raise RefusedError(reason, f"attempt {attempt} is not under way here; the newest known is {newest}")
        return transfer

    def commit(self, attempt: int) -> None:
        """Let an attempt switch over. From here on it cannot be cancelled."""
        transfer = self._current(attempt)
        if transfer.record.committed:
            return
        if transfer.record.cancelled or transfer.phase.over:
            reason = Reason.CANCELLED if transfer.record.cancelled else Reason.ENDED
            raise RefusedError(reason, f"attempt {attempt} is over: {transfer.record.message}")
        transfer.commit()

    async def cancel(self, attempt: int) -> None:
        """End an attempt, the guest stays. One that never came is refused when it comes."""
        machine = self._machine
        if attempt > machine.record.last_attempt:
            machine.record.last_attempt = attempt
            machine.changed()
        known = machine.transfer is not None and machine.transfer.record.attempt == attempt
        if attempt == machine.record.last_attempt and not known and attempt != machine.receiving:
            return
        transfer = self._current(attempt)
        if transfer.record.committed:
            raise RefusedError(Reason.COMMITTED, f"attempt {attempt} is committed: it cannot be cancelled any more")
        if not transfer.record.cancelled and not transfer.phase.over:
            transfer.cancel("cancelled")
        end = time.monotonic() + _CANCEL_SECONDS
        while not transfer.phase.over and time.monotonic() < end:
            await machine.news(machine.revision, end - time.monotonic())
        if not transfer.phase.over:
            raise RefusedError(Reason.MONITOR, f"QEMU did not cancel attempt {attempt} within {_CANCEL_SECONDS:g} s")

    def change_limits(self, call: ChangeLimits) -> None:
        """Go on with other limits."""
        transfer = self._current(call.attempt)
        if transfer.phase.over:
            raise RefusedError(Reason.ENDED, f"attempt {call.attempt} is over: {transfer.record.message}")
        for field in _FIXED_LIMITS:
            if getattr(call.limits, field) != getattr(transfer.record.limits, field):
                raise RefusedError(Reason.INVALID, f"{Limits.model_fields[field].alias}: cannot be changed under way")
        transfer.change_limits(call.limits)

    # Size

    async def resize(self, call: Resize) -> Size:
        """Give the guest another size, and return what it has then."""
        machine = self._machine
        async with self._resizing:
            machine.check_running("resize")
            shape = machine.record.shape
            if machine.moving or shape is None:
                raise RefusedError(Reason.BUSY, "the guest is being moved; it can be resized before or after that")
            if call.order < shape.order:
                raise RefusedError(
                    Reason.STALE_ATTEMPT, f"order {call.order} comes late: {shape.order} has come already"
                )
            try:
                hotplug.check_size(shape, call.cpus, call.memory)
            except hotplug.ImpossibleSizeError as error:
                raise RefusedError(Reason.INVALID, str(error)) from error
            machine.record.shape = shape.model_copy(update={"order": call.order})
            machine.changed()
            try:
                await hotplug.request(machine.connection, shape, call.cpus, call.memory)
            except hotplug.NotNowError as error:
                raise RefusedError(Reason.BUSY, str(error)) from error
            else:
                now = await hotplug.size(machine.connection, shape)
                wanted = Size(cpus=call.cpus or now.cpus, memory=call.memory or now.memory)
                return await hotplug.until_size(machine.connection, shape, wanted, call.wait_seconds)
            finally:
                await machine.note_shape()

    # The end

    async def quit(self, attempt: int, *, by_source: bool) -> None:
        """End a QEMU that does not run the guest: a receiver that is not needed, or what is left of a source."""
        machine, state = self._machine, self._machine.state
        incoming = machine.record.incoming
        received = incoming is not None and incoming.released
        if state is GuestState.ARRIVED and not by_source:
            raise RefusedError(
                Reason.GUEST_RUNS_HERE, "this may be the guest's only copy: its source has to say that it runs there"
            )
        if machine.receiving is not None and not received:
            if machine.receiving != attempt:
                raise RefusedError(Reason.STALE_ATTEMPT, f"this pod was made for attempt {machine.receiving}")
            await machine.quit_qemu()
            machine.finish(End(ExitCode.OK, f"attempt {attempt} does not need this receiver"))
        elif state is GuestState.MOVED:
            self._current(attempt)
            await machine.quit_qemu()
        else:
            raise RefusedError(Reason.GUEST_RUNS_HERE, f"the guest is {state} here; delete the pod to shut it down")

    async def stop(self, within: float) -> End:
        """End the guest cleanly, unless it lives elsewhere; this is what SIGTERM means."""
        machine = self._machine
        log.info("asked to stop", extra={"state": machine.state})
        if machine.transfer is not None:
            await self._settle(machine.transfer)
        if machine.state is GuestState.INCOMING and machine.taking_in:
            await self._break_off()
        while machine.state is GuestState.ARRIVED:  # perhaps the only copy: only the kubelet ends this wait
            await machine.news(machine.revision, 60)
        state = machine.state
        if state in (GuestState.RUNNING, GuestState.PANICKED, GuestState.PAUSED) and machine.qemu is not None:
            with contextlib.suppress(MonitorError):
                await machine.ask("system_powerdown")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await machine.qemu.ended()
        clean = machine.qemu is None or not machine.qemu.alive
        await machine.quit_qemu()
        if state is GuestState.MOVED:
            return End(ExitCode.OK, "the guest has moved away")
        told = "the guest has shut down" if clean else "the guest did not shut down in time and was stopped"
        return End(ExitCode.OK, told)

    async def _settle(self, transfer: Transfer) -> None:
        """Bring a move to its end before the pod goes: called off if it may be, else until its receiver was told.

        A move that is committed has limits of its own, and the kubelet has the last word.
        """
        if not transfer.phase.over and not transfer.record.committed:
            transfer.cancel("the pod is being stopped")
        while not transfer.phase.settled and self._machine.state is not GuestState.ENDED:
            await self._machine.news(self._machine.revision, 60)

    async def _break_off(self) -> None:
        """Cut the stream: the source then fails and keeps its guest, unless all of it is here already."""
        machine = self._machine
        with contextlib.suppress(MonitorError):
            await machine.ask("yank", {"instances": [{"type": "migration"}]})
        end = time.monotonic() + _YANK_SECONDS
        while machine.state is GuestState.INCOMING and time.monotonic() < end and not machine.finished.done():
            await machine.news(machine.revision, end - time.monotonic())
