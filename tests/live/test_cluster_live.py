"""An election among two broker processes, with real sockets and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.config import parse
from experiments.load import trace
from experiments.worlds.live.world import Live
from experiments.worlds.world import RunFiles, Trial

pytestmark = pytest.mark.live
PRODUCE, METADATA, LEADER_AND_ISR = 0, 3, 4
OLD, NEW = 0, 1


def test_an_election_moves_the_load_and_loses_nothing_that_all_have(
    tmp_path: Path,
) -> None:
    writes = {
        "connections": 8,
        "arrivals": {"kind": "constant", "rate_per_s": 40.0},
        "request": {"api": "produce", "acks": -1, "record_bytes": 64},
    }
    built = parse(
        {
            "experiment": {
                "name": "live",
                "seed": 8,
                "blocks": 1,
                "baseline": "planes",
            },
            "cluster": {"request_timeout_ms": 5000.0, "retry_backoff_ms": 20.0},
            "workload": {
                "duration_s": 1.0,
                "traffic": [
                    {"name": "all", **writes},
                    {
                        "name": "asks",
                        "arrivals": {"kind": "constant", "rate_per_s": 20.0},
                        "request": {"api": "metadata"},
                    },
                ],
            },
            "faults": [{"kind": "elect", "at_s": 0.5}],
            "arms": [{"name": "planes", "scheduler": "planes"}],
            "limits": {"lateness_p99_ms": 10_000.0, "drain_s": 20.0},
        }
    )
    drawn = trace.generate(built, 0)
    out = RunFiles(
        requests=tmp_path / "r.parquet",
        samples=tmp_path / "s.parquet",
        attempts=tmp_path / "a.parquet",
    )
    trial = Trial(experiment=built, block=0, arm=built.arms[0], order=0)
    result = Live(lambda: None).run(trial, drawn, out)
    assert result.valid, result.reason
    assert result.counts["ok"] == result.counts["sent"] == len(drawn)
    assert out.attempts is not None
    table = pq.read_table(out.attempts)
    at = {
        name: table[name].fill_null(-1).to_numpy()
        for name in table.column_names
        if table.schema.field(name).type == "int64"
    }
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert set(at["broker"][done]) == {OLD, NEW}
    assert np.all(at["kept"][done] == 1)
    # Both were told, over the control plane, and both brokers' rows are joined.
    told = at["api_key"] == LEADER_AND_ISR
    assert sorted(at["broker"][told]) == [OLD, NEW]
    assert np.all(at["local_done_ns"][told] > at["sent_ns"][told])
    asked = (at["api_key"] == METADATA) & (at["client_done_ns"] >= 0)
    assert at["leader"][asked][np.argmax(at["client_done_ns"][asked])] == NEW
