"""The holds that there are, by what the guard is asked about: a node, a pod, a receiver. Nothing else is remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elbowroom.cluster import pods

if TYPE_CHECKING:
    from collections.abc import Collection

    from elbowroom.cluster import slim

_OVER: Final = ("Released", "Refused")


@dataclass(frozen=True, slots=True)
class Kept:
    """One hold, in the words of whoever is refused because of it."""

    name: str
    node: str
    claimant: str
    """NAMESPACE/NAME, as the others."""
    request: str
    since: str
    held: frozenset[str]
    """What the claimant gets more of: cpu, memory or both."""
    roles: dict[str, str]
    """What the pods that it names are in it, by their UIDs."""
    receivers: frozenset[tuple[str, str]]

    @property
    def told(self) -> str:
        """Name it, and the request that it is for."""
        return f"VMScaleRequest {self.request} (CapacityHold {self.name}, since {self.since})"


def kept(hold: slim.Hold) -> Kept:
    """Return what the guard needs of a hold."""
    spec, meta = hold.spec, hold.metadata
    grows = pods.room(spec.target).minus(pods.room(spec.had)).lacking
    roles = {payer.pod.uid: "moved" for payer in spec.payers}
    return Kept(
        name=meta.name, node=spec.node, claimant=f"{spec.claimant.namespace}/{spec.claimant.name}",
        request=f"{spec.request.namespace}/{spec.request.name}",
        since="" if meta.creation_timestamp is None else meta.creation_timestamp.strftime("%Y-%m-%dT%H:%M:%SZ"),
        held=frozenset(name for name, more in zip(("cpu", "memory"), grows, strict=True) if more),
        roles={**roles, spec.claimant.uid: "grown"},
        receivers=frozenset((payer.pod.namespace, payer.receiver) for payer in spec.payers),
    )  # fmt: skip


class Book:
    """All holds that keep anybody out."""

    def __init__(self) -> None:
        """Begin with none."""
        self._all: dict[str, Kept] = {}
        self._on: dict[str, dict[str, Kept]] = {}
        self._of: dict[str, dict[str, Kept]] = {}
        self._to: dict[tuple[str, str], dict[str, Kept]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._all)

    def put(self, hold: slim.Hold) -> None:
        """Take in a hold, whatever the scheduler has said of it: it keeps others out until it is over."""
        uid = hold.metadata.uid
        self.drop(uid)
        if hold.status.phase in _OVER:
            return
        found = self._all[uid] = kept(hold)
        self._on.setdefault(found.node, {})[uid] = found
        for pod in found.roles:
            self._of.setdefault(pod, {})[uid] = found
        for receiver in found.receivers:
            self._to.setdefault(receiver, {})[uid] = found

    def drop(self, uid: str) -> None:
        """Forget a hold."""
        found = self._all.pop(uid, None)
        if found is None:
            return
        _take_out(self._on, found.node, uid)
        for pod in found.roles:
            _take_out(self._of, pod, uid)
        for receiver in found.receivers:
            _take_out(self._to, receiver, uid)

    def on(self, node: str) -> Collection[Kept]:
        """Return the holds on a node."""
        return self._on.get(node, {}).values()

    def about(self, uid: str, namespace: str, name: str) -> tuple[Kept, str] | None:
        """Return a hold that a pod is part of, and what is done with it there."""
        for hold in self._of.get(uid, {}).values():
            return hold, hold.roles[uid]
        for hold in self._to.get((namespace, name), {}).values():
            return hold, "filled"
        return None


_Key = str | tuple[str, str]


def _take_out(index: dict[str, dict[str, Kept]] | dict[tuple[str, str], dict[str, Kept]], key: _Key, uid: str) -> None:
    there: dict[str, Kept] = index[key]  # type: ignore[index]  # the key is of the index's kind
    del there[uid]
    if not there:
        del index[key]  # type: ignore[arg-type]
