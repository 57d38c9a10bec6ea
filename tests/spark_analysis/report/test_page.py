"""The report's page and files: valid, reproducible, offline, safe with any name."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spark_analysis.judging.study import Study
from spark_analysis.judging.world_agreement import hold_together
from spark_analysis.report.content.schema import Results
from spark_analysis.report.results import results_of, run_rows
from spark_analysis.report.writing import write_report
from tests.spark_analysis.made_results import BETTER, OPEN, made

VOID = {"meta", "br", "link", "img", "hr"}
HOSTILE = "<script>alert(1)</script>\"'&"


@dataclass
class Checked(HTMLParser):
    """Nesting of elements, ids, and addresses outside the page."""

    open: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            if name in ("src", "href") and value and not value.startswith("#"):
                self.outside.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> Checked:
    parser = Checked()
    parser.feed(page)
    parser.close()
    return parser


@pytest.fixture(scope="session")
def results(study: Study) -> Results:
    return results_of(hold_together([study], {}), {})


@pytest.fixture(scope="session")
def report(
    study: Study, results: Results, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("report")
    runs = list(run_rows(hold_together([study], {})))
    write_report(results, runs, directory)
    return directory


def test_the_page_is_sound_and_needs_no_network(report: Path) -> None:
    page = (report / "index.html").read_text()
    found = checked(page)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert found.outside == []
    assert not re.search(r"url\(\s*['\"]?https?:", page)


def test_the_same_results_give_the_same_bytes(
    report: Path, study: Study, results: Results, tmp_path: Path
) -> None:
    write_report(results, list(run_rows(hold_together([study], {}))), tmp_path)
    files = sorted(p.relative_to(report) for p in report.rglob("*") if p.is_file())
    assert files == sorted(
        p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()
    )
    for file in files:
        assert (report / file).read_bytes() == (tmp_path / file).read_bytes(), file


def test_the_promised_files_are_there(report: Path) -> None:
    for name in ("comparison", "cells", "noise", "runs"):
        for suffix in ("csv", "md", "tex"):
            assert (report / "tables" / f"{name}.{suffix}").stat().st_size > 0
    for suffix in ("svg", "png"):
        assert (report / "figures" / f"overview.{suffix}").stat().st_size > 0


def test_rows_follow_the_contract(results: Results) -> None:
    names = "value low high ratio ratio_low ratio_high p verdict n blocks"
    keys = {"world", "class", "arm", "metric", *names.split(" ")}
    assert results["schema"] == 1
    assert results["rows"]
    for row in results["rows"]:
        assert keys <= set(row)
        word = row["verdict"].partition(":")[0]
        assert word in {
            "baseline",
            "A/A",
            "better",
            "worse",
            "equivalent",
            "not significant",
            "refused",
        }
        assert (word == "refused") == row["verdict"].startswith("refused: ")
    json.dumps(results, allow_nan=False)


def test_the_noise_floor_is_the_again_arms_interval(results: Results) -> None:
    again = {
        (row["class"], row["metric"]): (row["ratio_low"], row["ratio_high"])
        for row in results["rows"]
        if row["arm"] == results["again"]
    }
    for row in results["rows"]:
        low, high = again[row["class"], row["metric"]]
        if low is None or high is None:
            assert row["noise_low"] is None
            continue
        # Either baseline could come first, so the wider end applies to both sides.
        wider = max(high, 1 / low)
        assert row["noise_low"] == pytest.approx(1 / wider)
        assert row["noise_high"] == pytest.approx(wider)


def test_discarded_runs_are_listed_with_their_reason(study: Study) -> None:
    rows = list(run_rows(hold_together([study], {})))
    compared = {run.run_id for run in study.manifest.runs_compared}
    assert len(rows) == len(study.manifest.runs)
    assert {row["run"] for row in rows if not row["discarded"]} == compared
    assert any(row["discarded"] for row in rows)


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    cells = {("control", HOSTILE): BETTER, ("produce", HOSTILE): OPEN}
    found = made(cells, title=HOSTILE)
    found["name"] = HOSTILE
    write_report(found, (), tmp_path)
    page = checked((tmp_path / "index.html").read_text())
    assert page.open == []
    assert "script" not in page.seen
