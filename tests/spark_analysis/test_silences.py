"""A class without an answer, or without a request, is said to be so in words."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from spark_analysis.analyze import write_report
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.run_values import RunValue
from spark_analysis.judging.study import Study
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.telling.sentences.cautions import cautions
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.sweep_sentences import study_cautions
from spark_analysis.telling.sentences.verdict_sentences import sentence
from spark_analysis.telling.sentences.world_sentences import worlds_found
from tests.spark_analysis import elections, synthetic
from tests.spark_analysis.studies import comparison_of, manifest_of, study_of
from tests.spark_analysis.test_worlds import together
from tests.spark_analysis.world_studies import CALM, study_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BLOCKS = 6
RATES = {"control": 300.0, "produce": 300.0, "fetch": 300.0, "group": 0.0}


def lose(directory: Path, run: dict[str, Any], name: str) -> None:
    """Have no request of a class be answered in a run."""
    path = directory / run["requests"]
    table = pq.read_table(path)
    rows = {column: table[column].to_pylist() for column in table.column_names}
    for number, of in enumerate(rows["class"]):
        if of == name:
            rows["outcome"][number] = "timeout"
            rows["client_done_ns"][number] = None
            run["counts"]["timeout"] += 1
            run["counts"]["ok"] -= 1
    synthetic.write_run(directory, run, rows)


@pytest.fixture(scope="module")
def study(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Control is never answered under wfq, fetch not in block 2 under planes.

    Of the class group, which the manifest knows, there is no request.
    """
    from spark_analysis.judging.assembly import compare

    directory = tmp_path_factory.mktemp("silent")
    arms = ("fifo", "planes", "wfq")
    synthetic.API_KEYS.setdefault("group", 11)
    manifest = synthetic.write(
        directory,
        blocks=BLOCKS,
        seconds=0.3,
        rates={name: rate for name, rate in RATES.items() if rate},
        arms=arms,
        again=False,
    )
    manifest["classes"].append(dict(manifest["classes"][-1], **{"class": "group"}))
    for run in manifest["runs"]:
        if run["arm"] == "wfq":
            lose(directory, run, "control")
        if (run["arm"], run["block"]) == ("planes", 2):
            lose(directory, run, "fetch")
    synthetic.save(directory, manifest)
    return compare(spark, load_manifest(directory))


def test_every_silence_is_said_once(study: Study, tmp_path: Path) -> None:
    expected = (
        "No request of group falls into the time that is measured: nothing is said of "
        "it.",
        "No request of control got a good answer in time under wfq in any block: it "
        "has no latency there, and counts as infinitely late.",
        "No request of fetch got a good answer in time under planes in block 2: it has "
        "no latency there, and counts as infinitely late.",
    )
    assert study_cautions(study) == expected
    write_report(study, tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert [f"<p class='warning'>{text}</p>" in page for text in expected] == [True] * 3
    assert json.loads((tmp_path / "words.json").read_text())["cautions"] == [*expected]


def test_lost_goodput_is_not_called_finite(study: Study) -> None:
    (comparison,) = study.comparisons
    goodput = comparison.cell("control", "wfq", "goodput_per_s")
    assert goodput.verdict.word == "worse"
    told = sentence(comparison, goodput)
    assert told.startswith("The goodput of control is none instead of some under wfq (")


def made(blocks: int, *, silent: tuple[tuple[str, str], ...] = ()) -> Comparison:
    """Compare two arms; the (class, arm) in ``silent`` answer nothing in block 0."""
    manifest = manifest_of({"fifo": {}, "wfq": {}}, ["control", "produce"], blocks)
    noise = np.random.default_rng(5)
    values = {
        (name, arm): list(10 * np.exp(noise.normal(0, 0.01, blocks)))
        for name in ("control", "produce")
        for arm in ("fifo", "wfq")
    }
    for key in silent:
        values[key][0] = math.inf
    comparison = comparison_of(manifest, values)
    runs = tuple(
        replace(run, counts={"ok": 0, "timeout": 100}) if _lost(run) else run
        for run in comparison.run_values
    )
    return replace(comparison, run_values=runs)


def _lost(run: RunValue) -> bool:
    return math.inf in run.values.values()


def test_arms_of_a_class_share_a_sentence() -> None:
    found = cautions(made(8, silent=(("control", "fifo"), ("control", "wfq"))))
    assert found == (
        "No request of control got a good answer in time under fifo in block 0 and "
        "wfq in block 0: it has no latency there, and counts as infinitely late.",
    )


def test_a_class_that_is_missing_from_a_block_is_said_to_be() -> None:
    comparison = made(8)
    runs = tuple(
        run
        for run in comparison.run_values
        if (run.class_name, run.block) != ("produce", 3)
    )
    assert cautions(replace(comparison, run_values=runs)) == (
        "No request of produce came in block 3: it is told, and compared, by 7 of 8 "
        "blocks.",
    )


def test_points_of_a_sweep_are_told_together() -> None:
    points = []
    for number in range(5):
        silent = (("produce", "wfq"),) if number else ()
        comparison = made(8, silent=silent)
        point = replace(
            comparison.manifest.point, name=f"load={number}", levels={"load": "x"}
        )
        manifest = replace(comparison.manifest, points=(point,))
        points.append(replace(comparison, manifest=manifest))
    late = "it has no latency there, and counts as infinitely late."
    many, few = study_of(points), study_of(points[:3])
    assert study_cautions(many) == (
        "No request of produce got a good answer in time under wfq in some block at 4 "
        f"of 5 points: {late}",
    )
    assert study_cautions(few) == (
        "No request of produce got a good answer in time under wfq in some block at "
        f"load=1 and load=2: {late}",
    )


# ---- too few blocks ----


def test_one_block_is_said_to_decide_nothing() -> None:
    comparison = made(1)
    assert cautions(comparison) == (
        "With 1 complete block nothing can be tested, and no interval has ends: every "
        "verdict is inconclusive, and none means sameness.",
    )
    cell = comparison.cell("control", "wfq", "p99_ms")
    assert cell.verdict.word == "inconclusive"
    assert sentence(comparison, cell).endswith(". With 1 block nothing can be tested.")


def test_a_world_with_too_few_blocks_is_said_to_have_too_few() -> None:
    worlds = together(
        study_in("virtual", {"planes": 0.2}),
        study_in("live", {"planes": 0.2}, CALM[:1], blocks=1),
    )
    assert worlds_found(worlds)[0] == (
        "The live world has 1 complete block, too few to decide the p99 latency of "
        "control under any arm: there the answer stands on the virtual world."
    )


def test_an_election_seen_too_seldom_shows_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    from spark_analysis.incidents.judging import judge_incident

    elections.written(tmp_path, "virtual", elections.step_down_ms)
    manifest = load_manifest(tmp_path)
    incident = judge_incident(
        spark, replace(manifest, runs=tuple(r for r in manifest.runs if not r.block))
    )
    assert incident is not None
    assert incident_lead(incident)[0] == (
        "With 1 complete incident no difference can be shown, and none means sameness."
    )
