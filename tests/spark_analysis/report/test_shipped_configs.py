"""Every shipped config, run small in a computed world: its report and its paper."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from experiments.design.config import Experiment, parse
from experiments.design.trace_windows import with_trace
from experiments.running.launching import run_experiment
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.report.paper import build
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.writing import write_report
from tests.experiments.unwatched import Unwatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONFIGS = sorted(Path("experiments/configs").glob("*.toml"))
QUICKSTART = Path("experiments/configs/quickstart.toml")
BLOCKS, DURATION_S = 2, 0.5

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def small(config: Path) -> Experiment:
    """Return a config with two blocks, short runs, and few levels of each factor."""
    content: dict[str, Any] = tomllib.loads(config.read_text())
    header, workload = content["experiment"], content["workload"]
    for traffic in workload["traffic"]:
        if "start_s" in traffic:
            traffic["start_s"] *= DURATION_S / workload["duration_s"]
        if "stop_s" in traffic:
            traffic["stop_s"] *= DURATION_S / workload["duration_s"]
    if "sessions" in content:
        # The costs of requests, as a live run would measure them first.
        content.setdefault("nominal", tomllib.loads(QUICKSTART.read_text())["nominal"])
        content["sessions"] |= {"count": BLOCKS, "rounds": 1}
        header["world"] = "virtual"
    else:
        header["blocks"] = BLOCKS
    if "cluster" not in content and "trace" not in workload:
        scale = min(1.0, DURATION_S / workload["duration_s"])
        for name in ("duration_s", "warmup_s"):
            if name in workload:
                workload[name] *= scale
    sweep = content.get("sweep", {})
    for factor in sweep.get("factors", ()):
        del factor["levels"][2:]
    if sweep.get("design") == "bisection":
        sweep |= {"levels": [0.5, 1.2], "steps": 1}
    return with_trace(parse(content), config)


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
