"""Write docs/api.md and docs/reasons.md from the models and from what the commands say: `make reference`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elbowroom.api.crds import KINDS, crd
from elbowroom.cluster.events import WARNINGS
from elbowroom.core.reasons import MEANING, Reason
from elbowroom.telling.advice import ADVICE

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
API: Final = """\
# The kinds, field by field

Written from the models by `make reference`; a test fails when this page is stale. `kubectl explain vmsr.spec` says the
same. A field without a default may be left out, unless it is **needed**."""
REASONS: Final = """\
# What you see, what it means, what to do

Written from the code by `make reference`; a test fails when this page is stale. `kubectl elbowroom explain REQUEST`
says the same of one request, with its facts. A reason stands in the conditions of a request or migration, in events, in
logs and in metrics. **Bold** ones are Warnings as events. What is about the installation is in
[operations.md](operations.md).

| reason | what it means | what to do |
|---|---|---|"""
OTHER_REASONS: Final = """
## About neighbours, holds and steps

These say why a neighbour is not moved (`status.plan.notChosen`), why a hold was refused or given back, or where a step
stands.

| reason | what it means |
|---|---|"""


# The kinds


def api() -> str:
    """Return the page about the kinds."""
    lines = [API]
    for kind in KINDS:
        body = crd(kind)
        version: Json = body["spec"]["versions"][0]
        schema: Json = version["schema"]["openAPIV3Schema"]
        names: Json = body["spec"]["names"]
        lines += [
            "", f"## {kind.name}", "",
            f"{schema['description']}",
            f"{kind.scope}; `{body['spec']['group']}/{version['name']}`, short name `{names['shortNames'][0]}`.",
        ]  # fmt: skip
        for part in ("spec", "status"):
            lines += ["", f"### {kind.name}: {part}", "", "| field | type | default | what |", "|---|---|---|---|"]
            lines += _rows(schema["properties"][part], "")
            rules = [*_rules(schema["properties"][part])] if part == "spec" else []
            if rules:
                lines += ["", "Refused by the API server, with these words:", "", *rules]
    return "\n".join(lines) + "\n"


def _rows(schema: Json, path: str) -> Iterator[str]:
    needed = schema.get("required", ())
    for name, part in schema.get("properties", {}).items():
        here = f"{path}{name}"
        inner = part.get("items", part)
        default = "**needed**" if name in needed else _default(part)
        yield f"| `{here}` | {_type(part)} | {default} | {_told(part)} |"
        if "properties" in inner:
            yield from _rows(inner, f"{here}{'[]' if inner is not part else ''}.")


def _type(part: Json) -> str:
    if part.get("x-kubernetes-int-or-string"):
        return "quantity"
    if part["type"] == "array":
        return f"list of {_type(part['items'])}"
    if "enum" in part:
        return " or ".join(f"`{item}`" for item in part["enum"])
    if any(rule["message"].startswith("has to be a duration") for rule in part.get("x-kubernetes-validations", ())):
        return "duration"
    kind = {"date-time": "time"}.get(part.get("format", ""), str(part["type"]))
    least, most = part.get("minimum"), part.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least} to {most}"
    return f"{kind}, {least} or more" if least is not None else kind


def _default(part: Json) -> str:
    if "default" not in part or part["default"] in ({}, [], ""):
        return ""
    found = part["default"]
    if isinstance(found, bool):
        return f"`{str(found).lower()}`"
    return f"`{', '.join(found) if isinstance(found, list) else found}`"


def _told(part: Json) -> str:
    return str(part.get("description", "")).replace("\n", " ").replace("|", "\\|")


def _rules(schema: Json) -> Iterator[str]:
    fields: dict[str, list[str]] = {}
    for where, message in _said(schema, ""):
        fields.setdefault(message, []).append(where)
    for message, places in fields.items():
        named = ", ".join(f"`{place}`" for place in places if place)
        yield f"- {named}: {message}" if named else f"- {message}"


def _said(schema: Json, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if not rule["message"].startswith(("has to be a quantity", "has to be a duration")):  # the type says so
            yield f"{path}{rule.get('fieldPath', '')}".strip("."), rule["message"]
    for name, part in schema.get("properties", {}).items():
        yield from _said(part, f"{path}.{name}".strip("."))


# Reasons


def reasons() -> str:
    """Return the page about reasons."""
    lines = [REASONS]
    lines += [f"| {_named(reason)} | {MEANING[reason]} | {ADVICE[reason]} |" for reason in Reason if reason in ADVICE]
    lines.append(OTHER_REASONS)
    lines += [f"| {_named(reason)} | {MEANING[reason]} |" for reason in Reason if reason not in ADVICE]
    return "\n".join(lines) + "\n"


def _named(reason: Reason) -> str:
    return f"**{reason}**" if reason in WARNINGS else str(reason)


PAGES: Final = {"api.md": api, "reasons.md": reasons}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
