"""Rounds of episodes, judged: pooled quantiles, the rule, and what the machine did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_analysis.analyze import write_report
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.machine_speed import steadiness
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.telling.sentences.machine_sentences import (
    machine_cautions,
    reasons_sentence,
    steadiness_sentence,
)
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
    """Write rounds of a tenth of a second, an arm's in one file; one was repeated."""
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
        ("produce", "p95_ms", 0.95),
    ):
        base, arm = (
            pooled(recorded_rounds, name, it, level) for it in ("fifo", "planes")
        )
        cell = comparison.cell(name, "planes", metric)
        assert cell.contrast is not None
        assert cell.measured.estimate.value == pytest.approx(arm)
        assert cell.contrast.ratio.value == pytest.approx(arm / base)
        assert comparison.typical(name, "planes", cell.metric) == pytest.approx(arm)
    control = comparison.cell("control", "planes", "p95_ms")
    assert control.verdict.word == "better"
    assert control.contrast is not None
    assert control.contrast.blocks == ROUNDS


@pytest.mark.spark
def test_the_page_tells_the_unit_the_rule_and_the_machine(
    study: Study, tmp_path: Path
) -> None:
    write_report(study, tmp_path)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "The unit is the round" in page
    assert "the p95 ratio of control reached no further than a factor 1.1" in page
    assert "30 rounds: widest a factor 1.08, narrow enough" in page
    assert "0 of 30 rounds do not count" in page
    assert "4 episodes were dealt again for that" in page
    assert " over all rounds" in page
    assert "in a typical run" not in page
    assert (tmp_path / "figures" / "speed.svg").exists()
    assert not (tmp_path / "figures" / "drift.svg").exists()


def test_how_steady_the_machine_was(recorded_rounds: Path) -> None:
    found = steadiness(load_manifest(recorded_rounds))
    assert found is not None
    assert (found.rounds_played, found.rounds_spoiled) == (ROUNDS, 0)
    assert found.dealt_again == 4
    assert found.slowest == pytest.approx(2.0)
    assert 0 < found.spread < 0.005
    said = steadiness_sentence(load_manifest(recorded_rounds))
    assert said.startswith("A fixed loop on the brokers' CPU took up to 2.00 times")
    assert said.endswith(
        f"0 of {ROUNDS} rounds do not count, for there some arm had no episode in "
        "which it was what it is in quiet, to within a factor 1.22, and elsewhere 4 "
        "episodes were dealt again for that."
    )


def test_how_steady_the_machine_was_asked_to_be_for_a_while(
    recorded_rounds: Path,
) -> None:
    manifest = load_manifest(recorded_rounds)
    assert manifest.episodes is not None
    assert manifest.episodes.slowest_band is None
    asked = replace(manifest.episodes, slowest_band=1.2)
    said = steadiness_sentence(replace(manifest, episodes=asked))
    assert "to within a factor 1.22 (and 1.20 for a few milliseconds of it)" in said


def test_what_does_not_count_is_counted_by_its_reason(recorded_rounds: Path) -> None:
    found = reasons_sentence(load_manifest(recorded_rounds))
    assert found == "Not compared: 4 episodes (machine unsteady)"


@pytest.mark.spark
def test_neighbours_thieves_and_a_late_generator_are_told(study: Study) -> None:
    (comparison,) = study.comparisons
    assert machine_cautions(comparison) == ()
    runs = tuple(
        replace(
            run,
            machine={"watched_s": 0.2, "steal_s": 0.00287, "others_s": 0.1},
            lateness_p99_by_class_ns=_late(run.arm),
        )
        for run in comparison.manifest.runs
    )
    disturbed = replace(comparison, manifest=_with(comparison.manifest, runs))
    stolen, shared, late = (
        said.replace("\u202f", " ") for said in machine_cautions(disturbed)
    )
    assert stolen.startswith("The host gave 1.4 % of the broker's CPU")
    assert shared.startswith("Others had the broker's CPU for 50 % of the time")
    assert "control under planes (5.00 ms late" in late
    assert "control under priority" not in late


def _late(arm: str) -> Mapping[str, int]:
    return {"control": 5 * MS if arm == "planes" else 20_000}


def _with(manifest: Manifest, runs: Any) -> Manifest:
    return replace(manifest, runs=runs)


def test_a_manifest_of_long_runs_has_no_episodes(tmp_path: Path) -> None:
    synthetic.write(tmp_path, blocks=2, seconds=0.05)
    manifest = load_manifest(tmp_path)
    assert manifest.episodes is None
    assert steadiness(manifest) is None
    raw = json.loads((tmp_path / "manifest.json").read_text())
    assert "episodes" not in raw["config"]


def test_blocks_of_long_runs_that_were_repeated_are_told(tmp_path: Path) -> None:
    """Block 1 was spoiled once; an arm of block 0 was repeated for another reason."""
    synthetic.write(tmp_path, blocks=2, seconds=0.05)
    whole = load_manifest(tmp_path)
    assert steadiness_sentence(whole) == ""
    timed = [replace(run, probes_ns=(MS, MS)) for run in whole.runs]
    spoiled = [
        replace(
            run,
            run_id=f"{run.run_id}-spoiled",
            valid=False,
            reason="machine unsteady: ...",
            probes_ns=(4 * MS, 4 * MS) if run.arm == "wfq" else (MS, MS),
        )
        for run in whole.runs
        if run.block == 1
    ]
    failed = replace(timed[0], run_id="failed", valid=False, reason="broker died")
    manifest = replace(
        whole,
        runs=(*timed, *spoiled, failed),
        config={**whole.config, "limits": {"speed_band": 2.0}},
    )
    found = steadiness(manifest)
    assert found is not None
    assert (found.rounds_played, found.rounds_spoiled) == (3, 1)
    assert found.spread == 0
    said = steadiness_sentence(manifest)
    assert "took up to 4.00 times as long" in said
    assert said.endswith(
        "1 of 3 blocks does not count, for there it differed between arms by more than "
        "a factor 2."
    )
