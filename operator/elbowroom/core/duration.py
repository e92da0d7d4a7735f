"""Durations as API fields write them (`10m`, `1h30m`, `500ms`), in seconds."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MOST_PARTS: Final = 4


class InvalidDurationError(ValueError):
    """The text is not a duration."""

    def __init__(self, text: str) -> None:
        """Say what was wrong in one sentence."""
        super().__init__(f"{text!r} is not a duration such as 10m, 90s or 1h30m")


def seconds(text: str) -> float:
    """Return a duration in seconds."""
    parts = _PART.findall(text)
    if not 0 < len(parts) <= _MOST_PARTS or "".join(number + unit for number, unit in parts) != text:
        raise InvalidDurationError(text)
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
