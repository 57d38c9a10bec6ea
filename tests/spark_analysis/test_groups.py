"""What Spark calls per group, called without Spark."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_analysis.judging.group_functions import (
    describe_distribution,
    judge_family,
)
from spark_analysis.judging.run_values import Key, RunValue, logs_by_block
from spark_analysis.statistics.sign_flip import max_t

QUANTILES = (Fraction(1, 2), Fraction(99, 100))


@pytest.fixture
def requests() -> pa.Table:
    rng = np.random.default_rng(3)
    count = 4000
    return pa.table(
        {
            "point_index": np.zeros(count, np.int64),
            "class": ["control"] * count,
            "arm": ["wfq"] * count,
            "block": rng.integers(0, 8, count),
            "intended_ns": rng.integers(0, 10**9, count),
            "latency_ns": rng.exponential(1e6, count).round(),
        }
    )


def describe(table: pa.Table) -> dict[str, Any]:
    found = describe_distribution(
        table, quantiles=QUANTILES, confidence=0.95, resamples=50, seed=4
    )
    assert found.num_rows == 1
    row: dict[str, Any] = found.to_pylist()[0]
    return row


def test_a_distribution_is_described_by_numpy(requests: pa.Table) -> None:
    row = describe(requests)
    values = requests["latency_ns"].to_numpy()
    assert row["requests"] == 4000
    expected = np.quantile(values, [0.5, 0.99], method="inverted_cdf")
    assert row["value"] == expected.tolist()
    assert row["exceedances"] == [2000, 40]
    block = requests["block"].to_numpy()
    of_runs = [
        np.quantile(values[block == b], 0.99, method="inverted_cdf") for b in range(8)
    ]
    assert row["blocks"] == list(range(8))
    assert row["of_runs"][1] == of_runs
    assert [len(column) for column in row["resampled"]] == [50, 50]
    assert row["curve_ns"][-1] == values.max()
    assert row["curve_share"][-1] == 1 / 4000


def test_the_order_of_rows_changes_nothing(requests: pa.Table) -> None:
    shuffled = requests.take(np.random.default_rng(1).permutation(4000))
    assert describe(shuffled) == describe(requests)


def test_clustering_is_seen_in_order_of_arrival_only() -> None:
    """The slow tenth comes in one piece of each block by time, and not by row."""
    count = 2000
    arrival = np.random.default_rng(9).permutation(count)
    table = pa.table(
        {
            "point_index": np.zeros(count, np.int64),
            "class": ["control"] * count,
            "arm": ["wfq"] * count,
            "block": np.zeros(count, np.int64),
            "intended_ns": arrival,
            "latency_ns": np.where(arrival < 200, 9.0, 1.0) + arrival * 1e-6,
        }
    )
    found = describe_distribution(
        table, quantiles=(Fraction(9, 10),), confidence=0.95, resamples=10, seed=1
    ).to_pylist()[0]
    assert found["vif"][0] > 100
    assert found["effective"][0] < 2


def family(values: dict[str, list[float]], baseline: str = "fifo") -> dict[str, Any]:
    """Contrast arms of one class; each list holds the blocks' values."""
    runs = [
        RunValue(
            class_name="control", arm=arm, block=block, counts={}, values={"p99_ms": v}
        )
        for arm, column in values.items()
        for block, v in enumerate(column)
        if not math.isnan(v)
    ]
    rows = [
        {
            "point_index": 0,
            "metric": "p99_ms",
            "class": "control",
            "arm": arm,
            "block": block,
            "log_ratio": log,
        }
        for arm in values
        if arm != baseline
        for block, log in logs_by_block(
            runs, Key("control", arm), baseline, "p99_ms"
        ).items()
    ]
    table = judge_family(
        pa.Table.from_pylist(rows), margins={"p99_ms": 0.05}, confidence=0.95, seed=1
    )
    return {row["arm"]: row for row in table.to_pylist()}


def test_contrasts_are_geometric_means_over_blocks() -> None:
    found = family({"fifo": [1.0, 2.0, 4.0, 8.0], "wfq": [0.5, 1.0, 1.0, 4.0]})["wfq"]
    assert found["value"] == pytest.approx((0.5 * 0.5 * 0.25 * 0.5) ** 0.25)
    assert found["low"] < found["value"] < found["high"]
    assert (found["blocks_lower"], found["blocks_tied"], found["blocks"]) == (4, 0, 4)
    # Walsh averages of three logs of 1/2 and one of 1/4: six of ten are log 1/2.
    assert found["shift"] == pytest.approx(0.5)


def test_p_values_belong_to_the_whole_family() -> None:
    rng = np.random.default_rng(5)
    base = rng.exponential(size=8) + 1
    values = {f"arm{n}": list(base * np.exp(rng.normal(0.1, 0.2, 8))) for n in range(5)}
    found = family({"fifo": list(base), **values})
    logs = np.column_stack([np.log(np.array(values[arm]) / base) for arm in values])
    assert [found[arm]["p"] for arm in values] == max_t(logs).tolist()


def test_an_arm_that_always_answers_beats_one_that_does_not() -> None:
    lost = [math.inf] * 8
    found = family({"fifo": lost, "wfq": [1.0] * 8, "again": lost})
    assert found["wfq"]["value"] == found["wfq"]["high"] == 0.0
    assert found["wfq"]["p"] == 2 / 256
    assert found["again"]["value"] == 1.0
    assert found["again"]["blocks_tied"] == 8


def test_no_goodput_at_all_is_a_tie_or_a_loss() -> None:
    found = family({"fifo": [5.0] * 6, "dead": [0.0] * 6})
    assert found["dead"]["value"] == 0.0
    assert found["dead"]["blocks_lower"] == 6


def test_a_class_without_requests_in_a_block_is_compared_in_the_others() -> None:
    gap = math.nan
    found = family({"fifo": [1.0, 2.0, gap, 3.0], "wfq": [2.0, 4.0, gap, 6.0]})["wfq"]
    assert found["blocks"] == 3
    assert found["value"] == pytest.approx(2.0)
