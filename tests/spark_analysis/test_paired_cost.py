"""The cost of identical requests finds a known difference in the machine's speed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_analysis.analyze import write_report
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Episodes
from spark_analysis.recordings.machine_speed import loop_ratio
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.sentences.cost_sentences import cost_sentences
from tests.spark_analysis import studies, synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 20
# By how much the machine is slower under an arm than under the baseline.
SLOWER = {"fifo": 1.0, "planes": 1.3, "fifo-again": 1.0}
UNANSWERED, UNRECORDED = 5, 3


def write(directory: Path) -> None:
    """Write rounds in which speed differs by arm, and strays by episode and request.

    In round 0 the first requests under planes are never answered, in round 1 the last
    of the baseline's have no recorded cost.
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
    """Return a round's median ratio, by merging two files request by request."""
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
        assert of.ratios == pytest.approx(
            {block: naive(recorded_rounds, of.arm, block) for block in range(ROUNDS)}
        )
        logs = np.log(list(of.ratios.values()))
        assert of.ratio.value == pytest.approx(np.exp(np.mean(logs)))
        assert of.ratio.low <= SLOWER[of.arm] <= of.ratio.high
        assert of.ratio.high / of.ratio.low < 1.1
        loop = loop_ratio(comparison.manifest, of.arm)
        assert loop is not None
        # Both witnesses saw the same machine: its strayings are in both.
        assert of.ratio.value == pytest.approx(loop.value, rel=0.03)


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


@pytest.mark.spark
def test_the_report_shows_both_witnesses(study: Study, tmp_path: Path) -> None:
    rounds = _in_rounds(study.comparisons[0], 1.5)
    write_report(
        replace(study, comparisons=(rounds,), manifest=rounds.manifest), tmp_path
    )
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "By it, no arm differed by more than a factor 1.5." in page
    assert "How much slower the machine was than under fifo" in page
    figure = (tmp_path / "figures" / "speed.svg").read_text(encoding="utf-8")
    assert "cost of requests / fifo" in figure
    rows = json.loads((tmp_path / "results.json").read_text())["paired_costs"]
    (planes,) = (row for row in rows if row["arm"] == "planes")
    assert planes["ratio_low"] < 1.3 < planes["ratio_high"]
    assert len(planes["by_block"]) == ROUNDS
    assert planes["loop_ratio"] == pytest.approx(planes["ratio"], rel=0.03)
    assert planes["left_out"] == UNANSWERED + UNRECORDED


def _in_rounds(comparison: Comparison, band: float) -> Comparison:
    episodes = Episodes(
        primary="control",
        quantile=comparison.metrics[0].quantile or studies.OPTIONS.quantiles[0],
        precision=0.1,
        rounds_min=20,
        minutes=3.0,
        speed_band=band,
        looks=(),
    )
    return replace(comparison, manifest=replace(comparison.manifest, episodes=episodes))


def made(costs: Sequence[tuple[str, float, float, float]]) -> Comparison:
    """Return a comparison in four rounds, of arms with a ratio and its interval."""
    arms: dict[str, dict[str, str]] = {"fifo": {}, **{arm: {} for arm, *_ in costs}}
    values = {("control", arm): [1.0, 1.1, 1.2, 1.3] for arm in arms}
    manifest = studies.manifest_of(arms, ("control",), 4, world="live")
    found = tuple(
        PairedCost(
            arm=arm,
            ratio=Estimate(value, low, high),
            ratios={0: low, 1: value, 2: value, 3: high},
            pairs=100,
            left_out=2,
        )
        for arm, value, low, high in costs
    )
    compared = replace(studies.comparison_of(manifest, values), paired_costs=found)
    return _in_rounds(compared, 1.25)


@pytest.mark.parametrize(
    ("costs", "said"),
    [
        ([("wfq", 1.02, 0.9, 1.1)], "no arm differed by more than a factor 1.25. In 0"),
        (
            [("wfq", 0.6, 0.5, 0.7)],
            "wfq differed by more than a factor 1.25. In 4 of 4",
        ),
        (
            [("wfq", 1.2, 1.1, 1.4)],
            "whether wfq differed by more than a factor 1.25 is not decided. In 1 of 4",
        ),
        (
            [("a", 1.5, 1.3, 1.7), ("b", 1.0, 0.7, 1.4), ("c", 1.0, 0.9, 1.1)],
            "a differed by more than a factor 1.25, whether b differed by more than a "
            "factor 1.25 is not decided, c did not. In 4 of 4 rounds",
        ),
    ],
)
def test_arms_are_held_against_the_band(
    costs: Sequence[tuple[str, float, float, float]], said: str
) -> None:
    first, second = cost_sentences(made(costs))
    assert f"over {100 * len(costs)} pairs; {2 * len(costs)} were left out" in first
    assert second.startswith(f"By it, {said}")
    assert second.endswith("for the loop alone decides.")


def test_nothing_is_said_where_no_cost_is_known() -> None:
    assert cost_sentences(replace(made(()), paired_costs=())) == ()
