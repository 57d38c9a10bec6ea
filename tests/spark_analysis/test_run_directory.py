"""Run directories by path and by URI, and analyses in other processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.java import java_home
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.run_directory import (
    local_directory,
    recordings_at,
    recordings_here,
)
from spark_analysis.recordings.spark_session import settings
from spark_analysis.report.content.schema import Results
from tests.experiments.spark_cluster import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
START_S = 120.0


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
    spark: SparkSession, small_run: Path
) -> None:
    found = recordings_at(spark, f"file:{small_run}")
    assert found.alone
    here = load_manifest(small_run)
    assert found.manifests[0].runs == here.runs
    assert found.manifests[0].location == f"file:{small_run}"


@pytest.mark.spark
def test_spark_reads_the_manifests_of_worlds(
    spark: SparkSession, small_run: Path, tmp_path: Path
) -> None:
    for world in ("live", "virtual"):
        shutil.copytree(small_run, tmp_path / world)
        raw = json.loads((small_run / "manifest.json").read_text())
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


def analyzed(run: str, out: Path, *options: str, env: dict[str, str]) -> Results:
    """Run the command in another directory; return the content of results.json."""
    done = subprocess.run(
        [sys.executable, "-m", "doorkeeper", "analyze", run, "--out", out, *options],
        check=False,
        capture_output=True,
        env=env | {"PYTHONPATH": str(ROOT)},
        cwd=out.parent,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()
    found: Results = json.loads((out / "results.json").read_bytes())
    return found


@pytest.mark.spark
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_cluster_with_another_home_gives_the_same_results(
    small_run: Path, small_results: Results, tmp_path: Path, workers: int
) -> None:
    """The workers have none of our packages, and no Python."""
    home = tmp_path / "home"
    home.mkdir()
    there = {
        **os.environ,
        "HOME": str(home),
        "PYSPARK_PYTHON": "/nonexistent/python",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_HOME": str(java_home(os.environ)),
    }
    # So few rows do not repay Java's optimising compiler.
    quick = "-XX:TieredStopAtLevel=1"
    confs = {
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": quick,
        "spark.driver.extraJavaOptions": quick,
    }
    options = " ".join(f"--conf {key}={value}" for key, value in confs.items())
    here = there | {
        "HOME": os.environ.get("HOME", "/"),
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
    }
    del here["JAVA_HOME"]
    with cluster(tmp_path, workers, there) as master:
        found = analyzed(
            f"file:{small_run}".replace("%", "%25"),
            tmp_path / "report",
            "--master",
            master,
            env=here,
        )
    assert found == small_results


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """Start Spark Connect in its own directory; yield its URL."""
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    home = Path(pyspark.__file__).parent
    if not list(home.glob("jars/spark-connect_*.jar")):
        pytest.skip("this pyspark has no spark-connect jar")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "server.log"
    confs = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": 4,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": settings("local[2]")[
            "spark.driver.extraJavaOptions"
        ],
    }
    options = [it for k, v in confs.items() for it in ("--conf", f"{k}={v}")]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                home / "bin" / "spark-submit",
                *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
                *options,
                "spark-internal",
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home(os.environ)),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": "/nonexistent/python",
            },
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + START_S
        while not re.search("Spark Connect server started", log.read_text()):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.mark.spark
def test_spark_connect_gives_the_same_results(
    small_run: Path, small_results: Results, connect_server: str, tmp_path: Path
) -> None:
    env = {name: it for name, it in os.environ.items() if name != "JAVA_HOME"}
    out = tmp_path / "report"
    found = analyzed(str(small_run), out, "--master", connect_server, env=env)
    assert found == small_results
