"""Which of several extenders a Service leads to: the leader's pod has a label, and no other one.

So those that stand by can be Ready, as whoever installs or drains them expects, and are not asked all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from elbowroom.cluster.client import MERGE_PATCH, NotFoundError

if TYPE_CHECKING:
    from elbowroom.cluster.client import Api

LABEL: Final = "elbowroom.dev/leads"
VALUE: Final = "extender"


class Shown:
    """One pod's label. Without a name it is no pod, and nothing is done."""

    def __init__(self, api: Api, namespace: str, pod: str | None) -> None:
        """Say whose."""
        self._api, self._pods, self.pod = api, f"/api/v1/namespaces/{namespace}/pods", pod

    async def hide(self) -> None:
        """Take off what was left by a process that led here before."""
        if self.pod is not None:
            await self._label(self.pod, None)

    async def show(self) -> None:
        """Be the one that is asked."""
        if self.pod is None:
            return
        for item in (await self._api.get(self._pods, labelSelector=f"{LABEL}={VALUE}"))["items"]:
            if item["metadata"]["name"] != self.pod:
                await self._label(item["metadata"]["name"], None)
        await self._label(self.pod, VALUE)

    async def _label(self, pod: str, value: str | None) -> None:
        try:
            await self._api.patch(f"{self._pods}/{pod}", {"metadata": {"labels": {LABEL: value}}}, MERGE_PATCH)
        except NotFoundError:
            if pod == self.pod:
                raise
