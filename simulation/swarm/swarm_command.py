"""Judging of seeds and the report on them: ``doorkeeper simulate``."""

from __future__ import annotations

import hashlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from simulation.swarm.scenarios import Scenario, draw
from simulation.swarm.swarm import (
    SeedResult,
    judge,
    shrunk,
    silence,
    swarm,
    with_faults,
)

# Reported anomalies per kind; further ones add little.
_PRINTED_PER_KIND: Final = 3
# Interval between lines of progress.
_PROGRESS_EVERY_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Judges seeds and reports line by line to ``echo``, and progress to ``progress``.

    ``commit`` is that of the code, for reports of failures. With ``shrink`` failing
    scenarios are repeated with fewer faults.
    """

    echo: Callable[[str], None]
    progress: Callable[[str], None]
    commit: str
    zookeeper: bool
    transactions: bool
    shrink: bool

    def one(self, seed: int, faults: Iterable[int] | None) -> bool:
        """Judge one seed in detail, with only ``faults`` if given; True if sound."""
        silence()
        scenario = draw(seed, zookeeper=self.zookeeper, transactions=self.transactions)
        if faults is not None:
            scenario = with_faults(scenario, faults)
        self._describe_scenario(scenario)
        result = judge(scenario)
        self.echo(f"digest {result.digest}")
        if result.anomalies:
            self._describe_failure(result)
        return not result.anomalies

    def many(self, seeds: range | None, minutes: float | None, *, jobs: int) -> bool:
        """Judge seeds until the last one or the time limit; True if all are sound."""
        silence()
        began_s, judged, failed = time.monotonic(), 0, []
        shown_s = began_s
        digests = hashlib.sha256()

        def is_over() -> bool:
            return minutes is not None and time.monotonic() - began_s > minutes * 60

        chosen = seeds or itertools.count()
        for result in swarm(
            chosen,
            is_over,
            zookeeper=self.zookeeper,
            transactions=self.transactions,
            jobs=jobs,
        ):
            judged += 1
            digests.update(result.digest.encode())
            if result.anomalies:
                failed.append(result.scenario.seed)
                self._describe_failure(result)
            if time.monotonic() - shown_s >= _PROGRESS_EVERY_S:
                shown_s = time.monotonic()
                self.progress(f"{_counted(judged, 'seed')}, {len(failed)} failed")
        taken_s = time.monotonic() - began_s
        pace = judged / taken_s * 60
        self.echo(
            f"{_counted(judged, 'seed')} in {taken_s:.0f} s, {pace:.0f} a minute, "
            f"{len(failed)} failed"
            f"{': ' if failed else ''}{', '.join(map(str, failed))}"
        )
        self.echo(f"digest {digests.hexdigest()}")
        return not failed

    def _describe_scenario(self, scenario: Scenario) -> None:
        self.echo(
            f"seed {scenario.seed}: {_counted(scenario.brokers, 'broker')}, "
            f"{_counted(scenario.partitions, 'partition')} of "
            f"{_counted(scenario.replicas, 'replica')}, min.insync.replicas "
            f"{scenario.min_insync}, {_counted(len(scenario.producers), 'producer')}, "
            f"{_counted(scenario.members, 'member')}, {scenario.lasts_ms} ms"
        )
        plan = scenario.transactions
        if plan is not None:
            levels = ", ".join(f"{name} {it}" for name, it in plan.features.items())
            self.echo(
                f"  {_counted(len(plan.writers), 'writer')}, "
                f"{_counted(len(plan.copiers), 'copier')}, {levels}"
            )
        for fault in scenario.faults:
            self.echo(f"  fault {fault}")

    def _describe_failure(self, result: SeedResult) -> None:
        """Report the anomalies, the code's commit, and the command to repeat them."""
        scenario = result.scenario
        self.echo(f"seed {scenario.seed} FAILED on commit {self.commit}")
        self._describe_anomalies(result)
        if self.shrink and scenario.faults:
            result = shrunk(result)
            self.echo("  it still fails as")
            self._describe_scenario(result.scenario)
            self._describe_anomalies(result)
        numbers = ",".join(str(each.number) for each in result.scenario.faults)
        under = " --zookeeper" if scenario.zookeeper else ""
        under += " --transactions" if scenario.transactions is not None else ""
        seed = scenario.seed
        self.echo(f"  doorkeeper simulate --seed {seed}{under} --faults '{numbers}'")

    def _describe_anomalies(self, result: SeedResult) -> None:
        found: Counter[str] = Counter()
        for anomaly in result.anomalies:
            found[anomaly.kind] += 1
            if found[anomaly.kind] <= _PRINTED_PER_KIND:
                self.echo(f"  {anomaly}")
        for kind, count in found.items():
            if count > _PRINTED_PER_KIND:
                self.echo(f"  {kind}: {count - _PRINTED_PER_KIND} more")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
