"""Dose and response of an incident: table and figure, from values made by hand."""

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from spark_analysis.report.doses import SHOWN, DoseResponse, DoseRow, Doses, figure


def row(backlog: str, arm: str, measure: str, value: float | None) -> DoseRow:
    return {
        "levels": {"backlog": backlog, "queue": "20"},
        "arm": arm,
        "measure": measure,
        "heading": measure.replace("_ms", " [ms]"),
        "value": value,
        "low": None if value is None else value / 2,
        "high": None if value is None else value * 2,
        "verdict": "better" if arm == "planes" else "baseline",
        "incidents": 100,
    }


DOSES: Doses = {
    "name": "dose",
    "world": "virtual",
    "baseline": "fifo",
    "seed": 7,
    "created": "2026-11-28T01:02:03Z",
    "commit": "0123456789",
    "rows": [
        row(backlog, arm, measure, None if measure == "recover_ms" else 40.0)
        for backlog in ("none", "high")
        for arm in ("fifo", "planes")
        for measure in SHOWN
    ],
}


def test_the_table_has_a_row_for_each_cell() -> None:
    shown = DoseResponse(DOSES)
    table = shown.table
    rows = [[column.text(row) for column in table.columns] for row in table.rows]
    assert [column.heading for column in table.columns][:3] == [
        *("backlog", "queue", "step_down [ms]"),
    ]
    assert [row[:3] for row in rows] == [
        ["none", "20", "40.0 / 40.0*"],
        ["high", "20", "40.0 / 40.0*"],
    ]
    assert {row[-1] for row in rows} == {"∞ / ∞*"}
    assert "under fifo / planes;" in table.caption
    assert "| none | 20 | 40.0 / 40.0* |" in shown.markdown
    assert "at least 100 incidents" in shown.source


def test_the_figure_has_an_interval_for_each_arm_of_a_cell() -> None:
    (axis,) = figure(DOSES).axes
    assert [it.get_text() for it in axis.get_xticklabels()] == ["none\n20", "high\n20"]
    values = [line.get_ydata()[0] for line in axis.lines if len(line.get_ydata()) == 1]
    assert values == [40.0] * 4
    assert axis.get_yscale() == "log"
    (legend,) = figure(DOSES).legends
    assert [it.get_text() for it in legend.get_texts()] == ["fifo", "planes"]


@pytest.mark.parametrize("value", [None, 0.0])
def test_the_figure_of_no_finite_dose_has_arrows(value: float | None) -> None:
    rows = [row("none", arm, SHOWN[0], value) for arm in ("fifo", "planes")]
    found = figure({**DOSES, "rows": rows})
    FigureCanvasAgg(found).draw()
    markers = [line.get_marker() for line in found.axes[0].lines]
    assert markers.count("v") == 2
    assert markers.count("^") == (2 if value is None else 0)
