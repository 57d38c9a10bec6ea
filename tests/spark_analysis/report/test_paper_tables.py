"""Tables and sentences of the paper, from results made by hand."""

from __future__ import annotations

from spark_analysis.report.content.paper_tables import (
    arms_table,
    contradictions,
    further_table,
    parts,
    reader_by_order,
    recordings_table,
    tables_of,
)
from spark_analysis.report.content.schema import Incident, Metric, Results, Row
from spark_analysis.report.content.tables import Table
from tests.spark_analysis.made_results import (
    BETTER,
    METRIC,
    OPEN,
    REFUSED,
    SAME,
    WORSE,
    Cell,
    Cells,
    made,
)

LIVE: Cells = {
    ("control", "fifo-aware"): Cell(0.68, 0.6, 0.77, "better"),
    ("control", "wfq-blind"): Cell(0.57, 0.47, 0.69, "better"),
    ("control", "wfq"): Cell(0.137, 0.12, 0.157, "better"),
    ("control", "planes"): Cell(0.106, 0.092, 0.12, "better"),
}
KAFKA: Cells = {
    ("control", "fifo-aware"): Cell(1.05, 0.87, 1.27),
    ("control", "wfq-blind"): Cell(0.9, 0.6, 1.4),
    ("control", "wfq"): Cell(0.65, 0.46, 0.91),
    ("control", "planes"): Cell(0.06, 0.05, 0.07),
}


def crossed(world: str, cells: Cells) -> Results:
    """Return results of a world whose arms combine policies and readers."""
    found = made({world: cells})
    factors = {
        "fifo": {"policy": "fifo", "reading": "blind"},
        "fifo-aware": {"policy": "fifo", "reading": "class-aware"},
        "wfq-blind": {"policy": "wfq", "reading": "blind"},
        "wfq": {"policy": "wfq", "reading": "class-aware"},
    }
    for arm in found["arms"]:
        arm["factors"] = factors.get(arm["name"], {})
    return found


def texts(table: Table) -> list[list[str]]:
    """Return the printed rows, after the headings."""
    return [
        [column.heading for column in table.columns],
        *([column.text(row) for column in table.columns] for row in table.rows),
    ]


def test_a_row_per_world_and_reader_has_a_column_per_order() -> None:
    table = reader_by_order([crossed("kafka", KAFKA), crossed("live", LIVE)])
    assert table is not None
    assert texts(table) == [
        ["system", "reader", "fifo", "wfq", "planes"],
        ["kafka", "blind", "10.0 ms", "0.900 (0.600–1.400)", "–"],
        [
            *("kafka", "class-aware", "1.050 (0.870–1.270)"),
            *("0.650 (0.460–0.910)", "0.0600 (0.0500–0.0700)"),
        ],
        ["live", "blind", "10.0 ms", "0.570* (0.470–0.690)", "–"],
        [
            *("live", "class-aware", "0.680* (0.600–0.770)"),
            *("0.137* (0.120–0.157)", "0.106* (0.0920–0.120)"),
        ],
    ]


def test_arms_that_cross_no_readers_have_no_such_table() -> None:
    assert reader_by_order([made(LIVE)]) is None
    assert parts([made(LIVE)]) == ""
    assert contradictions([made(LIVE)]) == ""


def test_the_order_alone_and_the_reader_alone_stand_before_both() -> None:
    said = parts([crossed("kafka", KAFKA), crossed("live", LIVE)])
    assert said.startswith("control p99 relative to fifo with a blind reader (95")
    assert said.endswith(
        "under wfq with a blind reader, fifo with a class-aware reader, and wfq with a "
        "class-aware reader: kafka 0.900 (0.600–1.400, not significant), 1.050 "
        "(0.870–1.270, not significant), 0.650 (0.460–0.910, not significant); live "
        "0.570 (0.470–0.690, better), 0.680 (0.600–0.770, better), 0.137 (0.120–0.157, "
        "better)."
    )


def test_a_refused_part_leaves_no_sentence() -> None:
    assert parts([crossed("live", {**LIVE, ("control", "wfq"): REFUSED})]) == ""


def test_arms_whose_intervals_do_not_overlap_contradict() -> None:
    said = contradictions([crossed("kafka", KAFKA), crossed("live", LIVE)])
    assert "do not overlap for 3 of 4 arms (fifo-aware, wfq and planes)" in said
    assert "smaller in Apache Kafka for 2 of them" in said
    assert "overlap" in contradictions([crossed("kafka", LIVE), crossed("live", LIVE)])
    assert contradictions([crossed("live", LIVE)]) == ""


def test_a_cell_has_the_mark_of_its_verdict() -> None:
    cells = {
        ("control", "planes"): BETTER,
        ("control", "wfq"): REFUSED,
        ("produce", "planes"): WORSE,
        ("produce", "wfq"): SAME,
    }
    (table,) = tables_of(made(cells))
    assert texts(table) == [
        ["arm", "control p99", "produce"],
        ["fifo", "10.0 ms", "10.0 ms"],
        ["planes", "0.0900* (0.0800–0.100)", "1.200† (1.100–1.300)"],
        ["wfq", "refused", "1.000= (0.980–1.020)"],
    ]


def test_the_lesser_quantiles_of_the_primary_class_come_first() -> None:
    found = made({("control", "wfq"): REFUSED, ("metadata", "wfq"): REFUSED})
    p50: Metric = {**METRIC, "name": "p50_ms", "label": "p50", "quantile": 0.5}
    p999: Metric = {**METRIC, "name": "p99.9_ms", "label": "p99.9", "quantile": 0.999}
    found["metrics"] = [p50, METRIC, p999]
    row = next(it for it in found["rows"] if it["arm"] == "wfq")
    found["rows"].append({**row, "metric": "p50_ms", "ratio": 0.5, "verdict": "better"})
    (table,) = tables_of(found)
    assert texts(table) == [
        ["arm", "control p50", "control p99"],
        ["fifo", "–", "10.0 ms"],
        ["wfq", "0.500* (–)", "refused"],
    ]


def test_a_sweep_has_the_classes_that_fit() -> None:
    cells = {
        ("control", "wfq"): BETTER,
        ("produce", "wfq"): OPEN,
        ("metadata", "wfq"): REFUSED,
    }
    few = made(cells, points=[{"load": level} for level in "12"])
    (table,) = tables_of(few)
    assert texts(table)[0] == ["class", "arm", "1", "2"]
    assert [row[:2] for row in texts(table)[1:]] == [
        ["control", "fifo"],
        ["", "wfq"],
        ["produce", "fifo"],
        ["", "wfq"],
    ]
    many = made(cells, points=[{"load": level} for level in "12345"])
    (table,) = tables_of(many)
    assert texts(table)[0] == ["load", "fifo", "wfq"]
    assert [row[0] for row in texts(table)[1:]] == list("12345")


def test_a_bisection_has_its_capacities() -> None:
    found = made(
        {("control", "wfq"): OPEN}, points=[{"load": level} for level in "123456789"]
    )
    capacity: Row = {**found["rows"][0], "metric": "capacity", "point": ""}
    found["measures"] = [
        {**capacity, "value": 0.8, "low": 0.7, "high": 0.9},
        {**capacity, "arm": "wfq", "value": None, "verdict": "better"},
    ]
    (table,) = tables_of(found)
    assert [row[1] for row in texts(table)] == [
        "control",
        "0.800 (0.700–0.900)",
        "∞* (9.00–11.0)",
    ]


def incident(arm: str, measure: str, value: float | None, verdict: str) -> Incident:
    return {
        "world": "live",
        "arm": arm,
        "measure": measure,
        "label": measure,
        "unit": "ms",
        "meaning": "",
        "value": value,
        "low": value,
        "high": value,
        "difference": None,
        "difference_low": None,
        "difference_high": None,
        "p": None,
        "verdict": verdict,
        "blocks": 9,
    }


def test_an_election_has_a_column_per_measure_that_is_not_always_nought() -> None:
    found = made({("control", "wfq"): OPEN})
    found["election"] = {
        "measures": [
            incident("fifo", "step down", 900.0, "baseline"),
            incident("wfq", "step down", 9.0, "better"),
            incident("fifo", "recover", 5000.0, "baseline"),
            incident("wfq", "recover", None, "worse"),
            incident("fifo", "lost by all", 0.0, "baseline"),
            incident("wfq", "lost by all", 0.0, "equivalent"),
        ],
        "agreement": [],
        "timelines": [],
        "overload": [],
    }
    (table,) = tables_of(found)
    assert texts(table) == [
        ["arm", "step down [ms]", "recover [ms]"],
        ["fifo", "900", "5\u202f000"],
        ["wfq", "9.00*", "∞†"],
    ]
    assert "0 under every arm: lost by all [ms]." in table.caption


def test_arms_of_the_same_settings_share_a_row() -> None:
    one, two = (made({("control", "wfq"): OPEN}) | {"name": name} for name in "ab")
    two["arms"][1]["settings"] = {"doorkeeper.reader": "class-aware", "x": "1"}
    assert texts(arms_table([one, two]))[1:] == [
        ["fifo", "blind", "block", "", "fifo"],
        ["wfq", "blind", "block", "", "wfq (a)"],
        ["wfq", "class-aware", "block", "x=1", "wfq (b)"],
    ]
    assert [row[-1] for row in texts(arms_table([one]))] == ["names", "fifo", "wfq"]


def test_superseded_runs_are_not_counted_as_discarded() -> None:
    found = made({("control", "wfq"): OPEN})
    found["worlds"][0]["discarded"]["superseded: code changed"] = 300
    assert "2 of 400" in texts(recordings_table([found]))[1]


def test_another_experiment_has_a_row_with_its_verdicts() -> None:
    found = made(LIVE, points=[{"load": "1"}, {"load": "2"}])
    row = texts(further_table([found]))[1]
    assert row[:3] == ["made", "A question", "live"]
    assert row[3] == "control p99 against fifo (live): 8 better."
