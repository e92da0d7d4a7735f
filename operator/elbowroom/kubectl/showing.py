"""How things look: tables and bars in a terminal, plain lines in a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elbowroom.api.scale_request import Strategy
from elbowroom.core.quantity import quantity_bytes
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.core.world import RequestPhase
from elbowroom.telling.advice import ADVICE
from elbowroom.telling.rooms import BAR
from elbowroom.telling.story import subject, why_not
from elbowroom.telling.words import amount, listed, sized, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.telling.rooms import Bar, NodeRoom, VmLine
    from elbowroom.telling.story import Request, Story


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
