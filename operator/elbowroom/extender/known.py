"""What the extender knows: the operator's view, holds in the phase that was last said of them, and its own bindings."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from elbowroom.cluster import kinds
from elbowroom.cluster.view import View
from elbowroom.core.world import HoldPhase

from . import rules

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from elbowroom.core.world import Hold, Node, Pod

Json = dict[str, Any]
_log = logging.getLogger(__name__)
_BOUND_SECONDS: Final = 120.0
"""How long a binding whose answer was lost may take: no API server works on one for longer."""
_LEAVING_SECONDS: Final = 5.0
"""How long a victim that was given away may take to be deleted, or at least to look so."""


class Known(View):
    """The world, and what its watches have not shown yet."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__(None)
        self._placed: dict[str, tuple[Pod, float]] = {}
        self._leaving: dict[str, float] = {}
        self.unreadable: dict[str, str] = {}
        """The nodes of holds that a newer version has written, by UID: they stay closed."""
        self.on_freed: Callable[[str], None] = lambda _: None
        """Called with the name of a node on which somebody holds nothing any more."""

    def put_hold(self, body: Json) -> None:
        """Take in a hold. What was said of it counts, even when that was said of an earlier state of it."""
        uid = body["metadata"]["uid"]
        try:
            kinds.to_hold(body)
        except ValueError as error:
            _log.warning("the hold %s cannot be read, its node stays closed: %s", uid, error)
            self.unreadable[uid] = str(body.get("spec", {}).get("node", ""))
            return
        self.unreadable.pop(uid, None)
        claimant = body["spec"]["claimant"]["uid"]
        before = self.store.holds.get(claimant)
        super().put_hold(body)
        known = self.bodies.get(uid)
        if known is not None:
            phase = HoldPhase(known.get("status", {}).get("phase", "Pending"))
            hold = replace(self.store.holds[claimant], phase=phase)
            self.store.put_hold(hold)
            if before is not None and before.live and not hold.live:
                self.on_freed(hold.node)

    def put_migration(self, body: Json) -> None:
        """Take in a migration. One that a newer version has written spares nobody here; its hold does."""
        try:
            super().put_migration(body)
        except ValueError as error:
            _log.warning("the migration %s cannot be read: %s", body["metadata"]["name"], error)

    def barred(self) -> dict[str, str]:
        """Return the nodes that nobody may come to, each with the reason."""
        unreadable = dict.fromkeys(self.unreadable.values(), "there is a hold on it that cannot be read")
        return {**unreadable, **rules.closed(self.store.holds.values())}

    def drop_hold(self, uid: str) -> None:
        """Forget a hold."""
        self.unreadable.pop(uid, None)
        known = self.bodies.get(uid)
        super().drop_hold(uid)
        if known is not None:
            self.on_freed(known["spec"]["node"])

    def node(self, name: str, *, besides: str = "") -> Node | None:
        """Return a node with everybody who has been bound to it, or may have been, but for one."""
        found = self.store.nodes.get(name)
        placed = (pod for pod, _ in self._placed.values() if pod.uid != besides)
        return None if found is None else rules.with_placed(found, placed)

    def on(self, node: str) -> list[Hold]:
        """Return the live holds on a node."""
        return [hold for hold in self.store.holds.values() if hold.live and hold.node == node]

    def place(self, pod: Pod, node: str) -> None:
        """Note that a pod was bound to a node, or may have been: until the watch shows where it is."""
        self._placed[pod.uid] = (replace(pod, node=node), time.monotonic())

    def unplace(self, uid: str) -> None:
        """Note that it was not."""
        self._placed.pop(uid, None)

    def settle(self) -> None:
        """Forget what the watch has shown, and what it would have shown by now."""
        now = time.monotonic()
        for uid, (_, since) in list(self._placed.items()):
            seen = self.store.pod(uid)
            if seen is None or seen.node or now - since > _BOUND_SECONDS:
                del self._placed[uid]

    def leave(self, victims: Collection[str]) -> None:
        """Note that the places of these were offered to somebody more important."""
        now = time.monotonic()
        self._leaving.update(dict.fromkeys(victims, now))

    def leaving(self) -> Collection[str]:
        """Return who may be deleted in a moment."""
        now = time.monotonic()
        self._leaving = {uid: since for uid, since in self._leaving.items() if now - since < _LEAVING_SECONDS}
        return self._leaving
