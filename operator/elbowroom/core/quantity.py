"""Kubernetes quantities as whole numbers: CPU in thousandths of a core, memory in bytes.

Kubernetes writes the same size in many ways (`4`, `4000m`, `4e0`; `8Gi`, `8589934592`), so sizes are compared as
numbers only. The grammar is that of Go's `resource.Quantity`, with its limits; a test runs the same cases through both.
Where a size is not a whole number of units it is rounded up, as Kubernetes does: half a byte takes a byte.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_GRAMMAR: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SUFFIXES: Final[dict[str, int | Fraction]] = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3),
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip
_LARGEST: Final = 2**63 - 1
_LARGEST_EXPONENT: Final = 2**31 - 1
_NANO: Final = 10**9


class InvalidQuantityError(ValueError):
    """The text is not a quantity as Kubernetes writes them."""

    def __init__(self, text: str) -> None:
        """Say what was wrong in one sentence."""
        super().__init__(f"{text!r} is not a quantity such as 2, 500m or 8Gi")


def millicores(text: str | int) -> int:
    """Return CPU in thousandths of a core."""
    return _scaled(str(text), 1000)


def quantity_bytes(text: str | int) -> int:
    """Return memory in bytes."""
    return _scaled(str(text), 1)


@lru_cache(maxsize=4096)
def _scaled(text: str, units: int) -> int:
    # Go keeps nothing finer than a billionth, and rounds up to it before anything else.
    nanos = _round_up(_parse(text) * _NANO)
    return min(max(_round_up(Fraction(nanos * units, _NANO)), -_LARGEST), _LARGEST)


def _parse(text: str) -> Fraction:
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise InvalidQuantityError(text)
    number = Fraction(match["digits"].rstrip(".") if match["digits"] != "." else "0")
    if match["exponent"] is not None:
        number *= _power_of_ten(int(match["exponent"]), text)
    elif match["suffix"] is not None:
        number *= _SUFFIXES[match["suffix"]]
    number = min(number, Fraction(_LARGEST))
    return -number if match["sign"] == "-" else number


def _power_of_ten(exponent: int, text: str) -> Fraction:
    if abs(exponent) > _LARGEST_EXPONENT:
        raise InvalidQuantityError(text)
    # Beyond these nothing changes: larger is capped, smaller is rounded up to a billionth.
    return Fraction(10) ** min(max(exponent, -30), 30)


def _round_up(number: Fraction) -> int:
    """Round away from zero, as Go does."""
    magnitude = -(-abs(number.numerator) // number.denominator)
    return magnitude if number >= 0 else -magnitude
