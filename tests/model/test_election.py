"""An election in the model world: waits that are known beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from experiments.design.config import Experiment, parse
from experiments.load import trace
from experiments.worlds.model.world import Model
from experiments.worlds.world import RunFiles, Trial

MS = 1_000_000
SERVICE_MS, CONTROL_MS, DECISION_MS, ELECT_MS = 10, 0.5, 2, 100
LEADER_AND_ISR, UPDATE_METADATA, PRODUCE = 4, 6, 0


def experiment(**more: Any) -> Experiment:
    """One server, arrivals ten times as fast as it is, until the election."""
    return parse(
        {
            "experiment": {
                "name": "m",
                "seed": 5,
                "blocks": 1,
                "baseline": "fifo",
                "world": "model",
            },
            "cluster": {"decision_ms": DECISION_MS, "control_us": 1000 * CONTROL_MS},
            "workload": {
                "duration_s": 2.0,
                "traffic": [
                    {
                        "name": "writes",
                        "connections": 400,
                        "arrivals": {"kind": "constant", "rate_per_s": 1000.0},
                        "stop_s": 0.1,
                        "request": {"api": "produce", "topic_partitions": 2},
                        "service": {"kind": "constant", "mean_us": 1000 * SERVICE_MS},
                    }
                ],
            },
            "faults": [{"kind": "elect", "at_s": ELECT_MS / 1000, **more}],
            "arms": [
                {"name": "fifo", "scheduler": "fifo"},
                {"name": "merged", "scheduler": "fifo", "controller": "merged"},
                {"name": "priority", "scheduler": "priority"},
                {"name": "planes", "scheduler": "planes"},
            ],
            "broker": {"set": {"queued.max.requests": 500, "num.io.threads": 1}},
            "model": {"server": "seats", "refusal_us": 100.0},
            "limits": {"drain_s": 10.0},
        }
    )


def attempts(built: Experiment, arm: str, at: Path) -> list[dict[str, Any]]:
    out = RunFiles(
        requests=at / "r.parquet", samples=at / "s.parquet", attempts=at / "a.parquet"
    )
    trial = Trial(experiment=built, block=0, arm=built.arm(arm), order=0)
    result = Model(lambda: None).run(trial, trace.generate(built, 0), out)
    assert result.counts["ok"] == result.counts["sent"]
    assert out.attempts is not None
    return pq.read_table(out.attempts).to_pylist()


def of(rows: list[dict[str, Any]], api_key: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["api_key"] == api_key]


def test_under_fifo_the_controller_waits_for_every_write_before_it(
    tmp_path: Path,
) -> None:
    rows = attempts(experiment(), "fifo", tmp_path)
    writes = of(rows, PRODUCE)
    (told,) = of(rows, LEADER_AND_ISR)
    assert told["intended_ns"] == (ELECT_MS + DECISION_MS) * MS
    before = [row for row in writes if row["enqueued_ns"] < told["enqueued_ns"]]
    # Of two writes of one connection the second stands outside until the first is done.
    assert len(before) > 80
    # The only server is never idle from the first arrival on.
    first_ns = min(row["intended_ns"] for row in writes)
    busy_ms = len(before) * SERVICE_MS + CONTROL_MS
    assert told["local_done_ns"] == first_ns + busy_ms * MS
    # All before it were accepted, most of them in vain; nobody after it.
    accepted = [row["request_id"] for row in writes if row["error_code"] == 0]
    assert accepted == [row["request_id"] for row in before]


@pytest.mark.parametrize("arm", ["priority", "planes"])
def test_a_controller_that_is_served_at_once_turns_the_backlog_away(
    tmp_path: Path, arm: str
) -> None:
    rows = attempts(experiment(), arm, tmp_path)
    (told,) = of(rows, LEADER_AND_ISR)
    assert told["local_done_ns"] - told["intended_ns"] == CONTROL_MS * MS
    writes = sorted(of(rows, PRODUCE), key=lambda row: int(row["dequeued_ns"]))
    refused = [row for row in writes if row["error_code"] == 6]
    # One was under way; it is refused, too, for its partition is another's by then.
    served_ms = ELECT_MS + DECISION_MS + CONTROL_MS
    assert len(writes) - len(refused) == int(served_ms // SERVICE_MS)
    # What had not begun costs 0.1 ms each, not 10.
    last_ns = max(row["local_done_ns"] for row in refused)
    ahead_ms = (len(refused) - 1) * 0.1 + SERVICE_MS + 2 * CONTROL_MS
    assert last_ns <= told["local_done_ns"] + ahead_ms * MS


def test_one_by_one_every_partition_waits_again_unless_requests_are_merged(
    tmp_path: Path,
) -> None:
    built = experiment(one_by_one=True)
    apart = attempts(built, "fifo", tmp_path)
    assert [len(of(apart, key)) for key in (LEADER_AND_ISR, UPDATE_METADATA)] == [2, 2]
    kinds = [row["api_key"] for row in apart if row["api_key"] != PRODUCE]
    assert kinds == [LEADER_AND_ISR, UPDATE_METADATA] * 2
    # One in flight: each goes out when the one before it is answered.
    sent = [(row["sent_ns"], row["client_done_ns"]) for row in apart[-4:]]
    assert all(sent[n + 1][0] >= sent[n][1] for n in range(3))
    merged = attempts(built, "merged", tmp_path)
    assert [len(of(merged, key)) for key in (LEADER_AND_ISR, UPDATE_METADATA)] == [2, 1]
    last = [max(row["local_done_ns"] for row in rows[-4:]) for rows in (apart, merged)]
    assert last[1] <= last[0]
