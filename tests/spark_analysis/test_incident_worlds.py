"""One election in several worlds: agreement, ranks of arms, one report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.incident_worlds import (
    IncidentWorlds,
    hold_incidents_together,
)
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.statistics.intervals import Estimate
from tests.spark_analysis.elections import step_down_ms, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def judged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Incident:
    return judged_in(spark, tmp_path_factory.mktemp("virtual"), "virtual", step_down_ms)


def slower(arm: str, block: int) -> float:
    """Return twice the time of the other world, for equal ratios."""
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
    assert (pair.first, pair.other, pair.mine.arm) == ("live", "virtual", "priority")
    return pair.agreement


def test_an_event_missing_in_a_world_contradicts_nothing(judged: Incident) -> None:
    """Live runs had no time-outs: two zeros are neither agreement nor contradiction."""
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
    # Two worlds without a violation under any arm are no agreement either.
    assert {it.name for it in judged.measures} - told == {"timed_out", "lost_by_all"}
