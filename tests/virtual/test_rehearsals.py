"""Rehearsals before a run: the recording contains the final run only."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.cluster.loaded_cluster import LoadedCluster
from experiments.load import trace
from experiments.worlds.virtual import virtual_cluster
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial
from tests.attempts import attempts_of, run_files
from tests.virtual.test_kafka_4453 import LEADER_AND_ISR, NEW, OLD, PRODUCE, smaller


def test_a_rehearsed_incident_is_recorded_once_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = partial(LoadedCluster, rehearsals=1)
    monkeypatch.setattr(virtual_cluster, "LoadedCluster", rehearsed)
    built = smaller()
    drawn = trace.generate(built, 0)
    out = run_files(tmp_path)
    trial = MachineTrial(experiment=built, block=0, arm=built.arm("planes"))
    result = Virtual().run(trial, drawn, out)
    assert result.valid, result.reason
    assert result.counts["sent"] == result.counts["ok"] == len(drawn)
    requests = pq.read_table(out.requests)
    took_ns = requests["client_done_ns"].to_numpy() - requests["intended_ns"].to_numpy()
    assert np.all(took_ns > 0)
    at = attempts_of(out)
    assert at["intended_ns"].min() >= 0
    assert set(at["request_id"]) == {-1, *range(len(drawn))}
    # The first leader leads again, until the second command to step down.
    elected_ns = at["intended_ns"][at["api_key"] == LEADER_AND_ISR]
    assert elected_ns.min() >= 0.5e9
    written = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    before = written & (at["sent_ns"] < 0.4e9)
    assert set(at["broker"][before]) == {OLD}
    assert set(at["broker"][written]) == {OLD, NEW}
    # Records of the rehearsal are in the log, too, but are not counted.
    assert np.all(at["kept"][written & (at["acks"] == -1)] == 1)
