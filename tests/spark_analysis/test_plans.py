"""Physical plans: one scan per pass, and no Python per row of a recording."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_analysis.recordings.exact_ranks import second_pass
from spark_analysis.recordings.fairness import fairness
from spark_analysis.recordings.latency_histogram import by_session, histograms, places
from spark_analysis.recordings.load import read_requests
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.paired_cost import medians_of_pairs
from spark_analysis.recordings.recovery import recoveries
from spark_analysis.recordings.tally import first_pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
# Spark's physical nodes for Python code: BatchEvalPython, ArrowEvalPython, MapInArrow,
# FlatMapGroupsInPandas, and the like.
PYTHON = re.compile(r"Python|InArrow|InPandas")


def plan_of(frame: DataFrame) -> str:
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


def hold(frame: DataFrame) -> None:
    plan = plan_of(frame)
    assert plan.count("FileScan parquet") == 1, plan
    assert not PYTHON.search(plan), plan


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_python_node_would_be_seen(spark: SparkSession) -> None:
    frame = spark.range(1).mapInArrow(lambda tables: tables, "id bigint")
    assert PYTHON.search(plan_of(frame))


def test_every_pass_is_one_scan_without_python(
    spark: SparkSession, recorded: Path
) -> None:
    manifest = load_manifest(recorded)
    options = replace(manifest.options, recovery_s=((0.1, 0.5),))
    manifest = replace(manifest, options=options)
    requests = read_requests(spark, manifest)
    window = requests.where("inside")
    counted = first_pass(requests, manifest)
    hold(counted)
    sessions = sorted({run.session for run in manifest.runs_compared})
    in_window = by_session(counted.where("inside"), sessions)
    found = histograms(in_window.toArrow(), sessions)
    wanted = [
        (number, place)
        for number, of in enumerate(found.values())
        for place in places(of, [Fraction(1, 2)])
    ]
    hold(second_pass(spark, window, found, wanted, {"n": "1"}))
    hold(medians_of_pairs(window, "fifo", ["planes", "wfq"]))
    hold(fairness(requests))
    hold(recoveries(spark, requests, manifest))


def test_counts_are_combined_before_the_shuffle(
    spark: SparkSession, recorded: Path
) -> None:
    manifest = load_manifest(recorded)
    plan = plan_of(first_pass(read_requests(spark, manifest), manifest))
    above, _, below = plan.partition("Exchange hashpartitioning")
    assert "partial_count" in below
    assert "partial_count" not in above
