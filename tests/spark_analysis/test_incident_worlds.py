"""One election in several worlds: who agrees, in what order arms stand, one report."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_analysis.analyze import write_worlds
from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.incidents.worlds import IncidentWorlds, hold_incidents_together
from spark_analysis.judging.worlds import hold_together
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.incident_world_sentences import (
    election_sentences,
    worlds_sentences,
)
from tests.spark_analysis.elections import step_down_ms, written
from tests.spark_analysis.world_studies import study_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Incident:
    return judged_in(spark, tmp_path_factory.mktemp("virtual"), "virtual", step_down_ms)


def slower(arm: str, block: int) -> float:
    """Return twice what the other world says: the ratios are the same."""
    return 2 * step_down_ms(arm, block)


def upside_down(arm: str, block: int) -> float:
    return {"priority": 400.0}.get(arm, 30.0) + block


def judged_in(
    spark: SparkSession, at: Path, world: str, late: Callable[[str, int], float]
) -> Incident:
    written(at, world, late)
    found = judge_incident(spark, load_manifest(at))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def alike(
    spark: SparkSession, judged: Incident, tmp_path_factory: pytest.TempPathFactory
) -> IncidentWorlds:
    live = judged_in(spark, tmp_path_factory.mktemp("alike"), "live", slower)
    return hold_incidents_together([live, judged])


def agreement(worlds: IncidentWorlds, measure: str) -> str:
    (pair,) = (it for it in worlds.pairs if it.mine.measure.name == measure)
    assert (pair.first, pair.other, pair.mine.arm) == ("virtual", "live", "priority")
    return pair.agreement


def test_worlds_with_the_same_ratios_agree_and_order_arms_alike(
    alike: IncidentWorlds,
) -> None:
    assert [it.manifest.world for it in alike.incidents] == ["virtual", "live"]
    assert agreement(alike, "step_down_ms") == "agrees"
    assert agreement(alike, "accepted") == "agrees"
    (order,) = (it for it in alike.orders if it.measure.name == "step_down_ms")
    assert (order.same, order.opposite) == ((("priority", "fifo"),), ())
    # Equal everywhere: nobody is ahead of anybody.
    (order,) = (it for it in alike.orders if it.measure.name == "accepted")
    assert (order.same, order.opposite) == ((), ())
    said = worlds_sentences(alike)
    assert said[0].startswith(
        "Of 9 ratios to fifo that the virtual and the live world both have, "
    )
    assert (
        "By old leader steps down, the best first: virtual priority | fifo, live "
        "priority | fifo. Pairs of arms that both tell apart: 1, all in the same order."
    ) in said


def test_worlds_that_contradict_each_other_say_so(
    spark: SparkSession, judged: Incident, tmp_path: Path
) -> None:
    live = judged_in(spark, tmp_path, "live", upside_down)
    found = hold_incidents_together([judged, live])
    assert agreement(found, "step_down_ms") == "contradicts"
    (order,) = (it for it in found.orders if it.measure.name == "step_down_ms")
    assert (order.same, order.opposite) == ((), (("priority", "fifo"),))
    said = worlds_sentences(found)
    assert (
        "priority: old leader steps down is better in the virtual world (23.5) and "
        "worse in the live one (404)."
    ) in said


def test_what_did_not_happen_in_a_world_contradicts_nothing(judged: Incident) -> None:
    """Seen live, where nobody waited for long: sameness of nought and nought."""
    live = replace(
        judged,
        manifest=replace(judged.manifest, world="live"),
        cells=tuple(
            replace(cell, estimate=Estimate(0.0, 0.0, 0.0))
            if cell.measure.name == "timed_out"
            else cell
            for cell in judged.cells
        ),
    )
    found = hold_incidents_together([judged, live])
    told = {it.mine.measure.name for it in found.pairs}
    # Nor is it agreement that both worlds keep a promise under every arm.
    assert {it.name for it in judged.measures} - told == {"timed_out", "lost_by_all"}


def test_one_world_is_told_as_if_it_were_alone(judged: Incident) -> None:
    found = hold_incidents_together([judged])
    assert (found.pairs, found.orders, worlds_sentences(found)) == ((), (), [])
    assert election_sentences(found) == incident_lead(judged)


def test_one_report_tells_of_all_worlds(alike: IncidentWorlds, tmp_path: Path) -> None:
    studies = [study_in(world, {"priority": 0.3}) for world in ("virtual", "live")]
    by_world = {it.manifest.world: it for it in alike.incidents}
    silent = {"kafka": "no complete block"}
    write_worlds(hold_together(studies, silent), tmp_path, by_world)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "virtual priority | fifo, live priority | fifo" in page
    assert "id='figure-incident'" in page
    table = (tmp_path / "tables" / "incident-summary.csv").read_text()
    assert {line.split(",")[0] for line in table.splitlines()[1:]} == {
        "virtual",
        "live",
    }
    for name in ("incident-orders.md", "incident-worlds.md"):
        assert (tmp_path / "tables" / name).is_file()
    words = json.loads((tmp_path / "words.json").read_text())
    assert words["election"] == [
        "The kafka world cannot be compared (no complete block): the answer stands on "
        "the virtual world.",
        *election_sentences(alike),
    ]
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert {row["world"] for row in numbers["incident"]} == {"virtual", "live"}
    first = numbers["incident_agreement"][0]
    assert (first["measure"], first["agreement"]) == ("step_down_ms", "agrees")
    assert (tmp_path / "virtual" / "tables" / "incident.csv").is_file()


def test_one_worlds_directory_has_the_same_table(
    judged: Incident, tmp_path: Path
) -> None:
    virtual = study_in("virtual", {"priority": 0.3})
    write_worlds(hold_together([virtual], {}), tmp_path, {"virtual": judged})
    table = (tmp_path / "tables" / "incident-summary.md").read_text()
    assert table == (tmp_path / "virtual/tables/incident-summary.md").read_text()
