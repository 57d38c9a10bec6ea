"""An election from handwritten attempts to the page, with known measures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from experiments.records.attempts import attempts_table
from experiments.records.recording import NEVER, RunLabels, write
from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.incident_measures import measures_of
from spark_analysis.incidents.judging import judge_incident, judge_measure
from spark_analysis.incidents.overload import Overload
from spark_analysis.recordings.columns import STAMPS
from spark_analysis.recordings.manifest import load_manifest
from tests.spark_analysis import synthetic
from tests.spark_analysis.elections import (
    NEW,
    PRODUCE,
    TIMED_OUT,
    incident,
    step_down_ms,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


# Means over blocks 0 to 7, so the block adds 3.5 on average.
@pytest.mark.parametrize(
    ("measure", "fifo", "priority"),
    [
        ("step_down_ms", 203.5, 23.5),
        ("accepted", 30, 30),
        ("lost", 10, 10),
        ("lost_by_all", 0, 0),
        ("timed_out", 1, 1),
        ("failed_fast", 1, 1),
        ("failed_otherwise", 1, 1),
        # From the old leader's last success, 10 ms after the decision. Under priority,
        # partition 1's last success was earlier, and it recovers later.
        ("unwritable_ms", 203.5 + 5 - 10, 40),
        ("stale_ms", 30, 30),
        # The last write due before both partitions recovered. Under priority, the other
        # partition recovers at 40 ms, so one more write counts.
        ("recover_ms", 203.5 + 20, 23.5 + 6 + 50),
    ],
)
def test_every_measure_is_what_was_written_down(
    judged: Incident, measure: str, fifo: float, priority: float
) -> None:
    found = {arm: judged.cell(arm, measure) for arm in ("fifo", "priority")}
    assert found["fifo"].estimate.value == pytest.approx(fifo)
    assert found["priority"].estimate.value == pytest.approx(priority)
    difference = found["priority"].difference
    assert difference is not None
    assert difference.value == pytest.approx(priority - fifo)
    expected = "better" if priority < fifo else "equivalent"
    assert found["priority"].word == expected
    assert judged.cell("fifo-again", measure).word == "A/A"


def test_intervals_are_students_t_over_blocks(judged: Incident) -> None:
    cell = judged.cell("fifo", "step_down_ms")
    # Eight values 200 to 207: s = sqrt(6), t(0.975, 7) = 2.365.
    half = 2.364624 * 6**0.5 / 8**0.5
    assert cell.estimate.low == pytest.approx(203.5 - half)
    assert cell.estimate.high == pytest.approx(203.5 + half)
    # Arm and baseline vary together, so their difference is constant.
    difference = judged.cell("priority", "step_down_ms").difference
    assert difference is not None
    assert difference.low == pytest.approx(difference.high) == pytest.approx(-180)


def test_a_panel_shows_every_write_where_it_ended(judged: Incident) -> None:
    (fifo,) = (it for it in judged.timelines if it.arm == "fifo")
    assert fifo.lanes["accepted"] == (-40.0, -40.0, -10.0, -10.0)
    assert fifo.lanes["in vain"] == (5.0, 6.0, 7.0)
    assert fifo.lanes["not leader"] == (200.0,)
    # Sent at 95 ms, timed out half a second later.
    assert fifo.lanes["timed out"] == (495.0,)
    assert len(fifo.lanes["by the new leader"]) == 5
    assert (fifo.obeyed_ms, fifo.told_ms) == ((200.0,), (201.0,))
    assert fifo.writable_ms == 205.0


def test_a_partition_that_never_recovers_is_infinite(
    spark: SparkSession, elected: Path, tmp_path: Path
) -> None:
    """One run without further acknowledgements allows medians, but no means."""
    manifest: dict[str, Any] = json.loads((elected / "manifest.json").read_text())
    for run in manifest["runs"]:
        hand = incident(step_down_ms(run["arm"], run["block"]))
        if run["arm"] != "priority" and run["block"] == 3:
            hand.rows = [
                it._replace(error_code=TIMED_OUT, client_done_ns=NEVER)
                if it.broker == NEW and it.api_key == PRODUCE
                else it
                for it in hand.rows
            ]
        labels = RunLabels(
            run_id=run["run_id"],
            block=run["block"],
            session=run["block"],
            arm=run["arm"],
            scheduler=run["scheduler"],
            world="virtual",
        )
        local, remote, code = np.array(hand.stamps, np.int64).T
        stamps = dict.fromkeys(STAMPS, local)
        stamps |= {"remote_done_ns": remote, "broker_error_code": code}
        write(attempts_table(labels, hand.rows, stamps), tmp_path / run["attempts"])
    synthetic.save(tmp_path, manifest)
    found = judge_incident(spark, load_manifest(tmp_path))
    assert found is not None
    cell = found.cell("fifo", "unwritable_ms")
    assert np.isfinite(cell.estimate.value)
    assert np.isinf(cell.estimate.high)
    assert found.cell("priority", "unwritable_ms").word == "better"


@pytest.mark.parametrize(
    ("rare", "word"),
    [(0.0, "equivalent"), (4.0, "not significant"), (np.inf, "not significant")],
)
def test_means_that_differ_are_not_equivalent(
    elected: Path, rare: float, word: str
) -> None:
    """In nearly all of 100 blocks, both arms have no event; or never, no end."""
    manifest = load_manifest(elected)
    most = rare if np.isinf(rare) else 0.0
    values = {arm.name: dict.fromkeys(range(100), most) for arm in manifest.arms}
    values["priority"][7] = rare
    (measure,) = (it for it in measures_of(0.05) if it.name == "timed_out")
    found = {it.arm: it.word for it in judge_measure(measure, values, manifest)}
    assert found["priority"] == word


@pytest.mark.parametrize(
    ("waiting", "shown"), [((5, 5, 4), True), ((5, 5, 4, 4), False), ((9,), True)]
)
def test_an_overload_is_a_full_queue_in_most_incidents(
    waiting: tuple[int, ...], *, shown: bool
) -> None:
    assert Overload(places=5, waiting=waiting).shown is shown


def test_a_run_without_an_election_has_no_incident(
    spark: SparkSession, recorded: Path
) -> None:
    assert judge_incident(spark, load_manifest(recorded)) is None
