"""The operator's configuration: a file that says what differs from the defaults."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003  # pydantic needs it at run time
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, ValidationError

from elbowroom.api.base import Duration, Model, Name, Quantity
from elbowroom.core.duration import seconds
from elbowroom.core.policy import Policy
from elbowroom.core.quantity import quantity_bytes


class ConfigError(Exception):
    """The file cannot be used; the message names the field."""


class GuardSettings(Model):
    """How the guard is served, and whom it trusts."""

    model_config = ConfigDict(extra="forbid")

    port: Annotated[int, Field(ge=1, le=65535)] = 8443
    service: Name = "elbowroom-guard"
    """The Service that the API server calls, in the operator's namespace."""
    configuration: Name = "elbowroom-guard"
    """The ValidatingWebhookConfiguration that is to trust our own authority."""
    certificate: Path | None = None
    """A folder with tls.crt and tls.key; without it, the guard's certificate is made by our own authority."""
    schedulers: tuple[Annotated[str, Field(min_length=1)], ...] = ("system:kube-scheduler",)
    """The accounts of schedulers that keep to holds by themselves: ours, or one with our extender."""


class PageSettings(Model):
    """Where the live page is served."""

    model_config = ConfigDict(extra="forbid")

    address: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """The pod's own loopback: `kubectl port-forward` comes in there, and nobody else."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8090
    hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """The names, besides localhost, under which browsers may ask for it."""


class Settings(Model):
    """What an administrator may write. What is left out is as it is in core/policy.py."""

    model_config = ConfigDict(extra="forbid")  # a word that is spelt wrong must not be ignored

    guard: GuardSettings | None = None
    """The guard is served beside this operator, who finds out whether it is asked."""

    page: PageSettings | None = None
    """Who leads serves the live page."""

    scheduler: Name | None = None
    """The scheduler that places receivers, which has to keep to holds; without it, the neighbour's own."""

    moves_per_node: Annotated[int, Field(ge=1)] | None = None
    moves_in_cluster: Annotated[int, Field(ge=1)] | None = None
    moves_per_namespace: Annotated[int, Field(ge=1)] | None = None
    rest: Duration | None = None
    tries: Annotated[int, Field(ge=1)] | None = None
    failures: Annotated[int, Field(ge=1)] | None = None
    backoff: Duration | None = None
    longest_backoff: Duration | None = None
    hold_term: Duration | None = None
    bind_within: Duration | None = None
    grant_within: Duration | None = None
    taint: bool | None = None
    guest_spare: Quantity | None = None

    def policy(self) -> Policy:
        """Return them as the core knows them."""
        found: dict[str, Any] = {}
        for name, value in self.model_dump(exclude_none=True, exclude={"guard", "page", "scheduler"}).items():
            if name == "guest_spare":
                found[name] = quantity_bytes(value)
            else:
                found[name] = seconds(value) if isinstance(value, str) else value
        return Policy(**found)


def load(path: Path) -> Settings:
    """Read a file."""
    try:
        content = yaml.safe_load(path.read_text())
        return Settings.model_validate({} if content is None else content)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{path}: {field}: {first['msg'].removeprefix('Value error, ')}") from error
