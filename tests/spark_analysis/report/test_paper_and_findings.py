"""The paper and the page of findings, built from results."""

from __future__ import annotations

import json
import random
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from spark_analysis.claims import check
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.report.content.schema import Results
from spark_analysis.report.doses import written_doses
from spark_analysis.report.findings import collect, render
from spark_analysis.report.paper import (
    PLACED,
    SOURCES,
    build,
    facts_of,
    naming,
    read_results,
)
from spark_analysis.report.writing import write_report
from tests.seeds import seeds
from tests.spark_analysis.damage import damage_bytes, damage_field
from tests.spark_analysis.made_results import BETTER, OPEN, made
from tests.spark_analysis.test_doses import DOSES

CELLS = {
    ("control", "wfq"): BETTER,
    ("control", "planes"): BETTER,
    ("produce", "wfq"): OPEN,
    ("produce", "planes"): OPEN,
}
ROOT = SOURCES.parent
KINDS = {
    "point": made(CELLS),
    "worlds": made({"live": CELLS, "virtual": CELLS}),
    "sweep": made(CELLS, points=[{"load": "0.5"}, {"load": "0.9"}]),
}


def analysed(found: Results, run_dir: Path) -> Path:
    write_report(found, (), run_dir / "report")
    return run_dir


def written(found: Results, run_dir: Path) -> Path:
    """Write results without figures, of which the paper draws its own."""
    (run_dir / "report").mkdir(parents=True, exist_ok=True)
    (run_dir / "report" / "results.json").write_text(json.dumps(found))
    return run_dir


@pytest.mark.parametrize("kind", KINDS)
def test_the_paper_is_the_same_bytes_twice(kind: str, tmp_path: Path) -> None:
    run_dir = written(KINDS[kind], tmp_path / "run")
    for name in ("one.pdf", "two.pdf"):
        build(run_dir, tmp_path / name)
    one, two = (tmp_path / name for name in ("one.pdf", "two.pdf"))
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes().startswith(b"%PDF")


def test_without_a_report_the_command_to_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"results.json: missing; run `doorkeeper"):
        build(tmp_path, tmp_path / "paper.pdf")


def test_kept_results_make_one_paper(tmp_path: Path) -> None:
    """The results and figures of the page of findings also make the paper."""
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    analysed(KINDS["point"] | {"name": "one"}, runs / "one")
    shutil.copytree(runs / "one", runs / "two")
    written(KINDS["point"] | {"name": "two"}, runs / "two")
    template = tmp_path / "page.md.j2"
    template.write_text("![effect](page/one-overview.svg)")
    collect(runs, kept, template)
    build(kept, tmp_path / "both.pdf")
    (kept / "two.json").unlink()
    build(kept, tmp_path / "one.pdf")
    both, one = ((tmp_path / f"{name}.pdf").read_bytes() for name in ("both", "one"))
    assert len(both) > len(one)
    (kept / "one.json").write_text("{}")
    with pytest.raises(RecordingError, match=re.escape(f"{kept / 'one.json'}: ")):
        build(kept, tmp_path / "none.pdf")


@pytest.mark.parametrize(
    ("arm", "limits", "holds"),
    [
        ("wfq", [0.05, 0.1], True),
        ("wfq", [0.1, 0.2], False),
        ("absent", [0.0, 9.0], False),
    ],
)
def test_a_claim_holds_inside_its_range(
    arm: str, limits: list[float], holds: bool, tmp_path: Path
) -> None:
    written(KINDS["point"], tmp_path / "one")
    claims = tmp_path / "claims.toml"
    claims.write_text(
        f'[[claim]]\ntext = "a"\nexperiment = "one"\nworld = "live"\n'
        f'class = "control"\narm = "{arm}"\nrange = {limits}\ntier = "small"\n'
        f'[[claim]]\nexperiment = "not recorded"\ntier = "large"\n'
    )
    assert [found for found, _ in check(claims, tmp_path)] == [holds]


def test_every_claim_of_the_paper_is_about_a_shipped_arm() -> None:
    claims = tomllib.loads((SOURCES / "claims.toml").read_text())["claim"]
    for claim in claims:
        config = ROOT / "experiments" / "configs" / f"{claim['experiment']}.toml"
        shipped = tomllib.loads(config.read_text())
        assert claim["arm"] in [arm["name"] for arm in shipped["arms"]]
        traffic = shipped["workload"]["traffic"]
        assert claim["class"] in [it.get("class", it["name"]) for it in traffic]


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_damaged_results_are_read_or_named(seed: int, tmp_path: Path) -> None:
    """Damage alternates between fields and bytes; the previous page stays."""
    runs, beside, rng = tmp_path / "runs", tmp_path / "page", random.Random(seed)
    file = written(KINDS["worlds"], runs / "one") / "report" / "results.json"
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


@pytest.mark.parametrize("name", ["kafka-4453", "kafka-reader", "price"])
def test_a_paper_is_set_without_the_other_experiments(
    name: str, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "docs/results" / f"{name}.json", tmp_path)
    build(tmp_path, tmp_path / "paper.pdf")
    assert (tmp_path / "paper.pdf").read_bytes().startswith(b"%PDF")


def test_a_paper_has_predictions_and_doses_where_they_are(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/results/predictions", tmp_path / "predictions")
    (tmp_path / "one.json").write_text(json.dumps(KINDS["point"]))
    build(tmp_path, tmp_path / "without.pdf")
    (tmp_path / "doses").mkdir()
    doses = tmp_path / "doses" / "kafka-4453-dose.json"
    doses.write_text(written_doses(DOSES))
    build(tmp_path, tmp_path / "with.pdf")
    without, having = (
        (tmp_path / f"{name}.pdf").read_bytes() for name in ("without", "with")
    )
    assert len(having) > len(without)
    doses.write_text("{}")
    with pytest.raises(RecordingError, match=re.escape(f"{doses}: ")):
        build(tmp_path, tmp_path / "none.pdf")


def test_every_experiment_with_a_place_is_shipped_and_in_the_text() -> None:
    text = (SOURCES / "main.typ").read_text()
    configs = {path.stem for path in (ROOT / "experiments/configs").glob("*.toml")}
    assert set(PLACED) <= configs & set(re.findall(r'result\("([\w-]+)"', text))


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
