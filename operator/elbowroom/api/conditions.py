"""Conditions as they stand in a status: with the time of their last change and the generation that they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .base import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from elbowroom.core.conditions import Condition as Found


def updated(
    before: Iterable[Condition], found: Iterable[Found], generation: int, now: datetime
) -> tuple[Condition, ...]:  # fmt: skip
    """Return conditions as they are now. Only a change between true and false has a new time."""
    known = {condition.type: condition for condition in before}
    return tuple(_updated(known.get(item.type), item, generation, now) for item in found)


def _updated(before: Condition | None, item: Found, generation: int, now: datetime) -> Condition:
    state: Literal["True", "False"] = "True" if item.true else "False"
    since = before.last_transition_time if before is not None and before.status == state else now
    return Condition(
        type=item.type, status=state, observed_generation=generation, last_transition_time=since,
        reason=item.reason.value, message=item.message,
    )  # fmt: skip
