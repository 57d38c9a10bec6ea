"""Numbers as people read them, the same in terminal, tables, report and paper.

Three significant digits: no more are known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from spark_analysis.judging.metrics import Metric
from spark_analysis.statistics.intervals import Estimate

NONE = "–"
THIN_SPACE = "\u202f"

# Below this factor a change reads best in per cent, above it as a multiple.
_MULTIPLE = 2.0


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
    # The exponent of what is written: 9.999 is 10.0, and has one digit fewer behind.
    places = max(0, 2 - int(f"{value:.2e}".partition("e")[2]))
    return f"{value:,.{places}f}".replace(",", THIN_SPACE)


def quantity(value: float | None, metric: Metric) -> str:
    """Return a number with its unit."""
    return f"{digits(value)} {metric.unit}"


def interval(estimate: Estimate) -> str:
    """Return both ends of an interval."""
    return f"{digits(estimate.low)}–{digits(estimate.high)}"


def ratio(value: float | None) -> str:
    """Return a ratio; near 1 the third decimal matters.

    >>> ratio(1.0034), ratio(0.0123), ratio(12.34)
    ('1.003', '0.0123', '12.3')
    """
    if value is None or not 0.1 <= value < 10:
        return digits(value)
    return f"{value:.3f}"


def ratio_interval(estimate: Estimate) -> str:
    """Return both ends of an interval of a ratio."""
    return f"{ratio(estimate.low)}–{ratio(estimate.high)}"


def percent(share: float) -> str:
    """Return a share as per cent: 5 %, 0.5 %."""
    return f"{share * 100:g}{THIN_SPACE}%"


def p_value(p: float) -> str:
    """Return a p-value; more digits than the blocks allow would be a pretence."""
    return f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def change(value: float, *, latency: bool = True) -> str:
    """Say a ratio as a change: of a latency, which is lost if it is infinite, or not.

    >>> change(0.2), change(0.9), change(1.07), change(12.34)
    ('5.0 times lower', '10 % lower', '7.0 % higher', '12 times higher')
    """
    if value == 0:
        return "finite instead of infinite" if latency else "none instead of some"
    if math.isinf(value):
        return "infinite instead of finite" if latency else "some instead of none"
    if value <= 1 / _MULTIPLE:
        return f"{_multiple(1 / value)} times lower"
    if value >= _MULTIPLE:
        return f"{_multiple(value)} times higher"
    percent = abs(value - 1) * 100
    size = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.1f}"
    return f"{size} % {'lower' if value < 1 else 'higher'}"


def _multiple(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:,.0f}".replace(",", THIN_SPACE)


def agreeing(number: int, one: str, many: str) -> str:
    """Return the form of a word that a number asks for; of none there are many.

    >>> [agreeing(number, "is", "are") for number in (0, 1, 2)]
    ['are', 'is', 'are']
    """
    return one if number == 1 else many


def counted(number: int, word: str) -> str:
    """Return how many there are of what a word names.

    >>> counted(1, "block"), counted(8, "block")
    ('1 block', '8 blocks')
    """
    return f"{number} {agreeing(number, word, f'{word}s')}"


def for_all(number: int, word: str) -> str:
    """Say that an interval holds for all of several at once; nothing of one alone.

    >>> for_all(6, "arm"), for_all(1, "arm")
    (' for all 6 arms at once', '')
    """
    return f" for all {counted(number, word)} at once" if number > 1 else ""


def listed(words: Iterable[str]) -> str:
    """Join words as a sentence does."""
    found: Sequence[str] = list(words)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} and {found[-1]}"
