"""Events: what happened, as sentences that `kubectl describe` shows. What cannot be posted is logged.

What happens again is counted in the event that said it first, as Kubernetes' own components do.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from elbowroom.core.reasons import MEANING, Reason

from .client import MERGE_PATCH, ApiError, NotFoundError
from .kinds import stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from .client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_MOST: Final = 1000
_REMEMBERED: Final = 2000
"""How many events are remembered in order to count them."""
_SERIES_SECONDS: Final = 600.0
"""After how long the same is news again."""
WARNINGS: Final = frozenset(
    (
        Reason.VM_NOT_FOUND, Reason.AMBIGUOUS_VM, Reason.CONTAINER_NOT_FOUND, Reason.LARGER_THAN_NODE,
        Reason.OUT_OF_RANGE, Reason.GUEST_SILENT, Reason.NOBODY_MOVABLE, Reason.NO_PLACE, Reason.HOLD_REFUSED,
        Reason.HOLD_LOST, Reason.RUNNER_SILENT, Reason.ROOM_TAKEN, Reason.DEADLINE, Reason.PARTIALLY_MOVED,
        Reason.CLAIMANT_GONE, Reason.NEIGHBOUR_GONE, Reason.RECEIVER_GONE, Reason.TRANSFER_FAILED, Reason.GUEST_DAMAGED,
        Reason.RECEIVER_REFUSED, Reason.GUARD_DOWN,
        Reason.GUEST_LOST, Reason.RESIZE_REFUSED, Reason.GUEST_REFUSED, Reason.TOO_MANY_TRIES, Reason.NOT_OPTED_IN,
    )
)  # fmt: skip


_OF_MIGRATIONS: Final = {
    Reason.DONE: "The guest runs in its receiver, and what was left of its old pod is gone.",
    Reason.TRANSFERRING: "The guest is being copied.",
    Reason.CANCELLED: "Called off: the guest stays where it is.",
}
"""Reasons that mean something else where one guest is moved."""


def sentence(kind: str, reason: Reason, message: str) -> str:
    """Say a reason with its facts."""
    meaning = _OF_MIGRATIONS.get(reason, MEANING[reason]) if kind == "VMMigration" else MEANING[reason]
    return f"{meaning} ({message})" if message else meaning


@dataclass
class _Said:
    """An event that was posted, and how often that has happened."""

    path: str
    at: float
    count: int = 1


class Recorder:
    """Posts events in the name of the operator."""

    def __init__(self, api: Api, identity: str, clock: Callable[[], float] = time.time) -> None:
        """Say who posts."""
        self._api, self._identity, self._clock = api, identity, clock
        self._said: dict[tuple[str, str, str], _Said] = {}

    async def post(self, body: Json, reason: str, message: str, *, warning: bool = False) -> None:
        """Say something about an object."""
        key = (body["metadata"]["uid"], reason, message[:_MOST])
        try:
            if not await self._again(key):
                await self._anew(key, body, warning=warning)
        except ApiError as error:
            _log.warning("an event could not be posted: %s", error)

    async def _again(self, key: tuple[str, str, str]) -> bool:
        """Count what was said a while ago; tell whether it was."""
        said, now = self._said.get(key), self._clock()
        if said is None or now - said.at > _SERIES_SECONDS:
            return False
        said.count, said.at = said.count + 1, now
        try:
            series = {"series": {"count": said.count, "lastObservedTime": stamp(now)}}
            await self._api.patch(said.path, series, MERGE_PATCH)
        except NotFoundError:
            return False  # events live for an hour, or less
        return True

    async def _anew(self, key: tuple[str, str, str], body: Json, *, warning: bool) -> None:
        _, reason, note = key
        meta = body["metadata"]
        namespace = meta.get("namespace", "default")
        name = f"{meta['name'][:200]}.{secrets.token_hex(8)}"
        event = {
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "eventTime": stamp(self._clock()),
            "metadata": {"name": name, "namespace": namespace},
            "regarding": {
                "apiVersion": body["apiVersion"], "kind": body["kind"], "name": meta["name"], "uid": meta["uid"],
                **({"namespace": meta["namespace"]} if "namespace" in meta else {}),
            },
            "reason": reason, "note": note, "type": "Warning" if warning else "Normal",
            "action": "Reconcile",
            "reportingController": "elbowroom.dev/operator", "reportingInstance": self._identity,
        }  # fmt: skip
        folder = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        await self._api.create(folder, event)
        self._said[key] = _Said(f"{folder}/{name}", self._clock())
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]
