"""Scenarios of many seeds, judged in order by one or several processes."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from simulation.anomalies import Anomaly
from simulation.swarm.bad_day import live_through
from simulation.swarm.scenarios import Scenario, draw
from simulation.swarm.shrinker import shrink

# Queued seeds per process, so that a long day delays no other process.
_AHEAD: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """Result of one seed; ``digest`` is equal in every repetition."""

    scenario: Scenario
    digest: str
    anomalies: tuple[Anomaly, ...]


def judge(scenario: Scenario) -> SeedResult:
    """Simulate and judge a scenario."""
    outcome = live_through(scenario)
    digest = hashlib.sha256(outcome.history.digest().encode())
    for anomaly in outcome.anomalies:
        digest.update(str(anomaly).encode())
    return SeedResult(
        scenario=scenario,
        digest=digest.hexdigest(),
        anomalies=tuple(outcome.anomalies),
    )


def swarm(
    seeds: Iterable[int],
    is_over: Callable[[], bool],
    *,
    zookeeper: bool = False,
    transactions: bool = False,
    jobs: int = 1,
) -> Iterator[SeedResult]:
    """Yield the results in the order of seeds, until ``is_over``, for any ``jobs``.

    Several ``jobs`` are new processes, without monkeypatches of this one.
    """
    scenarios = (
        draw(seed, zookeeper=zookeeper, transactions=transactions) for seed in seeds
    )
    until_over = takewhile(lambda _: not is_over(), scenarios)
    if jobs == 1:
        yield from map(judge, until_over)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=fresh, initializer=silence) as pool:
        judged: deque[Future[SeedResult]] = deque()
        for scenario in until_over:
            judged.append(pool.submit(judge, scenario))
            if len(judged) >= _AHEAD * jobs:
                yield judged.popleft().result()
        while judged:
            yield judged.popleft().result()


def silence() -> None:
    """Keep the brokers' many log lines off the terminal."""
    logging.getLogger("broker").addHandler(logging.NullHandler())
    logging.getLogger("broker").propagate = False


def with_faults(scenario: Scenario, numbers: Iterable[int]) -> Scenario:
    """Return a scenario with these faults only."""
    kept = set(numbers)
    faults = tuple(each for each in scenario.faults if each.number in kept)
    return replace(scenario, faults=faults)


def shrunk(result: SeedResult) -> SeedResult:
    """Return the result of a smaller scenario with one of the same kinds of failure."""
    kinds = {anomaly.kind for anomaly in result.anomalies}

    def fails(scenario: Scenario) -> bool:
        return any(each.kind in kinds for each in judge(scenario).anomalies)

    return judge(shrink(result.scenario, fails))
