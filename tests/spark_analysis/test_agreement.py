"""More than two worlds, and theory: one table, a sentence for every disagreement."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from spark_analysis.judging.worlds import Worlds, hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.theory import Theory, TheoryRow, load_theory
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.results import results_of_worlds
from spark_analysis.telling.sentences.agreement_sentences import agreement_sentences
from spark_analysis.telling.tables.agreement_table import (
    agreement_tables,
    orders_table,
    ratios_table,
    theory_table,
)
from tests.spark_analysis.world_studies import study_in


def five() -> Worlds:
    """Three worlds of five see planes ahead of wfq, one the other way round."""
    ratios = {"planes": 0.2, "wfq": 0.5}
    return hold_together(
        [
            study_in("kafka", {"planes": 0.1}),
            study_in("live", {"planes": 0.5, "wfq": 0.2}),
            study_in("kraft", {}),
            study_in("model", ratios),
            study_in("virtual", ratios),
        ],
        {},
        Theory(
            margin=0.25,
            rows=tuple(
                TheoryRow(
                    world=world,
                    arm="planes",
                    class_name="control",
                    predicted=0.2,
                    measured=Estimate(found, found * 0.95, found * 1.05),
                    verdict=verdict,
                )
                for world, found, verdict in (
                    ("model", 0.21, "agrees"),
                    ("kafka", 0.1, "differs"),
                )
            ),
        ),
    )


def test_every_two_worlds_are_held_together_and_every_disagreement_is_told() -> None:
    worlds = five()
    table = ratios_table(worlds)
    assert len(table.rows) == 4
    of_control = {row[1]: row for row in table.written() if row[0] == "control"}
    assert of_control["planes"][-1] == (
        "agree: virtual & model; size differs: virtual & live, virtual & kafka, "
        "model & live, model & kafka, live & kafka"
    )
    said = agreement_sentences(worlds)
    assert said[0] == (
        "Of 18 ratios of p99 to fifo asked of two worlds, 11 are the same to within "
        "25\u202f%, 7 are not, and 0 are open."
    )
    assert (
        "The p99 latency of control under planes is 5.0 times lower in the virtual "
        "world and 10 times lower in the kafka one: the second ratio is 0.500 "
        "(0.500–0.500) of the first."
    ) in said
    assert (
        "For control, planes is ahead of wfq in the virtual world and behind it in the "
        "live one."
    ) in said
    assert said[-2:] == (
        "Of 2 ratios of mean latencies that theory knows, worlds meet 1 to within "
        "25\u202f%, miss 1, and leave 0 open.",
        "Theory has the mean latency of control under planes at 0.200 of fifo's; in "
        "the kafka world it is 0.100 (0.0950–0.105).",
    )


def test_the_order_of_arms_is_told_for_each_world_that_has_rivals() -> None:
    orders = orders_table(five()).written()
    assert [row for row in orders if row[0] == "control"] == [
        ["control", "virtual", "planes | wfq, fifo"],
        ["control", "model", "planes | wfq, fifo"],
        ["control", "live", "wfq | planes, fifo"],
        ["control", "kafka", "planes | fifo"],
    ]


def test_theory_stands_beside_each_world_that_it_was_held_against() -> None:
    worlds = five()
    assert [table.name for table in agreement_tables(worlds)] == [
        "agreement",
        "orders",
        "theory",
    ]
    assert [row[2:5] for row in theory_table(worlds).written()] == [
        ["model", "0.200", "0.210"],
        ["kafka", "0.200", "0.100"],
    ]
    found = results_of_worlds(worlds)["theory"]
    assert [row["verdict"] for row in found] == ["agrees", "differs"]


def test_theory_is_read_from_beside_the_worlds(tmp_path: Path) -> None:
    assert load_theory(tmp_path).rows == ()
    row = {
        "world": "live",
        "point": "",
        "arm": "planes",
        "reported": "control",
        "predicted": 0.5,
        "measured": 0.6,
        "low": None,
        "high": None,
        "verdict": "open",
    }
    content = {"schema": 1, "margin": 0.25, "ratios": [row]}
    (tmp_path / "theory.json").write_text(json.dumps(content))
    (read,) = load_theory(tmp_path).rows
    assert read.measured == Estimate(0.6, 0.0, math.inf)
    (tmp_path / "theory.json").write_text(json.dumps({**content, "schema": 2}))
    with pytest.raises(RecordingError, match="schema 2 found, 1 expected"):
        load_theory(tmp_path)
