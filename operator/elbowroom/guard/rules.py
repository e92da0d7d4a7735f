"""What may be added where room is held: values in, a verdict out. No arithmetic, because none is needed.

While a node carries a hold, what is free there of the held resource is the claimant's, or will be. So whoever would
add to it is refused, whatever the numbers are, and every replica of the guard says the same.

| who comes                                | verdict                                                              |
|------------------------------------------|----------------------------------------------------------------------|
| a binding by a scheduler that knows holds | passes: it has kept the room, and may use what nobody holds          |
| any other binding, a pod with a node name | refused where the pod asks for a held resource                       |
| a resize that adds to a held resource     | refused; what shrinks, or asks for what was asked already, passes    |
| a resize of a pod that a hold names       | refused, but for the operator's                                      |
| an eviction of a pod that a hold names    | refused, unless its node is cordoned: then somebody wants it empty   |
| a static pod                              | passes: its kubelet runs it anyway. Whoever loses room by it is told |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from elbowroom.core.room import NOTHING, Room

if TYPE_CHECKING:
    from collections.abc import Collection

    from elbowroom.core.world import Pod

    from .book import Book, Kept

_NAMES: Final = ("cpu", "memory")
_DOING: Final = {"grown": "is being grown", "moved": "is being moved", "filled": "is about to take a guest"}


LATER: Final = 429
"""What an eviction is answered that has to come again later; it fits a resize and a binding just as well."""
NEVER: Final = 403


class Verdict(NamedTuple):
    """What is said to somebody who asks."""

    allowed: bool
    message: str = ""
    """Why not; or, where it is allowed, what is said all the same."""
    code: int = LATER


ALLOWED: Final = Verdict(allowed=True)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose calls are known to respect holds, by their user names."""

    operator: str = ""
    schedulers: frozenset[str] = frozenset()


def binding(book: Book, trust: Trust, user: str, node: str, asked: Room) -> Verdict:
    """Tell whether a pod that asks for so much may be bound to a node."""
    return ALLOWED if user in trust.schedulers else _added(book.on(node), asked, node)


def creation(book: Book, node: str, asked: Room, *, static: bool) -> Verdict:
    """Tell whether a pod may be made that names its node."""
    verdict = _added(book.on(node), asked, node)
    return Verdict(allowed=True, message=f"a static pod cannot be refused: {verdict.message}") if (
        static and not verdict.allowed
    ) else verdict  # fmt: skip


def resize(book: Book, trust: Trust, user: str, before: Pod, after: Pod) -> Verdict:
    """Tell whether a pod may be given another size."""
    if user == trust.operator or _sizes(before) == _sizes(after):
        return ALLOWED
    if (part := book.about(after.uid, after.namespace, after.name)) is not None:
        hold, doing = part
        return _later(
            f"{after.namespace}/{after.name} {_DOING[doing]} for {hold.told}: only the operator resizes it until "
            "that is over"
        )
    # What was asked for already, and waits, is not added by this; what is more than the kubelet has given is.
    asked, has, was = after.spec(), before.allocated, before.spec()
    more = Room(*(new if new > given and new != old else 0 for new, given, old in zip(asked, has, was, strict=True)))
    others = [hold for hold in book.on(after.node) if after.uid not in hold.roles]
    return _added(others, more, after.node)


def eviction(book: Book, trust: Trust, user: str, pod: Pod, *, cordoned: bool) -> Verdict:
    """Tell whether a pod may be evicted now. An autoscaler whose resize was refused tries that next."""
    part = book.about(pod.uid, pod.namespace, pod.name)
    if part is None or user == trust.operator or cordoned:
        return ALLOWED
    hold, doing = part
    return _later(
        f"{pod.namespace}/{pod.name} {_DOING[doing]} for {hold.told}: it is not evicted until that is over, unless "
        "its node is cordoned"
    )


def _sizes(pod: Pod) -> tuple[object, ...]:
    return pod.fixed, [(item.name, item.request) for item in pod.containers]


def _added(holds: Collection[Kept], more: Room, node: str) -> Verdict:
    """Refuse what would add to a resource that somebody holds."""
    if more == NOTHING:
        return ALLOWED
    wanted = {name for name, amount in zip(_NAMES, more, strict=True) if amount}
    for hold in holds:
        if taken := wanted & hold.held:
            what = " and ".join(sorted(taken))
            return _later(f"{what} on {node} is held for {hold.claimant} by {hold.told}: nothing is added there now")
    return ALLOWED


def _later(message: str) -> Verdict:
    return Verdict(allowed=False, message=f"{message}; try again later")
