"""Days with transactions: no anomalies, and planted bugs are found."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from simulation.swarm import bad_day
from simulation.swarm.scenarios import draw
from simulation.swarm.swarm import SeedResult, judge, swarm
from simulation.swarm.transactional_load import COPIERS, TransactionalLoad
from simulation.transaction_checkers import TRANSACTION_CHECKS
from tests.simulation.planted_transactions import PLANTED_TRANSACTIONS
from tests.simulation.test_checkers import PLANTED

# Quick seeds: a scripted controller with and without KIP-890's second part, KIP-848.
# In the last one a full disk refuses the end of a transaction.
SEEDS = (0, 1, 1668)
ZOOKEEPER_SEEDS = (0,)
# The rarest bug appears in one day of 250.
SEARCHED_SEEDS = 1_000
# Conditions on transactions at the end of a day, after all faults.
DEMANDS = {
    "transactors-stuck",
    "not-committable",
    "copiers-stuck",
    "transactions-stuck",
    "unreadable-transactions",
}


def failures(result: SeedResult) -> list[str]:
    return [f"seed {result.scenario.seed}: {each}" for each in result.anomalies]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bad_day_with_transactions_breaks_no_promise(seed: int) -> None:
    assert failures(judge(draw(seed, transactions=True))) == []


@pytest.mark.parametrize("seed", ZOOKEEPER_SEEDS)
def test_nor_does_one_under_zookeeper(seed: int) -> None:
    scenario = draw(seed, transactions=True, zookeeper=True)
    assert failures(judge(scenario)) == []


def seconds_of_copying() -> float:
    """Return the duration of slow copying: one record per transaction, many aborts.

    Seed 24 has such copiers. A long poll follows each abort.
    """
    scenario = draw(0, transactions=True)
    plan = scenario.transactions
    assert plan is not None
    copier = replace(plan.copiers[0], records=1, aborts=0.5)
    scenario = replace(
        scenario,
        brokers=1,
        replicas=1,
        min_insync=1,
        members=0,
        lasts_ms=1_000,
        faults=(),
        transactions=replace(plan, copiers=(copier,)),
    )
    outcome = bad_day.live_through(scenario)
    assert outcome.anomalies == []
    looks = [each for each in outcome.history.committed if each.group == COPIERS]
    return (looks[-1].answered_ns - looks[0].answered_ns) / 1e9


def test_a_slow_copier_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    patience_s = 5.0
    monkeypatch.setattr(bad_day, "PATIENCE_S", patience_s)
    monkeypatch.setattr(TransactionalLoad, "hurry", lambda self: None)
    assert seconds_of_copying() > patience_s


def test_copiers_hurry_once_faults_are_over() -> None:
    assert seconds_of_copying() < 2


def test_each_kind_of_anomaly_has_a_planted_bug() -> None:
    found = {kind for each in PLANTED_TRANSACTIONS.values() for kind in each.kinds}
    checked = {
        anomaly.kind
        for history in PLANTED.values()
        for checker in TRANSACTION_CHECKS
        for anomaly in checker(history)
    }
    # A day waits for the offsets to reach the ends, so `copiers-stuck` comes first.
    assert found == (checked | DEMANDS) - {"offset-behind"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_TRANSACTIONS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED_TRANSACTIONS[name]
    scenario = planted.scenario()
    assert failures(judge(scenario)) == []
    planted.plant(monkeypatch)
    kinds = {anomaly.kind for anomaly in judge(scenario).anomalies}
    assert planted.kinds <= kinds


@pytest.mark.search
@pytest.mark.parametrize("name", PLANTED_TRANSACTIONS)
def test_a_search_finds_a_planted_bug(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED_TRANSACTIONS[name]
    planted.plant(monkeypatch)
    seeds = range(SEARCHED_SEEDS)
    for result in swarm(seeds, lambda: False, transactions=True):
        if planted.kinds & {anomaly.kind for anomaly in result.anomalies}:
            return
    raise AssertionError(f"{SEARCHED_SEEDS} seeds do not find {name}")


@pytest.mark.slow
@pytest.mark.parametrize(("zookeeper", "count"), [(False, 100), (True, 25)])
def test_many_bad_days_with_transactions_break_no_promise(
    zookeeper: bool, count: int
) -> None:
    jobs = len(os.sched_getaffinity(0))
    results = [
        *swarm(
            range(count),
            lambda: False,
            zookeeper=zookeeper,
            transactions=True,
            jobs=jobs,
        )
    ]
    assert len(results) == count
    assert [line for result in results for line in failures(result)] == []
