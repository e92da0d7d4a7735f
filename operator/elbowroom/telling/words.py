"""Numbers as people say them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from elbowroom.core.quantity import quantity_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from elbowroom.api.base import Resources

_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_PRECISE: Final = 10
"""Up to here seconds have a decimal."""


def amount(size: float) -> str:
    """Say so many bytes."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}".replace(".0 ", " ")
    return f"{size:.0f} B"


def span(seconds: float) -> str:
    """Say how long something is."""
    if seconds < _PRECISE:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 2 * _MINUTE:
        return f"{whole} s"
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min"
    return f"{whole // _HOUR} h" if whole < 2 * _DAY else f"{whole // _DAY} days"


def ago(seconds: float) -> str:
    """Say how long ago something was."""
    return "just now" if seconds < 1 else f"{span(round(seconds))} ago".replace(".0 s", " s")


def sized(size: Resources) -> str:
    """Say a size."""
    named = ((size.cpu, "cpu"), (size.memory, "memory"))
    return (
        " and ".join(f"{amount_} {name}" for amount_, name in named if amount_ and quantity_bytes(amount_)) or "nothing"
    )


def listed(items: Iterable[str]) -> str:
    """Say one after the other."""
    *most, last = (*items,) or ("",)
    return f"{', '.join(most)} and {last}" if most else last
