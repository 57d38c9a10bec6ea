"""A run directory that violates its contract stops the analysis with one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.load import compared_files
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.spark_session import settings
from spark_analysis.recordings.tally import check
from tests.spark_analysis import synthetic

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    synthetic.write(tmp_path, blocks=3, seconds=0.02, arms=["fifo", "wfq"])
    return tmp_path


def edited(directory: Path, edit: Edit) -> Manifest:
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    return load_manifest(directory)


def run_of(manifest: dict[str, Any], block: int, arm: str) -> dict[str, Any]:
    found: dict[str, Any] = next(
        run for run in manifest["runs"] if (run["block"], run["arm"]) == (block, arm)
    )
    return found


def test_a_sound_manifest_is_read_whole(written: Path) -> None:
    manifest = load_manifest(written)
    assert manifest.blocks == (0, 1, 2)
    assert [arm.name for arm in manifest.arms_compared] == ["fifo", "wfq", "fifo-again"]
    assert len(manifest.runs_compared) == 9
    assert all(manifest.why_excluded(run) == "" for run in manifest.runs)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda m: m.update(schema=2), "schema 2 found, 1 expected"),
        (lambda m: m.pop("window_ns"), "'window_ns' is missing"),
        (lambda m: m.update(window_ns=[5, 5]), r"window \(5, 5\) is empty"),
        (lambda m: m.update(baseline="lifo"), "baseline 'lifo' is none of"),
        (lambda m: m["analysis"].update(quantiles=[99]), "between 0 and 1, found 99"),
        (
            lambda m: m["runs"][0]["counts"].update(ok=1),
            r"sent \d+ requests, but its outcomes add up to 1",
        ),
        (
            lambda m: run_of(m, 1, "wfq").update(trace_sha256="else"),
            "b001-fifo-t0 and b001-wfq-t0 of block 1 met different traces",
        ),
        (
            lambda m: m["runs"].append(dict(run_of(m, 1, "wfq"))),
            r"more than one valid run of \(1, 'wfq'\)",
        ),
        (
            lambda m: [run_of(m, b, "fifo").update(valid=False) for b in range(3)],
            r"'fifo' has no valid run \(runs that do not count: marked as not v",
        ),
        (
            lambda m: [
                run.update(valid=False, reason="machine unsteady: a fixed loop ...")
                for run in m["runs"]
            ],
            r"'fifo' has no valid run \(runs that do not count: machine unsteady: 3\)",
        ),
        (lambda m: m.update(runs=[]), r"no valid run \(it was never run\)"),
        (lambda m: m.update(classes=[]), "no class of requests is named"),
        (
            lambda m: [
                run_of(m, 0, "wfq").update(valid=False),
                run_of(m, 1, "fifo").update(valid=False),
                run_of(m, 2, "fifo-again").update(valid=False),
            ],
            "no block has a valid run of every arm; valid runs: {'fifo': 2",
        ),
        (
            lambda m: run_of(m, 0, "wfq").update(requests=None),
            "valid run b000-wfq-t0 names no files",
        ),
    ],
)
def test_a_broken_manifest_is_refused(written: Path, edit: Edit, message: str) -> None:
    with pytest.raises(RecordingError, match=message):
        edited(written, edit)


def test_no_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="is this a run"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(("text", "kind"), [("[]", "list"), ("null", "NoneType")])
def test_json_that_is_no_manifest_is_refused(
    tmp_path: Path, text: str, kind: str
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RecordingError, match=f"no manifest, but a JSON {kind}"):
        load_manifest(tmp_path)


def test_text_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(RecordingError, match="not JSON"):
        load_manifest(tmp_path)


def test_a_block_without_some_arm_is_left_out_for_all(written: Path) -> None:
    manifest = edited(
        written,
        lambda m: run_of(m, 1, "wfq").update(valid=False, reason="generator late"),
    )
    assert manifest.blocks == (0, 2)
    excluded = {run.run_id: manifest.why_excluded(run) for run in manifest.runs}
    assert excluded["b001-wfq-t0"] == "generator late"
    assert excluded["b001-fifo-t0"] == "block 1 lacks a valid run of some arm"
    assert excluded["b000-wfq-t0"] == ""


def test_an_arm_that_never_ran_costs_no_block(written: Path) -> None:
    manifest = edited(
        written,
        lambda m: [run_of(m, b, "wfq").update(valid=False) for b in range(3)],
    )
    assert manifest.arms_missing == ("wfq",)
    assert manifest.blocks == (0, 1, 2)


def test_missing_files_are_named(written: Path) -> None:
    (written / "samples" / "b000-wfq-t0.parquet").unlink()
    with pytest.raises(RecordingError, match=r"b000-wfq-t0.parquet: there is no such"):
        compared_files(load_manifest(written), "samples")


# ---- the tally of the rows, against the manifest ----


def rows_of(manifest: Manifest) -> list[dict[str, Any]]:
    """Return one row per run, as the tally of a sound recording yields it."""
    return [
        {
            "run_id": run.run_id,
            "class": "control",
            "print": 77 + run.block,
            "unsound": 0,
            "timeless": 0,
            "known": run.counts["sent"],
            "sent": run.counts["sent"],
            **{f"all_{name}": n for name, n in run.counts.items()},
        }
        for run in manifest.runs
    ]


def test_sound_rows_pass(written: Path) -> None:
    manifest = load_manifest(written)
    check(rows_of(manifest), manifest)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sent": 1}, r"b000-wfq-t0.parquet: counts .*expected .*by the manifest"),
        ({"all_ok": 0, "all_error": 5}, r"b000-wfq-t0.parquet: counts"),
        ({"print": 3}, "b000-fifo-t0 and b000-wfq-t0 of block 0 did not meet the same"),
        ({"known": 0}, "lack some of the columns request_id, "),
        ({"timeless": 2}, "2 answered requests whose latency is missing or not"),
        ({"print": 0}, "every request is there twice"),
        ({"unsound": 2}, "2 answered requests whose phases"),
        ({"class": "ghost"}, "class 'ghost' found"),
        ({"run_id": "other"}, r"b000-wfq-t0.parquet: counts"),
    ],
)
def test_rows_that_contradict_the_manifest_are_refused(
    written: Path, change: dict[str, Any], message: str
) -> None:
    manifest = load_manifest(written)
    rows = rows_of(manifest)
    broken = next(row for row in rows if row["run_id"] == "b000-wfq-t0")
    broken.update(change)
    with pytest.raises(RecordingError, match=message):
        check(rows, manifest)


def test_brokers_that_keep_no_rows_owe_no_phases(written: Path) -> None:
    manifest = replace(load_manifest(written), world="kafka")
    rows = [{**row, "unsound": row["sent"]} for row in rows_of(manifest)]
    check(rows, manifest)


def test_files_are_read_in_the_order_of_the_runs(written: Path) -> None:
    manifest = load_manifest(written)
    names = [Path(path).stem for path in compared_files(manifest, "requests")]
    assert names == [run.run_id for run in manifest.runs_compared]


# ---- Spark's configuration ----


def test_a_cluster_has_as_many_partitions_as_spark_thinks_right() -> None:
    assert settings("local[2]")["spark.sql.shuffle.partitions"] == "4"
    cluster = settings("spark://there:7077")
    assert "spark.sql.shuffle.partitions" not in cluster
    assert "spark.driver.bindAddress" not in cluster
