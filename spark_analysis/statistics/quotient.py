"""The quotient of two independent estimates, from their intervals alone.

The method of variance estimates recovery (Zou and Donner, Statistics in Medicine 27,
2008). On a logarithmic scale each half of an interval is the possible error of its
estimate on that side. Halves that move the quotient in the same direction add in
squares. The method needs no standard error, keeps an asymmetric interval asymmetric,
and gives the classical interval if both are normal.
"""

from __future__ import annotations

import math

from spark_analysis.statistics.intervals import Estimate


def quotient(over: Estimate, under: Estimate) -> Estimate | None:
    """Return ``over / under`` with its interval; None unless both are positive numbers.

    An end that one of them does not bound is 0 or infinite.
    """
    if not all(0 < of.value < math.inf for of in (over, under)):
        return None
    value = math.log(over.value) - math.log(under.value)
    below = math.hypot(_below(over), _above(under))
    above = math.hypot(_above(over), _below(under))
    high = math.inf if math.isinf(above) else math.exp(value + above)
    return Estimate(math.exp(value), math.exp(value - below), high)


def _below(of: Estimate) -> float:
    return math.log(of.value) - math.log(of.low) if of.low > 0 else math.inf


def _above(of: Estimate) -> float:
    return math.log(of.high) - math.log(of.value) if of.high < math.inf else math.inf
