"""Small worlds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from elbowroom.core.world import Request

from .model import UNIT, Phase, Pod, Setup, State

if TYPE_CHECKING:
    from collections.abc import Callable


class Scenario(NamedTuple):
    """A world to explore."""

    name: str
    setup: Setup
    start: State


def _vm(uid: str, node: str, size: int, **more: object) -> Pod:
    return Pod(uid=uid, node=node, spec=size, allocated=size, vm=uid, **more)  # type: ignore[arg-type]


def _thief(uid: str, size: int) -> Pod:
    return Pod(uid=uid, spec=size, phase=Phase.PENDING, process=False, movable=False)


def _filler(uid: str, node: str, size: int) -> Pod:
    return Pod(uid=uid, node=node, spec=size, allocated=size, movable=False)


def _grow(uid: str, vm: str, size: int, **more: object) -> Request:
    return Request(uid=uid, namespace="x", name=uid, vm=vm, cpu=size * UNIT, deadline=1.5, keep_for=1e9, **more)  # type: ignore[arg-type]


def _world(name: str, setup: Setup, pods: list[Pod], requests: list[Request], faults: int) -> Scenario:
    guests = tuple(sorted((pod.uid, pod.spec) for pod in pods if pod.vm))
    start = State(
        pods=tuple(sorted(pods)), requests=tuple(requests), guests=guests, faults=faults, scheduler=State(()).scheduler
    )
    return Scenario(name, setup, start)


TWO = (("n1", 4), ("n2", 4))
THREE = (("n1", 4), ("n2", 2), ("n3", 2))
PLAIN = Setup(TWO)
_PAIR = [_vm("db", "n1", 2), _vm("web", "n1", 2)]
_FOUR = [_vm("db", "n1", 1), _vm("web", "n1", 1), _vm("a", "n1", 1), _vm("b", "n1", 1)]
_GROW = [_grow("r1", "db", 4)]


def worlds(setup: Setup = PLAIN) -> dict[str, Callable[[int], Scenario]]:
    """Return all worlds by their names, each for a number of faults."""
    larger = setup._replace(nodes=THREE)
    described: dict[str, tuple[Setup, list[Pod], list[Request]]] = {
        "in place": (setup, [_vm("db", "n1", 2), _filler("api", "n1", 1), _thief("thief", 1)], [_grow("r1", "db", 3)]),
        "nobody else": (setup, _PAIR, _GROW),
        "a thief": (setup, [*_PAIR, _thief("thief", 1)], _GROW),
        "a filler": (setup, [_vm("db", "n1", 1), _vm("web", "n1", 2), _filler("api", "n1", 1)], [_grow("r1", "db", 2)]),
        "a tight filler": (
            setup,
            [_vm("db", "n1", 1), _vm("web", "n1", 1), _filler("api", "n1", 2)],
            [_grow("r1", "db", 2)],
        ),
        "a large filler": (
            setup._replace(nodes=(("n1", 6), ("n2", 4))),
            [_vm("db", "n1", 1), _vm("web", "n1", 2), _filler("api", "n1", 3)],
            [_grow("r1", "db", 2)],
        ),
        "two in place": (
            setup._replace(nodes=(("n1", 3), ("n2", 1))),
            [_vm("db", "n1", 1), _vm("web", "n1", 1)],
            [_grow("r1", "db", 2, priority=1), _grow("r2", "web", 2, moves=False)],
        ),
        "waiting for room": (
            setup._replace(nodes=(("n1", 3), ("n2", 1))),
            [_vm("db", "n1", 1), _vm("web", "n1", 1), _vm("a", "n1", 1)],
            [_grow("r1", "db", 2, priority=1), _grow("r2", "web", 2, moves=False)],
        ),
        "another try": (setup._replace(tries=2), _PAIR, _GROW),
        "without a guard": (setup._replace(guard=False), [*_PAIR, _thief("thief", 1)], _GROW),
        "two requests": (larger, _FOUR, [_grow("r1", "db", 2), _grow("r2", "web", 2)]),
        "each other's neighbour": (setup, _PAIR, [_grow("r1", "db", 3), _grow("r2", "web", 3)]),
        "two neighbours": (larger, [_vm("db", "n1", 2), _vm("a", "n1", 1), _vm("b", "n1", 1)], _GROW),
    }
    return {name: partial(_world, name, *parts) for name, parts in described.items()}
