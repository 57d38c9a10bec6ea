"""Scenarios of many seeds, one after the other, and what is told of those that fail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from experiments.simulation.checkers import Anomaly
from experiments.simulation.swarm.bad_day import live_through
from experiments.simulation.swarm.scenarios import Scenario, draw
from experiments.simulation.swarm.shrinker import shrink


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one seed; ``digest`` is the same whenever it is run again."""

    scenario: Scenario
    digest: str
    anomalies: tuple[Anomaly, ...]


def judge(scenario: Scenario) -> Verdict:
    """Live through a scenario."""
    outcome = live_through(scenario)
    digest = hashlib.sha256(outcome.history.digest().encode())
    for anomaly in outcome.anomalies:
        digest.update(str(anomaly).encode())
    return Verdict(
        scenario=scenario,
        digest=digest.hexdigest(),
        anomalies=tuple(outcome.anomalies),
    )


def swarm(
    seeds: Iterable[int], is_over: Callable[[], bool], *, zookeeper: bool = False
) -> Iterator[Verdict]:
    """Yield the verdict of each seed, until time is over."""
    for seed in seeds:
        if is_over():
            return
        yield judge(replace(draw(seed), zookeeper=zookeeper))


def with_faults(scenario: Scenario, numbers: Iterable[int]) -> Scenario:
    """Return a scenario with none but these of its faults."""
    kept = set(numbers)
    faults = tuple(each for each in scenario.faults if each.number in kept)
    return replace(scenario, faults=faults)


def shrunk(verdict: Verdict) -> Verdict:
    """Return the verdict of a smaller scenario that fails in one of the same ways."""
    kinds = {anomaly.kind for anomaly in verdict.anomalies}

    def fails(scenario: Scenario) -> bool:
        return any(each.kind in kinds for each in judge(scenario).anomalies)

    return judge(shrink(verdict.scenario, fails))
