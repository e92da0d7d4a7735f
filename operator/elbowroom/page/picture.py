"""What the page draws, from what is known of the cluster. Pure.

A cluster may have thousands of nodes, and a screen has not: those where something goes on come first, then the fullest.
A picture is made of parts with names, so that only those that have changed have to be sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING, Any, Final

from elbowroom.core.world import MigrationPhase, RequestPhase, TransferState
from elbowroom.telling.rooms import holds_by_node, room
from elbowroom.telling.story import Move, Request, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from elbowroom.cluster.view import View
    from elbowroom.core.room import Room
    from elbowroom.core.world import Hold, Migration, Node, Pod
    from elbowroom.telling.rooms import NodeRoom

Json = dict[str, Any]
NODES: Final = 40
PODS: Final = 48
"""How many pods of a node are drawn."""
_SMALL: Final = 0.01
"""A pod that has no more of its node than this is drawn with others like it, unless it takes part in something."""
REQUESTS: Final = 40


def draw(view: View, now: float, find: str = "") -> Json:
    """Return the parts of a picture. `find` is a part of the names of nodes, VMs, pods or namespaces."""
    roles = _Roles(view)
    holds = holds_by_node(view.store)
    find = find.lower()
    wanted = [node for node in view.store.nodes.values() if _matches(node, find)]

    def rank(node: Node) -> tuple[bool, float, str]:
        return not roles.on(node, holds), -_share(node.requested, node), node.name

    shown = nsmallest(NODES, wanted, key=rank)
    nodes = [_node(view, node, holds.get(node.name, ()), roles) for node in sorted(shown, key=lambda node: node.name)]
    requests = [*_requests(view, datetime.fromtimestamp(now, UTC))]
    return {
        "cluster": _cluster(len(view.store.nodes), len(wanted) - len(nodes), view.guarded),
        "nodes": [node["name"] for node in nodes],
        **{f"node/{node['name']}": node for node in nodes},
        "moves": [_move(view, item) for item in _moves(view)],
        "requests": [request["id"] for request in requests],
        **{f"request/{request['id']}": request for request in requests},
    }


def empty(why: str) -> Json:
    """Return the picture of who does not know what there is, and says why."""
    return {"cluster": _cluster(0, 0, None, why), "nodes": [], "moves": [], "requests": []}


def _cluster(nodes: int, left_out: int, guarded: bool | None, told: str = "") -> Json:  # noqa: FBT001
    return {"nodes": nodes, "leftOut": left_out, "guarded": guarded, "told": told}


class _Roles:
    """Who takes part in what, by the UIDs of pods."""

    def __init__(self, view: View) -> None:
        store = view.store
        self.of: dict[str, str] = {}
        for hold in store.holds.values():
            if hold.live:
                self.of[hold.claimant] = "grows"
        for request in store.active_requests():
            if request.status.claimant:
                self.of[request.status.claimant] = "grows"
        for item in _moves(view):
            self.of[item.status.source or item.pod] = "leaves"
            self.of[item.status.receiver_uid] = "receives"
        self.of.pop("", None)
        self._nodes = {pod.node for uid in self.of if (pod := store.pod(uid)) is not None}

    def on(self, node: Node, holds: dict[str, list[Hold]]) -> bool:
        """Tell whether something goes on there."""
        return node.name in self._nodes or node.name in holds


def _matches(node: Node, find: str) -> bool:
    if not find or find in node.name:
        return True
    return any(find in f"{pod.namespace}/{pod.name}" or find in pod.vm for pod in node.pods if pod.counts)


def _share(taken: Room, node: Node) -> float:
    """Return how much of a node something takes, of what it takes more of."""
    return max((part / whole for part, whole in zip(taken, node.allocatable, strict=True) if whole), default=0.0)


# Nodes and their pods


def _node(view: View, node: Node, holds: Iterable[Hold], roles: _Roles) -> Json:
    described: NodeRoom = room(view.store, node, holds)
    there = [pod for pod in node.pods if pod.counts]
    seen = [pod for pod in there if pod.uid in roles.of or _share(pod.size, node) > _SMALL]
    drawn = nlargest(PODS, seen, key=lambda pod: (pod.uid in roles.of, bool(pod.vm), pod.size, pod.uid))
    uids = {pod.uid for pod in drawn}
    small = [pod for pod in there if pod.uid not in uids]
    return {
        **described.as_json(),
        "open": node.takes_pods or node.tainted,
        "pods": [_pod(pod, roles) for pod in sorted(drawn, key=lambda pod: (pod.created_at, pod.uid))],
        "small": {
            "count": len(small),
            "cpu": sum(pod.size.cpu for pod in small),
            "memory": sum(pod.size.memory for pod in small),
        },
    }


def _pod(pod: Pod, roles: _Roles) -> Json:
    state = "ends" if pod.terminating else "" if pod.ready else "starts"
    return {
        "id": pod.uid, "namespace": pod.namespace, "name": pod.name, "vm": pod.vm, "cpu": pod.size.cpu,
        "memory": pod.size.memory, "role": roles.of.get(pod.uid, ""), "state": state, "movable": pod.movable,
        "why": pod.why_fixed,
    }  # fmt: skip


# Moves


def _moves(view: View) -> Sequence[Migration]:
    return sorted(view.store.active_migrations(), key=lambda item: (item.created_at, item.uid))


def _move(view: View, item: Migration) -> Json:
    status, transfer = item.status, view.store.transfers.get(item.uid)
    percent = 0 if transfer is None else transfer.percent
    if status.phase is MigrationPhase.MOVED or (transfer is not None and transfer.state is TransferState.SUCCEEDED):
        percent = 100
    return {"id": item.uid, "from": status.source or item.pod, "to": status.receiver_uid, "percent": percent}


# Requests


def _requests(view: View, now: datetime) -> Iterator[Json]:
    """Tell of those that are under way, the oldest first, and then of those that are over, the newest first."""
    store = view.store
    active = nsmallest(REQUESTS, store.active_requests(), key=lambda item: (item.created_at, item.uid))
    over = [item for item in store.requests.values() if item.status.phase.final]
    newest = nlargest(REQUESTS - len(active), over, key=lambda item: (item.status.finished_at, item.uid))
    for item in (*active, *newest):
        yield _request(view, Request.of(view.bodies[item.uid]), now)


def _request(view: View, request: Request, now: datetime) -> Json:
    moves = [
        Move.of(view.bodies[item.uid])
        for item in sorted(view.store.migrations_for(request.uid), key=lambda item: (item.created_at, item.uid))
    ]
    story = tell(request, moves, now)
    return {
        "id": request.uid, "namespace": request.namespace, "name": request.name, "phase": str(request.status.phase),
        "over": request.status.phase.final, "done": request.status.phase is RequestPhase.SUCCEEDED,
        "wanted": story.wanted, "soFar": [*story.so_far], "now": story.now, "toDo": story.to_do,
    }  # fmt: skip
