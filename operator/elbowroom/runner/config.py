"""What a user writes about a VM: one small YAML document, checked before anything is started."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003  # pydantic needs it at run time
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from elbowroom.core.quantity import InvalidQuantityError, quantity_bytes
from elbowroom.core.world import GUEST_BLOCK

from .messages import API_PORT, HEALTH_PORT, MIGRATION_PORT

_PORT = Field(ge=1, le=65535)
RESERVED_PORTS = frozenset((API_PORT, HEALTH_PORT, MIGRATION_PORT))


class ConfigError(Exception):
    """The configuration cannot be used; the message is one sentence that names the field."""


def _memory(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a quantity such as 512Mi")  # noqa: TRY004  # pydantic wants ValueError
    try:
        size = quantity_bytes(value)
    except InvalidQuantityError as error:
        raise ValueError(str(error)) from error
    if size % GUEST_BLOCK:
        raise ValueError(f"{value} is not a multiple of 2Mi")
    return size


Memory = Annotated[int, BeforeValidator(_memory), Field(ge=32 << 20)]


class Strict(BaseModel):
    """Unknown keys are mistakes; names are written as Kubernetes writes them."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class Disk(Strict):
    """A disk image. To be movable it has to be on storage that all nodes share."""

    path: Path
    format: Literal["qcow2", "raw"] = "qcow2"


class Port(Strict):
    """A TCP port of the pod and the guest's port behind it."""

    port: Annotated[int, _PORT]
    guest: Annotated[int, _PORT]


def _port(value: object) -> object:
    return {"port": value, "guest": value} if isinstance(value, int) else value


class Network(Strict):
    """How the guest is connected."""

    kind: Literal["user", "tap", "none"] = "user"
    tap: str | None = None

    @model_validator(mode="after")
    def _named(self) -> Network:
        if (self.kind == "tap") != (self.tap is not None):
            raise ValueError("tap: give the device's name with kind: tap, and only there")
        return self


class HttpCheck(Strict):
    """An HTTP request that a guest answers with a status below 400 once it is up."""

    port: Annotated[int, _PORT]
    path: Annotated[str, Field(pattern=r"^/")] = "/"


class Ready(Strict):
    """When the guest counts as up. Without any of these it does as soon as its vCPUs run."""

    http: HttpCheck | None = None
    tcp: Annotated[int, _PORT] | None = None


class VMConfig(Strict):
    """One VM."""

    kernel: Path | None = None
    initrd: Path | None = None
    command_line: str = ""
    disks: tuple[Disk, ...] = ()
    cpus: Annotated[int, Field(ge=1, le=64)] = 1
    max_cpus: Annotated[int, Field(ge=1, le=64)] | None = None
    memory: Memory
    max_memory: Memory | None = None
    network: Network = Network()
    ports: tuple[Annotated[Port, BeforeValidator(_port)], ...] = ()
    ready: Ready = Ready()
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    cpu_model: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.,=+-]+$")] | None = None
    machine: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] = "q35"
    shutdown_seconds: Annotated[int, Field(ge=1, le=3600)] = 20

    @property
    def most_cpus(self) -> int:
        """The number of vCPUs that it can grow to."""
        return self.max_cpus or self.cpus

    @property
    def most_memory(self) -> int:
        """The memory that it can grow to."""
        return self.max_memory or self.memory

    @model_validator(mode="after")
    def _leaves_the_runner_its_ports(self) -> VMConfig:
        for port in self.ports:
            if port.port in RESERVED_PORTS:
                raise ValueError(f"ports: {port.port} is the runner's own; use {{port: OTHER, guest: {port.guest}}}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> VMConfig:
        if self.kernel is None and not self.disks:
            raise ValueError("kernel: a VM needs a kernel or at least one disk to boot from")
        if self.kernel is None and (self.initrd or self.command_line):
            raise ValueError("kernel: initrd and commandLine have no meaning without it")
        if self.cpus > self.most_cpus:
            raise ValueError(f"cpus: {self.cpus} is more than maxCpus ({self.max_cpus})")
        if self.memory > self.most_memory:
            raise ValueError(f"memory: {self.memory >> 20}Mi is more than maxMemory ({self.most_memory >> 20}Mi)")
        if self.ports and self.network.kind != "user":
            raise ValueError(f"ports: only network kind user forwards ports, this one is {self.network.kind}")
        forwarded = {port.port for port in self.ports}
        if len(forwarded) < len(self.ports):
            raise ValueError("ports: the same port is given twice")
        for check, asked in (("http.port", self.ready.http and self.ready.http.port), ("tcp", self.ready.tcp)):
            if asked is not None and asked not in forwarded:
                raise ValueError(f"ready.{check}: {asked} is not among ports")
        return self

    def check_files(self) -> None:
        """Fail when a file is not there; a path that a receiver cannot see is a mistake in the pod, too."""
        files = [("kernel", self.kernel), ("initrd", self.initrd)]
        files += [(f"disks.{index}.path", disk.path) for index, disk in enumerate(self.disks)]
        for field, path in files:
            if path is not None and not path.is_file():
                raise ConfigError(f"{field}: there is no file {path}")


_LARGEST: Final = 16 << 10
"""Bytes of a configuration. The operator reads those of all VMs, which their owners have written."""


def parse(text: str) -> VMConfig:
    """Read a configuration, or say in one sentence what is wrong with it. Nothing else is raised, whatever it is."""
    if len(text) > _LARGEST:
        raise ConfigError(f"the configuration has more than {_LARGEST} characters")
    try:
        document: Any = yaml.safe_load(text)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        # What PyYAML makes of a date that is none, of a tag that does not fit, of brackets without an end.
        raise ConfigError(f"the configuration is not YAML: {type(error).__name__}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"the configuration is not YAML: {getattr(error, 'problem', None) or error}{where}"
        ) from error
    if not isinstance(document, dict):
        raise ConfigError("the configuration has to be a mapping such as {kernel: /guest/vmlinuz, memory: 256Mi}")
    try:
        return VMConfig.model_validate(document)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{field}: there is no such key"
    if first["type"] == "missing":
        return f"{field}: is missing"
    message = re.sub(r"^Value error, ", "", first["msg"])
    # A rule about several fields names its field itself.
    return f"{field}: {message}" if field else message
