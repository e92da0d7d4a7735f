"""All that is known of the cluster: the core's store, and what the core does not ask for.

What we have written ourselves is taken in from the API server's answer, so that nobody decides on what was before it. A
watch may deliver an older state after that, or bring back what is gone: neither changes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import msgspec

from elbowroom.core.store import Store
from elbowroom.drivers.interface import NotAVMError
from elbowroom.drivers.receiver import VM_LABEL, runner_container
from elbowroom.runner.options import CONFIG

from . import kinds, pods, slim

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.core.room import Room
    from elbowroom.core.world import Pod
    from elbowroom.drivers.interface import Driver, VirtualMachine

Json = dict[str, Any]
_REMEMBERED: Final = 20_000
TAINT: Final = "elbowroom.dev/held"
"""What a node has while room on it is held, where another scheduler places pods as well."""


class View:
    """The world as the operator sees it."""

    def __init__(self, driver: Driver | None) -> None:
        """Begin with nothing. Without a driver all pods are plain ones."""
        self.store = Store()
        self.shapes: dict[str, slim.Shape] = {}
        """What a resize of a pod is written from, by its UID."""
        self.vms: dict[str, VirtualMachine] = {}
        """By the UID of their pods."""
        self.bodies: dict[str, Json] = {}
        """Requests, migrations and holds as the API server has them, by UID."""
        self.holds: dict[str, str] = {}
        """The UIDs of holds, by their claimants'."""
        self.guarded: bool | None = None
        """Whether the API server asks the guard; nothing where none is used."""
        self._driver = driver
        self._nodes: dict[str, tuple[str, Room, bool, bool, bool]] = {}
        """By UID."""
        self._shared: WeakValueDictionary[bytes, slim.Shape] = WeakValueDictionary()
        self._gone: dict[str, None] = {}
        self.on_pod: Callable[[Pod], None] = lambda _: None
        """Called when a pod has changed or is gone."""

    # Nodes and pods

    def put_node(self, node: slim.Node) -> None:
        """Take in a node. Most of its news are heartbeats."""
        ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
        tainted = any(item.key == TAINT for item in node.spec.taints)
        name, allocatable, takes_pods = (
            node.metadata.name, pods.room(node.status.allocatable), not (node.spec.unschedulable or tainted)
        )  # fmt: skip
        known = (name, allocatable, ready, takes_pods, tainted)
        if self._nodes.get(node.metadata.uid) != known:
            self._nodes[node.metadata.uid] = known
            self.store.put_node(name, allocatable, ready=ready, takes_pods=takes_pods, tainted=tainted)

    def drop_node(self, uid: str) -> None:
        """Forget a node, and not another one that has its name now."""
        known = self._nodes.pop(uid, None)
        if known is not None and all(other[0] != known[0] for other in self._nodes.values()):
            self.store.drop_node(known[0])

    def put_pod(self, pod: slim.Pod) -> None:
        """Take in a pod."""
        uid = pod.metadata.uid
        known = self.store.pod(uid)
        if uid in self._gone or (known is not None and older(pod.metadata.resource_version, known.version)):
            return
        described = self._described(pod)
        self.shapes[uid] = self._shape(pod.spec)
        self.store.put_pod(described)
        self.on_pod(described)

    def _shape(self, spec: slim.PodSpec) -> slim.Shape:
        sides = (spec.containers, spec.init_containers)
        shape = slim.Shape(*(tuple(slim.Container(item.name, item.resources) for item in side) for side in sides))
        return self._shared.setdefault(msgspec.json.encode(shape), shape)

    def _described(self, pod: slim.Pod) -> Pod:
        if self._driver is None or VM_LABEL not in pod.metadata.labels:
            return pods.to_pod(pod)
        plain = msgspec.to_builtins(pod)
        try:
            vm = self._driver.describe(plain)
        except NotAVMError:
            return pods.to_pod(pod)
        self.vms[pod.metadata.uid] = vm
        runner = runner_container(plain)
        env = next((item.env for item in pod.spec.containers if item.name == runner), ())
        config = next((item.value for item in env if item.name == CONFIG), "")
        return pods.to_pod(pod, vm, runner, config)

    def drop_pod(self, uid: str) -> None:
        """Forget a pod."""
        self._bury(uid)
        self.shapes.pop(uid, None)
        self.vms.pop(uid, None)
        known = self.store.pod(uid)
        if known is not None:
            self.store.drop_pod(uid)
            self.on_pod(known)

    # Objects of our own kinds

    def put_request(self, body: Json) -> None:
        """Take in a request."""
        if self._news(body):
            self.store.put_request(kinds.to_request(body))

    def put_migration(self, body: Json) -> None:
        """Take in a migration."""
        if self._news(body):
            self.store.put_migration(kinds.to_migration(body))

    def put_hold(self, body: Json) -> None:
        """Take in a hold."""
        if self._news(body):
            hold = kinds.to_hold(body)
            self.holds[hold.claimant] = body["metadata"]["uid"]
            self.store.put_hold(hold)

    def drop_request(self, uid: str) -> None:
        """Forget a request."""
        self._bury(uid)
        if self.bodies.pop(uid, None) is not None:
            self.store.drop_request(uid)

    def drop_migration(self, uid: str) -> None:
        """Forget a migration."""
        self._bury(uid)
        if self.bodies.pop(uid, None) is not None:
            self.store.drop_migration(uid)

    def drop_hold(self, uid: str) -> None:
        """Forget a hold, and not another one of the same claimant."""
        self._bury(uid)
        body = self.bodies.pop(uid, None)
        if body is not None:
            claimant = body["spec"]["claimant"]["uid"]
            if self.holds.get(claimant) == uid:
                del self.holds[claimant]
                self.store.drop_hold(claimant)

    def hold_body(self, claimant: str) -> Json | None:
        """Return the hold of a claimant."""
        uid = self.holds.get(claimant)
        return None if uid is None else self.bodies.get(uid)

    def _news(self, body: Json) -> bool:
        meta = body["metadata"]
        known = self.bodies.get(meta["uid"])
        if meta["uid"] in self._gone:
            return False
        if known is not None and older(meta["resourceVersion"], known["metadata"]["resourceVersion"]):
            return False
        self.bodies[meta["uid"]] = body
        return True

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]


def older(version: str, than: str) -> bool:
    """Compare resource versions: whole numbers of any length. Others are taken as they come."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
