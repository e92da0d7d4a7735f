"""Waiting for a condition: the only place in the tests where time passes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_PAUSE = 0.05


def until(what: str, probe: Callable[[], T | None], *, within: float = 30.0) -> T:
    """Ask until the answer is true; fail with what was waited for and what was seen last.

    An assertion that fails inside the probe counts as "not yet", and its message is what is shown at the end.
    """
    end = time.monotonic() + within
    while True:
        try:
            seen: object = probe()
            if seen:
                return seen  # type: ignore[return-value]  # true, so it is a T
        except AssertionError as unmet:
            seen = unmet
        if time.monotonic() > end:
            message = f"not within {within:g} s: {what}; last seen: {seen}"
            raise AssertionError(message)
        time.sleep(_PAUSE)


def stays(what: str, probe: Callable[[], bool], *, during: float) -> None:
    """Check that something remains true for a while."""
    end = time.monotonic() + during
    while time.monotonic() < end:
        assert probe(), f"did not last for {during:g} s: {what}"
        time.sleep(_PAUSE)
