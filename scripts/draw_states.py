"""Draw the state machines of requests and migrations from the code that decides: `make states` writes docs/states.md.

Each phase has one function in core/request.py or core/migration.py. The picture has an arrow for every phase that this
function, or one that it calls, writes down. Where it writes the outcome that was decided on earlier, the arrows lead to
the outcomes that are made where that phase is entered.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
CORE: Final = ROOT / "operator" / "elbowroom" / "core"
PAGE: Final = ROOT / "docs" / "states.md"


@dataclass
class Function:
    """What one function says about phases."""

    calls: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)
    dynamic: bool = False
    """It writes the phase of an outcome."""


class Machine:
    """The phases of one kind, read from its module."""

    def __init__(self, module: str, enum: str) -> None:
        """Read a module."""
        self._enum = enum
        tree = ast.parse((CORE / f"{module}.py").read_text())
        nodes = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.values = _values(enum)
        self._functions = {name: self._read(node, nodes) for name, node in nodes.items() if name != "decide"}
        self._entries = self._dispatch(nodes["decide"])

    def arrows(self) -> list[tuple[str, str]]:
        """Return from where to where it goes, in the order of the phases."""
        found = {(phase, target) for phase in self._entries for target in self._targets(phase) if target != phase}
        order = list(self.values)
        return sorted(found, key=lambda arrow: (order.index(arrow[0]), order.index(arrow[1])))

    def functions(self) -> dict[str, str]:
        """Return the function of each phase."""
        return self._entries

    def _targets(self, phase: str) -> set[str]:
        reached = self._closure(self._entries[phase])
        targets = {target for name in reached for target in self._functions[name].writes}
        if any(self._functions[name].dynamic for name in reached):
            targets |= self._outcomes(phase)
        return targets

    def _outcomes(self, phase: str) -> set[str]:
        """Return the outcomes that are decided on in functions that enter a phase, or in that phase's own."""
        dynamic = {
            other
            for other, entry in self._entries.items()
            if any(self._functions[name].dynamic for name in self._closure(entry))
        }
        found: set[str] = set()
        for name, function in self._functions.items():
            entered = {other for other in dynamic if other in self._enters(name) or self._entries[other] == name}
            if phase in entered or (not entered and phase in self._default(dynamic)):
                found |= function.outcomes
        return found

    def _enters(self, name: str) -> set[str]:
        """Return what a function writes, itself or by the small helpers that write for it."""
        function = self._functions[name]
        return function.writes.union(*(self._functions[other].writes for other in function.calls))

    @staticmethod
    def _default(dynamic: set[str]) -> set[str]:
        """Return the phase that takes outcomes which are handed on: the one for giving up."""
        return dynamic & {"UNDOING", "CANCELLING"}

    def _closure(self, name: str) -> set[str]:
        reached, left = set[str](), [name]
        while left:
            current = left.pop()
            if current not in reached:
                reached.add(current)
                left += self._functions[current].calls
        return reached

    def _read(self, node: ast.FunctionDef, known: dict[str, ast.FunctionDef]) -> Function:
        function = Function()
        for call in (item for item in ast.walk(node) if isinstance(item, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in known:
                function.calls.add(name)
            if name == "_write" and len(call.args) > 1:
                self._written(function, call.args[1])
            if name.endswith("Outcome") and call.args:
                function.outcomes |= self._phases(call.args[0])
            for keyword in call.keywords:
                if name == "replace" and keyword.arg == "phase":
                    self._written(function, keyword.value)
        return function

    def _written(self, function: Function, phase: ast.expr) -> None:
        function.writes |= self._phases(phase)
        function.dynamic |= ast.unparse(phase) == "outcome.phase"

    def _phases(self, node: ast.expr) -> set[str]:
        return {
            item.attr for item in ast.walk(node)
            if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == self._enum
        }  # fmt: skip

    def _dispatch(self, decide: ast.FunctionDef) -> dict[str, str]:
        entries: dict[str, str] = {}
        for case in (item for item in ast.walk(decide) if isinstance(item, ast.match_case)):
            for node in ast.walk(case.pattern):
                if isinstance(node, ast.MatchValue):
                    (phase,) = self._phases(node.value)
                    entries[phase] = ast.unparse(case.body[0]).removeprefix("return ").partition("(")[0]
        return entries


def _values(enum: str) -> dict[str, str]:
    """Return the phases of a kind as users see them."""
    tree = ast.parse((CORE / "world.py").read_text())
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == enum)
    found = {}
    for line in body:
        if (
            isinstance(line, ast.Assign)
            and isinstance(line.targets[0], ast.Name)
            and isinstance(line.value, ast.Constant)
        ):
            found[line.targets[0].id] = str(line.value.value)
    return found


def diagram(machine: Machine) -> str:
    """Return a picture that GitHub, and whatever else knows Mermaid, shows."""
    arrows = machine.arrows()
    left = {before for before, _ in arrows}
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(machine.values.values()))}"]
    lines += [f"    {machine.values[before]} --> {machine.values[after]}" for before, after in arrows]
    lines += [f"    {told} --> [*]" for phase, told in machine.values.items() if phase not in left]
    return "\n".join([*lines, "```"])


def page() -> str:
    """Return the page."""
    request, migration = Machine("request", "RequestPhase"), Machine("migration", "MigrationPhase")
    return f"""# Phases

Drawn from the code by `make states`; a test fails when this page is stale. What each phase puts back when it gives up
is in [core.md](core.md), what each reason means in [reasons.md](reasons.md).

## VMScaleRequest

{diagram(request)}

{_table(request)}

## VMMigration

{diagram(migration)}

{_table(migration)}
"""


def _table(machine: Machine) -> str:
    rows = [f"| {machine.values[phase]} | `{function}` |" for phase, function in machine.functions().items()]
    return "\n".join(["| phase | function |", "|---|---|", *rows])


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)}\n")
