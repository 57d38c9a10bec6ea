"""The report: the same bytes twice, no network, and words that fit the numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from spark_analysis.analyze import write_report
from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.study import Study
from spark_analysis.judging.verdict import Verdict
from spark_analysis.telling.sentences.cautions import cautions
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.verdict_sentences import (
    again_sentence,
    headline,
    sentence,
    story,
)
from spark_analysis.telling.tables.point_tables import (
    cells_table,
    comparison_table,
    runs_table,
    tables,
)
from spark_analysis.telling.tables.table import as_csv, as_latex, as_markdown
from spark_analysis.telling.terminal import show

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def report(study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("report")
    write_report(study, directory)
    return directory


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_report_is_the_same_bytes_twice(
    study: Study, report: Path, tmp_path: Path
) -> None:
    write_report(study, tmp_path)
    assert files_of(tmp_path) == files_of(report)


def test_every_promised_file_is_there(report: Path) -> None:
    found = set(files_of(report))
    figures = ("ccdf", "quantiles", "ratios", "phases", "queue", "blocks", "drift")
    listed = ("comparison", "cells", "phases", "again", "runs", "speed")
    assert found == {
        "index.html",
        "results.json",
        "words.json",
        *(f"figures/{name}.{kind}" for name in figures for kind in ("svg", "png")),
        *(f"tables/{name}.{kind}" for name in listed for kind in ("csv", "md", "tex")),
    }


def test_the_page_needs_no_network(report: Path) -> None:
    page = (report / "index.html").read_text()
    assert not re.search(r"<(?:script|link|img|iframe)\b", page)
    assert not re.search(r"(?:src|href)=[\"'](?!#)", page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_the_page_is_sound(report: Path) -> None:
    page = (report / "index.html").read_text()
    ids = re.findall(r"\bid=[\"']([^\"']+)", page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r"href=[\"']#([^\"']+)|url\(#([^)]+)\)", page):
        assert "".join(target) in ids
    # Every placeholder of the prose was filled in.
    assert "$" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "generator late: p99 1.8 ms" in page
    assert "block 7 lacks a valid run" in page


def test_results_json_is_strict_json(report: Path) -> None:
    found = json.loads(
        (report / "results.json").read_text(), parse_constant=pytest.fail
    )
    assert len(found["rows"]) == 75


def test_csv_has_every_digit(comparison: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(cells_table(comparison)))))
    shown = [cell for cell in comparison.cells if cell.estimate]
    by_key = {(row["class"], row["arm"], row["metric"]): row for row in rows}
    for cell in shown:
        row = by_key[cell.class_name, cell.arm, cell.metric.name]
        assert float(row["value"]) == cell.measured.estimate.value
        assert float(row["interval_high"]) == cell.measured.estimate.high
    refused = by_key["fetch", "fifo", "p99.9_ms"]
    assert (refused["value"], refused["ratio"]) == ("", "")
    assert refused["verdict"].startswith("refused: ")
    lost = by_key["fetch", "wfq", "p99_ms"]
    assert (lost["value"], lost["ratio"]) == ("", "inf")
    assert lost["verdict"].rstrip("†") == "worse"


def test_markdown_rows_are_as_wide_as_their_heading(comparison: Comparison) -> None:
    for table in tables(comparison):
        lines = as_markdown(table).splitlines()[2:]
        assert len(lines) == len(table.rows) + 2
        assert {line.count("|") for line in lines} == {len(table.columns) + 1}


def test_latex_is_escaped_and_ruled_as_booktabs(comparison: Comparison) -> None:
    text = as_latex(cells_table(comparison))
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert r"goodput\_per\_s" in text
    bare = text.replace("$-$", "").replace(r"$\infty$", "")
    assert not re.search(r"(?<!\\)[%_#$]", bare)
    for line in text.split("\\midrule\n")[1].split("\\bottomrule")[0].splitlines():
        assert line.count(" & ") == len(cells_table(comparison).columns) - 1


def test_excluded_runs_are_listed_with_their_reason(comparison: Comparison) -> None:
    table = runs_table(comparison)
    excluded = {row[0]: row[-1] for row in table.rows if row[-1]}
    assert excluded["b002-fifo-t1"] == "generator late: p99 1.8 ms > 1.0 ms"
    assert excluded["b007-wfq-t0"] == "the broker exited with status 1"
    assert excluded["b007-fifo-t0"] == "block 7 lacks a valid run of some arm"
    assert len(excluded) == 6


# ---- words ----


def changed(comparison: Comparison, arm: str, metric: str, verdict: Verdict) -> Cell:
    """Return a control cell with a known contrast and verdict."""
    cell = comparison.cell("control", arm, metric)
    assert cell.contrast is not None
    contrast = replace(
        cell.contrast,
        value=0.25,
        low=0.2,
        high=0.3125,
        p=0.0156,
        blocks=7,
        blocks_lower=7,
        blocks_tied=0,
    )
    return replace(cell, contrast=contrast, verdict=verdict)


def test_a_difference_is_told_with_its_evidence(comparison: Comparison) -> None:
    cell = changed(comparison, "wfq", "p95_ms", Verdict(word="better"))
    told = sentence(comparison, cell)
    assert told.startswith("The p95 latency of control is 4.0 times lower under wfq")
    assert (
        "ratio 0.250, 95\u202f% interval 0.200–0.312, p = 0.016, lower in 7 of 7"
        in told
    )


def test_sameness_names_its_margin(comparison: Comparison) -> None:
    cell = changed(comparison, "wfq", "goodput_per_s", Verdict(word="equivalent"))
    told = sentence(comparison, cell)
    assert told.startswith(
        "The goodput of control under wfq equals fifo's within 2\u202f%"
    )


def test_no_verdict_does_not_sound_like_sameness(comparison: Comparison) -> None:
    cell = changed(comparison, "wfq", "p95_ms", Verdict(word="inconclusive"))
    assert cell.contrast is not None
    alone = replace(cell, contrast=replace(cell.contrast, p=0.4))
    assert sentence(comparison, alone).endswith(
        "The interval is of this comparison alone, and leaves out 1; the p is of all "
        "comparisons at once, and shows no difference."
    )
    wide = replace(cell.contrast, p=0.4, value=1.0, low=0.5, high=2.0)
    undecided = replace(cell, contrast=wide)
    assert sentence(comparison, undecided).endswith(
        "A difference of more than 5\u202f% is neither shown nor ruled out."
    )
    few = replace(cell, contrast=replace(cell.contrast, p=0.0625, blocks=5))
    assert sentence(comparison, few).endswith(
        "With 5 blocks no data could give a p below 0.062, so this is no evidence of "
        "sameness either."
    )


def test_a_refusal_says_why(comparison: Comparison) -> None:
    cell = comparison.cell("fetch", "fifo", "p99.9_ms")
    assert re.search(
        r"is not shown: \d+ of the requests can lie beyond p99.9, and \d+ must",
        sentence(comparison, cell),
    )


def test_the_answer_names_who_gains_and_who_pays(comparison: Comparison) -> None:
    first, best, price = lead(comparison)
    assert first.startswith(f"The {comparison.headline.label} latency of control")
    assert all(f"times lower under {arm}" in first for arm in comparison.rivals)
    assert best.startswith(("Best for it is ", "No arm is shown to be better"))
    assert price.startswith(("No other class pays", "Whether", "The price is paid by"))
    told = headline(comparison, story(comparison, "wfq"))
    assert "The others: produce" in told


def test_a_false_alarm_of_the_again_arm_is_a_caution(comparison: Comparison) -> None:
    assert cautions(comparison) == (
        "Left out, for some arm has no valid run there: block 7.",
    )
    wrong = changed(comparison, "fifo-again", "p95_ms", Verdict(word="better"))
    cells = tuple(
        wrong
        if (c.class_name, c.arm, c.metric) == ("control", "fifo-again", wrong.metric)
        else c
        for c in comparison.cells
    )
    alarmed = replace(comparison, cells=cells)
    assert "a difference was found in p95 of control" in again_sentence(alarmed)
    assert again_sentence(alarmed) in cautions(alarmed)


def test_an_unfinished_experiment_says_so(comparison: Comparison) -> None:
    manifest = replace(comparison.manifest, finished=False)
    found = cautions(replace(comparison, manifest=manifest))
    assert found[0] == "This experiment is unfinished: 7 of 8 blocks are complete."


@pytest.mark.parametrize("width", [80, 140])
def test_the_terminal_cuts_nothing_off(
    study: Study, comparison: Comparison, width: int
) -> None:
    out = io.StringIO()
    show(study, Console(file=out, width=width))
    text = out.getvalue()
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
    for arm in comparison.arm_names:
        assert arm in text
    shown = comparison_table(comparison).written()
    assert len(shown) == 15
