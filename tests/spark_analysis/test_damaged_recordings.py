"""A damaged recording gives a report, or one message that names the file.

Other exceptions are failures, and the recording's own files must not change.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from doorkeeper.cli import main
from experiments.records import recording
from spark_analysis.judging.assembly import compare
from spark_analysis.recordings import spark_session as session
from spark_analysis.recordings.contract import DamagedFile, RecordingError
from spark_analysis.recordings.load import (
    read_requests,
    read_samples,
    without_damaged,
)
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.tally import first_pass, tally
from tests.seeds import seeds
from tests.spark_analysis import synthetic
from tests.spark_analysis.damage import (
    NAMED,
    a_strangers,
    damage_bytes,
    damage_field,
    page_damaged,
)


def write_sound(at: Path, *, blocks: int, again: bool) -> dict[str, Any]:
    """Write a recording of two arms; return its manifest."""
    manifest = synthetic.write(
        at, blocks=blocks, seconds=0.02, arms=["fifo", "wfq"], again=again
    )
    for path in at.rglob("*.parquet"):
        # As the recorder writes it, with a checksum of each page.
        recording.write(pq.read_table(path), path)
    return manifest


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("sound")
    write_sound(at, blocks=3, again=True)
    return at


@pytest.fixture
def at(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "run")
    return tmp_path / "run"


def prints(directory: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def fault_of(call: Callable[[], object]) -> str:
    """Return the error message of a call, or an empty string."""
    try:
        with session.reading():
            call()
    except RecordingError as error:
        (sentence,) = str(error).splitlines()
        return sentence
    return ""


@pytest.mark.spark
@pytest.mark.parametrize("damage", NAMED)
@pytest.mark.parametrize("kind", ["requests", "samples"])
def test_a_file_that_is_none_is_named(
    at: Path, spark: SparkSession, kind: str, damage: Callable[[Path], None]
) -> None:
    file = at / kind / "b001-wfq-t0.parquet"
    damage(file)
    before = prints(at)

    def read() -> None:
        manifest = load_manifest(at)
        if kind == "requests":
            tally(first_pass(read_requests(spark, manifest), manifest), manifest)
        else:
            read_samples(spark, manifest).toArrow()

    said = fault_of(read)
    if (kind, damage) == ("samples", a_strangers):
        # A file with other columns has no samples of this run.
        assert not said
    else:
        assert f"{kind}/{file.name}" in said
    assert prints(at) == before


@pytest.mark.spark
def test_the_rest_is_analysed_on_request(tmp_path: Path, spark: SparkSession) -> None:
    """Each run after the first block has another damage."""
    manifest = write_sound(tmp_path, blocks=5, again=False)
    damages: dict[str, Callable[[Path], None]] = {}
    later = (run for run in manifest["runs"] if run["block"])
    for run, damage in zip(later, NAMED, strict=True):
        damages[run["run_id"]] = damage
        damage(tmp_path / run["requests"])
    left = without_damaged(spark, load_manifest(tmp_path))
    assert left.blocks == (0,)
    assert {run.run_id for run in left.runs if not run.valid} == damages.keys()
    for run in left.runs:
        if not run.valid:
            file = str(tmp_path / "requests" / f"{run.run_id}.parquet")
            assert file in left.why_excluded(run), damages[run.run_id]


@pytest.mark.spark
def test_a_comparison_without_runs_is_explained(at: Path, spark: SparkSession) -> None:
    for path in (at / "samples").iterdir():
        path.unlink()
    with pytest.raises(RecordingError, match="'fifo' has no valid run"):
        without_damaged(spark, load_manifest(at))


@pytest.mark.spark
def test_a_damaged_page_is_named_by_its_file(at: Path, spark: SparkSession) -> None:
    file = at / "requests" / "b001-wfq-t0.parquet"
    page_damaged(file)
    manifest = load_manifest(at)
    with pytest.raises(DamagedFile) as fault, session.reading():
        tally(first_pass(read_requests(spark, manifest), manifest), manifest)
    assert str(fault.value).startswith(f"{file}: damaged, or no Parquet file: ")


@pytest.mark.spark
@pytest.mark.parametrize("seed", seeds(8, 24))
def test_any_damaged_byte_ends_in_numbers_or_one_sentence(
    at: Path, spark: SparkSession, seed: int
) -> None:
    rng = random.Random(seed)
    files = [at / "manifest.json", *sorted(at.glob("*/*.parquet"))]
    way = damage_bytes(rng.choice(files), rng)
    before = prints(at)

    def read() -> None:
        manifest = load_manifest(at)
        tally(first_pass(read_requests(spark, manifest), manifest), manifest)
        read_samples(spark, manifest).toArrow()

    said = fault_of(read)
    assert not said or str(at) in said or "run" in said, way
    assert prints(at) == before


def test_any_damaged_field_is_read_or_named(at: Path) -> None:
    manifest = at / "manifest.json"
    sound = manifest.read_bytes()
    for seed in range(400):
        manifest.write_bytes(sound)
        where = damage_field(manifest, random.Random(seed))
        said = fault_of(lambda: load_manifest(at))
        assert not said or said.startswith(f"{manifest}: "), (seed, where)


@pytest.mark.spark
@pytest.mark.parametrize("seed", seeds(4, 12))
def test_any_damaged_field_ends_in_a_comparison_or_one_sentence(
    at: Path, spark: SparkSession, seed: int
) -> None:
    where = damage_field(at / "manifest.json", random.Random(f"whole {seed}"))
    said = fault_of(lambda: compare(spark, load_manifest(at)))
    assert not said or str(at) in said or "run" in said, where


@pytest.mark.parametrize(
    "content", [b"", b'{"schema": 1, "na', bytes(4096), b"[1, 2]", b"\xff\xfe{}"]
)
def test_a_damaged_manifest_is_named(at: Path, content: bytes) -> None:
    (at / "manifest.json").write_bytes(content)
    found = CliRunner().invoke(main, ["analyze", str(at)])
    assert found.exit_code == 1
    (line,) = found.output.splitlines()
    assert line.startswith(f"Error: {at / 'manifest.json'}: ")


@pytest.mark.spark
def test_a_class_without_requests_in_the_window_is_none_of_the_compared(
    at: Path, spark: SparkSession
) -> None:
    manifest = load_manifest(at)
    rows = read_requests(spark, manifest)
    found = {it.class_name for it in tally(first_pass(rows, manifest), manifest)}
    outside = rows.selectExpr(
        *(name for name in rows.columns if name != "inside"),
        "inside AND class != 'control' AS inside",
    )
    assert {
        it.class_name for it in tally(first_pass(outside, manifest), manifest)
    } == found - {"control"}
    nothing = rows.drop("inside").selectExpr("*", "false AS inside")
    with pytest.raises(RecordingError, match="no requests: the traces have none"):
        tally(first_pass(nothing, manifest), manifest)


@pytest.mark.spark
def test_goodput_counts_the_time_of_rounds_without_a_request(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Responses per second, counted by PyArrow over all rounds of an arm."""
    seconds, blocks = 0.05, 8
    rates = {"control": 20.0, "produce": 2000.0}
    synthetic.write(
        tmp_path, blocks=blocks, seconds=seconds, arms=["fifo", "wfq"], rates=rates
    )
    answers = []
    for path in sorted((tmp_path / "requests").glob("*-wfq-*.parquet")):
        rows = pq.read_table(path, columns=["class", "outcome"]).to_pylist()
        answers.append(rows.count({"class": "control", "outcome": "ok"}))
    assert 0 in answers
    assert any(answers)
    found = compare(spark, load_manifest(tmp_path))
    (comparison,) = found.comparisons
    cell = comparison.cell("control", "wfq", "goodput_per_s")
    assert cell.value is not None
    assert cell.value.value == pytest.approx(sum(answers) / (blocks * seconds))
    # A round without requests contributes nothing to the comparison.
    assert cell.contrast is not None
    assert len(cell.contrast.values) == sum(map(bool, answers))
