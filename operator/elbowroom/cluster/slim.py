"""Pods, nodes and holds with the fields that matter here: how they are decoded decides what a large cluster costs."""

from __future__ import annotations

from datetime import datetime  # noqa: TC003  # msgspec needs it at run time
from typing import Any

import msgspec

Resources = dict[str, str | int]


class _Slim(msgspec.Struct, rename="camel", gc=False):
    """Decoded from JSON; what is not named here is skipped."""


class Owner(_Slim):
    """Who made it."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Meta(_Slim):
    """Which object, and which state of it."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class Sizes(_Slim):
    """What is asked for, and what is the most."""

    requests: Resources = {}
    limits: Resources = {}


class Variable(_Slim):
    """One of the environment."""

    name: str
    value: str = ""


class Container(_Slim):
    """By the pod's spec."""

    name: str
    resources: Sizes = msgspec.field(default_factory=Sizes)
    env: tuple[Variable, ...] = ()
    restart_policy: str = ""


class PodSpec(_Slim):
    """What was asked for."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    priority: int = 0
    overhead: Resources = {}
    resources: Sizes | None = None
    restart_policy: str = "Always"
    node_selector: dict[str, str] = {}


class Shape(_Slim, gc=True, weakref=True):
    """What a resize is written from: names and sizes of containers. Pods that are alike share it."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]


class Condition(_Slim):
    """One statement."""

    type: str
    status: str
    reason: str = ""


class ContainerStatus(_Slim):
    """What a container has."""

    name: str
    allocated_resources: Resources | None = None
    resources: Sizes | None = None


class PodStatus(_Slim):
    """What there is."""

    phase: str = "Pending"
    observed_generation: int = 0
    start_time: datetime | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    resources: Sizes | None = None
    """Of the pod as a whole, where it has a size as a whole."""
    allocated_resources: Resources | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Slim):
    """One pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


decode_pod = msgspec.json.Decoder(Pod).decode


class Taint(_Slim):
    """What keeps pods away."""

    key: str
    effect: str = ""


class NodeSpec(_Slim):
    """What was asked of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Slim):
    """What it has."""

    allocatable: Resources = {}
    conditions: tuple[Condition, ...] = ()


class Node(_Slim):
    """One node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class Whole:
    """An object with all that it has: for kinds of which there are few."""

    def __init__(self, text: bytes | msgspec.Raw) -> None:
        """Decode it."""
        self.body: dict[str, Any] = msgspec.json.decode(text)
        self.metadata = msgspec.convert(self.body["metadata"], Meta)


class Reference(_Slim):
    """One object, and not another that has its name later."""

    namespace: str
    name: str
    uid: str


class Payer(_Slim):
    """A neighbour that pays for a hold, and its receiver."""

    pod: Reference
    receiver: str


class HoldSpec(_Slim):
    """Whose room."""

    node: str
    claimant: Reference
    request: Reference
    target: Resources = {}
    had: Resources | None = None
    payers: tuple[Payer, ...] = ()
    committed: bool = False


class HoldStatus(_Slim):
    """What the scheduler has said."""

    phase: str = "Pending"


class Hold(_Slim):
    """One hold."""

    metadata: Meta
    spec: HoldSpec
    status: HoldStatus = msgspec.field(default_factory=HoldStatus)
