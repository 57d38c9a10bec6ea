"""What a policy and a reader use: costs under an arm over those under the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from experiments.design.calibration import Cost
from experiments.running.calibrating.bills import Bills

# Of a round, by the name of its arm: what its episodes' requests were billed.
Round: TypeAlias = Mapping[str, Sequence[Bills]]


def under_arms(
    rounds: Sequence[Round], costs: Mapping[str, Cost], baseline: str
) -> dict[str, dict[str, float]]:
    """Return the cost under each other arm over that under the baseline, by entry.

    In the state in which it found the broker, so that an arm under which more requests
    find it idle is not taken for a dear one. Geometric means over the rounds in which
    both were played: those are dealt the same requests. Of what no round has both of,
    nothing is said.
    """
    arms = sorted({arm for each in rounds for arm in each} - {baseline})
    found = {
        arm: {
            name: round(math.exp(float(np.mean(logs))), 4)
            for name, cost in costs.items()
            if (logs := list(_logs(rounds, name, cost, arm, baseline)))
        }
        for arm in arms
    }
    return {arm: shares for arm, shares in found.items() if shares}


def _logs(
    rounds: Sequence[Round], name: str, cost: Cost, arm: str, baseline: str
) -> Iterable[float]:
    for each in rounds:
        own, beside = (_log(each.get(it, ()), name, cost) for it in (arm, baseline))
        if own is not None and beside is not None:
            yield own - beside


def _log(played: Sequence[Bills], name: str, cost: Cost) -> float | None:
    """Return the log of what requests cost over what is expected in their states."""
    told = [each for each in played if name in each.costs_us]
    if not told:
        return None
    took_us = sum(float(each.undisturbed_us(name).sum()) for each in told)
    expected_us = sum(float(_expected_us(each.idle[name], cost).sum()) for each in told)
    return math.log(took_us / expected_us)


def _expected_us(idle: np.ndarray[Any, np.dtype[Any]], cost: Cost) -> Any:
    busy_us, idle_us = cost.busy_us or cost.mean_us, cost.idle_us or cost.mean_us
    return np.where(idle, idle_us, busy_us)
