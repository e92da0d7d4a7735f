"""VMScaleRequest: "this VM shall have this size"."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic needs it at run time
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from elbowroom.core.world import RequestPhase  # pydantic needs it at run time

from .base import (
    Duration,
    Json,
    Label,
    Message,
    Model,
    Name,
    Reason,
    Reference,
    Resources,
    Status,
    TransferLimits,
    Uid,
    between_a_second_and_a_day,
    of_transfers,
    unchanged,
)


class Strategy(StrEnum):
    """A rung of the ladder: what may be done for the room."""

    IN_PLACE = "InPlace"
    MOVE_NEIGHBOUR = "MoveNeighbour"


class Expression(Model):
    """One rule of a selector, as everywhere in Kubernetes."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Annotated[str, Field(max_length=63)], ...], Field(max_length=32)] = ()


class Selector(Model):
    """Pods, by their labels."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)] = Field(
        default_factory=dict
    )
    match_expressions: Annotated[tuple[Expression, ...], Field(max_length=16)] = ()


class Neighbours(Model):
    """Whom this request may move."""

    selector: Selector | None = None
    """Only VMs with these labels. All that may be moved where it is left out."""
    at_most: Annotated[int, Field(ge=1, le=8)] = 4
    """How many of them, at most."""


class ScaleRequestSpec(Model):
    """What is asked for."""

    vm: Label | None = None
    """The VM that is to get another size: the label `elbowroom.dev/vm` of its pod, in this namespace."""
    pod: Name | None = None
    """Or a pod by its name, with or without a VM in it."""
    container: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """The container that gets the size. Needed where the pod has several and none of them is the VM's."""
    resources: Resources
    """The size that the container, and the guest in it, shall have. What is left out stays as it is."""
    strategy: Annotated[tuple[Strategy, ...], Field(min_length=1, max_length=2)] = (
        Strategy.IN_PLACE,
        Strategy.MOVE_NEIGHBOUR,
    )
    """What may be done for it, in this order."""
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Who gets room that several requests wait for: the highest, then the oldest."""
    deadline: Duration = "10m"
    """Give up after this time and put everything back."""
    neighbours: Neighbours = Neighbours()
    transfer: TransferLimits = TransferLimits()
    dry_run: bool = False
    """Make the plan and nothing else."""
    suspend: bool = False
    """Put everything back that can be, and wait until this is false again. The deadline goes on."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31_536_000)] = 86_400
    """How long a finished request keeps its story before it is removed."""


class PlannedNeighbour(Model):
    """A neighbour that is to be moved, with the names that were chosen before anything was made."""

    pod: Reference
    vm: Label
    size: Resources
    migration: Name
    receiver: Name


class NotChosen(Model):
    """A neighbour that is not moved, and why."""

    namespace: Name
    name: Name
    reason: Reason
    message: Message = ""


class Plan(Model):
    """How the room is made."""

    node: Name
    shortfall: Resources
    """What the node lacks."""
    target: Resources
    """The whole pod's size afterwards: its other containers and its overhead counted."""
    neighbours: Annotated[tuple[PlannedNeighbour, ...], Field(max_length=8)] = ()
    not_chosen: Annotated[tuple[NotChosen, ...], Field(max_length=32)] = ()


class GuestSize(Model):
    """What a guest has."""

    cpus: Annotated[int, Field(ge=0)]
    memory_bytes: Annotated[int, Field(ge=0)]


class Guest(Model):
    """The guest in the pod."""

    before: GuestSize
    after: GuestSize


class FailedMove(Model):
    """A neighbour that this request does not try again."""

    uid: Uid
    reason: Reason


class Outcome(Model):
    """How it will have ended, once everything is put back."""

    phase: Literal["Pending", "Failed", "Cancelled", "PartiallyMoved"]
    reason: Reason
    message: Message = ""


class ScaleRequestStatus(Status):
    """How far it is."""

    phase: RequestPhase = RequestPhase.PENDING
    pod: Reference | None = None
    """The pod that gets the size."""
    container: Annotated[str, Field(max_length=63)] = ""
    """And the container."""
    node: Name | None = None
    original: Resources | None = None
    """The container's size before."""
    wanted: Resources | None = None
    """The container's size afterwards."""
    before: Annotated[str, Field(alias="from", max_length=64)] = ""
    """The container's size before, for people."""
    after: Annotated[str, Field(alias="to", max_length=64)] = ""
    """The container's size afterwards, for people."""
    guest: Guest | None = None
    """What the guest had, and shall have."""
    order: Annotated[int, Field(ge=0)] = 0
    """The number of this plan for the guest's runner, which refuses what comes late."""
    resized: bool = False
    """The pod may have been told its new size: giving up puts the old one back."""
    plan: Plan | None = None
    room_appeared: bool = False
    """The room came by itself: nobody in the plan is moved."""
    round: Annotated[int, Field(ge=0, le=1000)] = 0
    """How many plans were begun."""
    failed: Annotated[tuple[FailedMove, ...], Field(max_length=64)] = ()
    outcome: Outcome | None = None
    retry_at: datetime | None = None
    moving: Annotated[str, Field(max_length=64)] = ""
    """What is being moved, and how far that is."""
    finished_at: datetime | None = None


_FIXED = "cannot be changed: a new request supersedes this one"
RULES: list[Json] = [
    {"rule": "has(self.vm) != has(self.pod)", "message": "give exactly one of vm and pod"},
    {"rule": "has(self.resources.cpu) || has(self.resources.memory)", "fieldPath": ".resources",
     "message": "give cpu, memory or both"},
    {"rule": "!has(self.resources.cpu) || !isQuantity(string(self.resources.cpu)) || "
             "quantity(string(self.resources.cpu)).isGreaterThan(quantity('0'))",
     "fieldPath": ".resources.cpu", "message": "has to be more than 0"},
    {"rule": "!has(self.resources.memory) || !isQuantity(string(self.resources.memory)) || "
             "quantity(string(self.resources.memory)).compareTo(quantity('1Mi')) >= 0",
     "fieldPath": ".resources.memory", "message": "has to be 1Mi or more; a plain number is in bytes"},
    {"rule": "self.strategy[0] == 'InPlace'", "fieldPath": ".strategy",
     "message": "has to begin with InPlace: nobody is moved where there is room"},
    {"rule": "self.strategy.size() < 2 || self.strategy[1] != self.strategy[0]", "fieldPath": ".strategy",
     "message": "names InPlace twice"},
    between_a_second_and_a_day("deadline"),
    *of_transfers(),
    *(unchanged(field, _FIXED) for field in ("vm", "pod", "container", "resources", "strategy", "dryRun")),
]  # fmt: skip
