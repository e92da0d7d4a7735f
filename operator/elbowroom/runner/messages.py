"""The words of the runner's API, for both of its sides: the runner that answers and the driver that asks."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic needs it at run time
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

API_PORT = 8443
"""HTTPS with mutual TLS: everything that changes something."""
TRACE = "traceparent"
"""The header that says which trace a call is part of."""
HEALTH_PORT = 8081
"""Plain HTTP, for the kubelet's probes: nothing but yes or no."""
MIGRATION_PORT = 8444
"""QEMU's own stream, TLS with the same certificates."""

_MOST = (1 << 63) - 1
"""What an integer can be in the API server."""
Attempt = Annotated[int, Field(ge=1, le=_MOST)]
Count = Annotated[int, Field(ge=0, le=_MOST)]


class Message(BaseModel):
    """Strict in what is asked; names as Kubernetes writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Reason(StrEnum):
    """Why a call was refused."""

    INVALID = "Invalid"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    STALE_ATTEMPT = "StaleAttempt"
    BUSY = "Busy"
    COMMITTED = "Committed"
    CANCELLED = "Cancelled"
    ENDED = "Ended"
    NOT_YET = "NotYet"
    """Worth another try."""
    NOT_RUNNING = "NotRunning"
    NOT_MOVABLE = "NotMovable"
    GUEST_RUNS_HERE = "GuestRunsHere"
    WRONG_SHAPE = "WrongShape"
    CANNOT_RECEIVE = "CannotReceive"
    MONITOR = "Monitor"
    INTERNAL = "Internal"


class Refusal(Message):
    """The body of every answer that is not a success."""

    reason: Reason
    message: str


class GuestState(StrEnum):
    """Who runs the guest, as this pod sees it."""

    WAITING = "Waiting"
    """A receiver that nobody has called yet."""
    STARTING = "Starting"
    INCOMING = "Incoming"
    """QEMU waits for the guest's state, or is taking it in."""
    ARRIVED = "Arrived"
    """All of it is here; it does not run before the source, or the operator, says that the source has let go."""
    RUNNING = "Running"
    PAUSED = "Paused"
    SWITCHING = "Switching"
    """QEMU's own switch-over: paused here, and not yet completed."""
    MOVED = "Moved"
    """It left for the receiver."""
    PANICKED = "Panicked"
    ENDED = "Ended"
    """It has shut down, or its QEMU is gone."""


class IncidentKind(StrEnum):
    """What can happen to a guest that nobody asked for."""

    RESET = "GuestReset"
    PANIC = "GuestPanicked"
    SHUTDOWN = "GuestShutDown"
    DEATH = "QemuDied"
    RUNNER_RESTART = "RunnerRestarted"
    IO_ERROR = "DiskError"


class Incident(Message):
    """Something that happened to the guest, with the attempt that was under way."""

    kind: IncidentKind
    at: datetime
    attempt: int | None = None
    message: str


class Cpu(Message):
    """One plugged vCPU beyond those that the guest booted with."""

    id: str
    type: str
    props: dict[str, int]


class Shape(Message):
    """What has to be the same at both ends of a move."""

    machine: str
    accelerator: Literal["kvm", "tcg"]
    cpu_model: str
    cpus: int
    """vCPUs that it booted with."""
    max_cpus: int
    plugged: tuple[Cpu, ...]
    memory: int
    """Bytes that it booted with."""
    max_memory: int
    requested_memory: int
    """Bytes that were asked of virtio-mem, on top of those."""
    order: Count = 0
    """The highest number that an order for another size came with; the guest takes it along when it moves."""
    disks: int
    network: str


class Size(Message):
    """What the guest has, as the guest's own drivers say it: vCPUs that are online, bytes that are plugged."""

    cpus: Count
    memory: Count


class Limits(Message):
    """What a transfer may cost."""

    bandwidth: Annotated[int, Field(ge=64 << 10)] = 1 << 30
    """Bytes a second."""
    downtime_ms: Annotated[int, Field(ge=1, le=60_000)] = 300
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600
    """From the start to the commit; then it is cancelled."""
    switch_over_seconds: Annotated[float, Field(gt=0, le=3600)] = 60
    """From the commit to the switch-over; then it is cancelled and the guest stays."""
    hold_ms: Annotated[int, Field(ge=50, le=60_000)] = 2000
    """How long a guest may stand still at the switch-over without a commit; then it is resumed, the attempt over."""
    auto_converge: bool = True
    multifd_channels: Annotated[int, Field(ge=0, le=16)] = 0
    post_copy: bool = False
    """After the commit, when it does not converge: move the guest first and its memory after it."""


class Receive(Message):
    """Take a guest in."""

    attempt: Attempt
    shape: Shape
    multifd_channels: Annotated[int, Field(ge=0, le=16)] = 0
    post_copy: bool = False


class Destination(Message):
    """Where to send a guest."""

    host: Annotated[str, Field(min_length=1)]
    migration_port: int = MIGRATION_PORT
    api_port: int = API_PORT


class Migrate(Message):
    """Send the guest away."""

    attempt: Attempt
    to: Destination
    limits: Limits = Limits()


class ChangeLimits(Message):
    """Change what a running transfer may cost."""

    attempt: Attempt
    limits: Limits


class OfAttempt(Message):
    """A call about an attempt and nothing else: commit, cancel, release, quit."""

    attempt: Attempt


class Resize(Message):
    """Give the guest another size."""

    order: Annotated[int, Field(ge=0)] = 0
    """One that is lower than another that has come already is refused: it was given earlier, and comes late."""
    cpus: Annotated[int, Field(ge=1, le=64)] | None = None
    memory: Annotated[int, Field(ge=0)] | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=120)] = 10


class TransferPhase(StrEnum):
    """Where a transfer is."""

    STARTING = "Starting"
    COPYING = "Copying"
    BRINK = "AtBrink"
    """Converging, and kept from switching over: it waits for the commit."""
    COMMITTED = "Committed"
    SWITCHING = "Switching"
    COMPLETED = "Completed"
    """QEMU has handed over; the receiver is being told to run the guest."""
    RELEASED = "Released"
    """The receiver has said that the guest runs there."""
    CANCELLED = "Cancelled"
    FAILED = "Failed"

    @property
    def over(self) -> bool:
        """Tell whether QEMU is done with it."""
        return self in _OVER

    @property
    def settled(self) -> bool:
        """Tell whether nothing follows."""
        return self in _OVER and self is not TransferPhase.COMPLETED


_OVER = frozenset((TransferPhase.COMPLETED, TransferPhase.RELEASED, TransferPhase.CANCELLED, TransferPhase.FAILED))


class Progress(Message):
    """How far a transfer is."""

    percent: Annotated[float, Field(ge=0, le=100)] = 0
    total_bytes: Count = 0
    remaining_bytes: Count = 0
    transferred_bytes: Count = 0
    bytes_per_second: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    passes: Count = 0
    dirty_bytes: Count | None = None
    """What the guest had dirtied during the last pass."""
    converging: bool | None = None
    throttle_percent: Count = 0
    elapsed_ms: Count = 0


class Outgoing(Message):
    """A move away from here."""

    attempt: int
    phase: TransferPhase
    committed: bool
    to: Destination
    limits: Limits
    progress: Progress = Progress()
    message: str = ""
    downtime_ms: Count | None = None
    """As QEMU reports it."""
    total_ms: Count | None = None
    stopped_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """From QEMU's stop of the guest here to the receiver's word that it runs there."""


class Incoming(Message):
    """A move to here."""

    attempt: int
    released: bool
    """The guest may run here."""
    complete: bool = True
    """All of its memory is here; in post-copy it may run before that."""


class Status(Message):
    """All that a runner knows."""

    revision: int
    vm: str
    namespace: str
    runner: str
    """The version of the runner."""
    qemu: str | None
    state: GuestState
    size: Size | None = None
    shape: Shape | None = None
    incoming: Incoming | None = None
    outgoing: Outgoing | None = None
    last_attempt: int = 0
    obstacle: str = ""
    """Why this guest cannot be moved, where it cannot."""
    incidents: tuple[Incident, ...] = ()
