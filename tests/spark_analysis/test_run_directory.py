"""Run directories by path and by URI."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.run_directory import (
    local_directory,
    recordings_at,
    recordings_here,
)
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
START_S = 120.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a directory whose name has a meaning for shells, URIs and patterns."""
    directory: Path = tmp_path_factory.mktemp("runs") / "a {b} [c]* 100%25"
    synthetic.write(directory, blocks=2, seconds=0.02, arms=["fifo", "wfq"])
    return directory


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("runs/x", "runs/x"),
        ("/runs/a:b", "/runs/a:b"),
        ("file:/runs/x", "/runs/x"),
        ("file:///runs/a%20b", "/runs/a b"),
        ("s3a://bucket/run", None),
        ("hdfs://host:9000/run", None),
    ],
)
def test_a_name_is_a_path_here_or_a_uri(name: str, path: str | None) -> None:
    assert local_directory(name) == (None if path is None else Path(path))


@pytest.mark.spark
def test_spark_reads_a_manifest_as_this_process_does(
    spark: SparkSession, run: Path
) -> None:
    found = recordings_at(spark, f"file:{run}")
    assert found.alone
    here = load_manifest(run)
    assert found.manifests[0].runs == here.runs
    assert found.manifests[0].location == f"file:{run}"


@pytest.mark.spark
def test_spark_reads_the_manifests_of_worlds(
    spark: SparkSession, run: Path, tmp_path: Path
) -> None:
    for world in ("live", "virtual"):
        shutil.copytree(run, tmp_path / world)
        raw = json.loads((run / "manifest.json").read_text())
        (tmp_path / world / "manifest.json").write_text(
            json.dumps(raw | {"world": world})
        )
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{}")
    found, here = recordings_at(spark, f"file:{tmp_path}/"), recordings_here(tmp_path)
    assert [it.world for it in found.manifests] == ["live", "virtual"]
    assert [it.runs for it in found.manifests] == [it.runs for it in here.manifests]
    assert not found.alone
    assert found.silent.keys() == here.silent.keys() == {"broken"}


@pytest.mark.spark
def test_a_uri_without_a_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="there is no such file; is this a run"):
        recordings_at(spark, f"file:{tmp_path}")
