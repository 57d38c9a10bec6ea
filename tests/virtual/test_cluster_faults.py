"""The fault timeline on a cluster in virtual time: the effect of each kind.

Two brokers, writes with acks=all, and clients that retry until they succeed. At the
end, a consumer reads the log of the last leader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from experiments.design.config import parse
from experiments.load import trace
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial
from tests.attempts import attempts_of, run_files

OK, NETWORK, STORAGE = 0, 13, 56
LEADER, FOLLOWER = 0, 1
# A broker killed at 300 ms renewed its session of 100 ms at most a third of it earlier.
# The expiry is noticed at the end of a tick of 50 ms.
EXPIRED_MS = (366, 450)


class Seen(NamedTuple):
    """The writes of a run as columns, and the outcomes of its requests."""

    at: dict[str, Any]
    outcomes: set[str]

    def codes(self, broker: int) -> set[int]:
        """Return the error codes of writes at a broker."""
        return set(self.at["error_code"][self.at["broker"] == broker].tolist())

    def succeeded_ms(self, broker: int) -> Any:
        """Return when a broker acknowledged writes."""
        at = self.at
        mine = (at["broker"] == broker) & (at["error_code"] == OK)
        return np.sort(at["client_done_ns"][mine]) / 1e6

    def lost(self) -> int:
        """Count the acknowledged writes that are missing from the last log."""
        at = self.at
        return int(np.count_nonzero((at["error_code"] == OK) & (at["kept"] == 0)))


def play(directory: Path, *faults: dict[str, Any]) -> Seen:
    built = parse(
        {
            "experiment": {
                "name": "faults",
                "seed": 6,
                "blocks": 1,
                "baseline": "fifo",
                "world": "virtual",
            },
            "cluster": {
                "request_timeout_ms": 200.0,
                "retry_backoff_ms": 20.0,
                "session_ms": 100.0,
            },
            "workload": {
                "duration_s": 1.0,
                "traffic": [
                    {
                        "name": "writes",
                        "connections": 20,
                        "arrivals": {"kind": "poisson", "rate_per_s": 200.0},
                        "request": {"api": "produce", "acks": -1},
                        "service": {"kind": "constant", "mean_us": 1000.0},
                    }
                ],
            },
            "faults": list(faults),
            "arms": [{"name": "fifo", "scheduler": "fifo"}],
            "virtual": {"server": "seats"},
            "limits": {"timeout_ms": 5000.0, "drain_s": 5.0},
        }
    )
    out = run_files(directory)
    trial = MachineTrial(experiment=built, block=0, arm=built.arms[0])
    result = Virtual().run(trial, trace.generate(built, 0), out)
    assert result.valid, result.reason
    attempts = attempts_of(out)
    is_write = attempts["api_key"] == 0
    columns = {name: column[is_write] for name, column in attempts.items()}
    outcomes = set(pq.read_table(out.requests)["outcome"].to_pylist())
    return Seen(columns, outcomes)


def test_a_killed_leader_is_missed_after_its_session(tmp_path: Path) -> None:
    seen = play(tmp_path, {"kind": "kill", "at_s": 0.3, "broker": LEADER})
    assert seen.outcomes == {"ok"}
    assert seen.lost() == 0
    assert seen.codes(LEADER) >= {OK, NETWORK}
    old_ms, new_ms = seen.succeeded_ms(LEADER), seen.succeeded_ms(FOLLOWER)
    # No write is acknowledged until the session expires; then the new leader serves.
    assert old_ms[-1] <= 300
    assert EXPIRED_MS[0] <= new_ms[0] < EXPIRED_MS[1] + 50
    assert new_ms[-1] > 900


def test_a_killed_follower_is_waited_for_until_its_session_ends(tmp_path: Path) -> None:
    seen = play(tmp_path, {"kind": "kill", "at_s": 0.3, "broker": FOLLOWER})
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    done_ms = seen.succeeded_ms(LEADER)
    assert not np.any((done_ms > 302) & (done_ms < EXPIRED_MS[0]))
    assert np.any((done_ms > EXPIRED_MS[0]) & (done_ms < EXPIRED_MS[1] + 30))


def test_a_slow_broker_is_slow_for_as_long_as_it_is_said(tmp_path: Path) -> None:
    # Eight handlers, whose service times grow from 1 ms to 50 ms.
    slow = {"kind": "slow", "at_s": 0.3, "until_s": 0.6, "broker": LEADER}
    seen = play(tmp_path, {**slow, "factor": 50.0})
    at = seen.at
    took_ms = (at["client_done_ns"] - at["intended_ns"]) / 1e6
    due_ms = at["intended_ns"] / 1e6
    assert np.median(took_ms[due_ms < 300]) < 10
    assert took_ms[(due_ms > 310) & (due_ms < 500)].min() > 50
    assert np.median(took_ms[due_ms > 900]) < 10
    assert seen.outcomes == {"ok"}


def test_a_full_disk_refuses_and_takes_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    full = {"kind": "fill", "at_s": 0.3, "until_s": 0.6, "broker": LEADER}
    seen = play(tmp_path, full)
    assert seen.codes(LEADER) == {OK, STORAGE}
    done_ms = seen.succeeded_ms(LEADER)
    assert not np.any((done_ms > 320) & (done_ms < 600))
    assert np.any(done_ms > 600)
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)


def test_a_leader_that_stops_hands_over_first(tmp_path: Path) -> None:
    seen = play(tmp_path, {"kind": "stop", "at_s": 0.3, "broker": LEADER})
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    old_ms, new_ms = seen.succeeded_ms(LEADER), seen.succeeded_ms(FOLLOWER)
    assert 250 < old_ms[-1] < new_ms[0]
    # A stopping leader hands over before its session expires.
    assert new_ms[0] < EXPIRED_MS[0]


def test_a_follower_that_starts_again_is_in_sync_and_may_lead(tmp_path: Path) -> None:
    seen = play(
        tmp_path,
        {"kind": "kill", "at_s": 0.1, "broker": FOLLOWER},
        {"kind": "restart", "at_s": 0.3, "broker": FOLLOWER},
        {"kind": "rebalance", "at_s": 0.9},
    )
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    # The follower is the preferred replica, but only an in-sync replica is elected.
    assert seen.succeeded_ms(FOLLOWER)[0] > 900
    assert seen.succeeded_ms(LEADER)[-1] < 950


def test_a_broker_that_runs_is_stopped_before_it_starts_again(tmp_path: Path) -> None:
    seen = play(tmp_path, {"kind": "restart", "at_s": 0.3, "broker": LEADER})
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    assert seen.succeeded_ms(LEADER)[-1] < seen.succeeded_ms(FOLLOWER)[0] < 400


def test_a_broker_cut_off_is_waited_for_until_it_is_reconnected(tmp_path: Path) -> None:
    cut = {"kind": "cut", "at_s": 0.3, "until_s": 0.6, "between": [FOLLOWER, LEADER]}
    seen = play(tmp_path, cut)
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    # Both reach the controller: no election, no change of the ISR.
    assert seen.succeeded_ms(FOLLOWER).size == 0
    done_ms = seen.succeeded_ms(LEADER)
    assert not np.any((done_ms > 302) & (done_ms < 600))
    assert np.any((done_ms > 600) & (done_ms < 700))


def test_partitions_go_where_they_are_reassigned(tmp_path: Path) -> None:
    moved = {"kind": "reassign", "at_s": 0.3, "replicas": [FOLLOWER]}
    seen = play(tmp_path, moved)
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    old_ms, new_ms = seen.succeeded_ms(LEADER), seen.succeeded_ms(FOLLOWER)
    assert 250 < old_ms[-1] < 350 < new_ms[-1]
    assert 300 < new_ms[0] < 400


def test_another_replica_is_made_preferred_and_elected(tmp_path: Path) -> None:
    seen = play(
        tmp_path,
        {"kind": "elect", "at_s": 0.3},
        {"kind": "elect", "at_s": 0.6, "leader": LEADER},
        {"kind": "rebalance", "at_s": 0.8},
    )
    assert (seen.outcomes, seen.lost()) == ({"ok"}, 0)
    there = seen.succeeded_ms(FOLLOWER)
    assert 300 < there[0] < 350
    assert 550 < there[-1] < 650
    assert seen.succeeded_ms(LEADER)[-1] > 900
