"""Shrinking of a failing scenario: a minimal set of faults that still makes it fail.

Delta debugging (Zeller and Hildebrandt, 2002, ``ddmin``) over the list of faults, by
replays without some of them. The result fails, and does not fail without any one of its
faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from simulation.swarm.scenarios import Scenario

T = TypeVar("T")
Fails = Callable[[Scenario], bool]


def shrink(scenario: Scenario, fails: Fails) -> Scenario:
    """Return the scenario with fewer faults that still fails; ``fails`` replays one.

    Cost: O(n**2) replays for n faults, O(n log n) if few of them matter.
    """
    faults = _smallest(
        scenario.faults, lambda some: fails(replace(scenario, faults=tuple(some)))
    )
    return replace(scenario, faults=tuple(faults))


def _smallest(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a part of ``items`` that fails, but not without any one of its items."""
    pieces = 2
    while items:
        size = -(-len(items) // pieces)
        for start in range(0, len(items), size):
            rest = [*items[:start], *items[start + size :]]
            if fails(rest):
                items, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(items))
    return items
