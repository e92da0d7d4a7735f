"""CapacityHold: the room on one node that belongs to one pod and to nobody else."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic needs it at run time
from typing import Annotated

from pydantic import Field

from elbowroom.core.world import HoldPhase  # pydantic needs it at run time

from .base import Json, Model, Name, Reference, Resources, Status, unchanged


class Payer(Model):
    """A neighbour whose leaving pays for the hold, and its receiver."""

    pod: Reference
    receiver: Name


class HoldSpec(Model):
    """Whose room, where and how much. Written by the operator only."""

    node: Name
    claimant: Reference
    request: Reference
    target: Resources
    """The claimant's size afterwards, the whole pod's."""
    had: Resources | None = None
    """What the claimant had when the hold was made, the whole pod: what it gets more of is what is held."""
    payers: Annotated[tuple[Payer, ...], Field(max_length=8)] = ()
    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    expires_at: datetime
    """Renewed by the operator. After it the scheduler gives the room back, unless the hold is committed."""
    committed: bool = False
    """A neighbour may have left for it: it does not expire any more."""
    round: Annotated[int, Field(ge=1, le=1000)] = 1
    """The request's plan that this belongs to."""


class HoldStatus(Status):
    """Written by the leading scheduler only."""

    phase: HoldPhase = HoldPhase.PENDING
    shortfall: Resources | None = None
    """What the node lacks as the scheduler sees it, pods that it is just placing counted. Kept up to date."""
    term: Annotated[str, Field(max_length=253)] = ""
    """The scheduler's term of leadership in which it said so."""


RULES: list[Json] = [
    *(
        {"rule": f"self.{field} == oldSelf.{field}", "fieldPath": f".{field}",
         "message": "cannot be changed: a new plan has a new hold"}
        for field in ("node", "claimant", "request", "target", "payers", "priority", "round")
    ),
    unchanged("had", "cannot be changed: a new plan has a new hold"),
    {"rule": "self.committed || !oldSelf.committed", "fieldPath": ".committed",
     "message": "cannot be taken back: a neighbour may have left for it"},
]  # fmt: skip
