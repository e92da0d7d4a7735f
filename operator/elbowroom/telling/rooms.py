"""How full nodes are, and what VMs do, from what is known of the cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from elbowroom.core import ledger
from elbowroom.core.room import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from elbowroom.core.room import Room
    from elbowroom.core.store import Store
    from elbowroom.core.world import Hold, Node

RESOURCES: Final = ("cpu", "memory")
BAR: Final = 32


# Nodes


@dataclass(frozen=True)
class Bar:
    """How much of a node is used, held and free, of one resource."""

    used: int
    held: int
    whole: int

    @property
    def free(self) -> int:
        """Return what is left."""
        return self.whole - self.used - self.held

    def widths(self, width: int = BAR) -> tuple[int, int, int]:
        """Share a width; what is there at all is seen, and nothing is wider than the whole."""
        if self.whole <= 0:
            return 0, 0, width
        used = min(width, max(self.used > 0, round(width * self.used / self.whole)))
        held = min(width - used, max(self.held > 0, round(width * self.held / self.whole)))
        return used, held, width - used - held


@dataclass(frozen=True)
class NodeRoom:
    """A node as the scheduler sees it."""

    name: str
    bars: dict[str, Bar]
    for_whom: tuple[str, ...]
    vms: tuple[str, ...]
    ready: bool

    def as_json(self) -> dict[str, Any]:
        """Return it for programs: thousandths of cores, and bytes."""
        parts = {
            name: {"used": bar.used, "held": bar.held, "free": bar.free, "allocatable": bar.whole}
            for name, bar in self.bars.items()
        }
        return {"name": self.name, "ready": self.ready, **parts, "heldFor": [*self.for_whom], "vms": [*self.vms]}


def rooms(store: Store) -> list[NodeRoom]:
    """Say how full all nodes are."""
    holds = holds_by_node(store)
    return [room(store, node, holds.get(node.name, ())) for _, node in sorted(store.nodes.items())]


def holds_by_node(store: Store) -> dict[str, list[Hold]]:
    """Return the holds that keep room."""
    found: dict[str, list[Hold]] = {}
    for hold in store.holds.values():
        if hold.live:
            found.setdefault(hold.node, []).append(hold)
    return found


def room(store: Store, node: Node, holds: Iterable[Hold]) -> NodeRoom:
    """Say how full a node is on which these holds keep room."""
    held = NOTHING
    for hold in holds:
        held = held.plus(ledger.outstanding(node, hold) or NOTHING)
    claimants = (store.pod(hold.claimant) for hold in holds)
    vms = sorted(f"{pod.namespace}/{pod.vm}" for pod in node.pods if pod.vm and pod.counts)
    return NodeRoom(
        node.name, {name: _bar(index, node, held) for index, name in enumerate(RESOURCES)},
        tuple(f"{pod.namespace}/{pod.name}" for pod in claimants if pod is not None), tuple(vms), node.ready,
    )  # fmt: skip


def _bar(index: int, node: Node, held: Room) -> Bar:
    return Bar(node.requested[index], held[index], node.allocatable[index])


# VMs


@dataclass(frozen=True)
class VmLine:
    """A VM, and what is going on with it."""

    namespace: str
    name: str
    pod: str
    node: str
    size: Room
    movable: str
    doing: str

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "namespace": self.namespace, "name": self.name, "pod": self.pod, "node": self.node,
            "cpuMillis": self.size.cpu, "memoryBytes": self.size.memory, "movable": self.movable == "yes",
            "why": "" if self.movable == "yes" else self.movable, "doing": self.doing,
        }  # fmt: skip


def vms(store: Store, namespace: str | None) -> Iterator[VmLine]:
    """Return all VMs, or those of one namespace."""
    holds = {hold.claimant for hold in store.holds.values() if hold.live}
    roles = {}
    for item in store.active_migrations():
        roles[item.status.source or item.pod] = f"leaves ({item.status.phase})"
        roles[item.status.receiver_uid] = f"receives ({item.status.phase})"
    for pod in sorted(store.pods(), key=lambda pod: (pod.namespace, pod.vm, pod.name)):
        if pod.vm and pod.counts and namespace in (None, pod.namespace):
            doing = roles.get(pod.uid) or ("grows" if pod.uid in holds else "")
            movable = "yes" if pod.movable else pod.why_fixed
            yield VmLine(pod.namespace, pod.vm, pod.name, pod.node, pod.size, movable, doing)
