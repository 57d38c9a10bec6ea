"""Comparison by Spark against a naive computation on the same recordings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.cell_sessions import quantile_sessions
from spark_analysis.judging.comparison import Comparison
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.load import read_requests
from spark_analysis.recordings.manifest import exact_quantile, load_manifest
from spark_analysis.recordings.tally import first_pass, tally
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MS = 1e6
LEVELS = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p99.9_ms": 0.999}


def naive_rows(directory: Path, run: dict[str, Any]) -> list[dict[str, Any]]:
    table = pq.read_table(directory / run["requests"])
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        ok = row["outcome"] == "ok"
        latency = row["client_done_ns"] - row["intended_ns"] if ok else math.inf
        row["latency_ms"] = latency / MS
    return rows


@pytest.fixture(scope="module")
def naive(recorded: Path) -> dict[tuple[str, str, int], list[dict[str, Any]]]:
    """Rows by (class, arm, block) of the valid runs: blocks 0 to 6."""
    manifest = json.loads((recorded / "manifest.json").read_text())
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for run in manifest["runs"]:
        if run["valid"] and run["block"] != 7:
            for row in naive_rows(recorded, run):
                key = (row["class"], run["arm"], run["block"])
                found.setdefault(key, []).append(row)
    return found


def test_percentile_disc_is_numpys_inverted_cdf(spark: SparkSession) -> None:
    """With ties and infinities, at sizes where a rounded rank would be off by one."""
    rng = np.random.default_rng(17)
    sizes = [1, 2, 19, 20, 21, 99, 100, 101, 999, 1000, 1001, 4999]
    parts = {n: rng.integers(0, 3 * n, n).astype(float) for n in sizes}
    for values in parts.values():
        values[rng.random(len(values)) < 0.004] = math.inf
    table = pa.table(
        {
            "size": np.concatenate([np.full(n, n) for n in sizes]),
            "value": np.concatenate(list(parts.values())),
        }
    )
    levels = ", ".join(f"{level!r}D" for level in LEVELS.values())
    found = (
        spark.createDataFrame(table)
        .groupBy("size")
        .agg(_expr(f"percentile_disc(array({levels})) WITHIN GROUP (ORDER BY value) q"))
        .toArrow()
        .to_pylist()
    )
    assert len(found) == len(sizes)
    for row in found:
        expected = np.quantile(
            parts[row["size"]], list(LEVELS.values()), method="inverted_cdf"
        )
        assert row["q"] == expected.tolist()


def _expr(sql: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(sql)


def test_cells_by_session_are_numpys(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    """Without planned sessions, each block is a session."""
    assert len(comparison.sessions) == len(comparison.cells)
    for cell in comparison.sessions.values():
        rows = {
            key[2]: rows
            for key, rows in naive.items()
            if key[:2] == (cell.class_name, cell.arm)
        }
        if cell.metric == "goodput_per_s":
            limit = 10.0 if cell.class_name == "control" else 1e12
            good = {
                block: sum(row["latency_ms"] <= limit for row in of) / 0.8
                for block, of in rows.items()
            }
            assert cell.values == pytest.approx(list(good.values()))
            continue
        latencies = {
            block: np.array([row["latency_ms"] for row in of])
            for block, of in rows.items()
        }
        assert cell == quantile_sessions(
            latencies,
            exact_quantile(LEVELS[cell.metric]),
            class_name=cell.class_name,
            arm=cell.arm,
            metric=cell.metric,
        )


def test_cpu_per_request_is_the_mean_service_time(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    found = [it for it in comparison.measures if it.metric.name == "cpu_us"]
    assert len(found) == 3 * 5
    for cell in found:
        costs = [
            np.mean([row["service_ns"] for row in rows if row["outcome"] == "ok"])
            for key, rows in naive.items()
            if key[:2] == (cell.class_name, cell.arm)
        ]
        assert cell.value is not None
        assert cell.value.value == pytest.approx(np.mean(costs) / 1e3)


def test_mean_phases_sum_to_the_mean_latency(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    for means in comparison.phases:
        latencies = np.array(
            [
                row["latency_ms"]
                for key, rows in naive.items()
                if key[:2] == (means.class_name, means.arm)
                for row in rows
            ]
        )
        if means.slowest:
            p99 = np.quantile(latencies, 0.99, method="inverted_cdf")
            latencies = latencies[latencies >= p99]
        latencies = latencies[np.isfinite(latencies)]
        assert means.requests == len(latencies)
        if len(latencies):
            total = math.fsum(means.means_ms.values())
            assert total == pytest.approx(np.mean(latencies))


def test_the_phenomenon_is_found_and_equal_arms_are_the_noise_floor(
    comparison: Comparison,
) -> None:
    for arm in ("planes", "priority", "wfq"):
        cell = comparison.cell("control", arm, "p99_ms")
        assert (cell.word, cell.secondary) == ("better", False)
        assert cell.contrast is not None
        assert cell.contrast.ratio.high < 0.5
        assert cell.sessions == len(cell.contrast.logs) == 7
        # Seven sessions with differences of one sign, in a family of three arms.
        assert cell.p_min == cell.contrast.p == 3 * 2 / 2**7
        again = comparison.cell("control", "fifo-again", "p99_ms")
        assert again.word == "A/A"
        assert again.noise == cell.noise


def test_lost_requests_leave_no_p99_but_cost_goodput(comparison: Comparison) -> None:
    p99 = comparison.cell("fetch", "wfq", "p99_ms")
    assert (p99.word, p99.ratio) == ("worse", (math.inf,) * 3)
    assert p99.value == (math.inf, 0.0, math.inf)
    p95 = comparison.cell("fetch", "wfq", "p95_ms")
    assert p95.value is not None
    assert math.isfinite(p95.value.value)
    # Seven sessions are too few for a family of nine.
    goodput = comparison.cell("fetch", "wfq", "goodput_per_s")
    assert goodput.ratio is not None
    assert goodput.ratio.high < 1
    assert goodput.why == "7 sessions give no p below 0.14; 0.05 is needed"


def test_thin_tails_are_refused(comparison: Comparison) -> None:
    cell = comparison.cell("fetch", "fifo", "p99.9_ms")
    assert "effective exceedances of p99.9" in cell.verdict
    assert (cell.word, cell.value) == ("refused", None)


def test_the_queue_is_followed_over_time(comparison: Comparison) -> None:
    assert {point.arm for point in comparison.queue} == {
        arm.name for arm in comparison.manifest.arms_compared
    }
    for point in comparison.queue:
        assert point.queued_low <= point.queued <= point.queued_high


def test_partitioning_changes_nothing(
    spark: SparkSession, recorded: Path, comparison: Comparison
) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    try:
        (again,) = compare(spark, load_manifest(recorded)).comparisons
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "4")
    assert again.cells == comparison.cells
    assert again.measures == comparison.measures
    assert again.phases == comparison.phases
    assert again.queue == comparison.queue


def test_the_window_cuts_the_warm_up_off_values_but_not_off_checks(
    spark: SparkSession, tmp_path: Path
) -> None:
    manifest = synthetic.write(
        tmp_path, blocks=1, seconds=0.2, arms=["fifo"], again=False
    )
    manifest["window_ns"] = [50_000_000, 150_000_000]
    synthetic.save(tmp_path, manifest)
    loaded = load_manifest(tmp_path)
    found = tally(first_pass(read_requests(spark, loaded), loaded), loaded)
    rows = naive_rows(tmp_path, manifest["runs"][0])
    for run in found:
        inside = [
            row["latency_ms"]
            for row in rows
            if row["class"] == run.class_name
            and 50_000_000 <= row["intended_ns"] < 150_000_000
        ]
        assert sum(run.counts.values()) == len(inside)
        total = math.fsum(run.phase_sums_ns.values()) / MS
        assert total == pytest.approx(math.fsum(inside))


@pytest.mark.parametrize(
    ("stamp", "value"),
    [("dequeued_ns", None), ("dequeued_ns", 0), ("suspended_ns", 10**12)],
)
def test_broken_phases_stop_the_analysis(
    spark: SparkSession,
    tmp_path: Path,
    stamp: str,
    value: int | None,
) -> None:
    """A stamp is missing or decreases, or the spent time exceeds the elapsed time."""
    manifest = synthetic.write(
        tmp_path, blocks=1, seconds=0.1, arms=["fifo"], again=False
    )
    run = manifest["runs"][0]
    trace = synthetic.make_trace(
        np.random.default_rng([1, 0]),
        0.1,
        {"control": 1500.0, "produce": 1200.0, "fetch": 300.0},
    )
    rows = synthetic.replay(trace, "fifo", np.random.default_rng(0))
    rows[stamp][3] = value
    synthetic.write_run(tmp_path, run, rows)
    loaded = load_manifest(tmp_path)
    with pytest.raises(RecordingError, match=r"fifo-t0.parquet: 1 answered requests"):
        tally(first_pass(read_requests(spark, loaded), loaded), loaded)
