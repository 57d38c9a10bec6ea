"""A session with real processes: every row is recorded in its episode.

The limit on lateness is lifted: the test checks the rows, not the machine.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from experiments.design.config import parse
from experiments.records.recording import STAMPS
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.worlds.live.live_world import Live
from tests.experiments.unwatched import Unwatched
from tests.live.test_live_experiment import CONFIG

pytestmark = pytest.mark.live
ARMS = ("fifo", "planes", "fifo-again")


def test_brokers_that_stay_alive_record_every_episode_apart(tmp_path: Path) -> None:
    content = tomllib.loads(CONFIG)
    del content["experiment"]["blocks"]
    content["experiment"]["again"] = True
    content["workload"] |= {"duration_s": 0.2, "warmup_s": 0.05}
    content["arms"] = content["arms"][:2]
    content["sessions"] = {"count": 1, "rounds": 3, "primary": "control"}
    content.setdefault("limits", {})["lateness_p99_ms"] = 1e6
    live = Live(lambda: None)
    runner.run(
        parse(content),
        tmp_path,
        live,
        Sequential(live),
        Unwatched(),
        resume=False,
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [it["reason"] for it in manifest["runs"]] == [""] * 9
    assert Counter(it["arm"] for it in manifest["runs"]) == dict.fromkeys(ARMS, 3)
    assert {it["session"] for it in manifest["runs"]} == {0}
    for run in manifest["runs"]:
        table = pq.read_table(tmp_path / run["requests"])
        rows = [it for it in table.to_pylist() if it["run_id"] == run["run_id"]]
        assert len(rows) == run["counts"]["sent"] == run["counts"]["ok"] > 50
        assert [it["request_id"] for it in rows] == list(range(len(rows)))
        for row in rows:
            stamps = [row[name] for name in STAMPS[1:-1]]
            assert None not in stamps
            assert row["intended_ns"] <= row["sent_ns"]
            assert stamps == sorted(stamps), "stamps of another episode"
            assert row["received_ns"] >= row["intended_ns"]
        assert run["loop_us"] > 5
        assert set(run["late_requests"].values()) == {0}
        assert set(run["lateness_by_class_ns"]) == {it["class"] for it in rows}
    for arm in ARMS:
        mine = [it for it in manifest["runs"] if it["arm"] == arm]
        assert [bool(it["accounts"]) for it in mine] == [False, False, True]
        assert len({it["requests"] for it in mine}) == 1
    traces = {(it["block"], it["trace_sha256"]) for it in manifest["runs"]}
    assert len(traces) == len({sha256 for _, sha256 in traces}) == 3
