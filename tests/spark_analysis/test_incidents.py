"""An election, from attempts written by hand to the page: every measure is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from experiments.records.attempts import Attempt, attempts_table
from experiments.records.recording import NEVER, RunLabels, write
from spark_analysis.analyze import write_report, write_worlds
from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.judging import judge_incident
from spark_analysis.incidents.worlds import IncidentWorlds, hold_incidents_together
from spark_analysis.judging.worlds import hold_together
from spark_analysis.recordings.columns import STAMPS
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.telling.paper import build, facts_of
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.incident_world_sentences import (
    election_sentences,
    worlds_sentences,
)
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_analysis.judging.study import Study

pytestmark = pytest.mark.spark
MS = 1_000_000
OLD, NEW = 0, 1
PRODUCE, METADATA, LEADER_AND_ISR, UPDATE_METADATA = 0, 3, 4, 6
OK, NOT_LEADER, TIMED_OUT, STORAGE = 0, 6, 7, 56
DECIDED_MS = 100


class Hand:
    """Attempts of one run, written down one by one; times are in milliseconds."""

    def __init__(self) -> None:
        self.rows: list[Attempt] = []
        self.stamps: list[tuple[int, int, int]] = []

    def add(
        self,
        api_key: int,
        broker: int,
        *,
        due: float,
        local: float | None,
        remote: float | None = None,
        done: float | None,
        code: int = OK,
        broker_code: int | None = None,
        acks: int = -1,
        partition: int = 0,
        leader: int = -1,
        kept: int = 1,
    ) -> None:
        """Add one; a broker's own error is the client's unless it says otherwise."""

        def ns(at_ms: float | None) -> int:
            return NEVER if at_ms is None else round(at_ms * MS)

        row = Attempt(
            request_id=len(self.rows),
            broker=broker,
            api_key=api_key,
            partition=partition,
            acks=acks,
            records=10 if api_key == PRODUCE else 0,
            intended_ns=ns(due),
            sent_ns=ns(due),
            client_done_ns=ns(done),
            error_code=code,
            base_offset=-1,
            leader=leader,
            kept=kept,
        )
        self.rows.append(row)
        own = code if broker_code is None else broker_code
        answered = local if remote is None else remote
        self.stamps.append((ns(local), ns(answered), own))


def incident(step_down_ms: float) -> Hand:
    """One election whose last LEADER_AND_ISR the old leader obeys so late.

    Per run: 10 records accepted in vain for each of three writes, of which one with
    acks=1 is acknowledged and lost; one write timed out, one told NOT_LEADER.
    """
    hand, until = Hand(), DECIDED_MS + step_down_ms
    for at, api in ((1, LEADER_AND_ISR), (3, UPDATE_METADATA)):
        hand.add(api, NEW, due=DECIDED_MS, local=DECIDED_MS + at, done=104, leader=NEW)
    hand.add(LEADER_AND_ISR, OLD, due=DECIDED_MS, local=until, done=until, leader=NEW)
    hand.add(UPDATE_METADATA, OLD, due=100, local=until + 1, done=until + 1)
    # Before the decision: accepted, and acknowledged 10 ms after it.
    hand.add(PRODUCE, OLD, due=80, local=90, remote=110, done=110)
    hand.add(PRODUCE, OLD, due=80, local=90, remote=95, done=95, partition=1)
    # In vain: failed by the stepping down, given up before it, acknowledged for one.
    hand.add(PRODUCE, OLD, due=90, local=105, remote=until, done=until, code=NOT_LEADER)
    hand.add(
        PRODUCE,
        OLD,
        due=95,
        local=106,
        remote=until,
        done=None,
        code=TIMED_OUT,
        broker_code=NOT_LEADER,
        kept=0,
    )
    hand.add(PRODUCE, OLD, due=96, local=107, done=108, acks=1, kept=0)
    # A refusal is no acceptance, and no other error is a fast one.
    hand.add(PRODUCE, OLD, due=97, local=until + 2, done=until + 2, code=STORAGE)
    # The new leader: partition 1 is back after 40 ms, partition 0 after the rest.
    hand.add(PRODUCE, NEW, due=99, local=130, remote=140, done=140, partition=1)
    hand.add(PRODUCE, NEW, due=99, local=until, remote=until + 5, done=until + 5)
    hand.add(PRODUCE, NEW, due=120, local=until, remote=until + 20, done=until + 20)
    # Due later than the recovery: not waited for.
    late = until + 6
    hand.add(PRODUCE, NEW, due=late, local=late + 1, remote=late + 50, done=late + 50)
    # Metadata: stale until 30 ms after the decision; a failure names nobody.
    hand.add(METADATA, OLD, due=120, local=130, done=130, leader=OLD)
    hand.add(METADATA, NEW, due=120, local=131, done=131, leader=NEW)
    hand.add(METADATA, OLD, due=140, local=None, done=None, code=TIMED_OUT)
    return hand


def step_down_ms(arm: str, block: int) -> float:
    return {"priority": 20.0}.get(arm, 200.0) + block


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at: Path = tmp_path_factory.mktemp("incident")
    written(at, "virtual", step_down_ms)
    return at


def written(at: Path, world: str, step_down_ms: Callable[[str, int], float]) -> None:
    """Write a run directory of a world, whose old leaders obey so late."""
    manifest = synthetic.write(at, blocks=8, seconds=0.1, arms=("fifo", "priority"))
    manifest["world"] = world
    manifest["config"] |= {
        "cluster": {"leader": OLD, "request_timeout_ms": 500.0},
        "faults": [{"kind": "elect", "at_s": 0.1}],
    }
    for run in manifest["runs"]:
        hand = incident(step_down_ms(run["arm"], run["block"]))
        labels = RunLabels(
            run_id=run["run_id"],
            block=run["block"],
            arm=run["arm"],
            scheduler=run["scheduler"],
            world=world,
        )
        local, remote, code = np.array(hand.stamps, np.int64).T
        stamps = dict.fromkeys(STAMPS, local)
        stamps |= {"remote_done_ns": remote, "broker_error_code": code}
        run["attempts"] = f"attempts/{run['run_id']}.parquet"
        write(attempts_table(labels, hand.rows, stamps), at / run["attempts"])
    synthetic.save(at, manifest)


@pytest.fixture(scope="module")
def judged(spark: SparkSession, directory: Path) -> Incident:
    found = judge_incident(spark, load_manifest(directory))
    assert found is not None
    return found


# Means over blocks 0 to 7, so 3.5 is what the block adds on average.
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
        # From the old leader's last success, 10 ms after the decision; under priority
        # the other partition, of which that was before it, is back later.
        ("unwritable_ms", 203.5 + 5 - 10, 40),
        ("stale_ms", 30, 30),
        # The last write that was due before both were back; under priority, where the
        # other partition is back at 40 ms, that is one more.
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
    assert judged.cell("fifo-again", measure).word == "identical"


def test_intervals_are_students_t_over_blocks(judged: Incident) -> None:
    cell = judged.cell("fifo", "step_down_ms")
    # Eight values 200 to 207: s = sqrt(6), t(0.975, 7) = 2.365.
    half = 2.364624 * 6**0.5 / 8**0.5
    assert cell.estimate.low == pytest.approx(203.5 - half)
    assert cell.estimate.high == pytest.approx(203.5 + half)
    # Arm and baseline move together, so their difference does not move at all.
    difference = judged.cell("priority", "step_down_ms").difference
    assert difference is not None
    assert difference.low == pytest.approx(difference.high) == pytest.approx(-180)


def test_a_panel_shows_every_write_where_it_ended(judged: Incident) -> None:
    (fifo,) = (it for it in judged.timelines if it.arm == "fifo")
    assert fifo.lanes["accepted"] == (-10.0, -10.0)
    assert fifo.lanes["in vain"] == (5.0, 6.0, 7.0)
    assert fifo.lanes["not leader"] == (200.0,)
    # Sent at 95 ms, given up half a second later.
    assert fifo.lanes["timed out"] == (495.0,)
    assert len(fifo.lanes["by the new leader"]) == 4
    assert (fifo.obeyed_ms, fifo.told_ms) == ((200.0,), (201.0,))
    assert fifo.writable_ms == 205.0


def test_what_never_comes_back_is_infinite(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    """One run in which nobody acknowledges any more leaves medians, not means."""
    manifest: dict[str, Any] = json.loads((directory / "manifest.json").read_text())
    for run in manifest["runs"]:
        hand = incident(step_down_ms(run["arm"], run["block"]))
        if (run["arm"], run["block"]) == ("fifo", 3):
            hand.rows = [
                it._replace(error_code=TIMED_OUT, client_done_ns=NEVER)
                if it.broker == NEW and it.api_key == PRODUCE
                else it
                for it in hand.rows
            ]
        labels = RunLabels(
            run_id=run["run_id"],
            block=run["block"],
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


@pytest.fixture(scope="module")
def run_dir(
    judged: Incident,
    study: Study,
    directory: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A run directory with its report, which tells of another study's latencies."""
    at: Path = tmp_path_factory.mktemp("told")
    synthetic.save(at, json.loads((directory / "manifest.json").read_text()))
    write_report(study, at / "report", judged)
    return at


def test_the_report_tells_of_it(judged: Incident, run_dir: Path) -> None:
    report = run_dir / "report"
    page = (report / "index.html").read_text(encoding="utf-8")
    assert "Under fifo the old leader steps down 204 ms after" in page
    assert "priority: better in old leader steps down (23.5 ms instead of 204 ms)" in (
        page
    )
    assert "No record acknowledged with acks=all was lost under any arm." in page
    rows = json.loads((report / "results.json").read_text())["incident"]
    assert len(rows) == len(judged.measures) * 3
    for name in ("figures/incident.svg", "tables/incident.csv"):
        assert (report / name).is_file()


def test_the_paper_has_the_panel(run_dir: Path, tmp_path: Path) -> None:
    build(run_dir, tmp_path / "paper.pdf")
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF-")
    words = json.loads((run_dir / "report" / "words.json").read_text())
    facts = facts_of(load_manifest(run_dir), words)
    assert facts["incident"]["lead"][0].startswith("Under fifo the old leader")


def test_where_nothing_is_elected_nothing_is_told(
    spark: SparkSession, recorded: Path
) -> None:
    assert judge_incident(spark, load_manifest(recorded)) is None


# ---- several worlds -----------------------------------------------------------------


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
        "Of 10 ratios to fifo that the virtual and the live world both have, "
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


def test_one_world_is_told_as_if_it_were_alone(judged: Incident) -> None:
    found = hold_incidents_together([judged])
    assert (found.pairs, found.orders, worlds_sentences(found)) == ((), (), [])
    assert election_sentences(found) == incident_lead(judged)


def test_one_report_tells_of_all_worlds(
    alike: IncidentWorlds, study: Study, tmp_path: Path
) -> None:
    studies = [
        replace(study, manifest=replace(study.manifest, world=world))
        for world in ("virtual", "live")
    ]
    by_world = {it.manifest.world: it for it in alike.incidents}
    write_worlds(hold_together(studies, {}), tmp_path, by_world)
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
    assert words["election"] == election_sentences(alike)
    numbers = json.loads((tmp_path / "results.json").read_text())
    assert {row["world"] for row in numbers["incident"]} == {"virtual", "live"}
    first = numbers["incident_agreement"][0]
    assert (first["measure"], first["agreement"]) == ("step_down_ms", "agrees")
    assert (tmp_path / "virtual" / "tables" / "incident.csv").is_file()


def test_one_worlds_directory_has_the_same_table(
    judged: Incident, study: Study, tmp_path: Path
) -> None:
    virtual = replace(study, manifest=replace(study.manifest, world="virtual"))
    write_worlds(hold_together([virtual], {}), tmp_path, {"virtual": judged})
    table = (tmp_path / "tables" / "incident-summary.md").read_text()
    assert table == (tmp_path / "virtual/tables/incident-summary.md").read_text()
