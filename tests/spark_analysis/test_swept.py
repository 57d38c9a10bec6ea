"""A recorded sweep: each point comes out as if it had been recorded alone."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_analysis.analyze import write_report
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.telling.paper import build
from spark_analysis.telling.sentences.sweep_sentences import study_cautions
from tests.spark_analysis import synthetic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
LOADS, SHARES = {"0.5": 0.5, "0.9": 1.0}, {"small": 0.5, "large": 1.0}
FACTORS = ("reader", "queue")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four points with two blocks; one point has one block, another none at all.

    Windows and objectives differ between points, three arms carry factors (so that they
    are no full design), one arm broke a law, and two arms are to be compared.
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
    """Write a point of the sweep as an experiment of its own, over the same files."""
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
    assert found.run_values == expected.run_values
    assert found.phases == expected.phases
    assert found.queue == expected.queue
    assert found.headline == expected.headline


def test_points_differ_in_window_and_objective(study: Study) -> None:
    counts = [
        sum(run.counts["ok"] for run in comparison.run_values)
        for comparison in study.comparisons[:2]
    ]
    assert counts[1] < counts[0]
    assert [c.manifest.point.window_ns[0] for c in study.comparisons[:2]] == [
        0,
        5 * 10**7,
    ]


def test_a_point_without_a_complete_block_is_left_out_by_name(study: Study) -> None:
    assert len(study.comparisons) == 3
    assert [len(c.manifest.blocks) for c in study.comparisons] == [2, 2, 1]
    found = study_cautions(study)
    assert "Left out, without a block that has all arms: load=0.9 share=large." in found
    assert "At 1 point some block or arm had to be left out." in found
    assert (
        "At 3 of 3 points so few blocks are complete (at the least 1) that no data "
        "could give a p below 0.05: every verdict there is inconclusive, and none "
        "means sameness."
    ) in found
    assert found[-1] == "Laws were broken at run time, under priority (starvation 5)."


def test_the_report_has_a_summary_and_every_point(study: Study, tmp_path: Path) -> None:
    write_report(study, tmp_path)
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    for name in ("levels", "pairs", "points", "violations", "p000/cells", "p002/runs"):
        assert {f"tables/{name}.{kind}" for kind in ("csv", "md", "tex")} <= found
    assert "figures/levels.svg" in found
    assert "figures/map-priority-planes.png" in found
    assert "figures/p001/ratios.svg" in found
    page = (tmp_path / "index.html").read_text()
    ids = re.findall(r"\bid=[\"']([^\"']+)", page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r"href=[\"']#([^\"']+)|url\(#([^)]+)\)", page):
        assert "".join(target) in ids
    assert "<summary>load=0.5 share=small</summary>" in page
    assert "$" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "The arms are no full design: no arm with a valid run has" in page
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert len(rows) == 3 * 3 * 5 * 5


def test_with_many_points_a_point_has_tables_and_no_figures(
    study: Study, tmp_path: Path
) -> None:
    point = study.manifest.points[0]
    points = tuple(replace(point, name=f"{n}", levels={"n": f"{n}"}) for n in range(6))
    of_point = study.comparisons[0]
    many = replace(
        study,
        manifest=replace(study.manifest, points=points),
        comparisons=tuple(
            replace(of_point, manifest=replace(of_point.manifest, points=(point,)))
            for point in points
        ),
        pairs=(),
        levels=(),
    )
    write_report(many, tmp_path)
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        "levels.svg",
        "levels.png",
    }
    assert (tmp_path / "tables" / "p005" / "comparison.csv").is_file()


def test_a_run_at_no_point_is_refused(swept: Path, tmp_path: Path) -> None:
    manifest = json.loads((swept / "manifest.json").read_text())
    manifest["runs"][0]["point"] = "elsewhere"
    synthetic.save(tmp_path, manifest)
    with pytest.raises(RecordingError, match="b000-fifo-t0 is at none of the points"):
        load_manifest(tmp_path)


def test_the_paper_is_set_from_one_point(swept: Path, tmp_path: Path) -> None:
    shutil.copy(swept / "manifest.json", tmp_path)
    with pytest.raises(RecordingError, match="a sweep; the paper is set from one"):
        build(tmp_path, tmp_path / "paper.pdf")


@pytest.mark.parametrize("blocks", [1, 2])
def test_one_or_two_blocks_make_a_report_without_a_verdict(
    spark: SparkSession, tmp_path: Path, blocks: int
) -> None:
    synthetic.write(tmp_path, blocks=blocks, seconds=0.2, arms=["fifo", "wfq"])
    study = compare(spark, load_manifest(tmp_path))
    (comparison,) = study.comparisons
    words = {cell.verdict.word for cell in comparison.cells}
    assert words <= {"baseline", "inconclusive", "refused"}
    write_report(study, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").is_file()
