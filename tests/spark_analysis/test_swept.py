"""A recorded sweep: each point has the results of a separate recording."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.manifest import load_manifest
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LOADS, SHARES = {"0.5": 0.5, "0.9": 1.0}, {"small": 0.5, "large": 1.0}
FACTORS = ("reader", "queue")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four points with two blocks; one point has only one block, another has none.

    Windows and objectives differ between points. Three arms have factors that are no
    full design, one arm broke a law, and two arms are compared with each other.
    """
    directory: Path = tmp_path_factory.mktemp("swept")
    manifest = synthetic.write_sweep(
        directory,
        LOADS,
        SHARES,
        analysis={"compare": [["priority", "planes"]], "exceedances_shown": 1},
    )
    points = manifest["points"]
    points[1]["window_ns"] = [50_000_000, 150_000_000]
    points[1]["classes"][0]["slo_ns"] = 500_000
    for run in manifest["runs"]:
        if run["point"] == points[3]["point"]:
            run["valid"] = run["arm"] != "fifo"
        if run["point"] == points[2]["point"] and run["block"] == 1:
            run["valid"] = run["arm"] != "wfq"
        run["violations"] = {"starvation": int(run["arm"] == "priority")}
    for arm in manifest["arms"][:3]:
        own = {"fifo": (), "planes": FACTORS, "priority": FACTORS[:1]}[arm["name"]]
        arm["factors"] = {f: "own" if f in own else "shared" for f in FACTORS}
    synthetic.save(directory, manifest)
    return directory


@pytest.fixture(scope="module")
def study(spark: SparkSession, swept: Path) -> Study:
    return compare(spark, load_manifest(swept))


def alone(swept: Path, place: int, directory: Path) -> Path:
    """Write a point of the sweep as a separate experiment over the same files."""
    manifest: dict[str, Any] = json.loads((swept / "manifest.json").read_text())
    point = manifest.pop("points")[place]
    manifest |= {"classes": point["classes"], "window_ns": point["window_ns"]}
    manifest["runs"] = [
        {key: value for key, value in run.items() if key != "point"}
        for run in manifest["runs"]
        if run["point"] == point["point"]
    ]
    synthetic.save(directory, manifest)
    for kind in ("requests", "samples"):
        (directory / kind).symlink_to(swept / kind)
    return directory


@pytest.mark.parametrize("place", [1, 2])
def test_a_point_is_judged_as_if_it_were_alone(
    spark: SparkSession, study: Study, swept: Path, tmp_path: Path, place: int
) -> None:
    (expected,) = compare(
        spark, load_manifest(alone(swept, place, tmp_path))
    ).comparisons
    found = study.comparisons[place]
    assert found.cells == expected.cells
    assert found.sessions.keys() == expected.sessions.keys()
    assert found.phases == expected.phases
    assert found.queue == expected.queue


def test_points_differ_in_window_and_objective(study: Study) -> None:
    counts = [
        sum(cell.requests for cell in comparison.cells)
        for comparison in study.comparisons[:2]
    ]
    assert counts[1] < counts[0]
    assert [c.manifest.point.window_ns[0] for c in study.comparisons[:2]] == [
        0,
        5 * 10**7,
    ]


def test_a_run_at_no_point_is_refused(swept: Path, tmp_path: Path) -> None:
    manifest = json.loads((swept / "manifest.json").read_text())
    manifest["runs"][0]["point"] = "elsewhere"
    synthetic.save(tmp_path, manifest)
    with pytest.raises(RecordingError, match="b000-fifo-t0 is at none of the points"):
        load_manifest(tmp_path)
