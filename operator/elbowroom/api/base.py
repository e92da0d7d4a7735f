"""What all kinds share: how names, quantities and times are written."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # pydantic needs it at run time
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from elbowroom.core.duration import seconds
from elbowroom.core.quantity import quantity_bytes

Json = dict[str, Any]
GROUP = "elbowroom.dev"
VERSION = "v1alpha1"
DURATION_PATTERN = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"


class Model(BaseModel):
    """Names as Kubernetes writes them. What a newer version has added is ignored: the schema is the API server's."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore", use_attribute_docstrings=True
    )


def _checked_quantity(value: str) -> str:
    quantity_bytes(value)
    return value


def _checked_duration(value: str) -> str:
    seconds(value)
    return value


Quantity = Annotated[
    str,
    BeforeValidator(str),  # YAML's 4 is a number, and Kubernetes takes it
    AfterValidator(_checked_quantity),
    Field(json_schema_extra={"quantity": True}),
]
Duration = Annotated[str, AfterValidator(_checked_duration), Field(max_length=24, json_schema_extra={"duration": True})]
Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Label = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")]
Uid = Annotated[str, Field(min_length=1, max_length=64)]
Reason = Annotated[str, Field(max_length=64)]
"""One of core/reasons.py. The schema does not list them: a newer operator may know more than its CRDs."""
Message = Annotated[str, Field(max_length=2048)]


class Resources(Model):
    """A size: cpu in cores, memory in bytes, as Kubernetes writes them."""

    cpu: Quantity | None = None
    """Cores, for instance `4` or `1500m`."""
    memory: Quantity | None = None
    """Bytes, for instance `8Gi`."""


def between_a_second_and_a_day(field: str) -> Json:
    """Return the rule for a deadline. What is no duration at all is refused by the field's own rule."""
    whole = f"duration(self.{field}) >= duration('1s') && duration(self.{field}) <= duration('24h')"
    return {
        "rule": f"!self.{field}.matches('{DURATION_PATTERN}') || ({whole})", "fieldPath": f".{field}",
        "message": "has to be between 1s and 24h",
    }  # fmt: skip


def of_transfers() -> list[Json]:
    """Return the rules of what a move may cost, as far as runners can keep to them."""
    bandwidth = "string(self.transfer.bandwidth)"
    rules = [{
        "rule": f"!isQuantity({bandwidth}) || quantity({bandwidth}).compareTo(quantity('64Ki')) >= 0",
        "fieldPath": ".transfer.bandwidth", "message": "has to be 64Ki or more, a second",
    }]  # fmt: skip
    for field, least, most in (("downtime", "1ms", "1m"), ("timeout", "1s", "24h"), ("switchOverTimeout", "1s", "1h")):
        value = f"self.transfer.{field}"
        within = f"duration({value}) >= duration('{least}') && duration({value}) <= duration('{most}')"
        rules.append({
            "rule": f"!{value}.matches('{DURATION_PATTERN}') || ({within})", "fieldPath": f".transfer.{field}",
            "message": f"has to be between {least} and {most}",
        })  # fmt: skip
    return rules


def unchanged(field: str, message: str) -> Json:
    """Return the rule that a field, whether it is there or not, stays as it is."""
    kept = f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    return {"rule": kept, "fieldPath": f".{field}", "message": message}


class Reference(Model):
    """One object, and not another that has its name later."""

    namespace: Name
    name: Name
    uid: Uid


class Condition(Model):
    """One statement about the object, true, false or not known yet."""

    type: Annotated[str, Field(max_length=64)]
    status: Literal["True", "False", "Unknown"]
    observed_generation: int = 0
    last_transition_time: datetime
    reason: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z]+$")]
    message: Message = ""


class Status(Model):
    """What every status has."""

    observed_generation: int | None = None
    """The generation of the spec that this status is about."""
    reason: Reason = ""
    """Why it is in its phase, in a word."""
    message: Message = ""
    """And in a sentence."""
    conditions: Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra={"list_map": ["type"]})] = ()
    """Statements about the object, one of each type."""


class TransferLimits(Model):
    """What a move may cost."""

    bandwidth: Quantity = "1Gi"
    """Bytes a second."""
    downtime: Duration = "300ms"
    """For how long the guest may stand still at the switch-over."""
    timeout: Duration = "10m"
    """How long it may take until the guest can switch over."""
    switch_over_timeout: Duration = "1m"
    """How long it may take from the commit to the switch-over."""
    auto_converge: bool = True
    """Slow a guest down that dirties its memory faster than it is sent."""
    post_copy: bool = False
    """Let the guest run at the receiver before all of its memory is there, when it does not converge."""
    channels: Annotated[int, Field(ge=0, le=16)] = 0
    """Parallel connections; 0 for a single one."""
