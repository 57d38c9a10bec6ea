"""The recipes of docs/testing.md, each run as a test file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_analysis.recordings.java import NoJava, java_home
from tests.testing.recipes import QUIX_STREAMS, RECIPES, SPARK

JARS = Path(__file__).parents[2] / ".tools/spark-kafka"
# The recipe expects its reader to provide the session.
SPARK_FIXTURE = """
import pytest
from pyspark.sql import SparkSession

@pytest.fixture
def spark():
    session = SparkSession.builder.master("local[1]")
    session = session.config("spark.jars", {jars!r}).getOrCreate()
    yield session
    session.stop()
"""

pytestmark = pytest.mark.live


def run(at: Path, *titles: str, **environment: str) -> str:
    """Run recipes as test files below ``at`` in one process; return its last line."""
    for number, title in enumerate(titles):
        (at / f"test_recipe_{number}.py").write_text(RECIPES[title])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command,
        cwd=at,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_the_recipes_pass(tmp_path: Path) -> None:
    titles = {*RECIPES} - {QUIX_STREAMS, SPARK}
    assert len(titles) == 6
    assert run(tmp_path, *sorted(titles)).startswith("7 passed")


@pytest.mark.slow
@pytest.mark.spark
def test_the_recipe_for_spark_passes(tmp_path: Path) -> None:
    jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    if "spark-sql-kafka" not in jars:
        pytest.skip("Spark's Kafka connector is missing: `make kafka-tools`")
    try:
        java = java_home(os.environ)
    except NoJava as none:
        pytest.skip(f"Spark cannot run: {none}")
    (tmp_path / "conftest.py").write_text(SPARK_FIXTURE.format(jars=jars))
    python = {"JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable}
    assert run(tmp_path, SPARK, **python).startswith("1 passed")
