"""A session of episodes with real processes: every row is there, and in its episode.

The band of the machine-speed gate is lifted: what is tested is that the rows are right,
not that this machine is steady.
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
from experiments.running.executors.episodes import InEpisodes
from experiments.worlds.live.world import Live
from tests.experiments.unwatched import Unwatched
from tests.live.test_live_experiment import CONFIG

pytestmark = pytest.mark.live
ARMS = ("fifo", "planes", "fifo-again")


def test_brokers_that_stay_alive_record_every_episode_apart(tmp_path: Path) -> None:
    content = tomllib.loads(CONFIG)
    content["experiment"] |= {"blocks": 3, "again": True}
    content["workload"] |= {"duration_s": 0.2, "warmup_s": 0.05}
    content["arms"] = content["arms"][:2]
    content["episodes"] = {"session_rounds": 3, "rounds_min": 3, "speed_band": 1e6}
    runner.run(
        parse(content),
        tmp_path,
        Live(lambda: None),
        InEpisodes(Live(lambda: None)),
        Unwatched(),
        resume=False,
        half_width=lambda arm, baseline, level, confidence: 0.0,
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [it["reason"] for it in manifest["runs"]] == [""] * 9
    assert Counter(it["arm"] for it in manifest["runs"]) == dict.fromkeys(ARMS, 3)
    assert manifest["looks"][-1]["decision"] == "narrow enough"
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
        (loop_ns,) = run["probes_ns"]
        assert loop_ns > 5_000
        assert set(run["lateness_by_class_ns"]) == {it["class"] for it in rows}
    for arm in ARMS:
        mine = [it for it in manifest["runs"] if it["arm"] == arm]
        assert [bool(it["accounts"]) for it in mine] == [False, False, True]
        assert len({it["requests"] for it in mine}) == 1
    traces = {(it["block"], it["trace_sha256"]) for it in manifest["runs"]}
    assert len(traces) == len({sha256 for _, sha256 in traces}) == 3
