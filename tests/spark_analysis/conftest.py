"""Fixtures: a queue with known quantiles, recordings, one shared Spark session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_analysis.incidents.incident import Incident
    from spark_analysis.judging.comparison import Comparison
    from spark_analysis.judging.study import Study
    from spark_analysis.report.content.schema import Results

Sojourns = Callable[[np.random.Generator, int, int, float], npt.NDArray[np.float64]]
WARM_UP = 2000


@pytest.fixture(scope="session")
def mm1_sojourns() -> Sojourns:
    """Sojourn times of an M/M/1 queue with service rate 1, by Lindley's recursion.

    Arguments: generator, runs, requests per run, load. In the limit the times are
    exponential with rate ``1 - load``.
    """
    return _mm1_sojourns


def _mm1_sojourns(
    generator: np.random.Generator, runs: int, count: int, load: float
) -> npt.NDArray[np.float64]:
    gaps = generator.exponential(1 / load, (runs, count + WARM_UP))
    services = generator.exponential(1.0, (runs, count + WARM_UP))
    steps = services[:, :-1] - gaps[:, 1:]
    walk = np.concatenate([np.zeros((runs, 1)), np.cumsum(steps, axis=1)], axis=1)
    waits = walk - np.minimum.accumulate(walk, axis=1)
    return np.asarray((waits + services)[:, WARM_UP:], dtype=np.float64)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from spark_analysis.recordings.spark_session import spark_session

    with spark_session() as session:
        yield session


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight blocks, five arms; the last 2 % of fetches under wfq have no response.

    Block 7 has no valid run of ``wfq``, and block 2 has an invalid run and its
    repetition, so both kinds of excluded runs occur.
    """
    directory: Path = tmp_path_factory.mktemp("recorded")
    manifest = synthetic.write(directory, blocks=8, seconds=0.8)
    # Seven sessions have few effective exceedances.
    manifest["analysis"]["exceedances_shown"] = 5
    runs = {(run["block"], run["arm"]): run for run in manifest["runs"]}
    late = dict(runs[2, "fifo"], run_id="b002-fifo-t1", valid=False, requests=None)
    late |= {"samples": None, "counts": {}, "lateness_ns": {}, "load_average": None}
    late["reason"] = "generator late: p99 1.8 ms > 1.0 ms"
    manifest["runs"].append(late)
    runs[7, "wfq"].update(valid=False, reason="the broker exited with status 1")
    for block in range(8):
        _lose_fetches(directory, runs[block, "wfq"], block)
    synthetic.save(directory, manifest)
    return directory


def _lose_fetches(directory: Path, run: dict[str, Any], block: int) -> None:
    rng = np.random.default_rng([1, block])
    rates = {"control": 1500.0, "produce": 1200.0, "fetch": 300.0}
    rows = synthetic.replay(
        synthetic.make_trace(rng, 0.8, rates),
        "wfq",
        np.random.default_rng([1, block, 3]),
    )
    fetches = [i for i, name in enumerate(rows["class"]) if name == "fetch"]
    for i in fetches[::50]:
        rows["client_done_ns"][i] = None
        rows["outcome"][i] = "unfinished"
        run["counts"]["unfinished"] += 1
        run["counts"]["ok"] -= 1
    synthetic.write_run(directory, run, rows)


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in a directory with special characters of shells, URIs and globs."""
    directory: Path = tmp_path_factory.mktemp("runs") / "a {b} [c]* 100%25"
    synthetic.write(directory, blocks=2, seconds=0.02, arms=["fifo", "wfq"])
    return directory


@pytest.fixture(scope="session")
def small_results(spark: SparkSession, small_run: Path) -> Results:
    """Content of the small run's ``results.json``, by the session of all tests."""
    from spark_analysis.judging.assembly import compare
    from spark_analysis.judging.world_agreement import hold_together
    from spark_analysis.recordings.manifest import load_manifest
    from spark_analysis.report.results import results_of

    worlds = hold_together([compare(spark, load_manifest(small_run))], {})
    text = json.dumps(results_of(worlds, {}), allow_nan=False)
    found: Results = json.loads(text)
    return found


@pytest.fixture(scope="session")
def elected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an election in each block, whose measures are known."""
    from tests.spark_analysis.elections import step_down_ms, written

    directory: Path = tmp_path_factory.mktemp("elected")
    written(directory, "virtual", step_down_ms)
    return directory


@pytest.fixture(scope="session")
def judged(spark: SparkSession, elected: Path) -> Incident:
    """The incident of the run with elections."""
    from spark_analysis.incidents.judging import judge_incident
    from spark_analysis.recordings.manifest import load_manifest

    found = judge_incident(spark, load_manifest(elected))
    assert found is not None
    return found


@pytest.fixture(scope="session")
def study(spark: SparkSession, recorded: Path) -> Study:
    from spark_analysis.judging.assembly import compare
    from spark_analysis.recordings.manifest import load_manifest

    return compare(spark, load_manifest(recorded))


@pytest.fixture(scope="session")
def comparison(study: Study) -> Comparison:
    """Results of the study without a sweep."""
    (only,) = study.comparisons
    return only
