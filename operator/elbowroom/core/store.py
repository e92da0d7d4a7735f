"""A world that is kept up to date object by object: with thousands of nodes it is not made anew for every look."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from .places import Places
from .world import Node, World

if TYPE_CHECKING:
    from .room import Room
    from .world import Check, GuestSize, Hold, Migration, Pod, Request, Transfer

_Item = TypeVar("_Item")
_Object = TypeVar("_Object", "Pod", "Migration", "Request")
_Key = TypeVar("_Key", bound=Hashable)


class _Index(Generic[_Key, _Object]):
    """Objects by something about them."""

    def __init__(self, key: Callable[[_Object], _Key | None]) -> None:
        self._key: Callable[[_Object], _Key | None] = key
        # Most keys have one object, and a tuple of one is a fifth of a dictionary.
        self._found: dict[_Key, tuple[_Object, ...]] = {}

    def change(self, old: _Object | None, new: _Object | None) -> None:
        if old is not None and (key := self._key(old)) is not None:
            rest = tuple(item for item in self._found[key] if item.uid != old.uid)
            if rest:
                self._found[key] = rest
            else:
                del self._found[key]
        if new is not None and (key := self._key(new)) is not None:
            self._found[key] = self._found.get(key, ()) + (new,)  # noqa: RUF005  # mypy takes a starred one for another kind

    def get(self, key: _Key) -> Collection[_Object]:
        return self._found.get(key, ())


class Store(World):
    """All that was observed last, and the indices that the decisions ask."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._requests: dict[str, Request] = {}
        self._active_requests: dict[str, Request] = {}
        self._migrations: dict[str, Migration] = {}
        self._active_migrations: dict[str, Migration] = {}
        self._holds: dict[str, Hold] = {}
        self._transfers: dict[str, Transfer] = {}
        self._guests: dict[str, GuestSize] = {}
        self._orders: dict[str, int] = {}
        self._gone: set[str] = set()
        self._checks: dict[str, Check] = {}
        self._places = Places()
        self._on = _Index[str, "Pod"](lambda pod: pod.node or None)
        self._named = _Index[tuple[str, str], "Pod"](lambda pod: (pod.namespace, pod.name))
        self._of_vm = _Index[tuple[str, str], "Pod"](lambda pod: (pod.namespace, pod.vm) if pod.vm else None)
        self._owned = _Index[str, "Pod"](lambda pod: pod.owner or None)
        self._moves_named = _Index[tuple[str, str], "Migration"](lambda item: (item.namespace, item.name))
        self._moves_from = _Index[str, "Migration"](lambda item: item.status.source or None)
        self._moves_for = _Index[str, "Migration"](lambda item: item.request or None)
        self._asks_for_vm = _Index[tuple[str, str], "Request"](
            lambda item: (item.namespace, item.vm) if item.vm else None
        )
        self._asks_for_pod = _Index[tuple[str, str], "Request"](
            lambda item: (item.namespace, item.pod) if item.pod else None
        )
        self._asks_with = _Index[str, "Request"](lambda item: item.status.claimant or None)
        super().__init__(
            nodes=self._nodes, requests=self._requests, migrations=self._migrations, holds=self._holds,
            transfers=self._transfers, guests=self._guests, orders=self._orders, gone=self._gone, checks=self._checks,
        )  # fmt: skip

    # What has changed

    def put_node(
        self, name: str, allocatable: Room, *, ready: bool = True, takes_pods: bool = True, tainted: bool = False
    ) -> None:
        """Take in a node; its pods are taken in by themselves."""
        self._nodes[name] = Node(name, allocatable, tuple(self._on.get(name)), ready, takes_pods, tainted)
        self._placed(name)

    def drop_node(self, name: str) -> None:
        """Forget a node. Its pods stay until they are dropped."""
        self._nodes.pop(name, None)
        self._places.drop(name)

    def put_pod(self, new: Pod) -> None:
        """Take in a pod."""
        self._change_pod(self._pods.get(new.uid), new)

    def drop_pod(self, uid: str) -> None:
        """Forget a pod."""
        old = self._pods.get(uid)
        if old is not None:
            self._change_pod(old, None)
            self._guests.pop(uid, None)
            self._orders.pop(uid, None)

    def _change_pod(self, old: Pod | None, new: Pod | None) -> None:
        for index in (self._on, self._named, self._of_vm, self._owned):
            index.change(old, new)
        if old is not None:
            del self._pods[old.uid]
        if new is not None:
            self._pods[new.uid] = new
        for name in {pod.node for pod in (old, new) if pod is not None}:
            node = self._nodes.get(name)
            if node is not None:
                rest = tuple(pod for pod in node.pods if old is None or pod.uid != old.uid)
                here = (new,) if new is not None and new.node == name else ()
                self._nodes[name] = replace(node, pods=(*rest, *here))
                self._placed(name)

    def put_request(self, new: Request) -> None:
        """Take in a request."""
        self._requests[new.uid] = new
        self._change_active(new.uid, None if new.status.phase.final else new)

    def drop_request(self, uid: str) -> None:
        """Forget a request."""
        self._change_active(uid, None)
        for kept in (self._requests, self._checks):
            kept.pop(uid, None)

    def _change_active(self, uid: str, new: Request | None) -> None:
        for index in (self._asks_for_vm, self._asks_for_pod, self._asks_with):
            index.change(self._active_requests.get(uid), new)
        _keep(self._active_requests, uid, new)

    def put_migration(self, new: Migration) -> None:
        """Take in a migration."""
        self._change_migration(self._migrations.get(new.uid), new)

    def drop_migration(self, uid: str) -> None:
        """Forget a migration."""
        self._change_migration(self._migrations.get(uid), None)
        for kept in (self._transfers, self._checks):
            kept.pop(uid, None)

    def _change_migration(self, old: Migration | None, new: Migration | None) -> None:
        for index in (self._moves_named, self._moves_from, self._moves_for):
            index.change(old, new)
        if old is not None:
            del self._migrations[old.uid]
            self._active_migrations.pop(old.uid, None)
        if new is not None:
            self._migrations[new.uid] = new
            _keep(self._active_migrations, new.uid, None if new.status.phase.final else new)

    def put_hold(self, new: Hold) -> None:
        """Take in a hold."""
        self.drop_hold(new.claimant)  # its predecessor may have been on another node
        self._holds[new.claimant] = new
        self._placed(new.node)

    def drop_hold(self, claimant: str) -> None:
        """Forget a hold."""
        old = self._holds.pop(claimant, None)
        if old is not None:
            self._placed(old.node)

    def put_transfer(self, migration: str, transfer: Transfer | None) -> None:
        """Take in what the runners say about a move."""
        _keep(self._transfers, migration, transfer)

    def put_guest(self, pod: str, guest: GuestSize | None) -> None:
        """Take in what a guest has."""
        _keep(self._guests, pod, guest)

    def put_order(self, pod: str, order: int) -> None:
        """Take in the last order that a guest's runner has taken."""
        self._orders[pod] = order

    def put_gone(self, pod: str, *, gone: bool) -> None:
        """Take in what the API server has said about a pod that is not seen."""
        (self._gone.add if gone else self._gone.discard)(pod)

    def put_check(self, uid: str, check: Check | None) -> None:
        """Take in what the API server said to what was tried for a request or a migration."""
        _keep(self._checks, uid, check)

    def _placed(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            self._places.put(node, [hold for hold in self._holds.values() if hold.node == name])

    # What the decisions ask

    def pods(self) -> Iterator[Pod]:
        """Return all pods."""
        return iter(self._pods.values())

    def pod(self, uid: str) -> Pod | None:
        """Return a pod."""
        return self._pods.get(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return a pod by its name."""
        return next(iter(self._named.get((namespace, name))), None)

    def pods_of_vm(self, namespace: str, vm: str) -> Collection[Pod]:
        """Return the pods of a VM: two of them while it is moved."""
        return self._of_vm.get((namespace, vm))

    def pods_owned_by(self, uid: str) -> Collection[Pod]:
        """Return the pods that would be collected with a migration."""
        return self._owned.get(uid)

    def migration_named(self, namespace: str, name: str) -> Migration | None:
        """Return a migration by its name."""
        return next(iter(self._moves_named.get((namespace, name))), None)

    def migrations_from(self, uid: str) -> Collection[Migration]:
        """Return the migrations, past ones too, that a pod is the source of."""
        return self._moves_from.get(uid)

    def migrations_for(self, request: str) -> Collection[Migration]:
        """Return the migrations that make room for a request."""
        return self._moves_for.get(request)

    def active_requests(self) -> Collection[Request]:
        """Return the requests that are not over."""
        return self._active_requests.values()

    def requests_about(self, pod: Pod) -> Collection[Request]:
        """Return the requests that are not over and name a pod, or its VM, or have begun with it."""
        found = (
            self._asks_with.get(pod.uid), self._asks_for_pod.get((pod.namespace, pod.name)),
            self._asks_for_vm.get((pod.namespace, pod.vm)) if pod.vm else (),
        )  # fmt: skip
        return {item.uid: item for items in found for item in items}.values()

    def active_migrations(self) -> Collection[Migration]:
        """Return the migrations that are not over."""
        return self._active_migrations.values()

    def places(self) -> Places:
        """Return where receivers could go."""
        return self._places


def _keep(kept: dict[str, _Item], key: str, item: _Item | None) -> None:
    if item is None:
        kept.pop(key, None)
    else:
        kept[key] = item
