"""How a figure of privacy is written: an upper bound is rounded up, a lower bound down.

A printed ε or δ is a claim. Rounded to the nearest value, half of all claims would be smaller than what is proven.
Every place that prints such a figure for people asks these functions. Files hold all digits.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_LARGE = 1000.0
"""From here on five digits count; below, decimals."""
_LARGE_DIGITS = 5


def at_most(figure: float | None, decimals: int = 3) -> str:
    """An upper bound, rounded up; '∞' for one that is not finite, which files hold as null.

    Examples:
        >>> from laconic.figures import at_most
        >>> at_most(23.2491), at_most(0.00001), at_most(1.5), at_most(None)
        ('23.250', '0.001', '1.500', '∞')
    """
    return _written(figure, decimals, ROUND_CEILING)


def at_least(figure: float | None, decimals: int = 3) -> str:
    """A lower bound, rounded down.

    Examples:
        >>> from laconic.figures import at_least
        >>> at_least(1.2349)
        '1.234'
    """
    return _written(figure, decimals, ROUND_FLOOR)


def rounded_up(figure: float, digits: int = 6) -> str:
    """A δ, or a limit that a user gave: so many digits that mean something, rounded up.

    Examples:
        >>> from laconic.figures import rounded_up
        >>> rounded_up(1e-5), rounded_up(1 / 60000), rounded_up(4.0), rounded_up(17.32, 2)
        ('1e-05', '1.66667e-05', '4', '18')
    """
    if not math.isfinite(figure):
        return "∞"
    return f"{_digits(figure, digits, ROUND_CEILING):.{digits}g}"


def epsilon_text(figure: float | None, decimals: int = 3) -> str:
    """An ε in a sentence: where none is finite there is none."""
    return "none (∞)" if figure is None or not math.isfinite(figure) else at_most(figure, decimals)


def as_flag(figure: float) -> str:
    """A number for a command line: as short as one can write it, and read back the same.

    Examples:
        >>> from laconic.figures import as_flag
        >>> as_flag(4.0), as_flag(1e-5), as_flag(1.23456789)
        ('4', '1e-05', '1.23456789')
    """
    short = f"{figure:g}"
    return short if float(short) == figure else repr(float(figure))


def _written(figure: float | None, decimals: int, rounding: str) -> str:
    if figure is None or not math.isfinite(figure):
        return "∞"
    if abs(figure) >= _LARGE:
        return f"{_digits(figure, _LARGE_DIGITS, rounding):.{_LARGE_DIGITS}g}"
    rounded = _decimal(figure).quantize(Decimal(1).scaleb(-decimals), rounding=rounding)
    return f"{rounded or abs(rounded):.{decimals}f}"  # no minus before a zero


def _digits(figure: float, digits: int, rounding: str) -> float:
    return float(Context(prec=digits, rounding=rounding).create_decimal(_decimal(figure)))


def _decimal(figure: float) -> Decimal:
    """The number as Python writes it: 1e-5 is 1e-5, not the double next to it, and reading back keeps the order."""
    return Decimal(repr(float(figure)))
