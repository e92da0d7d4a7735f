"""The driver's Protocol and its values.

A driver answers two kinds of questions. Those about pods are pure: what VM is this, what does its receiver look like.
Those about guests are calls, and each of them is idempotent, carries the attempt's number and may be repeated by
anybody at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from elbowroom.core.world import GuestSize, TransferState

Pod = Mapping[str, Any]
"""A pod as the API server writes it."""


class DriverError(Exception):
    """Something about a VM could not be done. What is worth another try says so by its class."""


class NotAVMError(DriverError):
    """The pod is none of this driver's VMs; the message says what is missing."""


class UnreachableError(DriverError):
    """Nobody answers, or not yet: worth another try later. What was asked may or may not have been done."""


class RefusedError(DriverError):
    """The VM's side says no, and will say no again."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason for those who act on it."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class VirtualMachine:
    """A VM in a pod."""

    name: str
    namespace: str
    pod: str
    uid: str
    node: str | None
    address: str | None
    """Where its pod can be called; nothing before it runs."""
    movable: bool
    why_not_movable: str
    attempt: int
    """The attempt that its pod was made for; 0 where the guest has booted. The next one has to be higher."""


@dataclass(frozen=True)
class TransferLimits:
    """What a move may cost."""

    bandwidth: int = 1 << 30
    downtime_ms: int = 300
    timeout_seconds: float = 600
    switch_over_seconds: float = 60
    auto_converge: bool = True
    multifd_channels: int = 0
    post_copy: bool = False


@dataclass(frozen=True)
class Transfer:
    """What is known about a move."""

    attempt: int
    state: TransferState
    message: str = ""
    committed: bool = False
    percent: float = 0.0
    transferred_bytes: int = 0
    remaining_bytes: int = 0
    bytes_per_second: float = 0.0
    converging: bool | None = None
    downtime_ms: int | None = None
    stopped_ms: float | None = None
    revision: int = 0
    """Pass it back to `observe` to wait for news."""


@runtime_checkable
class Driver(Protocol):
    """One way to run VMs."""

    name: ClassVar[str]
    hands_over_itself: ClassVar[bool]
    """True where the platform's own controller replaces the source's pod by the receiver's."""

    def describe(self, pod: Pod) -> VirtualMachine:
        """Read a VM from its pod. Raise NotAVMError where it is none."""
        ...

    def receiver_pod(self, pod: Pod, *, name: str, attempt: int, node: str | None = None) -> dict[str, Any]:
        """Build the pod that takes the guest of this one: same devices, current sizes, never on the same node."""
        ...

    async def prepare(
        self, source: VirtualMachine, receiver: VirtualMachine, attempt: int, limits: TransferLimits
    ) -> None:
        """Make the receiver ready to take the guest's state in."""
        ...

    async def start(
        self, source: VirtualMachine, receiver: VirtualMachine, attempt: int, limits: TransferLimits, trace: str = ""
    ) -> None:
        """Begin to send. The guest does not switch over before `commit`. `trace` is a W3C traceparent, or empty."""
        ...

    async def observe(
        self,
        source: VirtualMachine,
        receiver: VirtualMachine | None,
        attempt: int,
        *,
        after: int = 0,
        wait: float = 0.0,
    ) -> Transfer:
        """Tell where the move is; with `wait`, return as soon as there is news after a revision."""
        ...

    async def change_limits(self, source: VirtualMachine, attempt: int, limits: TransferLimits) -> None:
        """Go on with other limits."""
        ...

    async def commit(self, source: VirtualMachine, attempt: int) -> None:
        """Let the guest switch over. Raise RefusedError where the attempt is over."""
        ...

    async def cancel(self, source: VirtualMachine, receiver: VirtualMachine | None, attempt: int) -> None:
        """End the attempt, the guest stays in the source. Raise RefusedError where it is committed."""
        ...

    async def release(self, receiver: VirtualMachine, attempt: int) -> None:
        """Run the guest in the receiver. Only for a move that is `ARRIVED`, or whose source is proven dead."""
        ...

    async def retire(self, source: VirtualMachine, attempt: int) -> None:
        """Clear away what is left in the source after the guest has moved. Its pod stays, and keeps its room."""
        ...

    async def guest(self, vm: VirtualMachine) -> tuple[GuestSize, int]:
        """Return what the guest has, and the number of the last order for another size that came to it."""
        ...

    async def resize(
        self, vm: VirtualMachine, *, cpus: int | None = None, memory: int | None = None, order: int = 0
    ) -> GuestSize:
        """Ask the guest for another size, and return what it has then, which may be less or more than was asked."""
        ...
