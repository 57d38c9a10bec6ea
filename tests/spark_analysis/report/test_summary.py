"""First screen of a report: sentences, table and terminal output."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from spark_analysis.report.content.numbers import THIN_SPACE
from spark_analysis.report.content.schema import Agreement, Incident, Results
from spark_analysis.report.content.summary import SENTENCES_MAX, Summary
from spark_analysis.report.content.tables import as_markdown
from spark_analysis.report.terminal import LINES_MAX, show
from tests.spark_analysis.made_results import (
    BETTER,
    OPEN,
    P99,
    REFUSED,
    SAME,
    WORSE,
    Cell,
    made,
)

ARMS = ("planes", "priority", "wfq")
CELLS = {
    ("control", "planes"): Cell(0.089, 0.085, 0.093, "better"),
    ("control", "priority"): Cell(0.085, 0.081, 0.089, "better"),
    ("control", "wfq"): Cell(0.115, 0.111, 0.119, "better"),
    ("produce", "planes"): Cell(1.19, 1.1, 1.28, "worse"),
    ("produce", "priority"): OPEN,
    ("produce", "wfq"): SAME,
}


def test_the_effect_names_the_lowest_arms_whose_intervals_overlap() -> None:
    said, _ = Summary(made(CELLS)).sentences
    level = f"95{THIN_SPACE}% CI"
    assert (
        f"priority (ratio 0.0850, {level} 0.0810–0.0890), planes (ratio 0.0890" in said
    )
    assert "wfq" not in said
    assert "intervals overlap" in said
    assert "live world" in said


def test_without_a_better_arm_no_arm_is_named() -> None:
    cells = {("control", arm): OPEN for arm in ARMS} | {("control", "wfq"): REFUSED}
    (said,) = Summary(made(cells)).sentences
    assert not any(arm in said for arm in ARMS)
    assert "not significantly lower" in said
    assert "1 refused" in said


def test_the_price_names_significantly_worse_classes_only() -> None:
    _, said = Summary(made(CELLS)).sentences
    assert "worse: produce under planes (ratio 1.190, " in said
    assert "priority" not in said


def test_a_class_without_a_finite_ratio_is_worse_before_all_others() -> None:
    lost = {**CELLS, ("produce", "wfq"): Cell(None, None, None, "worse")}
    _, said = Summary(made(lost)).sentences
    assert "worse: produce under wfq (no finite ratio), produce under planes (r" in said


def test_a_class_that_cannot_be_compared_is_not_called_free() -> None:
    free = {**CELLS, ("produce", "planes"): OPEN}
    refused = {key: REFUSED if key[0] == "produce" else it for key, it in free.items()}
    _, said = Summary(made(free)).sentences
    assert said == "Price: p99 of produce is not significantly worse under any arm."
    _, said = Summary(made(refused)).sentences
    assert said == "Price: p99 of produce cannot be compared: the tail is too thin."


def test_worlds_are_listed_with_their_misses() -> None:
    found = made({"live": CELLS, "virtual": CELLS})
    found["agreement"] = [
        _agreement("planes", "agrees"),
        _agreement("priority", "differs"),
        _agreement("wfq", "agrees"),
    ]
    *_, said = Summary(found).sentences
    assert "2 of 3 arms in the virtual world (outside: priority)" in said


def _agreement(arm: str, word: str) -> Agreement:
    return {
        "point": "",
        "first": "live",
        "world": "virtual",
        "class": "control",
        "arm": arm,
        "metric": P99,
        "agreement": word,
        "quotient": 1.0,
        "quotient_low": 0.9,
        "quotient_high": 1.1,
    }


def test_an_election_has_a_sentence_for_each_world() -> None:
    found = made({"live": CELLS, "kafka": CELLS})
    found["election"] = {
        "measures": [
            _measured("live", "fifo", 900.0, "baseline"),
            _measured("live", "planes", 20.0, "better"),
            _measured("kafka", "fifo", 700.0, "baseline"),
            _measured("kafka", "planes", 600.0, "not significant"),
            _measured("kafka", "planes", 90.0, "worse", "recovers"),
            _measured("kafka", "wfq", 80.0, "worse", "recovers"),
        ],
        "agreement": [],
        "timelines": [],
        "overload": [],
    }
    live, kafka = Summary(found).sentences
    assert live.startswith("Steps down (live, mean in ms): 900 under fifo; 20.0")
    assert kafka == (
        "Steps down (kafka) does not differ significantly from fifo under any arm. "
        "Worse: recovers under planes and wfq."
    )


def _measured(
    world: str, arm: str, value: float, verdict: str, measure: str = "steps down"
) -> Incident:
    return {
        "world": world,
        "arm": arm,
        "measure": measure,
        "label": measure,
        "unit": "ms",
        "meaning": "",
        "value": value,
        "low": value - 1,
        "high": value + 1,
        "difference": None,
        "difference_low": None,
        "difference_high": None,
        "p": None,
        "verdict": verdict,
        "blocks": 10,
    }


def test_the_noise_floor_is_the_again_arms_interval() -> None:
    assert "1.001 (0.970–1.030)" in Summary(made(CELLS)).noise


def test_p_values_are_shown_only_where_they_exist() -> None:
    live, virtual = made(CELLS), made({"virtual": CELLS})
    assert "| p |" in as_markdown(Summary(live).table)
    assert "| p |" not in as_markdown(Summary(virtual).table)


def test_a_sweep_counts_points_by_verdict() -> None:
    levels = [{"load": load} for load in ("0.5", "0.7", "0.9")]
    summary = Summary(made(CELLS, points=levels))
    assert summary.table.rows[0]["produce"] == "3 worse"
    assert "priority better at 3;" in summary.sentences[0]


def test_cautions_come_with_their_world_where_there_are_several() -> None:
    found = made({"live": CELLS, "virtual": CELLS})
    found["worlds"][0]["cautions"] = [
        {"kind": "few sessions", "values": {"sessions": 3, "p_min": 0.25}}
    ]
    found["silent"] = {"kafka": "no manifest"}
    assert Summary(found).cautions == [
        "live: 3 complete sessions cannot give a p below 0.25: no difference is "
        "significant.",
        "The kafka world is not compared: no manifest",
    ]


@pytest.mark.parametrize(
    "kind",
    [
        ("unfinished", {"sessions": 3, "planned": 14}),
        ("exploratory", {"sessions": 20, "planned": 14}),
        ("arm missing", {"arm": "wfq"}),
        ("points missing", {"points": 2, "of": 54}),
        ("replay differs", {}),
        ("law broken", {"arm": "wfq", "law": "order", "times": 2}),
    ],
    ids=lambda it: it[0],
)
def test_every_caution_has_a_sentence(kind: tuple[str, dict[str, str | int]]) -> None:
    found = made(CELLS)
    found["worlds"][0]["cautions"] = [{"kind": kind[0], "values": dict(kind[1])}]
    (said,) = Summary(found).cautions
    assert said.endswith(".")
    assert "{" not in said
    for value in kind[1].values():
        assert str(value) in said


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("worlds", [1, 5])
def test_the_terminal_shows_every_arm_in_few_lines(width: int, worlds: int) -> None:
    names = ("live", "kafka", "kraft", "virtual", "model")[:worlds]
    found = made(dict.fromkeys(names, CELLS))
    lines = _terminal(found, width)
    assert len(lines) <= (LINES_MAX if width == 120 else 2 * LINES_MAX)
    for arm in ARMS:
        assert any(line.startswith(arm) for line in lines)
    assert max(map(len, lines)) <= width


def _terminal(found: Results, width: int) -> list[str]:
    out = io.StringIO()
    show(found, Console(file=out, width=width))
    return out.getvalue().splitlines()


def test_the_first_screen_follows_from_results_json_alone() -> None:
    found = made({"live": CELLS, "virtual": CELLS})
    read: Results = json.loads(json.dumps(found, allow_nan=False))
    assert Summary(read).sentences == Summary(found).sentences
    assert as_markdown(Summary(read).table) == as_markdown(Summary(found).table)


@pytest.mark.parametrize("arms", [1, 8, 40])
def test_sentences_stay_few_and_short_with_many_arms(arms: int) -> None:
    cells = {
        (name, f"arm-{n}"): verdict
        for n in range(arms)
        for name, verdict in (("control", BETTER), ("produce", WORSE))
    }
    said = Summary(made(cells)).sentences
    assert len(said) <= SENTENCES_MAX
    for sentence in said:
        assert len(re.findall(r"arm-\d+", sentence)) <= 3
