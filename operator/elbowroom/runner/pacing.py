"""How a transfer is kept short of its switch-over until it is committed, without pausing the guest. Pure.

QEMU switches over as soon as what is left fits under a threshold (bandwidth times allowed downtime), and a quiet
guest gets there by itself. `pause-before-switchover` would then stop the guest and wait for us: good as a backstop,
bad as a rule. So each VM has a disk that nobody sees, with a dirty bitmap. A bitmap is only sent at the switch-over;
until then its size counts among the bytes that are left, whatever the guest does. That is a floor, and the threshold
decides:

    below the floor   a pass is sent, then QEMU waits: it neither switches over nor looks for new dirty pages
    a byte above it   QEMU looks for dirty pages and begins the next pass (it would switch over if there were none)
    far above it      as always: QEMU goes on by itself, and switches over when it can

A new threshold counts from the next window of 100 ms on, a new bandwidth at once. So after a look QEMU is kept slow
until the low threshold counts again: it would send a small pass within the old window, look again and again, and find
nothing dirty at last. The middle setting is only used together with a bandwidth of almost nothing: QEMU then takes a
step every 100 ms, which is time enough to go back below the floor after the first. In waiting, the low bandwidth
keeps it from spinning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from .command import FLOOR_BYTES

if TYPE_CHECKING:
    from .messages import Limits

Parameters = dict[str, Any]
_ALMOST_NOTHING: Final = 10
"""Bytes a second. Below 10 QEMU rounds to "no limit"."""
_BELOW_FLOOR: Final = 1000
_SHRINKS: Final = 0.85
SETTLES: Final = 0.15
"""Seconds until a new threshold counts, with some to spare."""
_SHORTEST_LOOK, _LONGEST_LOOK = 0.02, 0.1
_FIRST_HOLD, _LONGEST_HOLD = 0.25, 5.0


def _threshold(size: int) -> Parameters:
    """Have QEMU switch over at this many bytes: it multiplies a bandwidth with a time."""
    return {"downtime-limit": 1, "avail-switchover-bandwidth": size * 1000}


def sending(limits: Limits) -> Parameters:
    """Return the parameters for sending one pass."""
    return {"max-bandwidth": limits.bandwidth, **_threshold(_BELOW_FLOOR)}


def waiting() -> Parameters:
    """Return the parameters for doing nothing at all between two passes."""
    return {"max-bandwidth": _ALMOST_NOTHING, **_threshold(_BELOW_FLOOR)}


def looking() -> Parameters:
    """Return the parameters for finding what the guest has dirtied."""
    return {"max-bandwidth": _ALMOST_NOTHING, **_threshold(FLOOR_BYTES + 1)}


def released(limits: Limits, bytes_per_second: float) -> Parameters:
    """Return the parameters after the commit: QEMU goes on by itself."""
    parameters = {"max-bandwidth": limits.bandwidth, "downtime-limit": limits.downtime_ms}
    if not bytes_per_second:
        return {**parameters, "avail-switchover-bandwidth": 0}
    # The floor is not sent page by page: it must not count against the allowance.
    return {
        **parameters,
        "avail-switchover-bandwidth": int(bytes_per_second) + FLOOR_BYTES * 1000 // limits.downtime_ms + 1,
    }


@dataclass(frozen=True)
class Pace:
    """What the passes so far have shown."""

    fastest: float = 0.0
    """Bytes a second, as QEMU measured them."""
    dirty: int | None = None
    """What the guest had dirtied during the last pass."""
    converging: bool | None = None
    hold: float = _FIRST_HOLD
    """How long to wait before the next look, once at the brink."""

    def saw_speed(self, bytes_per_second: float, limits: Limits) -> Pace:
        """Take note of how fast it goes. Zero pages cost next to nothing, so only the fastest moment tells."""
        return replace(self, fastest=min(max(self.fastest, bytes_per_second), limits.bandwidth))

    def saw_pass(self, dirty: int, limits: Limits) -> Pace:
        """Judge a pass by what was dirty at its end.

        A guest that dirties faster than we send has its whole working set dirty after each pass, so passes that get
        smaller are the proof that we are faster. A rate over the time of the pass would be none: it cannot exceed
        what is sent.
        """
        allowance = self.fastest * limits.downtime_ms / 1000
        small = dirty <= allowance
        shrinks = self.dirty is not None and dirty <= self.dirty * _SHRINKS
        at_brink = self.converging is True and dirty <= self.fastest * self.hold * _SHRINKS + allowance
        converging = small or shrinks or at_brink
        hold = min(self.hold * 2, _LONGEST_HOLD) if small and self.converging else _FIRST_HOLD
        return replace(self, dirty=dirty, converging=converging, hold=hold)


def outlasts_window(remaining: int, limits: Limits) -> bool:
    """Tell whether sending this takes so long that a new threshold counts before it is over."""
    return remaining > limits.bandwidth * SETTLES


def until_next_look(remaining: int, bytes_per_second: float) -> float:
    """Return for how long to leave QEMU alone: until the pass will be over, but never for long."""
    if bytes_per_second <= 0:
        return _SHORTEST_LOOK
    return min(max(remaining / bytes_per_second, _SHORTEST_LOOK), _LONGEST_LOOK)
