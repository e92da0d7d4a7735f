"""VMMigration: one move of one VM, made by a request or by hand."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic needs it at run time
from typing import Annotated, Literal

from pydantic import Field

from elbowroom.core.world import MigrationPhase  # pydantic needs it at run time

from .base import (
    Duration,
    Json,
    Label,
    Message,
    Model,
    Name,
    Reason,
    Reference,
    Status,
    TransferLimits,
    Uid,
    between_a_second_and_a_day,
    of_transfers,
    unchanged,
)


class Target(Model):
    """Where the VM may go. Never to the node that it is on."""

    node: Name | None = None
    """This node and no other."""


class MigrationSpec(Model):
    """What is to be moved."""

    vm: Label
    """The VM: the label `elbowroom.dev/vm` of its pod, in this namespace."""
    target: Target = Target()
    transfer: TransferLimits = TransferLimits()
    deadline: Duration = "30m"
    """Give up after this time, unless the move is committed."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] = 86_400
    """How long a finished migration keeps its story before it is removed."""
    request: Reference | None = None
    """The request that this makes room for. Set by the operator: it commits the move, and nobody else."""
    pod: Reference | None = None
    """The very pod that is to leave. Set by the operator, together with `request`."""
    receiver: Name | None = None
    """The receiver's name. Set by the operator, together with `request`."""


class Place(Model):
    """A pod of this move, and where it is."""

    name: Name
    uid: Uid | None = None
    node: Name | None = None


class MigrationOutcome(Model):
    """How it will have ended, once the receiver is gone."""

    phase: Literal["Failed", "Cancelled"]
    reason: Reason
    message: Message = ""


class MigrationStatus(Status):
    """How far it is."""

    phase: MigrationPhase = MigrationPhase.PENDING
    source: Place | None = None
    receiver: Place | None = None
    attempt: Annotated[int, Field(ge=0)] = 0
    """The number that every call to the VM's runners carries."""
    committed_at: datetime | None = None
    """From here on the move cannot be called off."""
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    transferred_bytes: Annotated[int, Field(ge=0)] = 0
    remaining_bytes: Annotated[int, Field(ge=0)] = 0
    downtime_milliseconds: Annotated[int, Field(ge=0)] | None = None
    """For how long the guest stood still, as QEMU says."""
    outcome: MigrationOutcome | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


_FIXED = "cannot be changed: delete this migration and create another"
RULES: list[Json] = [
    {"rule": "has(self.request) == has(self.pod) && has(self.request) == has(self.receiver)",
     "message": "request, pod and receiver are the operator's: leave all of them out"},
    between_a_second_and_a_day("deadline"),
    *of_transfers(),
    *(unchanged(field, _FIXED) for field in ("vm", "target", "request", "pod", "receiver")),
]  # fmt: skip
