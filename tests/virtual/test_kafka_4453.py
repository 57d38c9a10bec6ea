"""KAFKA-4453 in virtual time: an old leader that still serves after an election.

Two whole brokers with real replication, on a smaller scale than the shipped config.
Counts come from the recorded attempts; a consumer reads the logs at the end.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.capacity import drawable
from experiments.design.config import parse
from experiments.load import trace
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial
from tests.attempts import attempts_of, run_files

FILE = Path("experiments/configs/kafka-4453.toml")
OLD, NEW = 0, 1
PRODUCE, METADATA, LEADER_AND_ISR = 0, 3, 4


class Incident(NamedTuple):
    """A run's attempts as columns, its outcomes, and the bytes of all its files."""

    attempts: dict[str, Any]
    outcomes: list[str]
    content: bytes

    def of(self, api_key: int, broker: int) -> Any:
        at = self.attempts
        return (at["api_key"] == api_key) & (at["broker"] == broker)

    @property
    def elected_ns(self) -> int:
        at = self.attempts
        return int(at["intended_ns"][at["api_key"] == LEADER_AND_ISR].min())

    def stepped_down_ms(self) -> float:
        obeyed = self.attempts["local_done_ns"][self.of(LEADER_AND_ISR, OLD)]
        return float(obeyed.max() - self.elected_ns) / 1e6

    def accepted_after_the_election(self) -> int:
        at = self.attempts
        refused = (at["broker_error_code"] != 0) & (
            at["remote_done_ns"] == at["local_done_ns"]
        )
        after = at["local_done_ns"] > self.elected_ns
        return int(np.count_nonzero(self.of(PRODUCE, OLD) & after & ~refused))

    def lost(self, acks: int) -> int:
        at = self.attempts
        acknowledged = (at["error_code"] == 0) & (at["acks"] == acks)
        return int(np.count_nonzero(acknowledged & (at["kept"] == 0)))


Play = Callable[..., Incident]


def smaller() -> Any:
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    content["workload"]["duration_s"] = 0.8
    scale, elect = content["faults"]
    scale.update(at_s=0.0, until_s=0.8)
    elect.update(at_s=0.5)
    # Half of the queue size and half of the clients.
    content["broker"]["set"] |= {"queued.max.requests": 25}
    for entry in content["workload"]["traffic"]:
        entry["connections"] //= 2
    return drawable(parse(content))


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """Run an arm, or return its cached run."""
    built = smaller()
    drawn = trace.generate(built, 0)
    known: dict[str, Incident] = {}

    def run(arm: str, *, again: bool = False) -> Incident:
        if arm not in known or again:
            known[arm] = _run(arm)
        return known[arm]

    def _run(arm: str) -> Incident:
        at = tmp_path_factory.mktemp(arm)
        out = run_files(at)
        trial = MachineTrial(experiment=built, block=0, arm=built.arm(arm))
        result = Virtual().run(trial, drawn, out)
        assert result.valid, result.reason
        assert result.counts["sent"] == len(drawn)
        attempts = attempts_of(out)
        requests = pq.read_table(out.requests)
        content = b"".join(path.read_bytes() for path in sorted(at.iterdir()))
        return Incident(attempts, requests["outcome"].to_pylist(), content)

    return run


def test_under_fifo_an_old_leader_goes_on_amid_its_backlog(
    play: Play,
) -> None:
    fifo = play("fifo")
    # Eight sequential requests, each behind up to 25 queued ones: at most 100 ms of the
    # handler's time each.
    assert 200 < fifo.stepped_down_ms() < 8 * 150
    assert fifo.accepted_after_the_election() > 100
    assert fifo.lost(acks=1) > 50


@pytest.mark.parametrize("arm", ["planes", "priority"])
def test_control_that_does_not_wait_ends_it_at_once(play: Play, arm: str) -> None:
    rival = play(arm)
    # Four decisions of 2 ms, four times two requests of 2 ms, and the running request:
    # 4 ms on average, or half of one under preemption.
    assert rival.stepped_down_ms() < 4 * (2 + 2 * 2 + 4)
    assert rival.accepted_after_the_election() < 20
    assert play("fifo").accepted_after_the_election() > 100


def test_a_plane_for_control_leaves_the_follower_behind_the_backlog(play: Play) -> None:
    """Records are lost that the new leader had not fetched.

    KIP-291's planes treat fetches of followers as data; `priority` serves them first.
    """
    assert play("priority").lost(acks=1) == 0
    assert 0 < play("planes").lost(acks=1) < play("fifo").lost(acks=1)


def test_merged_replication_waits_less_often(play: Play) -> None:
    merged, fifo = play("merged"), play("fifo")
    commands = merged.of(LEADER_AND_ISR, OLD).sum()
    # The first partition's request is in flight when the others begin to wait.
    assert (commands, fifo.of(LEADER_AND_ISR, OLD).sum()) == (2, 4)
    # Two waits instead of four, with as many data requests between them.
    assert merged.stepped_down_ms() < 0.75 * fifo.stepped_down_ms()


@pytest.mark.parametrize("arm", ["fifo", "planes", "priority", "merged"])
def test_no_record_is_lost_that_all_replicas_have(play: Play, arm: str) -> None:
    found = play(arm)
    assert found.lost(acks=-1) == 0
    assert set(found.outcomes) == {"ok"}


@pytest.mark.parametrize("arm", ["fifo", "merged"])
def test_followers_follow_before_the_load_begins(play: Play, arm: str) -> None:
    """A follower without the leader's address would retry only after a second."""
    at = play(arm).attempts
    first = (at["acks"] == -1) & (at["api_key"] == PRODUCE) & (at["sent_ns"] < 5e7)
    took_ms = (at["client_done_ns"] - at["sent_ns"])[first] / 1e6
    assert 0 < took_ms[0] < 20


def test_records_appended_in_vain_are_no_successes(
    play: Play,
) -> None:
    """Appends of the old leader after the election succeed with acks=1 only.

    With acks=all, the response is an error.
    """
    at, fifo = play("fifo").attempts, play("fifo")
    obeyed_ns = at["local_done_ns"][fifo.of(LEADER_AND_ISR, NEW)].max()
    late = fifo.of(PRODUCE, OLD) & (at["local_done_ns"] > obeyed_ns)
    waits = late & (at["acks"] == -1)
    assert waits.any()
    assert not np.any(at["error_code"][waits] == 0)
    assert np.any(at["error_code"][late & (at["acks"] == 1)] == 0)


def test_the_same_seed_is_the_same_incident_to_the_byte(play: Play) -> None:
    assert play("fifo").content == play("fifo", again=True).content
