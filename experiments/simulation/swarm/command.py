"""Seeds judged one by one, and told: what ``doorkeeper simulate`` does."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from experiments.records.environment import code
from experiments.simulation.swarm.scenarios import Scenario, draw
from experiments.simulation.swarm.swarm import (
    SeedResult,
    judge,
    shrunk,
    silence,
    swarm,
    with_faults,
)

# Is handed what is told, a line at a time.
Say = Callable[[str], None]
# Of one kind; the others say little more.
_TOLD_PER_KIND: Final = 3


def one(
    seed: int,
    faults: Iterable[int] | None,
    say: Say,
    *,
    zookeeper: bool,
    shrink: bool,
) -> bool:
    """Judge one seed, perhaps without some faults, in detail; True if it is sound."""
    silence()
    scenario = replace(draw(seed), zookeeper=zookeeper)
    if faults is not None:
        scenario = with_faults(scenario, faults)
    _tell_scenario(scenario, say)
    result = judge(scenario)
    say(f"digest {result.digest}")
    if result.anomalies:
        _tell_failure(result, say, shrink=shrink)
    return not result.anomalies


def many(
    seeds: range | None,
    minutes: float | None,
    say: Say,
    *,
    zookeeper: bool,
    shrink: bool,
    jobs: int,
) -> bool:
    """Judge seeds until they or the minutes are over; True if all are sound."""
    silence()
    began_s, judged, failed = time.monotonic(), 0, []
    digests = hashlib.sha256()

    def is_over() -> bool:
        return minutes is not None and time.monotonic() - began_s > minutes * 60

    days = swarm(seeds or itertools.count(), is_over, zookeeper=zookeeper, jobs=jobs)
    for result in days:
        judged += 1
        digests.update(result.digest.encode())
        if result.anomalies:
            failed.append(result.scenario.seed)
            _tell_failure(result, say, shrink=shrink)
    taken_s = time.monotonic() - began_s
    pace = judged / taken_s * 60
    say(
        f"{_counted(judged, 'seed')} in {taken_s:.0f} s, {pace:.0f} a minute, "
        f"{len(failed)} failed"
        f"{': ' if failed else ''}{', '.join(map(str, failed))}"
    )
    say(f"digest {digests.hexdigest()}")
    return not failed


def _tell_scenario(scenario: Scenario, say: Say) -> None:
    say(
        f"seed {scenario.seed}: {_counted(scenario.brokers, 'broker')}, "
        f"{_counted(scenario.partitions, 'partition')} of "
        f"{_counted(scenario.replicas, 'replica')}, min.insync.replicas "
        f"{scenario.min_insync}, {_counted(len(scenario.producers), 'producer')}, "
        f"{_counted(scenario.members, 'member')}, {scenario.lasts_ms} ms"
    )
    for fault in scenario.faults:
        say(f"  fault {fault}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _tell_failure(result: SeedResult, say: Say, *, shrink: bool) -> None:
    """Say what does not hold, on which code, and how to see it again."""
    scenario = result.scenario
    say(f"seed {scenario.seed} FAILED on commit {code()['commit']}")
    _tell_anomalies(result, say)
    if shrink and scenario.faults:
        result = shrunk(result)
        say("  it still fails as")
        _tell_scenario(result.scenario, say)
        _tell_anomalies(result, say)
    numbers = ",".join(str(each.number) for each in result.scenario.faults)
    under = " --zookeeper" if scenario.zookeeper else ""
    say(f"  doorkeeper simulate --seed {scenario.seed}{under} --faults '{numbers}'")


def _tell_anomalies(result: SeedResult, say: Say) -> None:
    told: dict[str, int] = {}
    for anomaly in result.anomalies:
        told[anomaly.kind] = told.get(anomaly.kind, 0) + 1
        if told[anomaly.kind] <= _TOLD_PER_KIND:
            say(f"  {anomaly}")
    for kind, count in told.items():
        if count > _TOLD_PER_KIND:
            say(f"  {kind}: {count - _TOLD_PER_KIND} more")
