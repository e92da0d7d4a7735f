"""What a guest says on its console, read as facts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

_LINE = re.compile(
    r"^(?P<at>\S+Z) guest n=(?P<n>\d+) checked=(?P<checked>\d+) bad=(?P<bad>\d+) disk=(?P<disk>\d+) cpus=(?P<cpus>\d+) mem_mib=(?P<mem>\d+)\s*$"
)
_NOT_THE_GUEST = re.compile(r"^\S+Z (\{|qemu-system)")


@dataclass(frozen=True)
class Tick:
    """One line of the guest."""

    at: float
    """When it left QEMU, by this machine's clock."""
    n: int
    checked: int
    bad: int
    disk: int
    cpus: int
    memory_mib: int


class Console(list[Tick]):
    """What a guest has said in one pod."""

    torn = False
    """The first line is the end of one that was begun in the pod before: the guest was moved in the middle of it."""


def ticks(log: str) -> Console:
    """Return the guest's lines from a pod's log with timestamps."""
    console = Console()
    for line in log.splitlines():
        found = _LINE.match(line)
        if found:
            console.append(
                Tick(seconds(found["at"]), *(int(found[key]) for key in ("n", "checked", "bad", "disk", "cpus", "mem")))
            )
        elif not console and not _NOT_THE_GUEST.match(line):
            console.torn = True  # be it no more than the line's end
    return console


def seconds(text: str) -> float:
    """Read a time of a log."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def assert_whole(parts: list[Console]) -> None:
    """Check what the pods of one guest have shown, in the order in which it was in them.

    Each count once and one after the other, no page other than it was written, and never two pods at a time.
    """
    joined = [tick for part in parts for tick in part]
    assert joined, "the guest has said nothing"
    torn = {part[0].n for part in parts if part and part.torn}
    for before, after in pairwise(joined):
        # Of a line that was torn, the first part may be whole but for its end, or not be readable at all.
        steps = (1, 2) if after.n in torn else (1,)
        assert after.n - before.n in steps, f"after n={before.n} the guest said n={after.n}"
        assert after.checked >= before.checked, f"at n={after.n} the guest had checked less than before"
        assert after.disk >= before.disk, f"at n={after.n} the guest had written less than before"
    assert joined[-1].bad == 0, f"{joined[-1].bad} pages were not as the guest had left them"
    for left, arrived in pairwise(part for part in parts if part):
        # A line that was torn gets its time when what is left of its pod ends, long after the guest has gone on elsewhere.
        last = left[-2] if arrived.torn and len(left) > 1 else left[-1]
        assert last.at < arrived[0].at, "two pods ran the guest at the same time"


def gap(before: Console, after: Console) -> float:
    """Return for how many milliseconds the guest was silent between two pods."""
    return (after[0].at - before[-1].at) * 1000
