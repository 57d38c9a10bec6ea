"""The cost ratio of identical requests detects a known difference in machine speed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.recordings.manifest import load_manifest
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 20
# Slowdown of the machine under each arm, relative to the baseline.
SLOWER = {"fifo": 1.0, "planes": 1.3, "fifo-again": 1.0}
UNANSWERED, UNRECORDED = 5, 3


def write(directory: Path) -> None:
    """Write rounds whose speed differs by arm, with noise by episode and request.

    In round 0 the first requests under planes have no response. In round 1 the last
    ones of the baseline have no recorded cost.
    """
    manifest = synthetic.write(
        directory, blocks=ROUNDS, seconds=0.05, arms=("fifo", "planes")
    )
    rng = np.random.default_rng(5)
    for run in manifest["runs"]:
        path = directory / run["requests"]
        table = pq.read_table(path)
        speed = SLOWER[run["arm"]] * rng.lognormal(0, 0.05)
        strayed = rng.lognormal(0, 0.3, len(table)) * speed
        cost = np.round(table["service_ns"].to_numpy() * strayed).astype(np.int64)
        unrecorded = np.zeros(len(table), bool)
        if (run["block"], run["arm"]) == (1, "fifo"):
            unrecorded[-UNRECORDED:] = True
        table = _with(table, "service_ns", pa.array(cost, mask=unrecorded))
        if (run["block"], run["arm"]) == (0, "planes"):
            outcome = table["outcome"].to_pylist()
            outcome[:UNANSWERED] = ["timeout"] * UNANSWERED
            table = _with(table, "outcome", pa.array(outcome))
            run["counts"]["ok"] -= UNANSWERED
            run["counts"]["timeout"] += UNANSWERED
        pq.write_table(table, path)
        run["probes_ns"] = [round(speed * 1_000_000)] * 2
    synthetic.save(directory, manifest)


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    field = table.schema.field(name)
    place = table.schema.get_field_index(name)
    return table.set_column(place, field, column.cast(field.type))


@pytest.fixture(scope="module")
def recorded_rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rounds")
    write(directory)
    return directory


@pytest.fixture(scope="module")
def study(spark: SparkSession, recorded_rounds: Path) -> Study:
    return compare(spark, load_manifest(recorded_rounds))


def naive(directory: Path, arm: str, block: int) -> float:
    """Return a round's median ratio, by joining two files request by request."""
    sides = []
    for name in ("fifo", arm):
        path = directory / f"requests/b{block:03d}-{name}-t0.parquet"
        rows = pq.read_table(path).to_pandas()
        rows = rows[(rows["outcome"] == "ok") & rows["service_ns"].notna()]
        sides.append(rows.set_index("request_id")["service_ns"])
    both = pd.concat(sides, axis=1, join="inner").to_numpy()
    return float(np.exp(np.median(np.log(both[:, 1] / both[:, 0]))))


@pytest.mark.spark
def test_a_known_difference_in_speed_is_found(
    study: Study, recorded_rounds: Path
) -> None:
    (comparison,) = study.comparisons
    planes, again = comparison.paired_costs
    assert (planes.arm, again.arm) == ("planes", "fifo-again")
    for of in (planes, again):
        # Buckets are 0.01 % wide; the median of an even count is the lower one.
        assert of.ratios == pytest.approx(
            {block: naive(recorded_rounds, of.arm, block) for block in range(ROUNDS)},
            rel=0.02,
        )
        assert of.ratio.low <= SLOWER[of.arm] <= of.ratio.high
        assert of.ratio.high / of.ratio.low < 1.1


@pytest.mark.spark
def test_requests_without_an_answer_or_a_cost_are_left_out_and_counted(
    study: Study,
) -> None:
    (comparison,) = study.comparisons
    sent = sum(
        run.counts["sent"] for run in comparison.manifest.runs if run.arm == "fifo"
    )
    planes, again = comparison.paired_costs
    assert planes.left_out == UNANSWERED + UNRECORDED
    assert again.left_out == UNRECORDED
    assert planes.pairs + planes.left_out == again.pairs + again.left_out == sent
