"""Numbers in text: three significant digits, the same in every rendering."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NONE = "–"
THIN_SPACE = "\u202f"


def digits(value: float | None) -> str:
    """Return a number with three significant digits, without an exponent.

    >>> digits(0.012345), digits(9.999), digits(1234.5), digits(float("inf"))
    ('0.0123', '10.0', '1\u202f234', '∞')
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    # The exponent of the rounded value: 9.999 is 10.0, with one decimal place fewer.
    places = max(0, 2 - int(f"{value:.2e}".partition("e")[2]))
    return f"{value:,.{places}f}".replace(",", THIN_SPACE)


def interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval."""
    return NONE if low is None and high is None else f"{_low(low)}–{_high(high)}"


def ratio(value: float | None) -> str:
    """Return a ratio; near 1 the third decimal matters.

    >>> ratio(1.0034), ratio(0.0123), ratio(12.34)
    ('1.003', '0.0123', '12.3')
    """
    if value is None or not 0.1 <= value < 10:
        return digits(value)
    return f"{value:.3f}"


def ratio_interval(low: float | None, high: float | None) -> str:
    """Return both ends of an interval of a ratio."""
    if low is None and high is None:
        return NONE
    return (
        f"{'0' if low is None else ratio(low)}–{'∞' if high is None else ratio(high)}"
    )


def _low(value: float | None) -> str:
    return "0" if value is None else digits(value)


def _high(value: float | None) -> str:
    return "∞" if value is None else digits(value)


def percent(share: float) -> str:
    """Return a share as per cent: 5 %, 0.5 %."""
    return f"{share * 100:g}{THIN_SPACE}%"


def p_value(p: float | None) -> str:
    """Return a p-value with two significant digits."""
    if p is None:
        return NONE
    return f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def agreeing(number: int, one: str, many: str) -> str:
    """Return the form of a word for a number; zero takes the plural.

    >>> [agreeing(number, "is", "are") for number in (0, 1, 2)]
    ['are', 'is', 'are']
    """
    return one if number == 1 else many


def counted(number: int, word: str) -> str:
    """Return a number with the singular or plural of a word.

    >>> counted(1, "block"), counted(8, "block")
    ('1 block', '8 blocks')
    """
    return f"{number} {agreeing(number, word, f'{word}s')}"


def listed(words: Iterable[str]) -> str:
    """Join words with commas and "and", as in a sentence."""
    found: Sequence[str] = list(words)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"
