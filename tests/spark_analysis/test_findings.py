"""A page of findings: tables by hand, marks that tell of a change, a strict file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_analysis.telling.findings import page
from spark_analysis.telling.findings.spec import (
    Ahead,
    Column,
    Ratios,
    SpecError,
    load,
)
from spark_analysis.telling.findings.tables import ahead_table, ratios_table


def row(point: str, arm: str, ratio: float | None, **more: Any) -> dict[str, Any]:
    verdict = "baseline" if arm == "fifo" else "better"
    ends = {"ratio_low": 0.4, "ratio_high": 0.6} if ratio else {}
    values = {"value": 12.34, "low": 11.0, "high": None}
    found = {"class": "control", "metric": "p99_ms", "verdict": verdict, **values}
    found |= {"ratio": ratio, "ratio_low": None, "ratio_high": None, **ends}
    return {"point": point, "arm": arm, **found, **more}


def pair(point: str, ahead: str, ratio: float | None) -> dict[str, Any]:
    names = {"first": "priority", "second": "planes", "metric": "p99_ms"}
    ends = {"low_at_once": None, "high_at_once": None}
    if ratio is not None:
        ends = {"low_at_once": ratio / 2, "high_at_once": ratio * 2}
    found = {"class": "control", "ratio": ratio, "ahead": ahead, "margin": 0.05}
    return {"point": point, **names, **ends, **found}


RESULTS = {
    "points": [
        {
            "point": f"load={load} share={share}",
            "levels": {"load": load, "share": share},
        }
        for load in ("0.5", "0.9")
        for share in ("a", "b")
    ],
    "rows": [
        row(f"load={load} share={share}", arm, ratio)
        for load in ("0.5", "0.9")
        for share in ("a", "b")
        for arm, ratio in (("fifo", 1.0), ("planes", 0.5))
    ],
    "pairs": [
        pair("load=0.5 share=a", "priority", 0.5),
        pair("load=0.5 share=b", "planes", 1.5),
        pair("load=0.9 share=a", "priority", 0.25),
        pair("load=0.9 share=b", "refused: thin", None),
    ],
}
WHERE = {"class": "control", "metric": "p99_ms"}


def test_points_are_lines_named_by_what_differs() -> None:
    table = Ratios(
        heading="load",
        rows="point",
        cell="value",
        where={**WHERE, "share": "a"},
        columns=(Column(heading="fifo", where={"arm": "fifo"}),),
    )
    assert ratios_table(table, RESULTS) == [
        "| load | fifo |",
        "| --- | ---: |",
        "| load 0.5 | 12.3 (11.0–∞) |",
        "| load 0.9 | 12.3 (11.0–∞) |",
    ]


def test_arms_are_lines_and_the_baseline_has_no_interval() -> None:
    at = {"point": "load=0.9 share=b"}
    table = Ratios(
        heading="arm",
        rows="arm",
        cell="ratio",
        where=WHERE,
        columns=(Column(heading="control", where=at),),
    )
    assert ratios_table(table, RESULTS)[2:] == [
        "| fifo | 1 |",
        "| planes | 0.500 (0.400–0.600) |",
    ]


@pytest.mark.parametrize(
    ("where", "fault"),
    [({"arm": "wfq"}, "0 rows where"), ({"amr": "fifo"}, "no 'amr' in the results")],
)
def test_what_the_results_do_not_hold_is_refused(
    where: dict[str, str], fault: str
) -> None:
    table = Ratios(
        heading="",
        rows="point",
        cell="value",
        where=WHERE,
        columns=(Column(heading="", where=where),),
    )
    with pytest.raises(SpecError, match=fault):
        ratios_table(table, RESULTS)


def test_who_is_ahead_is_counted_by_level_and_a_refusal_decides_nothing() -> None:
    table = Ahead(factor="load", pair=("priority", "planes"), where=WHERE)
    caption, _, *lines = ahead_table(table, RESULTS)
    assert caption == (
        "At how many points priority or planes is ahead (control, p99), and the "
        "ratios, from the least estimate to the greatest, with intervals for all "
        "points at once:"
    )
    assert lines[0].endswith(
        "| the same within 5\u202f% | not decided | priority / planes |"
    )
    assert lines[2:] == [
        "| 0.5 | 1 | 1 | 0 | 0 | 0.500 (0.250–1.000) to 1.500 (0.750–3.000) |",
        "| 0.9 | 1 | 0 | 0 | 1 | 0.250 (0.125–0.500) |",
    ]


SPEC = """
title = "Findings"
before = "Read this."
after = "The end."

[[sections]]
title = "One"
config = "one.toml"
runs = "one"
before = "What is asked."
after = "What it means."
say = ["lead"]

[[sections.ratios]]
heading = "arm"
rows = "arm"
cell = "ratio"
where = { class = "control", metric = "p99_ms", point = "load=0.5 share=a" }
columns = [{ heading = "control", where = {} }]
"""
CONTENT: dict[str, Any] = {
    "experiment": {"name": "one", "world": "model", "seed": 3},
    "arms": [{"name": "fifo"}, {"name": "planes"}],
    "workload": {"duration_s": 1.0},
    "analysis": {"alpha": 0.05},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A working directory with a specification, a config and an analysed run."""
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "one.toml").write_text("# A remark.\n[experiment]\nseed = 3\n")
    report = tmp_path / "runs" / "one" / "report"
    report.mkdir(parents=True)
    manifest = {
        "seed": 3,
        "blocks": 8,
        "points": [{}],
        "world": "model",
        "runs": [{"valid": True}, {"valid": True}, {"valid": False}],
        "analysis": {"alpha": 0.05},
        "code": {"sha256": "c0de" * 16, "commit": "abcdef0123456789"},
        "config": CONTENT,
    }
    (report.parent / "manifest.json").write_text(json.dumps(manifest))
    (report / "results.json").write_text(json.dumps(RESULTS))
    (report / "words.json").write_text(
        json.dumps({"lead": ["It is so."], "cautions": []})
    )
    return tmp_path


def made(root: Path) -> str:
    spec = load(root / "spec.toml")
    return page.page(spec, root / "runs", root, {"one.toml": "0123456789ab"}, {})


def test_a_page_is_prose_and_what_recordings_say(root: Path) -> None:
    lines = made(root).splitlines()
    assert lines[:6] == ["# Findings", "", "Read this.", "", "## One", ""]
    assert lines[6:8] == ["What is asked.", ""]
    mark = lines[8]
    assert mark.startswith("<!-- made from one.toml ")
    assert "answers 0123456789ab, code c0dec0dec0de, commit abcdef012345" in mark
    assert lines[9] == (
        "`one.toml`, seed 3, 8 blocks: 2 runs in the model world. Intervals are 95 %, "
        "each by itself where nothing else is said."
    )
    assert lines[11:] == [
        "| arm | control |",
        "| --- | ---: |",
        "| fifo | 1 |",
        "| planes | 0.500 (0.400–0.600) |",
        "",
        "- It is so.",
        "<!-- end -->",
        "",
        "What it means.",
        "",
        "The end.",
    ]


def test_rounds_are_told_as_the_most_that_the_file_allows(root: Path) -> None:
    """A rule ends them, in each world when it knows enough."""
    at = root / "runs" / "one" / "manifest.json"
    manifest = json.loads(at.read_text())
    manifest["config"] = {**CONTENT, "episodes": {"rounds_min": 2}}
    at.write_text(json.dumps(manifest))
    assert "seed 3, at most 8 rounds: 2 runs" in made(root)


def test_what_to_beware_of_stands_before_what_is_said(root: Path) -> None:
    words = {"lead": ["It is so."], "cautions": ["live: With 1 complete block."]}
    (root / "runs" / "one" / "report" / "words.json").write_text(json.dumps(words))
    lines = made(root).splitlines()
    assert lines[16:20] == [
        "- Beware: live: With 1 complete block.",
        "",
        "- It is so.",
        "<!-- end -->",
    ]


def test_an_optional_section_is_left_out_until_its_experiment_has_a_report(
    root: Path,
) -> None:
    elsewhere = made(root).replace("one.toml", "two.toml")
    second = SPEC[SPEC.index("[[sections]]") :].replace('"one', '"two')
    second = second.replace("say =", "optional = true\nsay =")
    (root / "spec.toml").write_text(SPEC + second)
    spec = load(root / "spec.toml")

    def told(before: str = "") -> list[str]:
        found = page.with_what_ran(spec, root / "runs", before)
        return [section.config for section in found.sections]

    assert told() == ["one.toml"]
    assert told(elsewhere) == ["one.toml", "two.toml"]
    (root / "runs" / "two" / "report").mkdir(parents=True)
    assert told() == ["one.toml", "two.toml"]
    assert [it.config for it in spec.with_optional([]).sections] == ["one.toml"]


def test_a_section_that_was_recorded_elsewhere_stays_as_it_is(root: Path) -> None:
    spec, runs = load(root / "spec.toml"), root / "runs"
    before = made(root)
    assert page.kept(spec, runs, root, before) == {}
    (runs / "one" / "report").rename(runs / "away")
    kept = page.kept(spec, runs, root, before)
    assert page.page(spec, runs, root, {}, kept) == before
    # Not what somebody typed, nor what was made of another config.
    assert page.kept(spec, runs, root, before.replace("0.500 (", "0.400 (")) == {}
    (root / "one.toml").write_text("[experiment]\nseed = 4\n")
    assert page.kept(spec, runs, root, before) == {}
    with pytest.raises(SpecError, match="run `doorkeeper analyze` first"):
        page.page(spec, runs, root, {"one.toml": "0123456789ab"}, {})


def test_a_digit_that_somebody_typed_is_noticed(root: Path) -> None:
    text = made(root)
    (mark,) = page.marks(text)
    assert mark.untouched
    (changed,) = page.marks(text.replace("0.500 (", "0.400 ("))
    assert not changed.untouched
    assert page.without_made(text) == page.typed(load(root / "spec.toml"))
    assert page.without_made(text + "More.") != page.typed(load(root / "spec.toml"))


def test_a_config_is_another_when_a_value_is_and_not_when_a_remark_is(
    root: Path,
) -> None:
    config = root / "one.toml"
    before = page.content_hash(config)
    config.write_text("[experiment]\nseed = 3 # The same.\n")
    assert page.content_hash(config) == before
    config.write_text("[experiment]\nseed = 4\n")
    assert page.content_hash(config) != before


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, ""),
        ({"experiment": {"name": "one", "world": "virtual", "seed": 3}}, ""),
        ({"arms": [{"name": "fifo"}, {"name": "planes"}, {"name": "more"}]}, ""),
        ({"workload": {"duration_s": 2.0}}, "workload"),
        ({"experiment": {"name": "one", "world": "model", "seed": 4}}, "experiment"),
        ({"younger": 1}, ""),
        ({"younger": 2}, "younger"),
        ({"arms": [{"name": "fifo"}]}, "arms"),
    ],
)
def test_a_recording_of_another_config_is_refused(
    root: Path, changed: dict[str, Any], named: str
) -> None:
    """Arms that were left out, and another world, are choices of the command line.

    A key that is younger than the recording has its default, 1.
    """
    (section,) = load(root / "spec.toml").sections
    content = {"younger": 1} | CONTENT | changed
    asked = section, root / "runs", content, lambda ran: {"younger": 1, **ran}
    if not named:
        page.check_ran(*asked)
    else:
        with pytest.raises(page.OutOfDate, match=f"its {named} changed since"):
            page.check_ran(*asked)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("title =", "no TOML"),
        ('title = "a"', "before"),
        ('titel = "a"\nbefore = ""', "unknown key 'titel'"),
        (
            SPEC.replace('cell = "ratio"', 'cell = "rate"'),
            "expected 'ratio' or 'value'",
        ),
        (SPEC.replace("say =", "says ="), "section 'One': unknown key 'says'"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=fault):
        load(path)
