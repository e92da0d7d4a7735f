"""Everybody who would like the room, all at once, in all the ways that there are."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from kubernetes.client.exceptions import ApiException
from support.namespace import IDLE, pod
from support.past import bind
from urllib3.exceptions import HTTPError

if TYPE_CHECKING:
    from types import TracebackType

    from support.namespace import Json, Namespace

STOCK = "stock"
"""The name of the scheduler that runs beside, without our plugins."""
IMPORTANT = "thieves-important"
"""The class of preemptors, and of pods that stay whoever comes."""
SMALL = "500m"
_PAUSE = 0.02


class Gang:
    """Thieves of one swap on one node. Use it as a context manager: they begin, and are gone afterwards."""

    def __init__(self, space: Namespace, node: str, number: int) -> None:
        """Say where, and which swap this is."""
        self._space, self._node, self._number = space, node, number
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.refused_by_kubelet = 0
        """Pods that their kubelet has sent away because it had no room for them."""

    def described(self, kind: str, index: int = 0, cpu: str = SMALL, **spec: Any) -> Json:
        """Describe one of them."""
        found = pod(f"{kind}-{self._number}-{index}", IDLE, cpu=cpu, memory="16Mi", restartPolicy="Never", **spec)
        found["metadata"]["labels"] = {"thief": kind}
        return found

    def __enter__(self) -> Self:
        """Let them loose: pods that wait for two schedulers, preemptors, and loops that ask no scheduler."""
        waiting = [
            self.described(kind, index, node=self._node, schedulerName=scheduler)
            for kind, scheduler in (("pending", "default-scheduler"), ("beside", STOCK)) for index in range(3)
        ]  # fmt: skip
        preemptors = [
            self.described("preemptor", index, "2", node=self._node, schedulerName=scheduler, priorityClassName=IMPORTANT)
            for index, scheduler in enumerate(("default-scheduler", STOCK))
        ]  # fmt: skip
        bound = [self.described("bound", index, schedulerName="nobody") for index in range(8)]
        self._space.apply(*waiting, *preemptors, *bound)
        for loop in (self._bind, self._name):
            thread = threading.Thread(target=loop, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def _bind(self) -> None:
        """Bind pods past all schedulers, one after the other, until they are bound."""
        left = list(range(8))
        while left and not self._over.wait(_PAUSE):
            name = f"bound-{self._number}-{left[0]}"
            with suppress(ApiException, HTTPError):
                bind(self._space, name, self._node)
                left.pop(0)

    def _name(self) -> None:
        """Make pods that name the node, one at a time, for as long as it takes."""
        index = 0
        while not self._over.wait(_PAUSE):
            described: Any = self.described("named", index, nodeName=self._node)
            with suppress(ApiException, HTTPError):
                self._space.core.create_namespaced_pod(self._space.name, described)
                index += 1
                self._over.wait(10 * _PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the loops, and count whom the kubelet has sent away."""
        self._over.set()
        for thread in self._threads:
            thread.join(15)
        found = self._space.core.list_namespaced_pod(self._space.name).items
        self.refused_by_kubelet = sum(str(item.status and item.status.reason).startswith("OutOf") for item in found)
