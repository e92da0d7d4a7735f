"""How things look: tables and bars in a terminal, plain lines in a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elbowroom.api.scale_request import Strategy
from elbowroom.core import ledger
from elbowroom.core.quantity import quantity_bytes
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.core.room import NOTHING
from elbowroom.core.world import RequestPhase

from .advice import ADVICE
from .story import subject, why_not
from .words import amount, listed, sized, span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from elbowroom.cluster.view import View
    from elbowroom.core.room import Room
    from elbowroom.core.world import Node

    from .story import Request, Story

BAR: Final = 32
_RESOURCES: Final = ("cpu", "memory")


def console() -> Console:
    """Return where to write: with colours in a terminal, and lines as long as they are in a pipe."""
    found = Console(highlight=False, soft_wrap=True, markup=False)
    return (
        found if found.is_terminal else Console(highlight=False, soft_wrap=True, markup=False, no_color=True, width=200)
    )


def plain(text: str) -> str:
    """Leave out what is not to be seen: messages may be somebody else's, and terminals obey what they are shown."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


# A request's story


def show_story(out: Console, name: str, story: Story) -> None:
    """Write a story."""
    out.print(Text(plain(story.wanted), style="bold"))
    for sentence in story.so_far:
        out.print(Text(plain(f"  • {sentence}")))
    out.print(Text.assemble(("now    ", "cyan"), plain(story.now)))
    out.print(Text.assemble(("to do  ", "cyan"), story.to_do))
    out.print(Text(f"more: kubectl describe vmsr {name}", style="dim"))


# A plan


@dataclass(frozen=True)
class Moved:
    """A neighbour that would be moved, and what that costs."""

    pod: str
    vm: str
    memory: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"pod": self.pod, "vm": self.vm, "memoryBytes": self.memory, "copySeconds": round(self.seconds, 1)}


def moved(request: Request) -> list[Moved]:
    """Return the neighbours of a plan. A copy takes at least as long as its bandwidth says."""
    bandwidth = max(1, quantity_bytes(request.spec.transfer.bandwidth))
    found = []
    for item in request.status.plan.neighbours if request.status.plan else ():
        memory = quantity_bytes(item.size.memory or "0")
        found.append(Moved(f"{item.pod.namespace}/{item.pod.name}", item.vm, memory, memory / bandwidth))
    return found


def show_plan(out: Console, request: Request) -> None:
    """Write what would be done for a request."""
    status, plan = request.status, request.status.plan
    change = f"from {status.before} to {status.after}" if status.before else f"to {sized(request.spec.resources)}"
    out.print(Text(f"{subject(request)} {change}" + (f" on {status.node}" if status.node else ""), style="bold"))
    if status.phase is not RequestPhase.SUCCEEDED or plan is None:
        out.print(Text.assemble(("not now  ", "red"), plain(_why(request))))
        out.print(Text.assemble(("to do    ", "cyan"), ADVICE.get(request.reason, ADVICE[Reason.UNKNOWN])))
    elif not plan.neighbours:
        out.print(Text.assemble(("fits  ", "green"), f"{plan.node} has the room: nobody has to move."))
    else:
        out.print(Text(f"{plan.node} lacks {sized(plan.shortfall)}. To make room:"))
        table = Table(box=None, padding=(0, 2, 0, 0))
        for title in ("MOVES", "VM", "MEMORY", "COPY TAKES AT LEAST"):
            table.add_column(title)
        for item in moved(request):
            table.add_row(item.pod, item.vm, amount(item.memory), span(item.seconds))
        out.print(table)
    others = [*why_not(request)]
    if others:
        out.print(Text("Not moved:", style="dim"))
        for line in others:
            out.print(Text(plain(f"  {line}"), style="dim"))


def _why(request: Request) -> str:
    meaning = MEANING[request.reason]
    if request.reason is Reason.WAITING_FOR_ROOM and Strategy.MOVE_NEIGHBOUR not in request.spec.strategy:
        meaning = "The node is full, and nobody was to be moved."
    return f"{meaning} ({request.status.message})" if request.status.message else meaning


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


def rooms(view: View) -> list[NodeRoom]:
    """Say how full all nodes are."""
    return [_room(view, node) for _, node in sorted(view.store.nodes.items())]


def _room(view: View, node: Node) -> NodeRoom:
    holds = [hold for hold in view.store.holds.values() if hold.live and hold.node == node.name]
    held = NOTHING
    for hold in holds:
        held = held.plus(ledger.outstanding(node, hold) or NOTHING)
    claimants = (view.store.pod(hold.claimant) for hold in holds)
    vms = sorted(f"{pod.namespace}/{pod.vm}" for pod in node.pods if pod.vm and pod.counts)
    return NodeRoom(
        node.name, {name: _bar(index, node, held) for index, name in enumerate(_RESOURCES)},
        tuple(f"{pod.namespace}/{pod.name}" for pod in claimants if pod is not None), tuple(vms), node.ready,
    )  # fmt: skip


def _bar(index: int, node: Node, held: Room) -> Bar:
    return Bar(node.requested[index], held[index], node.allocatable[index])


def show_nodes(out: Console, found: Sequence[NodeRoom]) -> None:
    """Write bars."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("NODE", no_wrap=True)
    for title in ("CPU", "", "MEMORY", ""):
        table.add_column(title, no_wrap=True)
    table.add_column("HELD FOR")
    for room in found:
        cells: list[Text] = []
        for resource, bar in room.bars.items():
            cells += [_drawn(out, bar), Text(_figures(resource, bar))]
        name = Text(room.name) if room.ready else Text(f"{room.name} (not ready)", style="red")
        table.add_row(name, *cells, Text(listed(room.for_whom)))
    out.print(table)
    out.print(Text.assemble(("█", "blue"), " used  ", ("▒", "yellow"), " held  ", ("·", "dim"), " free"))


def _drawn(out: Console, bar: Bar) -> Text:
    used, held, free = bar.widths(BAR if out.is_terminal else BAR // 2)
    return Text.assemble(("█" * used, "blue"), ("▒" * held, "yellow"), ("·" * free, "dim"))


def _figures(name: str, bar: Bar) -> str:
    if name == "cpu":
        return f"{bar.used / 1000:g}" + (f" + {bar.held / 1000:g}" if bar.held else "") + f" of {bar.whole / 1000:g}"
    return amount(bar.used) + (f" + {amount(bar.held)}" if bar.held else "") + f" of {amount(bar.whole)}"


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


def vms(view: View, namespace: str | None) -> Iterator[VmLine]:
    """Return all VMs, or those of one namespace."""
    holds = {hold.claimant for hold in view.store.holds.values() if hold.live}
    roles = {}
    for item in view.store.active_migrations():
        roles[item.status.source or item.pod] = f"leaves ({item.status.phase})"
        roles[item.status.receiver_uid] = f"receives ({item.status.phase})"
    for pod in sorted(view.store.pods(), key=lambda pod: (pod.namespace, pod.vm, pod.name)):
        if pod.vm and pod.counts and namespace in (None, pod.namespace):
            doing = roles.get(pod.uid) or ("grows" if pod.uid in holds else "")
            movable = "yes" if pod.movable else pod.why_fixed
            yield VmLine(pod.namespace, pod.vm, pod.name, pod.node, pod.size, movable, doing)


def show_vms(out: Console, found: Sequence[VmLine]) -> None:
    """Write a table."""
    if not found:
        out.print("No pod has the label elbowroom.dev/vm.")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("NAMESPACE", "VM", "POD", "NODE", "CPU", "MEMORY", "DOING", "MOVABLE"):
        table.add_column(title, no_wrap=title != "MOVABLE")
    for item in found:
        cells = (
            item.namespace, item.name, item.pod, item.node, f"{item.size.cpu / 1000:g}", amount(item.size.memory),
            item.doing, item.movable,
        )  # fmt: skip
        table.add_row(*(Text(plain(cell)) for cell in cells))
    out.print(table)
