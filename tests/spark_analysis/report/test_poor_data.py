"""Figures of poor data: absent, refused, all zero, or a single point."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from spark_analysis.incidents.incident import LANES
from spark_analysis.recordings.phases import PHASES
from spark_analysis.report.figures.listing import plots
from spark_analysis.report.figures.style import styled
from tests.spark_analysis.made_results import P99
from tests.spark_analysis.report.test_figures import FIRST, SECOND, swept

# Factors for each kind of first figure: one point, a load, several factors.
KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "overview": {},
    "curves": {"load": ("0.3", "0.6", "0.9")},
    "map": {"load": ("0.5", "0.7"), "service": ("exponential", "pareto")},
}
# Content of results.json.
Content = dict[str, Any]
CELLS = ("rows", "measures", "effects", "pairs", "levels")
CURVE = ("latency_ms", "share", "low", "high")
RATIO = {"ratio", "ratio_low", "ratio_high"}
DRAWN = ("curves", "phases", "queue", "election")
OF_PLACE = {"incident", "ccdf", "phases", "queue", "effects"}


def rich(kind: str) -> Content:
    """Return results from which every figure of a kind can be drawn."""
    found: Content = swept(KINDS[kind])
    point = found["points"][0]["point"] if found["points"] else ""
    place = {"world": "live", "point": point, "class": "control", "arm": FIRST}
    ratio = {"ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6}
    found["measures"] = copy.deepcopy(found["rows"])
    for row in found["measures"]:
        row["metric"] = "attainment"
    found["levels"] = [
        {
            "world": "live",
            "factor": factor,
            "level": level,
            "class": name,
            "arm": arm,
            **ratio,
            "points": 1,
            "of": 1,
        }
        for factor, levels in KINDS[kind].items()
        for level in levels
        for name in ("control", "produce")
        for arm in (FIRST, SECOND)
    ]
    found["effects"] = [
        {
            **place,
            **ratio,
            "metric": P99,
            "kind": effect,
            "factors": ["reader"],
            "part": 0.5,
            "part_low": 0.4,
            "part_high": 0.6,
            "p": 0.01,
            "verdict": "lower",
        }
        for effect in ("whole", "alone", "share", "last", "effect")
    ]
    found |= drawn(place, [arm["name"] for arm in found["arms"]])
    return found


def drawn(place: dict[str, str], arms: Sequence[str]) -> Content:
    """Return the parts of results that only figures use."""
    curves = [
        {
            **place,
            "latency_ms": [1.0, 2.0, 4.0],
            "share": [0.9, 0.5, 0.01],
            "low": [0.8, 0.4, 0.0],
            "high": [0.95, 0.6, 0.03],
        }
    ]
    phases = [
        {**place, "slowest": slowest, "n": 9, "means_ms": {PHASES[0].name: 1.0}}
        for slowest in (False, True)
    ]
    queue = [
        {
            "world": "live",
            "point": place["point"],
            "arm": FIRST,
            "t_s": 0.5,
            "queued": 3.0,
            "queued_low": 1.0,
            "queued_high": 5.0,
            "waiting": 1.0,
        }
    ]
    election = {
        "measures": [],
        "agreement": [],
        "overload": [],
        "timelines": [
            {
                "world": "live",
                "arm": arm,
                "lanes": {lane: [1.0, 2.0] for lane in LANES},
                "obeyed_ms": [20.0],
                "writable_ms": 30.0,
            }
            for arm in arms
        ],
    }
    return {
        "curves": curves,
        "phases": phases,
        "queue": queue,
        "election": election,
    }


def absent(found: Content) -> None:
    """Remove all optional parts of a recording."""
    for name in (*CELLS, *DRAWN):
        if name != "rows":
            found[name] = []
    del found["election"]


def refused(found: Content) -> None:
    """Remove all numbers of cells, and all events."""
    for name in CELLS:
        found[name] = replaced(found[name], None)
    for each in (*found["curves"], *found["election"]["timelines"]):
        each |= {key: [] for key, value in each.items() if isinstance(value, list)}
    for each in found["election"]["timelines"]:
        each |= {"lanes": {lane: [] for lane in LANES}, "writable_ms": None}
    for each in found["phases"]:
        each["means_ms"] = {}


def zero(found: Content) -> None:
    """Set every number to zero."""
    for name in (*CELLS, *DRAWN):
        found[name] = replaced(found[name], 0.0)


def one_point(found: Content) -> None:
    """Keep a single value of each series."""
    curves = [it | {key: it[key][1:2] for key in CURVE} for it in found["curves"]]
    phases = found["phases"][:1]
    refused(found)
    found |= {"curves": curves, "phases": phases}
    for rows in (found[name] for name in CELLS if found[name]):
        rows[-1] |= dict.fromkeys(rows[-1].keys() & {"value", "low", "high"}, 3.0)
        rows[-1] |= dict.fromkeys(rows[-1].keys() & RATIO, 2.0)


def replaced(part: Any, number: float | None) -> Any:
    """Return a part of results with every number replaced."""
    if isinstance(part, dict):
        return {key: replaced(value, number) for key, value in part.items()}
    if isinstance(part, list):
        return [replaced(value, number) for value in part]
    return number if isinstance(part, float) else part


@pytest.mark.parametrize("poor", [absent, refused, zero, one_point])
def test_every_figure_can_be_drawn(poor: Callable[[Content], None]) -> None:
    """The incident and the figures of a place, alike in all kinds, are drawn once."""
    drawn_before: set[str] = set()
    with styled():
        for kind in KINDS:
            found = rich(kind)
            poor(found)
            for plot in plots(found):
                name = plot.name.split("-")[0]
                if name not in drawn_before:
                    FigureCanvasAgg(plot.draw()).draw()
                if name in OF_PLACE:
                    drawn_before.add(name)


def test_these_are_all_figures() -> None:
    names = {plot.name.split("-")[0] for kind in KINDS for plot in plots(rich(kind))}
    assert names == {*KINDS, "levels", *OF_PLACE}


def test_a_panel_without_data_says_so() -> None:
    found = rich("curves")
    refused(found)
    (plot,) = (it for it in plots(found) if it.name == "curves-live")
    words = [text.get_text() for axis in plot.draw().axes for text in axis.texts]
    # One text for the latency of each class.
    assert words == ["no data"] * 2
