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
from tests.experiments.spark_cluster import cluster
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
START_S = 120.0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a directory with special characters of shells, URIs and globs."""
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


def analyzed(run: str, out: Path, *options: str, env: dict[str, str]) -> bytes:
    """Run the command in another directory; return results.json."""
    done = subprocess.run(
        [sys.executable, "-m", "doorkeeper", "analyze", run, "--out", out, *options],
        check=False,
        capture_output=True,
        env=env | {"PYTHONPATH": str(ROOT)},
        cwd=out.parent,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()
    return (out / "results.json").read_bytes()


@pytest.fixture(scope="module")
def expected(run: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("expected") / "report"
    return analyzed(str(run), out, env=dict(os.environ))


@pytest.mark.spark
def test_a_cluster_with_another_home_gives_the_same_bytes(
    run: Path, expected: bytes, tmp_path: Path
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
    here = there | {
        "HOME": os.environ.get("HOME", "/"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=512m pyspark-shell",
    }
    del here["JAVA_HOME"]
    with cluster(tmp_path, 2, there) as master:
        found = analyzed(
            f"file:{run}".replace("%", "%25"),
            tmp_path / "report",
            "--master",
            master,
            env=here,
        )
    assert found == expected


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
def test_spark_connect_gives_the_same_bytes(
    run: Path, expected: bytes, connect_server: str, tmp_path: Path
) -> None:
    env = {name: it for name, it in os.environ.items() if name != "JAVA_HOME"}
    found = analyzed(str(run), tmp_path / "report", "--master", connect_server, env=env)
    assert found == expected
