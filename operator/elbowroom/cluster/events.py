"""Events: what happened, as sentences that `kubectl describe` shows. What cannot be posted is logged."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from elbowroom.core.reasons import MEANING, Reason

from .client import ApiError
from .kinds import stamp

if TYPE_CHECKING:
    from .client import Api

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_MOST: Final = 1000
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


class Recorder:
    """Posts events in the name of the operator."""

    def __init__(self, api: Api, identity: str) -> None:
        """Say who posts."""
        self._api, self._identity = api, identity

    async def post(self, body: Json, reason: str, message: str, *, warning: bool = False) -> None:
        """Say something about an object."""
        meta = body["metadata"]
        namespace = meta.get("namespace", "default")
        event = {
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "eventTime": stamp(time.time()),
            "metadata": {"name": f"{meta['name'][:200]}.{secrets.token_hex(8)}", "namespace": namespace},
            "regarding": {
                "apiVersion": body["apiVersion"], "kind": body["kind"], "name": meta["name"], "uid": meta["uid"],
                **({"namespace": meta["namespace"]} if "namespace" in meta else {}),
            },
            "reason": reason, "note": message[:_MOST], "type": "Warning" if warning else "Normal",
            "action": "Reconcile",
            "reportingController": "elbowroom.dev/operator", "reportingInstance": self._identity,
        }  # fmt: skip
        try:
            await self._api.create(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", event)
        except ApiError as error:
            _log.warning("an event could not be posted: %s", error)
