"""VMs in pods of our own runner."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError

from elbowroom.core.world import GuestSize
from elbowroom.runner.messages import (
    ChangeLimits,
    Destination,
    Limits,
    Migrate,
    OfAttempt,
    Reason,
    Receive,
    Resize,
)
from elbowroom.runner.options import RECEIVE
from elbowroom.runner.tls import Identity

from .interface import NotAVMError, RefusedError, UnreachableError, VirtualMachine
from .judgement import judge
from .receiver import MOVABLE_LABEL, VM_LABEL, receiver_pod, runner_container

if TYPE_CHECKING:
    from elbowroom.runner.messages import Message, Status

    from .client import RunnerClient
    from .interface import Pod, Transfer, TransferLimits

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_ATTEMPT = re.compile(r"[0-9]{1,18}")
_RESIZE_SECONDS = 10.0
_TOLD = 64
"""How much of a name that somebody else has chosen is told."""


class QemuDriver:
    """Implements `Driver` against `elbowroom-runner`."""

    name: ClassVar[str] = "qemu"
    hands_over_itself: ClassVar[bool] = False

    def __init__(self, client: RunnerClient, scheduler: str | None = None) -> None:
        """Take a client that speaks as the operator, and the scheduler that places receivers."""
        self._client, self._scheduler = client, scheduler

    # About pods

    def describe(self, pod: Pod) -> VirtualMachine:
        """Read a VM from its pod."""
        meta, spec = pod["metadata"], pod["spec"]
        labels = meta.get("labels", {})
        name = labels.get(VM_LABEL)
        if name is None:
            raise NotAVMError(f"pod {meta['name']} has no label {VM_LABEL}")
        if not _NAME.fullmatch(name):
            raise NotAVMError(f"pod {meta['name']}: {VM_LABEL}={name} is not a name such as db-1")
        why = _why_not_movable(pod)
        return VirtualMachine(
            name=name, namespace=meta["namespace"], pod=meta["name"], uid=meta.get("uid", ""),
            node=spec.get("nodeName"), address=_podip(pod), movable=not why,
            why_not_movable=why, attempt=_attempt(pod),
        )  # fmt: skip

    def receiver_pod(self, pod: Pod, *, name: str, attempt: int, node: str | None = None) -> dict[str, Any]:
        """Build the receiver of a VM."""
        built = receiver_pod(pod, name=name, attempt=attempt, node=node)
        if self._scheduler is not None:
            built["spec"]["schedulerName"] = self._scheduler
        return built

    # About guests

    async def prepare(
        self, source: VirtualMachine, receiver: VirtualMachine, attempt: int, limits: TransferLimits
    ) -> None:
        """Have the receiver start a QEMU of the guest's shape."""
        status = await self._status(source)
        if status.shape is None:
            raise UnreachableError(f"the runner of {source.name} does not know its guest's shape yet")
        if status.obstacle:
            raise RefusedError(Reason.NOT_MOVABLE, status.obstacle)
        call = Receive(
            attempt=attempt, shape=status.shape, multifd_channels=limits.multifd_channels, post_copy=limits.post_copy
        )
        await self._call(receiver, "receive", call)

    async def start(
        self, source: VirtualMachine, receiver: VirtualMachine, attempt: int, limits: TransferLimits, trace: str = ""
    ) -> None:
        """Begin to send."""
        call = Migrate(attempt=attempt, to=Destination(host=_address(receiver)), limits=_limits(limits))
        await self._client.call(_address(source), _identity(source), "migrate", call, trace=trace)

    async def observe(
        self,
        source: VirtualMachine,
        receiver: VirtualMachine | None,
        attempt: int,
        *,
        after: int = 0,
        wait: float = 0.0,
    ) -> Transfer:
        """Ask both sides, and judge."""
        at_source = await self._try_status(source, after=after, wait=wait)
        return judge(at_source, await self._try_status(receiver), attempt)

    async def change_limits(self, source: VirtualMachine, attempt: int, limits: TransferLimits) -> None:
        """Go on with other limits."""
        await self._call(source, "limits", ChangeLimits(attempt=attempt, limits=_limits(limits)))

    async def commit(self, source: VirtualMachine, attempt: int) -> None:
        """Let the guest switch over."""
        await self._call(source, "commit", OfAttempt(attempt=attempt))

    async def cancel(self, source: VirtualMachine, receiver: VirtualMachine | None, attempt: int) -> None:
        """End the attempt: first where the guest is, then where it will not go."""
        await self._call(source, "cancel", OfAttempt(attempt=attempt))
        if receiver is not None and receiver.address is not None:
            try:
                await self._call(receiver, "quit", OfAttempt(attempt=attempt))
            except UnreachableError:
                return  # gone already, as it should be: the source has told it

    async def release(self, receiver: VirtualMachine, attempt: int) -> None:
        """Run the guest in the receiver."""
        await self._call(receiver, "release", OfAttempt(attempt=attempt))

    async def retire(self, source: VirtualMachine, attempt: int) -> None:
        """End the source's QEMU."""
        await self._call(source, "quit", OfAttempt(attempt=attempt))

    async def guest(self, vm: VirtualMachine) -> tuple[GuestSize, int]:
        """Return what the guest has, and the number of the last order that came to it."""
        status = await self._status(vm)
        return _size(status), status.shape.order if status.shape is not None else 0

    async def resize(
        self, vm: VirtualMachine, *, cpus: int | None = None, memory: int | None = None, order: int = 0
    ) -> GuestSize:
        """Ask for another size."""
        call = Resize(cpus=cpus, memory=memory, order=order, wait_seconds=_RESIZE_SECONDS)
        status = await self._call(vm, "resize", call)
        return _size(status or await self._status(vm))

    async def _status(self, vm: VirtualMachine, *, after: int = -1, wait: float = 0.0) -> Status:
        return await self._client.status(_address(vm), _identity(vm), after=after, wait=wait)

    async def _try_status(self, vm: VirtualMachine | None, *, after: int = -1, wait: float = 0.0) -> Status | None:
        if vm is None or vm.address is None:
            return None
        try:
            return await self._status(vm, after=after, wait=wait)
        except (UnreachableError, RefusedError):
            return None  # one that will not say is as good as one that cannot: what is decided must not wait for it

    async def _call(self, vm: VirtualMachine, name: str, message: Message) -> Status | None:
        return await self._client.call(_address(vm), _identity(vm), name, message)


def _identity(vm: VirtualMachine) -> Identity:
    return Identity(vm.namespace, vm.name)


def _podip(pod: Pod) -> str | None:
    """Return where a pod's runner is. One that has ended has none, and its address may be another pod's by now."""
    status = pod.get("status", {})
    return None if status.get("phase") in ("Succeeded", "Failed") else status.get("podIP") or None


def _address(vm: VirtualMachine) -> str:
    if vm.address is None:
        raise UnreachableError(f"pod {vm.pod} has no address: it has not started, or has ended")
    return vm.address


def _limits(limits: TransferLimits) -> Limits:
    try:
        return Limits(
            bandwidth=limits.bandwidth, downtime_ms=limits.downtime_ms, timeout_seconds=limits.timeout_seconds,
            switch_over_seconds=limits.switch_over_seconds, auto_converge=limits.auto_converge,
            multifd_channels=limits.multifd_channels, post_copy=limits.post_copy,
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        raise RefusedError(Reason.INVALID, f"transfer.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _size(status: Status) -> GuestSize:
    if status.size is None:
        raise RefusedError(Reason.NOT_RUNNING, f"the guest of {status.vm} is {status.state}: it has no size")
    return GuestSize(cpus=status.size.cpus, memory=status.size.memory)


def _why_not_movable(pod: Pod) -> str:
    meta, spec = pod["metadata"], pod["spec"]
    if meta.get("labels", {}).get(MOVABLE_LABEL) != "true":
        return f"its owner has not set {MOVABLE_LABEL}=true"
    policy = spec.get("restartPolicy", "Always")
    if policy != "Never":
        return f"its restartPolicy is {policy}: a restart would boot a second copy of the guest"
    owners = [owner for owner in meta.get("ownerReferences", ()) if owner.get("controller")]
    if owners:
        owner = f"{owners[0]['kind']} {owners[0]['name']}"[:_TOLD]
        return f"{owner} would make it anew: a second copy of the guest"
    if "kubernetes.io/hostname" in spec.get("nodeSelector", {}):
        return "its nodeSelector ties it to its node"
    return ""


def _attempt(pod: Pod) -> int:
    name = runner_container(pod)
    for container in pod["spec"]["containers"]:
        if container["name"] == name:
            for item in container.get("env", ()):
                if item["name"] == RECEIVE and _ATTEMPT.fullmatch(str(item.get("value", ""))):
                    return int(item["value"])
    return 0
