"""The shrinker finds the relevant faults, and no others."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from simulation.swarm.scenarios import Fault, Scenario, draw
from simulation.swarm.shrinker import shrink


def scenario_of(count: int) -> Scenario:
    faults = tuple(
        Fault(number=n, at_ms=n, kind="kill", broker=0, lasts_ms=1, chance=0)
        for n in range(count)
    )
    return replace(draw(0), faults=faults)


@given(st.sets(st.integers(min_value=0, max_value=11)))
def test_the_shrunk_faults_are_those_that_fail(guilty: Set[int]) -> None:
    replays = 0

    def fails(scenario: Scenario) -> bool:
        nonlocal replays
        replays += 1
        return guilty <= {fault.number for fault in scenario.faults}

    left = shrink(scenario_of(12), fails)
    assert {fault.number for fault in left.faults} == guilty
    assert replays <= 12 * 12


def test_a_failure_without_faults_needs_none() -> None:
    assert shrink(scenario_of(3), lambda _: True).faults == ()
