"""Capacity at a latency objective by bisection, against the closed form of M/M/1.

The sojourn time T of M/M/1 (FIFO) has P(T > t) = exp(-(mu - l) t). A share p of the
requests is answered within t if and only if l <= mu + ln(1 - p) / t.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.design.config import parse
from experiments.running.launching import run_experiment
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.report.figures.listing import plots
from spark_analysis.report.results import results_of
from tests.experiments.unwatched import Unwatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
MU_PER_S, SLO_S, SHARE = 1000.0, 0.02, 0.99
CONTENT = {
    "experiment": {
        "name": "mm1",
        "seed": 5,
        "blocks": 4,
        "baseline": "fifo",
        "again": False,
        "world": "model",
    },
    "workload": {
        "duration_s": 16.0,
        "warmup_s": 1.0,
        "traffic": [
            {
                "name": "data",
                "class": "data",
                "connections": 400,
                "clients": 4,
                "arrivals": {"kind": "poisson", "rate_per_s": MU_PER_S},
                "request": {"api": "produce"},
                "service": {"kind": "exponential", "mean_us": 1e6 / MU_PER_S},
                "slo_ms": SLO_S * 1e3,
            }
        ],
    },
    "model": {"server": "seats"},
    "broker": {"set": {"queued.max.requests": 500, "num.io.threads": 1}},
    "arms": [{"name": "fifo", "scheduler": "fifo"}],
    "analysis": {"slo_share": SHARE, "fairness_window_ms": 50.0},
    "sweep": {
        "design": "bisection",
        "class": "data",
        "levels": [0.4, 1.0],
        "scale": ["workload.traffic.data.arrivals.rate_per_s"],
        "steps": 4,
    },
}


def test_the_capacity_of_mm1_is_the_closed_form(
    spark: SparkSession, tmp_path: Path
) -> None:
    run_experiment(
        parse(CONTENT), tmp_path, Unwatched(), resume=False, executor="sequential"
    )
    study = compare(spark, load_manifest(tmp_path))
    expected = 1 + math.log(1 - SHARE) / SLO_S / MU_PER_S
    (cell,) = study.capacities
    assert cell.value is not None
    assert cell.sessions == 4
    assert cell.value.value == pytest.approx(expected, abs=0.02)
    found = results_of(hold_together([study], {}), {})
    assert [plot.name for plot in plots(found)][:1] == ["curves-model"]
    (row,) = (row for row in found["measures"] if row["metric"] == "capacity")
    assert (row["point"], row["value"]) == ("", cell.value.value)
    # Flows of one FIFO queue: fair overall, but not in every window.
    indices = [row for row in found["measures"] if row["metric"] == "jain"]
    assert len(indices) == len(study.comparisons)
    assert all(0.5 < (row["value"] or 0) <= 1 for row in indices)
