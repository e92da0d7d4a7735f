"""What the shell proposes.

kubectl asks `kubectl_complete-elbowroom` with the words so far, of which the last is not complete. Answers are a line
each, with a tab before what is said about it, and at the end a number for kubectl: propose no files.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from kubernetes.config import ConfigException

from elbowroom.cluster.client import Api, ApiError
from elbowroom.drivers.receiver import VM_LABEL

from .main import parser
from .reading import REQUESTS, AskedError, Reader, own_namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
_NO_FILES: Final = ":4"
_ERROR: Final = ":1"
_SECONDS: Final = 3.0
"""Who presses Tab does not wait for longer."""


def main() -> None:
    """Propose."""
    try:
        found = asyncio.run(_in_time(sys.argv[1:]))
    except (ApiError, AskedError, ConfigException, TimeoutError):
        print(_ERROR)  # noqa: T201  # for kubectl
        return
    print("\n".join([*found, _NO_FILES]))  # noqa: T201  # for kubectl


async def _in_time(words: Sequence[str]) -> list[str]:
    async with asyncio.timeout(_SECONDS):
        return await propose(words, _names)


Namer = Callable[[str, str | None, str | None], Awaitable[list[str]]]
"""From what is named (a POD, say), in which namespace and context, to the names."""


async def propose(words: Sequence[str], names: Namer) -> list[str]:
    """Return what may stand for the last of these words."""
    *before, last = words or [""]
    commands = _commands(parser())
    if not before or before[0] not in commands:
        return [f"{name}\t{made.description}" for name, made in commands.items() if name.startswith(last)]
    options = [item for item in commands[before[0]]._actions if item.option_strings]  # noqa: SLF001  # argparse has no other way
    asked = _option(options, before[-1])
    if asked is not None:
        found = [*map(str, asked.choices)] if asked.choices else await names(*_what(asked, before))
        return [name for name in found if name.startswith(last)]
    if last.startswith("-"):
        flags = ((item.option_strings[-1], item.help) for item in options)
        return [f"{flag}\t{told}" for flag, told in flags if flag.startswith(last)]
    positional = [item for item in commands[before[0]]._actions if not item.option_strings]  # noqa: SLF001
    if not positional or _filled(options, before[1:]):
        return []
    return [name for name in await names(*_what(positional[0], before)) if name.startswith(last)]


def _commands(made: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    for item in made._actions:  # noqa: SLF001
        if isinstance(item, argparse._SubParsersAction):  # noqa: SLF001
            found.update(item.choices)
    return found


def _option(options: Sequence[argparse.Action], word: str) -> argparse.Action | None:
    """Return the option that a word is, if it wants a value."""
    return next((item for item in options if word in item.option_strings and item.nargs is None), None)


def _what(item: argparse.Action, words: Sequence[str]) -> tuple[str, str | None, str | None]:
    return str(item.metavar or item.dest), _value(words, "-n", "--namespace"), _value(words, "--context")


def _value(words: Sequence[str], *flags: str) -> str | None:
    return next((value for flag, value in pairwise(words) if flag in flags), None)


def _filled(options: Sequence[argparse.Action], words: Sequence[str]) -> bool:
    """Tell whether one of the words is the one that stands by itself."""
    return any(
        not word.startswith("-") and (number == 0 or _option(options, words[number - 1]) is None)
        for number, word in enumerate(words)
    )


async def _names(what: str, namespace: str | None, context: str | None) -> list[str]:
    api = Api.from_kubeconfig(context)
    space = namespace or own_namespace(context)
    reader = Reader(api, space)
    paths: dict[str, tuple[str, dict[str, str]]] = {
        "POD": (f"/api/v1/namespaces/{space}/pods", {}),
        "VM": (f"/api/v1/namespaces/{space}/pods", {"labelSelector": VM_LABEL}),
        "REQUEST": (reader.path(REQUESTS), {}),
        "NODE": ("/api/v1/nodes", {}),
        "namespace": ("/api/v1/namespaces", {}),
    }
    if what not in paths:
        await api.close()
        return []
    try:
        path, query = paths[what]
        items: list[Json] = (await api.get(path, **query))["items"]
    finally:
        await api.close()
    metas = [item["metadata"] for item in items]
    return sorted({meta["labels"][VM_LABEL] if what == "VM" else meta["name"] for meta in metas})
