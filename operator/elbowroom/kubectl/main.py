"""The command line of `kubectl elbowroom`."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kubernetes import config

from elbowroom.api.base import GROUP, VERSION
from elbowroom.cluster.client import ApiError, ConflictError, NotFoundError
from elbowroom.core.duration import InvalidDurationError, seconds
from elbowroom.core.quantity import InvalidQuantityError, quantity_bytes

try:
    from .following import Follower, outcome
    from .showing import console, moved, plain, show_nodes, show_plan, show_story, show_vms
except ImportError as error:  # rich is not among what the operator needs
    sys.exit(f"kubectl-elbowroom: {error.name} is missing: pip install 'elbowroom[kubectl]'")

from elbowroom.cluster.client import Api
from elbowroom.telling.rooms import rooms, vms
from elbowroom.telling.story import Request, tell

from .reading import MIGRATIONS, REQUESTS, AskedError, Reader, own_namespace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Json = dict[str, Any]
_PLAN_SECONDS: Final = 20.0
"""How long a plan is waited for: an operator that leads makes one in milliseconds."""
_PERIOD: Final = 0.1
_SETTLED: Final = 3.0
"""How long a reason not to plan stays the same before it is believed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and exit: 0 done, 1 not done, 2 asked wrongly."""
    parsed = parser().parse_args(arguments)
    try:
        sys.exit(asyncio.run(_run(parsed)))
    except KeyboardInterrupt:
        sys.exit(130)
    except (AskedError, ApiError) as error:
        sys.exit(f"kubectl-elbowroom: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    told = " ".join(str(error).split())
    if isinstance(error, NotFoundError) and "could not find the requested resource" in told:
        return (
            "the cluster does not know VMScaleRequests: install Elbowroom there first (its chart is charts/elbowroom)"
        )
    return f"the API server does not answer: {told}" if isinstance(error, ApiError) and error.status == 0 else told


def parser() -> argparse.ArgumentParser:
    """Return what may be asked."""
    whole = argparse.ArgumentParser(
        prog="kubectl elbowroom", description="Room for a VM to grow, made by moving its neighbour.", allow_abbrev=False
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, told: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=told, description=told, allow_abbrev=False)
        made.add_argument("-n", "--namespace", help="the namespace; else the one that kubectl would take")
        made.add_argument("--context", help="the kubeconfig's context")
        made.add_argument(
            "-o", "--output", choices=("text", "json"), default="text", help="for people, or for programs"
        )
        return made

    for name, told in (
        (
            "plan",
            "Say what would be moved to give a pod or VM another size, why, and how long that takes. Changes nothing.",
        ),
        ("grow", "Give a pod or VM another size, and follow that to its end."),
    ):
        made = command(name, told)
        made.add_argument("pod", metavar="POD", help="a pod, or a VM by its name")
        made.add_argument("--cpu", type=_quantity, help="cores, such as 4 or 1500m")
        made.add_argument("--memory", type=_quantity, help="bytes, such as 8Gi")
        made.add_argument("--container", help="where the pod has several, and none is the VM's")
        if name == "grow":
            made.add_argument("--deadline", type=_duration, default="10m", help="give up after this time (10m)")
            made.add_argument("--no-move", action="store_true", help="move nobody: wait for room")
            made.add_argument("--no-wait", action="store_true", help="make the request, and do not follow it")
    made = command("migrate", "Move a VM to another node, and follow that to its end.")
    made.add_argument("vm", metavar="VM", help="a VM by its name")
    made.add_argument("--to", metavar="NODE", help="that node, and no other")
    made.add_argument("--deadline", type=_duration, default="30m", help="give up after this time (30m)")
    made.add_argument("--no-wait", action="store_true", help="make the migration, and do not follow it")
    made = command("explain", "Tell a request's story: what was done, what it waits for, and what to do about it.")
    made.add_argument("request", metavar="REQUEST", help="a VMScaleRequest")
    command("nodes", "Show what is used, held and free on each node.")
    made = command("vms", "Show all VMs: where they are, and what is going on with them.")
    made.add_argument("-A", "--all-namespaces", action="store_true", help="those of all namespaces")
    return whole


def _quantity(text: str) -> str:
    try:
        quantity_bytes(text)
    except InvalidQuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _duration(text: str) -> str:
    try:
        seconds(text)
    except InvalidDurationError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


async def _run(asked: argparse.Namespace) -> int:
    namespace = asked.namespace or own_namespace(asked.context)
    try:
        api = Api.from_kubeconfig(asked.context)
    except config.ConfigException as error:
        raise AskedError(f"the kubeconfig cannot be used: {error}") from error
    try:
        return await _COMMANDS[asked.command](Reader(api, namespace), asked)
    finally:
        await api.close()


# Commands


async def _plan(reader: Reader, asked: argparse.Namespace) -> int:
    spec = {
        **await _wanted(reader, asked),
        "dryRun": True,
        "deadline": f"{_PLAN_SECONDS:.0f}s",
        "ttlSecondsAfterFinished": 60,
    }
    body = await _create(reader, REQUESTS, "VMScaleRequest", f"plan-{asked.pod[:40]}-{secrets.token_hex(3)}", spec)
    try:
        request = await _planned(reader, body["metadata"]["name"])
    finally:
        await reader.api.delete(reader.path(REQUESTS, body["metadata"]["name"]), uid=body["metadata"]["uid"])
    if asked.output == "json":
        found = request.status.model_dump(
            mode="json", by_alias=True, include={"phase", "reason", "message", "plan", "node"}
        )
        _print_json({**found, "moves": [item.as_json() for item in moved(request)]})
    else:
        show_plan(console(), request)
    return 0 if request.status.phase.value == "Succeeded" else 1


async def _planned(reader: Reader, name: str) -> Request:
    """Wait for a plan, or until why there is none stays the same for a while."""
    until, since, before = time.monotonic() + _PLAN_SECONDS, time.monotonic(), ""
    while True:
        request = Request.of(await reader.request(name))
        if request.status.phase.final:
            return request
        now = time.monotonic()
        if request.status.reason != before:
            since, before = now, request.status.reason
        if before and now - since > _SETTLED:
            return request
        if now > until:
            raise AskedError("no operator has looked at it: does one lead? kubectl get lease -A, and helm test, say so")
        await asyncio.sleep(_PERIOD)


async def _wanted(reader: Reader, asked: argparse.Namespace) -> Json:
    resources = {name: value for name in ("cpu", "memory") if (value := getattr(asked, name)) is not None}
    if not resources:
        raise AskedError("give --cpu, --memory or both")
    container = {"container": asked.container} if asked.container else {}
    return {**await reader.subject(asked.pod), **container, "resources": resources}


async def _create(reader: Reader, plural: str, kind: str, name: str, spec: Json) -> Json:
    """Make something under a name that can be guessed, or a longer one where somebody has that already."""

    def named(name: str) -> Json:
        meta = {"name": name, "namespace": reader.namespace}
        return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": meta, "spec": spec}

    try:
        return await reader.api.create(reader.path(plural), named(name))
    except ConflictError:
        return await reader.api.create(reader.path(plural), named(f"{name}-{secrets.token_hex(3)}"))


async def _grow(reader: Reader, asked: argparse.Namespace) -> int:
    strategy = ["InPlace"] if asked.no_move else ["InPlace", "MoveNeighbour"]
    spec = {**await _wanted(reader, asked), "deadline": asked.deadline, "strategy": strategy}
    return await _made_and_followed(reader, asked, REQUESTS, "VMScaleRequest", f"grow-{asked.pod[:40]}", spec)


async def _migrate(reader: Reader, asked: argparse.Namespace) -> int:
    target = {"target": {"node": asked.to}} if asked.to else {}
    spec = {"vm": asked.vm, "deadline": asked.deadline, **target}
    return await _made_and_followed(reader, asked, MIGRATIONS, "VMMigration", f"move-{asked.vm[:40]}", spec)


async def _made_and_followed(  # noqa: PLR0913, PLR0917  # what to make, and how to show it
    reader: Reader, asked: argparse.Namespace, plural: str, kind: str, called: str, spec: Json
) -> int:
    body = await _create(reader, plural, kind, called, spec)
    name, out = body["metadata"]["name"], console()
    told = f"{kind} {reader.namespace}/{name}"
    if asked.output == "text":
        out.print(f"{told} is made. Ctrl-C stops watching it, not it: kubectl delete calls it off.")
    if not asked.no_wait:
        out.quiet = asked.output == "json"
        path = reader.path(plural, name)
        body = await Follower(out, name, lambda: reader.api.get(path), seconds(asked.deadline)).run()
    if asked.output == "json":
        _print_json(body)
    elif not asked.no_wait:
        out.print(plain(outcome(body)))
        if kind == "VMScaleRequest" and body["status"]["phase"] != "Succeeded":
            out.print(f"kubectl elbowroom explain {name} says more.")
    return 0 if asked.no_wait or body["status"]["phase"] == "Succeeded" else 1


async def _explain(reader: Reader, asked: argparse.Namespace) -> int:
    request = Request.of(await reader.request(asked.request))
    story = tell(request, await reader.moves_of(request), datetime.now(UTC))
    if asked.output == "json":
        _print_json({"wanted": story.wanted, "soFar": [*story.so_far], "now": story.now, "toDo": story.to_do})
    else:
        show_story(console(), request.name, story)
    return 0


async def _nodes(reader: Reader, asked: argparse.Namespace) -> int:
    found = rooms((await reader.world()).store)
    if asked.output == "json":
        _print_json([item.as_json() for item in found])
    else:
        show_nodes(console(), found)
    return 0


async def _vms(reader: Reader, asked: argparse.Namespace) -> int:
    found = [*vms((await reader.world()).store, None if asked.all_namespaces else reader.namespace)]
    if asked.output == "json":
        _print_json([item.as_json() for item in found])
    else:
        show_vms(console(), found)
    return 0


def _print_json(thing: object) -> None:
    print(json.dumps(thing, indent=2))  # noqa: T201  # for programs


_COMMANDS: dict[str, Callable[[Reader, argparse.Namespace], Awaitable[int]]] = {
    "plan": _plan, "grow": _grow, "migrate": _migrate, "explain": _explain, "nodes": _nodes, "vms": _vms,
}  # fmt: skip
