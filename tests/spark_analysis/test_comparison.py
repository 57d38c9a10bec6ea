"""The comparison by Spark against the same recordings read and computed naively."""

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
    """Rows by (class, arm, block) of the runs that count: blocks 0 to 6."""
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


def test_quantiles_of_every_run_are_numpys(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    assert len(comparison.run_values) == len(naive) == 3 * 5 * 7
    for run in comparison.run_values:
        rows = naive[run.class_name, run.arm, run.block]
        latencies = [row["latency_ms"] for row in rows]
        for name, level in LEVELS.items():
            expected = np.quantile(latencies, level, method="inverted_cdf")
            assert run.values[name] == expected
        assert sum(run.counts.values()) == len(rows)


def test_pooled_quantiles_are_numpys_over_all_blocks(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    for cell in comparison.cells:
        if cell.metric.quantile is None:
            continue
        pooled = [
            row["latency_ms"]
            for key, rows in naive.items()
            if key[:2] == (cell.class_name, cell.arm)
            for row in rows
        ]
        level = LEVELS[cell.metric.name]
        expected = np.quantile(pooled, level, method="inverted_cdf")
        assert cell.measured.estimate.value == expected
        assert cell.measured.requests == len(pooled)
        low, high = cell.measured.estimate[1:]
        assert low <= cell.measured.estimate.value <= high


def test_cells_by_session_are_numpys(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    """Without planned sessions a block is a session."""
    assert len(comparison.cell_sessions) == len(comparison.cells)
    for cell in comparison.cell_sessions:
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
            assert cell.pooled == pytest.approx(np.mean(list(good.values())))
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
    assert len(comparison.cpu_sessions) == 3 * 5
    for cell in comparison.cpu_sessions:
        costs = {
            key[2]: [row["service_ns"] for row in rows if row["outcome"] == "ok"]
            for key, rows in naive.items()
            if key[:2] == (cell.class_name, cell.arm)
        }
        assert cell.values == pytest.approx(
            [np.mean(of) / 1e3 for of in costs.values()]
        )
        rest = [cost for block, of in costs.items() if block != 0 for cost in of]
        assert cell.without[0] == pytest.approx(np.mean(rest) / 1e3)


def test_goodput_counts_answers_within_the_objective(
    comparison: Comparison, naive: dict[tuple[str, str, int], list[dict[str, Any]]]
) -> None:
    """Control has an objective of 10 ms; the window is 0.8 s."""
    for run in comparison.run_values:
        rows = naive[run.class_name, run.arm, run.block]
        limit = 10.0 if run.class_name == "control" else 1e12
        good = sum(row["latency_ms"] <= limit for row in rows)
        assert run.values["goodput_per_s"] == pytest.approx(good / 0.8)


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


def test_the_phenomenon_is_found_and_identical_arms_are_not_told_apart(
    comparison: Comparison,
) -> None:
    for arm in ("planes", "priority", "wfq"):
        cell = comparison.cell("control", arm, "p95_ms")
        assert cell.verdict.word == "better"
        assert cell.contrast is not None
        assert cell.contrast.ratio.high < 0.5
        assert cell.contrast.p == 2 / 2**7
        assert cell.contrast.blocks_lower == 7
        assert cell.pooled_ratio is not None
        assert cell.pooled_ratio.high < 0.5
    again = [c.verdict.word for c in comparison.of_arm("fifo-again")]
    assert not {"better", "worse"} & set(again)


def test_lost_requests_leave_no_p99_but_cost_goodput(comparison: Comparison) -> None:
    p99 = comparison.cell("fetch", "wfq", "p99_ms")
    assert p99.verdict.text == "worse"
    assert p99.withheld.startswith("2.")
    assert p99.estimate is None
    assert p99.measured.estimate.value == math.inf
    assert math.isfinite(comparison.cell("fetch", "wfq", "p95_ms").measured.estimate[0])
    assert comparison.cell("fetch", "wfq", "goodput_per_s").verdict.word == "worse"


def test_thin_tails_are_refused(comparison: Comparison) -> None:
    cell = comparison.cell("fetch", "fifo", "p99.9_ms")
    assert cell.refused
    assert "beyond p99.9" in cell.verdict.why


def test_the_queue_is_followed_over_time(comparison: Comparison) -> None:
    assert {point.arm for point in comparison.queue} == set(comparison.arm_names)
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
    assert again.run_values == comparison.run_values
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
    """A stamp is missing, runs backwards, or more time was spent than passed."""
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
