"""A world that is kept up to date answers like one that is made anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from elbowroom.core.room import Room
from elbowroom.core.store import Store
from elbowroom.core.world import Hold, HoldPhase, MigrationPhase, Node, Pod, RequestPhase, World
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import migration, request

if TYPE_CHECKING:
    from collections.abc import Iterable

NODES = ("n1", "n2", "n3")
ROOM = Room(8, 8)
numbers = st.integers(0, 3)
pods = st.builds(
    lambda number, node, cpu, memory, owner: Pod(
        uid=f"p{number}", namespace="x", name=f"p{number}", node=node, size=Room(cpu, memory), vm=f"vm{number % 2}",
        owner=owner,
    ),
    numbers, st.sampled_from((*NODES, "", "gone")), numbers, numbers, st.sampled_from(("", "m1")),
)  # fmt: skip
holds = st.builds(
    lambda number, node, cpu, phase: Hold(f"p{number}", "r1", node, Room(cpu, 3), phase=phase),
    numbers, st.sampled_from(NODES), numbers, st.sampled_from(HoldPhase),
)  # fmt: skip
migrations = st.builds(
    lambda number, phase, source: migration(phase, uid=f"m{number}", name=f"m{number}", source=source, request="r1"),
    numbers, st.sampled_from(MigrationPhase), st.sampled_from(("p0", "p1")),
)  # fmt: skip
requests = st.builds(lambda number, phase: request(phase, uid=f"r{number}"), numbers, st.sampled_from(RequestPhase))
changes = st.one_of(
    st.tuples(st.just("put_pod"), pods), st.tuples(st.just("drop_pod"), numbers.map("p{}".format)),
    st.tuples(st.just("put_hold"), holds), st.tuples(st.just("drop_hold"), numbers.map("p{}".format)),
    st.tuples(st.just("put_migration"), migrations), st.tuples(st.just("drop_migration"), numbers.map("m{}".format)),
    st.tuples(st.just("put_request"), requests), st.tuples(st.just("drop_request"), numbers.map("r{}".format)),
    st.tuples(st.just("drop_node"), st.sampled_from(NODES)), st.tuples(st.just("put_node"), st.sampled_from(NODES)),
)  # fmt: skip


def anew(store: Store, names: set[str]) -> World:
    everywhere = [*store.pods()]
    return World(
        nodes={name: Node(name, ROOM, tuple(pod for pod in everywhere if pod.node == name)) for name in names},
        unbound=tuple(pod for pod in everywhere if pod.node not in names),
        requests=dict(store.requests), migrations=dict(store.migrations), holds=dict(store.holds),
    )  # fmt: skip


def uids(items: Iterable[Any]) -> list[str]:
    return sorted(item.uid for item in items)


@given(st.lists(changes, max_size=30))
def test_it_answers_like_one_that_is_made_anew(steps: list[tuple[str, Any]]) -> None:
    store, names = Store(), set(NODES)
    for name in NODES:
        store.put_node(name, ROOM)
    for change, what in steps:
        if change == "put_node":
            store.put_node(what, ROOM)
            names.add(what)
        else:
            getattr(store, change)(what)
            names -= {what}
    fresh = anew(store, names)
    assert store.places().best() == fresh.places().best()
    assert {name: uids(node.pods) for name, node in store.nodes.items()} == {
        name: uids(node.pods) for name, node in fresh.nodes.items()
    }
    assert {name: node.requested for name, node in store.nodes.items()} == {
        name: node.requested for name, node in fresh.nodes.items()
    }
    for number in range(4):
        assert store.pod(f"p{number}") == fresh.pod(f"p{number}")
        assert store.pod_named("x", f"p{number}") == fresh.pod_named("x", f"p{number}")
        asked = Pod(f"p{number}", "x", f"p{number}", vm=f"vm{number}")
        assert uids(store.requests_about(asked)) == uids(fresh.requests_about(asked))
        assert uids(store.pods_of_vm("x", f"vm{number}")) == uids(fresh.pods_of_vm("x", f"vm{number}"))
        assert store.migration_named("shop", f"m{number}") == fresh.migration_named("shop", f"m{number}")
        assert uids(store.migrations_from(f"p{number}")) == uids(fresh.migrations_from(f"p{number}"))
    assert uids(store.pods_owned_by("m1")) == uids(fresh.pods_owned_by("m1"))
    assert uids(store.migrations_for("r1")) == uids(fresh.migrations_for("r1"))
    assert uids(store.active_requests()) == uids(fresh.active_requests())
    assert uids(store.active_migrations()) == uids(fresh.active_migrations())
