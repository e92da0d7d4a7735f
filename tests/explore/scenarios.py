"""Small worlds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from elbowroom.core.world import Migration, MigrationPhase, Request, RequestPhase

from .model import UNIT, Phase, Pod, Seen, Setup, State
from .search import Search

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


def _filler(uid: str, node: str, size: int, **more: object) -> Pod:
    return Pod(uid=uid, node=node, spec=size, allocated=size, movable=False, **more)  # type: ignore[arg-type]


def _by_hand(uid: str, vm: str) -> Migration:
    return Migration(uid=uid, namespace="x", name=uid, vm=vm, deadline=1.5, keep_for=1e9)


def _grow(uid: str, vm: str, size: int, **more: object) -> Request:
    return Request(uid=uid, namespace="x", name=uid, vm=vm, cpu=size * UNIT, deadline=1.5, keep_for=1e9, **more)  # type: ignore[arg-type]


def _world(name: str, setup: Setup, pods: list[Pod], asked: list[Request | Migration], faults: int) -> Scenario:
    guests = tuple(sorted((pod.uid, pod.allocated, 0) for pod in pods if pod.vm))
    start = State(
        pods=tuple(sorted(pods)), requests=tuple(item for item in asked if isinstance(item, Request)),
        migrations=tuple(item for item in asked if isinstance(item, Migration)), guests=guests, faults=faults,
        vms=tuple(sorted(pod.vm for pod in pods if pod.vm)),
    )  # fmt: skip
    return Scenario(name, setup, start)


TWO = (("n1", 4), ("n2", 4))
THREE = (("n1", 4), ("n2", 2), ("n3", 2))
PLAIN = Setup(TWO)
_PAIR = [_vm("db", "n1", 2), _vm("web", "n1", 2)]
_FOUR = [_vm("db", "n1", 1), _vm("web", "n1", 1), _vm("a", "n1", 1), _vm("b", "n1", 1)]
_GROW: list[Request | Migration] = [_grow("r1", "db", 4)]


def worlds(setup: Setup = PLAIN) -> dict[str, Callable[[int], Scenario]]:
    """Return all worlds by their names, each for a number of faults."""
    larger = setup._replace(nodes=THREE)
    described: dict[str, tuple[Setup, list[Pod], list[Request | Migration]]] = {
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
        "shrinking": (
            setup,
            [_vm("db", "n1", 3), _filler("api", "n1", 1), _thief("thief", 1)],
            [_grow("r1", "db", 1)],
        ),
        "superseded": (setup._replace(comes=(_grow("r2", "db", 3),)), _PAIR, _GROW),
        "superseded in place": (
            setup._replace(comes=(_grow("r2", "db", 2),)),
            [_vm("db", "n1", 1), _thief("thief", 1)],
            [_grow("r1", "db", 4)],
        ),
        "by hand": (setup, _PAIR, [_by_hand("hand", "web")]),
        "by hand, and a request": (setup, _PAIR, [*_GROW, _by_hand("hand", "web")]),
        "deferred already": (
            setup,
            [_vm("db", "n1", 2)._replace(spec=4, seen=Seen.DEFERRED, since=1, tampered=True), _vm("web", "n1", 2)],
            _GROW,
        ),
        "cut off for ever": (setup._replace(heals=False), _PAIR, _GROW),
        "dead for ever": (setup._replace(clears=False), _PAIR, _GROW),
        "a controller": (
            setup,
            [_vm("db", "n1", 1), _vm("web", "n1", 2), _filler("api", "n1", 1, kept=True)],
            [_grow("r1", "db", 2)],
        ),
        "old views": (setup._replace(views=True), _PAIR, _GROW),
        "old views in place": (
            setup._replace(views=True),
            [_vm("db", "n1", 2), _filler("api", "n1", 1), _thief("thief", 1)],
            [_grow("r1", "db", 3)],
        ),
        "a preemptor": (
            setup._replace(nodes=(("n1", 4), ("n2", 3))),
            [
                _vm("db", "n1", 1),
                _vm("web", "n1", 1),
                _filler("api", "n1", 2),
                _filler("job", "n2", 2),
                _thief("boss", 2)._replace(priority=1),
            ],
            [_grow("r1", "db", 2)],
        ),
        "a preemptor of VMs": (
            setup._replace(nodes=(("n1", 4), ("n2", 2))),
            [*_PAIR, _thief("boss", 4)._replace(priority=1)],
            _GROW,
        ),
        "an autoscaler": (setup._replace(foreign=True), _PAIR, [_grow("r1", "db", 3)]),
        "an autoscaler without a guard": (setup._replace(foreign=True, guard=False), _PAIR, [_grow("r1", "db", 3)]),
        "a container that restarts": (
            setup,
            [_vm("db", "n1", 1, restarts=True), _vm("web", "n1", 2), _filler("api", "n1", 1)],
            [_grow("r1", "db", 2)],
        ),
        "another neighbour": (
            setup._replace(tries=2),
            [_vm("db", "n1", 1), _vm("web", "n1", 1), _vm("a", "n1", 1), _filler("api", "n1", 1)],
            [_grow("r1", "db", 2)],
        ),
        "another try": (setup._replace(tries=2), _PAIR, _GROW),
        "without a guard": (setup._replace(guard=False), [*_PAIR, _thief("thief", 1)], _GROW),
        "two requests": (larger, _FOUR, [_grow("r1", "db", 2), _grow("r2", "web", 2)]),
        "two requests, one of more weight": (
            larger,
            [_FOUR[0]._replace(priority=1), *_FOUR[1:]],
            [_grow("r1", "db", 2), _grow("r2", "web", 2)],
        ),
        "each other's neighbour": (setup, _PAIR, [_grow("r1", "db", 3), _grow("r2", "web", 3)]),
        "two neighbours": (larger, [_vm("db", "n1", 2), _vm("a", "n1", 1), _vm("b", "n1", 1)], _GROW),
    }
    found = {name: partial(_world, name, *parts) for name, parts in described.items()}
    # The large ones with faults from some moment on: up to it nothing has gone wrong.
    later = {
        f"{name}, {moment}": partial(_later, found[name], wanted)
        for name in ("nobody else", "a thief", "two neighbours", "two requests", "two requests, one of more weight") for moment, wanted in MOMENTS.items()
    }  # fmt: skip
    return {**found, **later}


def _later(world: Callable[[int], Scenario], wanted: Callable[[State], bool], faults: int) -> Scenario:
    calm = world(0)
    return calm._replace(start=Search(calm.setup, calm.start).first(wanted)._replace(faults=faults))


def _copying(state: State) -> bool:
    """Tell whether everybody is being copied: as many as requests and plans are about."""
    planned = sum(len(item.status.plan) for item in state.requests)
    phases = [item.status.phase for item in state.migrations]
    everybody = all(item.status.phase is RequestPhase.MOVING for item in state.requests) and len(phases) == planned
    return everybody and all(phase is MigrationPhase.TRANSFERRING for phase in phases)


def _committing(state: State) -> bool:
    return _nobody_over(state) and any(item.status.phase is RequestPhase.COMMITTING for item in state.requests)


def _swapping(state: State) -> bool:
    return _nobody_over(state) and any(item.status.phase is RequestPhase.SWAPPING for item in state.requests)


def _nobody_over(state: State) -> bool:
    phases = [item.status.phase for item in state.requests]
    return not any(phase.final or phase is RequestPhase.UNDOING for phase in phases)


MOMENTS: dict[str, Callable[[State], bool]] = {"copying": _copying, "committing": _committing, "swapping": _swapping}
