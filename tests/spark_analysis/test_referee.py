"""Recordings that a hostile referee would submit.

Each gives one message that names the fault, or a report that claims no more than the
recording supports.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.recordings import spark_session as session
from spark_analysis.recordings.columns import OUTCOMES, STAMPS
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.run_directory import recordings_here
from spark_analysis.report.content.schema import Results
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.terminal import LINES_MAX, show
from spark_analysis.report.writing import write_report
from tests.spark_analysis import synthetic
from tests.spark_analysis.damage import cut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# A change to the rows of one run.
Change = Callable[[pa.Table], pa.Table]
Verdicts = Mapping[tuple[str, str], str]


def written(directory: Path, *, sessions: int = 3) -> Path:
    synthetic.write(
        directory, blocks=sessions, seconds=0.05, arms=("fifo", "wfq"), seed=31
    )
    return directory


def manifest_edited(
    directory: Path, edit: Callable[[dict[str, list[dict[str, object]]]], object]
) -> None:
    path = directory / "manifest.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def rewritten(directory: Path, change: Change, arm: str = "", kind: str = "") -> None:
    """Change the files of one arm or of all, and update the request counts."""

    def edit(manifest: dict[str, list[dict[str, object]]]) -> None:
        for run in manifest["runs"]:
            if arm not in ("", run["arm"]):
                continue
            path = directory / str(run[kind or "requests"])
            table = change(pq.read_table(path))
            pq.write_table(table, path)
            if "outcome" in table.column_names:
                found = Counter(table["outcome"].to_pylist())
                counts = {name: found[name] for name in OUTCOMES}
                run["counts"] = {"sent": len(table), **counts}

    manifest_edited(directory, edit)


def with_column(table: pa.Table, name: str, values: object) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values))


def renamed(name: str) -> Change:
    def change(table: pa.Table) -> pa.Table:
        return table.rename_columns(
            [f"{it}2" if it == name else it for it in table.column_names]
        )

    return change


def lasting(latency_ns: int) -> Change:
    """Set every latency to a constant, spread evenly over the stamps."""

    def change(table: pa.Table) -> pa.Table:
        start = table["intended_ns"].to_numpy()
        for place, name in enumerate(STAMPS[1:], 1):
            shift = latency_ns * place // (len(STAMPS) - 1)
            table = with_column(table, name, start + shift)
        return with_column(table, "suspended_ns", np.zeros(len(start), np.int64))

    return change


def one_of_each_class(table: pa.Table) -> pa.Table:
    """Keep the first request of each class in the window."""
    classes = table["class"].to_pylist()
    return table.take([classes.index(name) for name in sorted(set(classes))])


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def not_a_number(table: pa.Table) -> pa.Table:
    return with_column(table, "client_done_ns", np.full(len(table), np.nan))


def one_answered_early(by_ns: int) -> Change:
    """Move the last stamp of one request to ``by_ns`` before its intended time."""

    def change(table: pa.Table) -> pa.Table:
        done = table["client_done_ns"].to_numpy().copy()
        done[0] = table["intended_ns"][0].as_py() - by_ns
        return with_column(table, "client_done_ns", done)

    return change


def report(directory: Path, spark: SparkSession) -> Results:
    """Analyse a run directory, including all figures."""
    with session.reading():
        recorded = recordings_here(directory)
        studies = [compare(spark, manifest) for manifest in recorded.manifests]
        worlds = hold_together(studies, recorded.silent)
        found = results_of(worlds, {})
    write_report(found, list(run_rows(worlds)), directory / "report")
    screen = io.StringIO()
    show(found, Console(file=screen, width=80))
    assert len(screen.getvalue().splitlines()) <= LINES_MAX
    assert (directory / "report" / "index.html").exists()
    return found


def verdicts(found: Results, metric: str = "p99_ms") -> Verdicts:
    return {
        (row["class"], row["arm"]): row["verdict"].partition(":")[0]
        for row in found["rows"]
        if row["metric"] == metric and row["arm"] not in ("fifo", "fifo-again")
    }


# ---- refused, with one message ----


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        pytest.param(
            lambda at: manifest_edited(
                at,
                lambda m: [run.update(valid=False, reason="late") for run in m["runs"]],
            ),
            "'fifo' has no valid run (runs that do not count: late: 3)",
            id="all discarded",
        ),
        pytest.param(
            lambda at: rewritten(at, not_a_number, "wfq"),
            "-wfq-t0.parquet: damaged",
            id="NaN",
        ),
        pytest.param(
            lambda at: rewritten(at, one_answered_early(1_000)),
            "answered requests whose latency is missing or not positive",
            id="negative latency",
        ),
        pytest.param(
            lambda at: rewritten(at, lasting(0)),
            "answered requests whose latency is missing or not positive",
            id="latency 0",
        ),
        pytest.param(
            lambda at: rewritten(at, twice, "wfq"),
            "b000-wfq-t0.parquet: every request is there twice",
            id="rows of one arm twice",
        ),
        pytest.param(
            lambda at: rewritten(at, twice),
            "every request is there twice",
            id="all twice",
        ),
        pytest.param(
            lambda at: rewritten(
                at,
                lambda rows: pa.concat_tables([rows.slice(1), rows.slice(1, 1)]),
                "wfq",
            ),
            "did not meet the same requests",
            id="one row twice, another lost",
        ),
        *(
            pytest.param(
                lambda at, name=name: rewritten(at, renamed(name)), sentence, id=name
            )
            for name, sentence in (
                ("run_id", "counts {"),
                ("class", "class None found"),
                ("outcome", "counts {"),
                ("intended_ns", "requests lack some of the columns request_id"),
                ("flow", "requests lack some of the columns request_id"),
                ("client_done_ns", "latency is missing or not positive"),
                ("dequeued_ns", "phases are missing"),
            )
        ),
        *(
            pytest.param(
                lambda at, name=name: rewritten(at, renamed(name), kind="samples"),
                "samples lack a time, or the length of a queue",
                id=f"samples: {name}",
            )
            for name in ("t_ns", "queued")
        ),
        pytest.param(
            lambda at: cut(at / "requests" / "b001-wfq-t0.parquet"),
            "requests/b001-wfq-t0.parquet: damaged",
            id="truncated",
        ),
        pytest.param(
            lambda at: manifest_edited(at, lambda m: m.update(schema=2)),
            "schema 2 found, 1 expected",
            id="another version",
        ),
    ],
)
def test_an_invalid_input_is_refused_in_one_sentence(
    tmp_path: Path, spark: SparkSession, spoil: Callable[[Path], None], sentence: str
) -> None:
    spoil(written(tmp_path))
    with pytest.raises(RecordingError) as refusal:
        report(tmp_path, spark)
    (line,) = str(refusal.value).splitlines()
    assert sentence in line


# ---- reported, without unsupported certainty ----


def test_sessions_too_few_for_their_number_of_arms_are_named(
    tmp_path: Path, spark: SparkSession
) -> None:
    # For one arm, 2 ** (1 - 6) is below 0.05; for two arms it is not.
    arms = ("fifo", "planes", "wfq")
    synthetic.write(tmp_path, blocks=6, seconds=0.05, arms=arms, seed=31)
    (said,) = Summary(report(tmp_path, spark)).cautions
    assert said.startswith("6 complete sessions cannot give a p below 0.06")


def test_one_session_decides_nothing(tmp_path: Path, spark: SparkSession) -> None:
    found = report(written(tmp_path, sessions=1), spark)
    assert set(verdicts(found).values()) <= {"not significant", "refused"}
    assert set(verdicts(found, "goodput_per_s").values()) <= {"not significant"}
    assert "cannot give a p below" in " ".join(Summary(found).cautions)


def test_a_rival_without_runs_is_named(tmp_path: Path, spark: SparkSession) -> None:
    def edit(manifest: dict[str, list[dict[str, object]]]) -> None:
        for run in manifest["runs"]:
            run["valid"] = run["arm"] != "wfq"

    manifest_edited(written(tmp_path), edit)
    found = report(tmp_path, spark)
    assert verdicts(found) == {}
    assert "wfq has no valid run and is not compared." in Summary(found).cautions


def test_a_lost_repetition_leaves_no_noise_floor(
    tmp_path: Path, spark: SparkSession
) -> None:
    def edit(manifest: dict[str, list[dict[str, object]]]) -> None:
        for run in manifest["runs"]:
            run["valid"] = run["arm"] != "fifo-again"

    manifest_edited(written(tmp_path), edit)
    found = report(tmp_path, spark)
    assert {row["noise_low"] for row in found["rows"]} == {None}
    assert "fifo-again has no valid run" in " ".join(Summary(found).cautions)


def test_equal_latencies_are_equivalent(tmp_path: Path, spark: SparkSession) -> None:
    rewritten(written(tmp_path, sessions=8), lasting(9_000_000))
    found = report(tmp_path, spark)
    assert set(verdicts(found, "p50_ms").values()) == {"equivalent"}


@pytest.mark.parametrize(("sessions", "word"), [(4, "not significant"), (8, "worse")])
def test_a_constant_difference_needs_enough_sessions(
    tmp_path: Path, spark: SparkSession, sessions: int, word: str
) -> None:
    written(tmp_path, sessions=sessions)
    rewritten(tmp_path, lasting(9_000_000))
    rewritten(tmp_path, lasting(18_000_000), "wfq")
    found = report(tmp_path, spark)
    assert set(verdicts(found, "p50_ms").values()) == {word}
    rows = [row for row in found["rows"] if row["arm"] == "wfq"]
    ratios = {row["ratio"] for row in rows if row["metric"] == "p50_ms"}
    assert list(ratios) == pytest.approx([2.0] * len(ratios))


def test_one_request_of_each_class_is_no_tail(
    tmp_path: Path, spark: SparkSession
) -> None:
    rewritten(written(tmp_path, sessions=8), one_of_each_class)
    found = report(tmp_path, spark)
    assert set(verdicts(found).values()) == {"refused"}


def test_worlds_of_two_versions_are_marked(tmp_path: Path, spark: SparkSession) -> None:
    for world, commit in (("live", "0123abc"), ("virtual", "4567def")):
        written(tmp_path / world)
        manifest_edited(
            tmp_path / world,
            lambda m, world=world, commit=commit: m.update(  # type: ignore[misc]
                world=world, code={"commit": commit}
            ),
        )
    found = report(tmp_path, spark)
    assert "live by 0123abc, virtual by 4567def" in " ".join(Summary(found).cautions)


def test_a_world_of_another_schema_is_left_out(
    tmp_path: Path, spark: SparkSession
) -> None:
    written(tmp_path / "live")
    written(tmp_path / "virtual")
    manifest_edited(tmp_path / "virtual", lambda m: m.update(schema=2))
    found = report(tmp_path, spark)
    assert [it["world"] for it in found["worlds"]] == ["live"]
    assert "schema 2 found, 1 expected" in found["silent"]["virtual"]
