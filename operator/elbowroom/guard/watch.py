"""Is the guard asked? Tried from outside, by what only the guard refuses: Service, certificate and rules included."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from elbowroom import metrics
from elbowroom.cluster.client import ApiError

from .review import PROBE_NODE, PROBED

if TYPE_CHECKING:
    from collections.abc import Callable

    from elbowroom.cluster.client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_PERIOD: Final = 3.0


class GuardWatch:
    """Tries it again and again, and tells when that has changed."""

    def __init__(self, api: Api, namespace: str, changed: Callable[[bool], None]) -> None:
        """Say where the pod would be that nobody may make, and who is told."""
        self._api, self._namespace, self._changed = api, namespace, changed
        self._up: bool | None = None

    async def run(self) -> None:
        """Try until cancelled."""
        while True:
            up, why = await tried(self._api, self._namespace)
            if up != self._up:
                self._up = up
                metrics.GUARD_UP.set(int(up))
                _log.log(logging.INFO if up else logging.WARNING, "the guard is %s", "asked" if up else f"down: {why}")
                self._changed(up)
            await asyncio.sleep(_PERIOD)


async def tried(api: Api, namespace: str) -> tuple[bool, str]:
    """Tell whether the guard is asked, and why not."""
    for plural, probe in (("pods", _pod()), ("bindings", _binding())):  # one for each of its webhooks
        try:
            await api.create(f"/api/v1/namespaces/{namespace}/{plural}", probe, dryRun="All")
        except ApiError as error:
            if PROBED not in str(error):
                return False, f"{plural}: {error}"
        else:
            return False, f"{plural}: nobody refused what it refuses: look at its webhook configuration and its pods"
    return True, ""


def _binding() -> Json:
    """Describe a binding to a node that is none. The guard is asked before anybody looks for the pod."""
    target = {"apiVersion": "v1", "kind": "Node", "name": PROBE_NODE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": PROBE_NODE}, "target": target}


def _pod() -> Json:
    """Describe a pod that keeps to the strictest rules there are, so that nobody else refuses it."""
    secure = {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    amounts = {"cpu": "1m", "memory": "1Mi"}
    container = {
        "name": "probe", "image": "none", "securityContext": secure,
        "resources": {"requests": amounts, "limits": amounts},
    }  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": PROBE_NODE},
        "spec": {"nodeName": PROBE_NODE, "automountServiceAccountToken": False, "containers": [container]},
    }  # fmt: skip
