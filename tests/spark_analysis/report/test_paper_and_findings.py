"""The paper and the page of findings, set from results."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.schema import Results
from spark_analysis.report.findings import collect, render
from spark_analysis.report.paper import SOURCES, build, facts_of, naming, read_results
from spark_analysis.report.writing import write_report
from tests.spark_analysis.damage import damage_bytes, damage_field
from tests.spark_analysis.made_results import BETTER, OPEN, made

CELLS = {
    ("control", "wfq"): BETTER,
    ("control", "planes"): BETTER,
    ("produce", "wfq"): OPEN,
    ("produce", "planes"): OPEN,
}
KINDS = {
    "point": made(CELLS),
    "worlds": made({"live": CELLS, "virtual": CELLS}),
    "sweep": made(CELLS, points=[{"load": "0.5"}, {"load": "0.9"}]),
}


def analysed(found: Results, run_dir: Path) -> Path:
    write_report(found, (), run_dir / "report")
    return run_dir


@pytest.mark.parametrize("kind", KINDS)
def test_the_paper_is_the_same_bytes_twice(kind: str, tmp_path: Path) -> None:
    run_dir = analysed(KINDS[kind], tmp_path / "run")
    for name in ("one.pdf", "two.pdf"):
        build(run_dir, tmp_path / name)
    one, two = (tmp_path / name for name in ("one.pdf", "two.pdf"))
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(b"%PDF")


def test_without_a_report_the_command_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"results.json: missing; run `doorkeeper"):
        build(tmp_path, tmp_path / "paper.pdf")


@pytest.mark.parametrize("seed", range(60))
def test_damaged_results_are_read_or_named(seed: int, tmp_path: Path) -> None:
    """Every second time a field, else a byte; the page that was kept stays."""
    runs, beside, rng = tmp_path / "runs", tmp_path / "page", random.Random(seed)
    file = runs / "one" / "report" / "results.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(KINDS["worlds"]))
    template = tmp_path / "page.md.j2"
    template.write_text("{{ of.one.sentences }} {{ of.one.table }} {{ of.one.source }}")
    collect(runs, beside, template)
    kept = (beside / "one.json").read_bytes()
    (damage_field if seed % 2 else damage_bytes)(file, rng)
    refusal = f"{file}: "
    try:
        with naming(file):
            facts_of(read_results(file))
        collect(runs, beside, template)
    except RecordingError as error:
        refusal = str(error)
    assert refusal.startswith(f"{file}: ")
    if (beside / "one.json").read_bytes() != kept:
        assert render(template, beside)


def test_a_template_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    template = tmp_path / "page.md.j2"
    for content in (b"\xff\xfe", b"{{ 1 / 0 }}", b"{{ 'x' + 1 }}"):
        template.write_bytes(content)
        with pytest.raises(RecordingError, match=re.escape(str(template))):
            render(template, tmp_path)


def test_the_sources_hold_no_measured_number() -> None:
    source = (SOURCES / "main.typ").read_text()
    prose = re.sub(r"KIP-291|KAFKA-4453|Kafka\s+2\.2|\bS[12]\b|@\w+|//.*", "", source)
    assert re.findall(r"\d+\.\d+|\d+ (?:ms|%)", prose) == []


def test_the_page_of_findings_is_made_of_kept_results(tmp_path: Path) -> None:
    runs, beside = tmp_path / "runs", tmp_path / "page"
    analysed(KINDS["point"], runs / "one")
    template = tmp_path / "page.md.j2"
    text = (
        "{{ of.one.sentences }}\n\n{{ of.one.table }}\n![effect](page/one-overview.svg)"
    )
    template.write_text(text)
    assert collect(runs, beside, template) == ["one"]
    page = render(template, beside)
    assert "control p99 in the live world is lowest" in page
    assert "| wfq | 0.0900 |" in page
    assert [file.name for file in beside.glob("*.svg")] == ["one-overview.svg"]
    assert collect(tmp_path / "page", beside, template) == []
    assert render(template, beside) == page


def test_a_missing_experiment_is_named(tmp_path: Path) -> None:
    template = tmp_path / "page.md.j2"
    template.write_text("{{ of.absent.table }}")
    with pytest.raises(RecordingError, match="absent"):
        render(template, tmp_path)
