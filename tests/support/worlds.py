"""Small worlds for tests of decisions: a full node n1 with db (wants to grow) and web (may be moved), an empty node n2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from elbowroom.core.policy import Policy
from elbowroom.core.room import Room
from elbowroom.core.world import (
    Check,
    Container,
    GuestSize,
    Hold,
    HoldPhase,
    Migration,
    MigrationPhase,
    MigrationStatus,
    Node,
    Payer,
    Planned,
    Pod,
    Request,
    RequestPhase,
    RequestStatus,
    World,
)

NOW = 1000.0
POLICY = Policy()


def pod(name: str, cpu: int, node: str = "n1", **changes: Any) -> Pod:
    """Return a VM's pod of so many cores."""
    size = Room(cpu * 1000)
    made = Pod(
        uid=name, namespace="shop", name=name, node=node, allocated=size, size=size, containers=(Container("vm", size),),
        vm=name.split("-", maxsplit=1)[0], vm_container="vm", movable=True, version=f"{name}@1",
    )  # fmt: skip
    return replace(made, **changes)


def asked(before: Pod, cpu: int, **changes: Any) -> Pod:
    """Return a pod whose spec has another size than the kubelet has given it."""
    size = Room(cpu * 1000)
    made = replace(before, containers=(Container("vm", size, before.allocated),), size=size.most(before.allocated))
    return replace(made, **changes)


DB, WEB = pod("db", 2), pod("web", 2)
RECEIVER = pod("web-r1-1", 2, "n2", attempt=1001, owner="", vm="web")
WEB_PLANNED = Planned("web", "shop", "web", "web", Room(2000), "web-r1-1", "web-r1-1")


def request(phase: RequestPhase = RequestPhase.PENDING, **changes: Any) -> Request:
    """Return the request "db shall have four cores", as it is in a phase."""
    fields = {name: changes.pop(name) for name in list(changes) if name in RequestStatus.__dataclass_fields__}
    known: dict[str, Any] = {}
    if phase is not RequestPhase.PENDING:
        known = {
            "claimant": "db", "container": "vm", "node": "n1", "original": Room(2000), "wanted": Room(4000),
            "target": Room(4000), "plan": (WEB_PLANNED,), "round": 1, "guest_before": GuestSize(2, 0),
            "guest_after": GuestSize(4, 0), "order": 5,
        }  # fmt: skip
    status = RequestStatus(phase=phase, **{**known, **fields})
    made = Request(uid="r1", namespace="shop", name="grow-db", vm="db", cpu=4000, created_at=NOW - 10, version="r1@1")
    return replace(made, status=status, **changes)


def hold(phase: HoldPhase = HoldPhase.HELD, **changes: Any) -> Hold:
    """Return the hold of that request."""
    made = Hold(
        claimant="db", request="r1", node="n1", target=Room(4000), payers=(Payer("web", "web-r1-1"),),
        created_at=NOW - 10, expires_at=NOW + 60, round=1, phase=phase, shortfall=Room(2000), version="hold@1",
    )  # fmt: skip
    return replace(made, **changes)


def migration(phase: MigrationPhase, **changes: Any) -> Migration:
    """Return the migration of web for that request."""
    fields = {name: changes.pop(name) for name in list(changes) if name in MigrationStatus.__dataclass_fields__}
    known: dict[str, Any] = {}
    if phase is not MigrationPhase.PENDING:
        known = {
            "source": "web", "source_node": "n1", "receiver": "web-r1-1", "attempt": 1001, "started_at": NOW - 5,
            "receiver_uid": "" if phase is MigrationPhase.BINDING else "web-r1-1",
        }  # fmt: skip
    status = MigrationStatus(phase=phase, **{**known, **fields})
    made = Migration(
        uid="m1", namespace="shop", name="web-r1-1", vm="web", request="r1", pod="web", receiver="web-r1-1",
        created_at=NOW - 8, version="m1@1",
    )  # fmt: skip
    return replace(made, status=status, **changes)


def world(
    *pods: Pod,
    requests: tuple[Request, ...] = (),
    migrations: tuple[Migration, ...] = (),
    holds: tuple[Hold, ...] = (),
    capacity: int = 4,
    **more: Any,
) -> World:
    """Return the world that these are in."""
    present = pods or (DB, WEB)
    nodes = {
        name: Node(name, Room(capacity * 1000), tuple(item for item in present if item.node == name))
        for name in ("n1", "n2")
    }
    return World(
        nodes=nodes, unbound=tuple(item for item in present if not item.node),
        requests={item.uid: item for item in requests}, migrations={item.uid: item for item in migrations},
        holds={item.claimant: item for item in holds},
        **{"checks": {"r1": Check(allowed=True)}, "guests": {"db": GuestSize(2, 0)}, "orders": {"db": 20}, **more},
    )  # fmt: skip
