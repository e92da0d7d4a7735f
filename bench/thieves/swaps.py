"""One swap in each of the orders that are compared.

A node of 8 cores is full: the claimant (2, wants 4), a neighbour of 3 that pays for it, somebody whose resize waits
already (half a core, wants one and a half: the neighbour's leaving pays for that as well), one who resizes in the very
moment, one more who has a request of its own, and pods that stay.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException
from support.namespace import IDLE, condition, pod, resized
from support.namespace import Size as Amount
from support.waiting import until

from .gang import IMPORTANT, SMALL, Gang

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.namespace import Json, Namespace
    from support.operators import Requests

CORES = 8
MEMORY = "16Mi"
WANTED = Amount(4000, 16 << 20)
PATIENCE = 15.0
"""How long a claimant waits after its neighbour has gone, before the room counts as stolen."""
LONGEST = 60.0
"""The same for a whole scale-up, from the request. It is over at once where the request says that the room was taken."""


@dataclass(frozen=True)
class Swap:
    """What became of one."""

    seconds: float | None
    """From the first call to the claimant's new size; nothing where somebody else has got the room."""
    out_of_cpu: int = 0
    """Pods that a kubelet has sent away, where nobody held anything."""
    killed: bool = False
    """The claimant itself was removed."""


def plain(name: str, cpu: str, node: str, **spec: Any) -> Json:
    """Describe a pod that is on a node already."""
    return pod(name, IDLE, cpu=cpu, memory=MEMORY, nodeName=node, **spec)


class Stage:
    """A full node, and one swap after the other on it."""

    def __init__(self, space: Namespace, requests: Requests) -> None:
        """Say where."""
        self.space, self._requests = space, requests
        self._number = 0

    # Setting up and clearing away

    def fill(self, node: str, neighbour: bool) -> None:  # noqa: FBT001
        """Put everybody on a node who is there before the thieves come."""
        staying = {"priorityClassName": IMPORTANT}
        pods = [
            plain(self.name("claimant"), "2", node), plain(self.name("deferred"), SMALL, node),
            plain(self.name("resizer"), SMALL, node), plain(self.name("rival"), SMALL, node),
            plain(self.name("filler"), "1500m", node, **staying),
        ]  # fmt: skip
        if neighbour:
            pods.append(plain(self.name("neighbour"), "3", node))
        self.space.start(*pods)
        self.space.resize(self.name("deferred"), cpu="1500m", memory=MEMORY)
        self.space.until_deferred(self.name("deferred"))

    def name(self, role: str) -> str:
        """Return what a pod of this swap is called."""
        return f"{role}-{self._number}"

    def clear(self) -> None:
        """Remove everybody but VMs."""
        selector = "!elbowroom.dev/vm"
        self.space.kubectl("delete", "pods", "-l", selector, "--grace-period=1", "--wait=false")
        until(
            "everybody has gone",
            lambda: not self.space.core.list_namespaced_pod(self.space.name, label_selector=selector).items, within=60,
        )  # fmt: skip

    # Orders

    def naive(self, node: str) -> Swap:
        """Delete the neighbour, and when it is gone give the claimant its size."""
        return self._by_hand(node, self._delete_then_resize)

    def resize_first(self, node: str) -> Swap:
        """Give the claimant its size, wait until the kubelet defers that, and delete the neighbour."""
        return self._by_hand(node, self._resize_then_delete)

    def _delete_then_resize(self) -> None:
        self.space.kubectl("delete", "pod", self.name("neighbour"), "--wait=false")
        self.space.until_gone(self.name("neighbour"))
        self.space.resize(self.name("claimant"), cpu="4", memory=MEMORY)

    def _resize_then_delete(self) -> None:
        self.space.resize(self.name("claimant"), cpu="4", memory=MEMORY)
        self.space.until_deferred(self.name("claimant"), within=5)
        self.space.kubectl("delete", "pod", self.name("neighbour"), "--wait=false")

    def _by_hand(self, node: str, order: Callable[[], None]) -> Swap:
        self._number += 1
        self.fill(node, neighbour=True)
        with Gang(self.space, node, self._number) as gang:
            began = time.monotonic()
            try:
                self._resize_somebody()
                order()
                seconds = self._until_grown(began, PATIENCE, lambda: False)
            except (AssertionError, ApiException):
                seconds = None  # the claimant has gone before its turn came
            killed = self._killed()
        self.clear()
        return Swap(seconds, gang.refused_by_kubelet, killed)

    def by_request(self, node: str, **spec: Any) -> Swap:
        """Ask the operator: a VM that is on the node is moved, the claimant grows."""
        self._number += 1
        self.fill(node, neighbour=False)
        name = self.name("grow")
        began = time.monotonic()
        self._requests.grow(name, pod=self.name("claimant"), resources={"cpu": "4"}, **{"deadline": "55s", **spec})
        # Until then nobody has promised anything to anybody, and a preemptor would be in its right.
        until("the room is held", lambda: condition(self._requests.get(name), "RoomHeld").get("status") == "True")
        with Gang(self.space, node, self._number):
            rival = {"pod": self.name("rival"), "resources": {"cpu": "1500m"}, "strategy": ["InPlace"]}
            self._requests.grow(self.name("rival"), **rival, priority=-1, deadline="50s")
            self._resize_somebody()
            seconds = self._until_grown(began, LONGEST, lambda: self._taken(name))
            killed = self._killed()
            if seconds is not None:
                told = until("the request is over", lambda: self._over(name), within=90)["status"]
                if told["phase"] != "Succeeded":
                    raise AssertionError(f"it has grown and its request says {told['phase']} {told['reason']}")
        self.space.kubectl("delete", "vmscalerequests", "--all", "--timeout=60s", within=70)
        self.clear()
        return Swap(seconds, killed=killed)

    def _over(self, name: str) -> Json | None:
        found = self._requests.get(name)
        return found if found.get("status", {}).get("phase") in ("Succeeded", "Failed", "PartiallyMoved") else None

    # What is seen

    def _resize_somebody(self) -> None:
        try:
            self.space.resize(self.name("resizer"), cpu="1500m", memory=MEMORY)
        except ApiException as error:
            if error.status not in (403, 404, 429):  # killed, or refused by the guard
                raise

    def _killed(self) -> bool:
        found = self.space.pod(self.name("claimant"))
        return not found or "deletionTimestamp" in found["metadata"]

    def _taken(self, name: str) -> bool:
        """Tell whether the request has said that somebody took the room. It plans again then, if there is time."""
        told = self.space.core.list_namespaced_event(self.space.name, field_selector=f"involvedObject.name={name}")
        return any(event.reason == "RoomTaken" for event in told.items)

    def _until_grown(self, began: float, patience: float, taken: Callable[[], bool]) -> float | None:
        """Return how long it took, or nothing where it did not come to that."""

        def probe() -> str | None:
            found = self.space.pod(self.name("claimant"))
            if not found or "deletionTimestamp" in found["metadata"]:
                return "killed"
            return "grown" if resized(found, WANTED) else "taken" if taken() else None

        try:
            seen = until("the claimant has its size", probe, within=patience)
        except AssertionError:
            return None
        return time.monotonic() - began if seen == "grown" else None
