"""Leader elections and faults with two broker processes under ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from broker.controller.leadership import Leadership
from broker.protocol.topic_partition import TopicPartition
from experiments.cluster.loaded_cluster import LoadedCluster
from experiments.cluster.watched_decisions import Decisions
from experiments.design.config import parse
from experiments.load import trace
from experiments.worlds.live.disk import small_disk
from experiments.worlds.live.live_world import Live
from experiments.worlds.world import MachineTrial, RunResult, WorldError
from tests.attempts import attempts_of, run_files

pytestmark = pytest.mark.live
PRODUCE, METADATA, LEADER_AND_ISR, UPDATE_METADATA = 0, 3, 4, 6
NO_ROOM = 56
OLD, NEW = 0, 1
MS = 1_000_000


@pytest.fixture
def user_namespaces(tmp_path: Path) -> None:
    try:
        small_disk(tmp_path / "tried")
    except WorldError as error:
        pytest.skip(str(error))


@pytest.fixture
def in_the_end(monkeypatch: pytest.MonkeyPatch) -> Mapping[TopicPartition, Leadership]:
    """Return ZooKeeper's state of each partition after the load."""
    found: dict[TopicPartition, Leadership] = {}
    follow, read = Decisions.follow, LoadedCluster._in_the_end
    followed: list[tuple[Decisions, TopicPartition]] = []

    async def noting(self: Decisions, keys: Any) -> None:
        await follow(self, keys)
        followed.extend((self, key) for key in keys)

    async def looking(self: LoadedCluster) -> Any:
        found.update({key: decided.standing(key) for decided, key in followed})
        return await read(self)

    monkeypatch.setattr(Decisions, "follow", noting)
    monkeypatch.setattr(LoadedCluster, "_in_the_end", looking)
    return found


# A record is larger than the rest of the page in which its log ends.
WRITES = {
    "name": "all",
    "connections": 8,
    "arrivals": {"kind": "constant", "rate_per_s": 40.0},
    "request": {"api": "produce", "acks": -1, "record_bytes": 4096},
}
ASKS = {
    "name": "asks",
    "arrivals": {"kind": "constant", "rate_per_s": 20.0},
    "request": {"api": "metadata"},
}


class Played(NamedTuple):
    """A run's result, and its attempts as columns."""

    result: RunResult
    requests: int
    at: dict[str, Any]


def play(
    directory: Path,
    scheduler: str,
    traffic: list[dict[str, Any]],
    *faults: dict[str, Any],
) -> Played:
    built = parse(
        {
            "experiment": {
                "name": "live",
                "seed": 8,
                "blocks": 1,
                "baseline": scheduler,
            },
            "cluster": {
                "request_timeout_ms": 5000.0,
                "retry_backoff_ms": 20.0,
                "session_ms": 3000.0,
            },
            "workload": {
                "duration_s": 1.0,
                "traffic": traffic,
            },
            "faults": list(faults),
            "arms": [{"name": scheduler, "scheduler": scheduler}],
            "limits": {"lateness_p99_ms": 10_000.0, "drain_s": 30.0},
        }
    )
    drawn = trace.generate(built, 0)
    out = run_files(directory)
    trial = MachineTrial(experiment=built, block=0, arm=built.arms[0])
    result = Live(lambda: None).run(trial, drawn, out)
    assert result.valid, result.reason
    at = attempts_of(out)
    return Played(result, len(drawn), at)


def test_an_election_moves_the_load_and_loses_nothing_that_all_have(
    tmp_path: Path,
) -> None:
    elect = {"kind": "elect", "at_s": 0.5}
    result, requests, at = play(tmp_path, "planes", [WRITES, ASKS], elect)
    assert result.counts["ok"] == result.counts["sent"] == requests
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert set(at["broker"][done]) == {OLD, NEW}
    assert np.all(at["kept"][done] == 1)
    # Both brokers recorded the requests, which follow the controller's decision.
    told = at["api_key"] == LEADER_AND_ISR
    # On a slow machine the ISR may change, which the leader receives as well.
    assert set(at["broker"][told]) == {OLD, NEW}
    assert np.all(at["received_ns"][told] > at["intended_ns"][told])
    assert np.all(at["intended_ns"][told] > 500 * MS)
    asked = (at["api_key"] == METADATA) & (at["client_done_ns"] >= 0)
    assert at["leader"][asked][np.argmax(at["client_done_ns"][asked])] == NEW


def test_brokers_are_slow_and_full_and_gone_and_nothing_is_lost(
    tmp_path: Path, user_namespaces: None
) -> None:
    result, requests, at = play(
        tmp_path,
        "fifo",
        [WRITES],
        {"kind": "slow", "at_s": 0.1, "until_s": 0.3, "broker": NEW, "factor": 4.0},
        {"kind": "fill", "at_s": 0.3, "until_s": 2.0, "broker": OLD},
        {"kind": "kill", "at_s": 0.7, "broker": NEW},
        {"kind": "restart", "at_s": 0.8, "broker": NEW},
    )
    assert result.counts["ok"] == result.counts["sent"] == requests
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert np.all(at["kept"][done] == 1)
    assert NO_ROOM in at["error_code"][at["api_key"] == PRODUCE]
    # Only the follower was paused, and it has returned.
    assert set(at["broker"][done]) == {OLD}


def test_a_broker_cut_off_is_waited_for_until_it_is_reconnected(tmp_path: Path) -> None:
    cut = {"kind": "cut", "at_s": 0.3, "until_s": 1.5, "between": [NEW, OLD]}
    result, requests, at = play(tmp_path, "fifo", [WRITES], cut)
    assert result.counts["ok"] == result.counts["sent"] == requests
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert np.all(at["kept"][done] == 1)
    # The controller reaches both brokers: no election, and no change of the ISR.
    assert set(at["broker"][done]) == {OLD}
    # Without the cut a record is done every 25 ms; the bound leaves room for delays.
    assert np.diff(np.sort(at["client_done_ns"][done])).max() > 600 * MS


def test_a_broker_started_while_cut_off_is_not_waited_for(
    tmp_path: Path, in_the_end: Mapping[TopicPartition, Leadership]
) -> None:
    result, requests, at = play(
        tmp_path,
        "fifo",
        [WRITES],
        {"kind": "cut", "at_s": 0.3, "until_s": 60.0, "between": [NEW, OLD]},
        {"kind": "restart", "at_s": 0.4, "broker": NEW},
    )
    assert result.counts["ok"] == result.counts["sent"] == requests
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert np.all(at["kept"][done] == 1)
    # It left the ISR when it stopped; after its restart it cannot reach the leader.
    assert in_the_end
    for standing in in_the_end.values():
        assert (standing.leader, set(standing.isr)) == (OLD, {OLD})


@pytest.mark.parametrize(
    ("fault", "isr"),
    [
        ({"kind": "stop", "broker": OLD}, {NEW}),
        ({"kind": "reassign", "replicas": [NEW]}, {NEW}),
    ],
    ids=["stop", "reassign"],
)
def test_another_leads_as_the_operator_wished(
    tmp_path: Path,
    in_the_end: Mapping[TopicPartition, Leadership],
    fault: dict[str, Any],
    isr: set[int],
) -> None:
    result, requests, at = play(tmp_path, "fifo", [WRITES], {**fault, "at_s": 0.5})
    assert result.counts["ok"] == result.counts["sent"] == requests
    assert in_the_end
    for standing in in_the_end.values():
        assert (standing.leader, set(standing.isr)) == (NEW, isr)
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert set(at["broker"][done]) == {OLD, NEW}
    assert np.all(at["kept"][done] == 1)
    if fault["kind"] == "stop":
        # The stopped broker may end before it records the controller's last requests.
        return
    # The old leader received the change: it has handed over its leadership.
    told = np.isin(at["api_key"], (LEADER_AND_ISR, UPDATE_METADATA))
    heard = told & (at["broker"] == OLD)
    assert np.any(at["received_ns"][heard] >= at["intended_ns"][heard])
    assert np.all(at["error_code"][heard] == 0)
