"""Verdicts on rounds of episodes: pooled quantiles, the rule, machine conditions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.recordings.manifest import load_manifest
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MS = 1_000_000
ROUNDS = 30
EPISODES = {
    "session_rounds": 10,
    "speed_band": 1.5,
    "primary": None,
    "quantile": 0.95,
    "precision": 0.1,
    "rounds_min": 20,
    "minutes": 3.0,
}
LOOK = {
    "rounds": ROUNDS,
    "half_widths": {"planes": 0.05, "priority": 0.08},
    "decision": "narrow enough",
}


def write(directory: Path) -> dict[str, Any]:
    """Write rounds of 0.1 s, one file per arm; one round was repeated."""
    manifest = synthetic.write(
        directory, blocks=ROUNDS, seconds=0.1, arms=("fifo", "planes", "priority")
    )
    manifest["config"]["episodes"] = EPISODES
    manifest["looks"] = [LOOK]
    arms = [arm["name"] for arm in manifest["arms"]]
    for arm in arms:
        for kind in ("requests", "samples"):
            mine = [run for run in manifest["runs"] if run["arm"] == arm]
            tables = [pq.read_table(directory / run[kind]) for run in mine]
            file = f"{kind}/s000-{arm}.parquet"
            pq.write_table(pa.concat_tables(tables), directory / file)
            for run in mine:
                run[kind] = file
    for number, run in enumerate(manifest["runs"]):
        run["probes_ns"] = [MS, MS + 1000 * (number % 7)]
        run["machine"] = {"watched_s": 0.2, "steal_s": 0.0, "others_s": 0.01}
        run["lateness_by_class_ns"] = {
            name: {"p50": 100, "p99": 20_000, "max": 30_000}
            for name in synthetic.CLASSES
        }
        run["seconds"] = 0.2
    spoiled = [
        run | {"run_id": run["run_id"][:-1] + "9", "valid": False, "attempt": 9}
        for run in manifest["runs"]
        if run["block"] == 4
    ]
    for run in spoiled:
        run["reason"] = "machine unsteady: a fixed loop took 2.00 times as long"
        run["probes_ns"] = [MS, 4 * MS] if run["arm"] == "planes" else [MS, MS]
    manifest["runs"] += spoiled
    synthetic.save(directory, manifest)
    return manifest


@pytest.fixture(scope="module")
def recorded_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rounds")
    write(directory)
    return directory


@pytest.fixture(scope="module")
def study(spark: SparkSession, recorded_rounds: Path) -> Study:
    return compare(spark, load_manifest(recorded_rounds))


def pooled(directory: Path, class_name: str, arm: str, level: float) -> float:
    rows = pq.read_table(directory / f"requests/s000-{arm}.parquet").to_pandas()
    rows = rows[(rows["class"] == class_name) & (rows["intended_ns"] < 0.1e9)]
    latency = rows["client_done_ns"] - rows["intended_ns"]
    return float(np.quantile(latency, level, method="inverted_cdf")) / MS


@pytest.mark.spark
def test_the_ratio_is_that_of_the_pooled_quantiles(
    study: Study, recorded_rounds: Path
) -> None:
    (comparison,) = study.comparisons
    assert len(comparison.manifest.blocks) == ROUNDS
    for name, metric, level in (
        ("control", "p50_ms", 0.5),
        ("control", "p95_ms", 0.95),
    ):
        base, arm = (
            pooled(recorded_rounds, name, it, level) for it in ("fifo", "planes")
        )
        cell = comparison.cell(name, "planes", metric)
        assert cell.contrast is not None
        assert cell.value is not None
        assert cell.value.value == pytest.approx(arm)
        if cell.contrast.pooled:
            assert cell.contrast.ratio.value == pytest.approx(arm / base)
    control = comparison.cell("control", "planes", "p95_ms")
    assert control.contrast is not None
    assert control.sessions == len(control.contrast.logs) == ROUNDS // 10
    assert control.contrast.ratio.value < 0.5
