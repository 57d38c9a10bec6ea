"""The swarm: repeatable days, days without anomalies, planted bugs."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache

import pytest
from click.testing import CliRunner

from doorkeeper.cli import main
from simulation.swarm import swarm_command
from simulation.swarm.scenarios import Fault, draw
from simulation.swarm.swarm import SeedResult, judge, swarm, with_faults
from tests.simulation.planted import PLANTED, commit_with_too_few

# Quick seeds: with kills, silent links or failing disks, and without faults.
SEEDS = (4, 8, 9)
# In the last one, a broker learns of its leadership after all faults have ended.
ZOOKEEPER_SEEDS = (4, 8, 36)
# Bugs that only a long day reveals.
LONG = (
    "forget an epoch check",
    "lose order on resume",
    "stale ISR after a restart",
    "two controllers",
)
SEARCHED_SEEDS = 200
# Three replicas, faults, and a producer with acks=1.
ALL_ASKED_FOR = 0
# A short day; transactions write to partitions of two leaders.
SEVERAL_MARKERS = 532


def failures(result: SeedResult) -> list[str]:
    return [f"seed {result.scenario.seed}: {each}" for each in result.anomalies]


@cache
def sound(seed: int) -> SeedResult:
    """Return the day of a seed without planted bugs, cached by process."""
    return judge(draw(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bad_day_breaks_no_promise(seed: int) -> None:
    assert failures(sound(seed)) == []


@pytest.mark.parametrize("seed", ZOOKEEPER_SEEDS)
def test_a_bad_day_under_zookeeper_breaks_no_promise(seed: int) -> None:
    assert failures(judge(replace(draw(seed), zookeeper=True))) == []


def fault(number: int, kind: str, broker: int, at_ms: int, lasts_ms: int) -> Fault:
    return Fault(
        number=number,
        at_ms=at_ms,
        kind=kind,
        broker=broker,
        lasts_ms=lasts_ms,
        chance=1,
    )


def test_a_broker_that_hands_over_until_after_the_last_fault_is_brought_back() -> None:
    """Seed 112: the broker's disk fails, and its controller is isolated."""
    scenario = replace(
        draw(4),
        brokers=3,
        partitions=2,
        replicas=3,
        min_insync=1,
        session_timeout_ms=4000,
        readers=0,
        members=0,
        lasts_ms=2000,
        faults=(fault(0, "isolate", 0, 500, 1500), fault(1, "device", 1, 1000, 500)),
        zookeeper=True,
    )
    assert failures(judge(scenario)) == []


def test_another_seed_is_another_day() -> None:
    assert draw(1) != draw(2)
    assert draw(1) == draw(1)


def test_a_day_may_be_lived_without_some_of_its_faults() -> None:
    scenario = draw(8)
    numbers = [fault.number for fault in scenario.faults]
    assert len(numbers) > 3
    fewer = with_faults(scenario, numbers[:2])
    assert [fault.number for fault in fewer.faults] == numbers[:2]
    assert fewer.producers == scenario.producers


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
        for name in PLANTED
    ],
)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    planted.plant(monkeypatch)
    scenario = replace(draw(planted.seed), zookeeper=planted.zookeeper)
    kinds = {anomaly.kind for anomaly in judge(scenario).anomalies}
    assert kinds & planted.kinds


def test_records_below_min_insync_replicas_are_never_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drawn days rarely lose enough replicas, so this one requires all of them."""
    drawn = draw(ALL_ASKED_FOR)
    scenario = replace(drawn, min_insync=drawn.replicas)
    assert not judge(scenario).anomalies
    commit_with_too_few(monkeypatch)
    kinds = {anomaly.kind for anomaly in judge(scenario).anomalies}
    assert kinds == {"high-watermark-under-min-isr"}


def test_the_command_tells_a_failure_and_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = PLANTED["duplicate after fail-over"]
    arguments = ["simulate", "--seeds", f"{planted.seed}..{planted.seed}"]
    sound = CliRunner().invoke(main, arguments)
    assert sound.exit_code == 0
    assert "1 seed in" in sound.output
    planted.plant(monkeypatch)
    failed = CliRunner().invoke(main, [*arguments, "--no-shrink"])
    assert failed.exit_code == 1
    assert f"seed {planted.seed} FAILED on commit" in failed.output
    assert f"doorkeeper simulate --seed {planted.seed} --faults '0,1," in failed.output


def test_the_command_tells_its_progress_apart_from_its_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(swarm_command, "_PROGRESS_EVERY_S", 0)
    found = CliRunner().invoke(main, ["simulate", "--seeds", "8..9"])
    assert found.stderr.splitlines() == ["1 seed, 0 failed", "2 seeds, 0 failed"]
    assert found.stdout.startswith("2 seeds in ")


@pytest.mark.search
@pytest.mark.parametrize("name", PLANTED)
def test_a_search_finds_a_planted_bug(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED[name]
    planted.plant(monkeypatch)
    seeds = range(SEARCHED_SEEDS)
    for result in swarm(seeds, lambda: False, zookeeper=planted.zookeeper):
        if planted.kinds & {anomaly.kind for anomaly in result.anomalies}:
            return
    raise AssertionError(f"{SEARCHED_SEEDS} seeds do not find {name}")


@pytest.mark.slow
@pytest.mark.parametrize(("zookeeper", "count"), [(False, 200), (True, 50)])
def test_many_bad_days_break_no_promise(zookeeper: bool, count: int) -> None:
    jobs = len(os.sched_getaffinity(0))
    results = [*swarm(range(count), lambda: False, zookeeper=zookeeper, jobs=jobs)]
    assert len(results) == count
    assert [line for result in results for line in failures(result)] == []


def test_several_processes_with_other_hashes_find_what_this_one_finds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    found = [it.digest for it in swarm((8, 4), lambda: False, jobs=2)]
    assert found == [sound(8).digest, sound(4).digest]


def test_a_day_with_transactions_is_equal_under_other_hashes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = []
    for hash_seed in ("0", "1"):
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
        days = swarm((SEVERAL_MARKERS,), lambda: False, transactions=True, jobs=2)
        digests += [day.digest for day in days]
    assert len(digests) == 2
    assert digests[0] == digests[1]


def test_no_day_begins_when_time_is_over() -> None:
    assert list(swarm(range(5), lambda: True)) == []
    assert list(swarm(range(5), lambda: True, jobs=2)) == []
