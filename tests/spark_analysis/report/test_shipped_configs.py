"""Report and paper of every shipped config, run on a small scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from experiments.running.launching import run_experiment
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.report.paper import build
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.writing import write_report
from tests.experiments.shipped_configs import CONFIGS, small
from tests.experiments.unwatched import Unwatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("config", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_a_small_run_has_a_report_and_a_paper(
    config: Path, spark: SparkSession, tmp_path: Path
) -> None:
    missing = run_experiment(
        small(config), tmp_path, Unwatched(), resume=False, executor="sequential"
    )
    assert not missing
    manifest = load_manifest(tmp_path)
    worlds = hold_together([compare(spark, manifest)], {})
    incident = judge_incident(spark, manifest)
    incidents = {} if incident is None else {manifest.world: incident}
    found = results_of(worlds, incidents)
    write_report(found, list(run_rows(worlds)), tmp_path / "report")
    build(tmp_path, tmp_path / "paper.pdf")
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")
