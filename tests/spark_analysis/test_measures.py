"""Metrics other than quantiles: Spark against naive arithmetic, also on odd rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.records.recording import REQUESTS_SCHEMA
from spark_analysis.judging.assembly import compare
from spark_analysis.judging.capacities import capacity_of
from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import judge_cells
from spark_analysis.judging.measures import cells_of_passes
from spark_analysis.judging.metrics import definitions, measures_of
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Manifest, RequestClass
from spark_analysis.recordings.fairness import fairness
from spark_analysis.recordings.latency_histogram import CELL
from spark_analysis.recordings.load import read_requests
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.recovery import recoveries
from spark_analysis.report.content.tables import as_markdown, definitions_table
from spark_analysis.report.results import definition
from tests.spark_analysis import synthetic
from tests.spark_analysis.made_results import BETTER, made
from tests.spark_analysis.studies import OPTIONS, manifest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_analysis.judging.comparison import Comparison

MS = 1_000_000
METHOD = Path(__file__).parents[2] / "docs/method.md"
MARKS = "<!-- table: metrics -->", "<!-- end of table -->"


# ---- metrics of the first pass ----


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four sessions with extreme cases of a class, under two arms.

    0: every control request misses its objective. 1: there is one control request. 2:
    there is none. 3: no fetch has a service time, and wfq never answers a produce.
    """
    directory: Path = tmp_path_factory.mktemp("odd")
    manifest = synthetic.write(
        directory, blocks=4, seconds=0.1, arms=["fifo", "wfq"], again=False
    )
    for run in manifest["runs"]:
        path = directory / run["requests"]
        rows = pq.read_table(path).to_pylist()
        rows = _edited(rows, run["block"], run["arm"])
        table = pa.Table.from_pylist(rows, schema=REQUESTS_SCHEMA)
        pq.write_table(table, path)
        lost = sum(row["outcome"] == "unfinished" for row in rows)
        run["counts"] |= {
            "sent": len(rows),
            "ok": len(rows) - lost,
            "unfinished": lost,
        }
    synthetic.save(directory, manifest)
    return directory


def _edited(rows: list[dict[str, Any]], block: int, arm: str) -> list[dict[str, Any]]:
    control = [row for row in rows if row["class"] == "control"]
    others = [row for row in rows if row["class"] != "control"]
    if block == 0:
        for row in control:
            row["client_done_ns"] += 10**9
    if block == 1:
        return [*control[:1], *others]
    if block == 2:
        return others
    if block == 3:
        for row in others:
            if row["class"] == "fetch":
                row["service_ns"] = 0
        if arm == "wfq":
            lost = next(row for row in others if row["class"] == "produce")
            lost |= {"client_done_ns": None, "outcome": "unfinished"}
    return rows


def naive(rows: Sequence[dict[str, Any]], slo_ns: float) -> dict[str, float]:
    """Return the defined metrics of one class in one session."""
    ok = [row for row in rows if row["outcome"] == "ok"]
    latency = np.array([row["client_done_ns"] - row["intended_ns"] for row in ok])
    service = np.array([row["service_ns"] for row in ok])
    found = {"attainment": np.count_nonzero(latency <= slo_ns) / len(rows)}
    costed = service > 0
    if costed.any():
        found["cpu_us"] = float(service[costed].mean()) / 1e3
        slowdown = np.floor(latency[costed] * 1e3 / service[costed]) / 1e3
        found["slowdown"] = float(slowdown.mean())
    waits = [row["dequeued_ns"] - row["sent_ns"] + row["suspended_ns"] for row in ok]
    found["starvation_ms"] = max(waits) / MS
    if len(ok) < len(rows):
        found |= {"slowdown": math.inf, "starvation_ms": math.inf}
    return found


def rows_by_session(directory: Path, arm: str, name: str) -> dict[int, list[Any]]:
    files = sorted(directory.glob(f"requests/b*-{arm}-t0.parquet"))
    tables = [pq.read_table(file).to_pylist() for file in files]
    rows = [[row for row in of if row["class"] == name] for of in tables]
    return {session: of for session, of in enumerate(rows) if of}


@pytest.fixture(scope="module")
def compared(spark: SparkSession, odd: Path) -> Comparison:
    (comparison,) = compare(spark, load_manifest(odd)).comparisons
    return comparison


@pytest.mark.spark
@pytest.mark.parametrize("name", ["control", "produce", "fetch"])
@pytest.mark.parametrize("arm", ["fifo", "wfq"])
def test_values_are_those_of_naive_arithmetic(
    compared: Comparison, odd: Path, name: str, arm: str
) -> None:
    slo_ns = 10 * MS if name == "control" else math.inf
    expected = {
        session: naive(rows, slo_ns)
        for session, rows in rows_by_session(odd, arm, name).items()
    }
    for cell in compared.measures:
        if (cell.class_name, cell.arm) != (name, arm):
            continue
        values = [
            of[cell.metric.name] for of in expected.values() if cell.metric.name in of
        ]
        assert cell.sessions == len(values)
        assert cell.value is not None
        if all(map(math.isfinite, values)):
            assert cell.value.value == pytest.approx(np.mean(values))
        else:
            assert cell.value.value == sorted(values)[(len(values) - 1) // 2]
        assert cell.value.low >= 0
        assert cell.value.high <= cell.metric.most


@pytest.mark.spark
def test_every_measure_of_the_first_pass_is_there(compared: Comparison) -> None:
    found = {(it.class_name, it.arm, it.metric.name) for it in compared.measures}
    names = ("cpu_us", "attainment", "slowdown", "starvation_ms")
    classes, arms = ("control", "produce", "fetch"), ("fifo", "wfq")
    assert found == {(c, a, n) for c in classes for a in arms for n in names}


@pytest.mark.spark
def test_a_request_that_is_never_answered_is_no_tie(compared: Comparison) -> None:
    (cell,) = (
        it
        for it in compared.measures
        if (it.class_name, it.arm, it.metric.name) == ("produce", "wfq", "slowdown")
    )
    assert cell.contrast is not None
    assert cell.contrast.logs[3] == math.inf


# ---- fairness ----

OF_RUN = {
    **dict(zip(CELL, (pa.int64(), pa.string(), pa.string()), strict=True)),
    "session": pa.int32(),
    "run_id": pa.string(),
}
FAIRNESS = {
    **OF_RUN,
    "flow": pa.string(),
    **dict.fromkeys(("intended_ns", "local_done_ns", "service_ns"), pa.int64()),
    **dict.fromkeys(("window_start", "window_end", "fairness_ns"), pa.int64()),
}
RECOVERY = {**OF_RUN, "intended_ns": pa.int64(), "latency_ns": pa.float64()}


def frame_of(
    spark: SparkSession, columns: dict[str, pa.DataType], rows: Sequence[Any]
) -> DataFrame:
    """Return rows as a frame of three partitions."""
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(named, schema=pa.schema(columns))
    return spark.createDataFrame(table).repartition(3)


class Served(NamedTuple):
    """A request: its flow, arrival, completion and service time."""

    flow: str
    intended_ns: int
    done_ns: int | None
    service_ns: int | None


instants = st.integers(-30, 130)
requests = st.builds(
    lambda flow, at, takes, service: Served(
        flow, at, None if takes is None else at + takes, service
    ),
    st.sampled_from("abc"),
    instants,
    st.none() | st.integers(0, 60),
    st.none() | st.integers(0, 9),
)
# A query costs the same for one run as for twelve.
runs = st.lists(st.lists(requests, max_size=25), min_size=8, max_size=12)


def naive_fairness(
    served: Sequence[Served], width: int, start: int, end: int
) -> tuple[list[Fraction], Fraction]:
    """Return Jain's index of each window, and the largest lag, by naive filling."""
    known = [it for it in served if it.service_ns and it.done_ns is not None]
    indices, worst = [], Fraction(0)
    for low in range(start, start + (end - start) // width * width, width):
        wanted: dict[str, int] = {}
        given = dict.fromkeys("abc", 0)
        for it in known:
            assert it.done_ns is not None
            assert it.service_ns is not None
            if it.intended_ns < low + width and it.done_ns >= low:
                wanted[it.flow] = wanted.get(it.flow, 0) + it.service_ns
            if low <= it.done_ns < low + width:
                given[it.flow] += it.service_ns
        left = Fraction(sum(given.values()))
        if len(wanted) < 2 or not left:
            continue
        fair: dict[str, Fraction] = {}
        while len(fair) < len(wanted):
            waiting = {flow: of for flow, of in wanted.items() if flow not in fair}
            level = left / len(waiting)
            filled = {f: Fraction(of) for f, of in waiting.items() if of <= level}
            fair |= filled or dict.fromkeys(waiting, level)
            left -= sum(filled.values())
        x = [given[flow] / fair[flow] for flow in wanted]
        indices.append(sum(x) ** 2 / (len(x) * sum(it**2 for it in x)))
        worst = max([worst, *(fair[flow] - given[flow] for flow in wanted)])
    return indices, worst


@pytest.mark.spark
@settings(max_examples=5, deadline=None)
@given(runs, st.integers(1, 40))
def test_fairness_is_that_of_filled_shares(
    spark: SparkSession, drawn: list[list[Served]], width: int
) -> None:
    start, end = 0, 100
    rows = [
        (0, "data", "wfq", session, f"run {session}", *it, start, end, width)
        for session, of in enumerate(drawn)
        for it in of
    ]
    frame = frame_of(spark, FAIRNESS, rows)
    found = {row["session"]: row for row in fairness(frame).toArrow().to_pylist()}
    expected = {
        session: naive_fairness(of, width, start, end)
        for session, of in enumerate(drawn)
    }
    assert found.keys() == {session for session, of in expected.items() if of[0]}
    for session, row in found.items():
        indices, worst = expected[session]
        mean = sum(indices) / len(indices)
        assert row["jain"] == pytest.approx(float(mean), rel=1e-12)
        assert row["lag_ns"] == pytest.approx(float(worst), abs=1e-9)


@pytest.mark.parametrize("served", [1, 2, 3])
def test_the_index_is_the_share_of_equal_flows_that_are_served(served: int) -> None:
    """Jain's index is k / n if k of n equal flows are served (Jain 1984)."""
    made_of = [Served(flow, 0, 5, 6) for flow in "abc"[:served]]
    made_of += [Served(flow, 0, 99, 6) for flow in "abc"[served:]]
    indices, _ = naive_fairness(made_of, 10, 0, 10)
    assert indices == [Fraction(served, 3)]


# ---- recovery ----

SLO_NS = 20
INTERVALS = ((10, 40), (40, 70), (80, 100))
arrivals = st.lists(
    st.tuples(st.integers(0, 110), st.integers(0, 60) | st.just(math.inf)), max_size=30
)


def recovering() -> Manifest:
    """Return a manifest with one class with an objective, and one without."""
    manifest = manifest_of({"fifo": {}}, ["data", "bulk"], 1)
    options = replace(
        OPTIONS, recovery_s=tuple((a / 1e9, b / 1e9) for a, b in INTERVALS)
    )
    classes = (
        RequestClass(name="data", apis=(), slo_ns=SLO_NS, offered_per_s=1.0),
        RequestClass(name="bulk", apis=(), slo_ns=None, offered_per_s=1.0),
    )
    point = replace(manifest.points[0], classes=classes, stretch=1.0)
    return replace(manifest, options=options, points=(point,))


def naive_recovery(drawn: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    times, areas = [], []
    for start, end in INTERVALS:
        inside = [(at, latency) for at, latency in drawn if start <= at < end]
        if not inside:
            continue
        missed = [at for at, latency in inside if latency > SLO_NS]
        areas.append(sum(max(0, latency - SLO_NS) for _, latency in inside))
        if not missed:
            times.append(0.0)
        elif max(missed) == max(at for at, _ in inside):
            times.append(math.inf)
        else:
            times.append(float(max(missed) - start))
    return (float(np.mean(times)), float(np.mean(areas))) if times else None


@pytest.mark.spark
@settings(max_examples=5, deadline=None)
@given(st.lists(arrivals, min_size=8, max_size=12))
def test_recovery_is_that_of_the_last_miss(
    spark: SparkSession, drawn: list[list[tuple[int, float]]]
) -> None:
    rows = [
        (0, name, "fifo", session, f"run {session}", at, float(latency))
        for session, of in enumerate(drawn)
        for at, latency in of
        for name in ("data", "bulk")
    ]
    frame = frame_of(spark, RECOVERY, rows)
    found = recoveries(spark, frame, recovering()).toArrow().to_pylist()
    assert {row["class"] for row in found} <= {"data"}
    by_session = {row["session"]: (row["recovery_ns"], row["area_ns"]) for row in found}
    expected = {session: naive_recovery(of) for session, of in enumerate(drawn)}
    assert by_session == {
        session: pytest.approx(of) for session, of in expected.items() if of is not None
    }


@pytest.mark.spark
def test_passes_of_their_own_are_made_if_the_config_asks(
    spark: SparkSession, odd: Path
) -> None:
    manifest = load_manifest(odd)
    rows = read_requests(spark, manifest)
    assert not list(cells_of_passes(spark, rows, manifest, ()))
    options = replace(
        manifest.options, fairness_window_ms=10.0, recovery_s=((0.02, 0.08),)
    )
    asked = replace(manifest, options=options)
    (comparison,) = compare(spark, asked).comparisons
    found = {(it.class_name, it.metric.name) for it in comparison.measures}
    # Each class has one flow, so fairness is undefined. Control has an objective.
    recovery = {("control", "recovery_ms"), ("control", "recovery_area_s")}
    assert found >= recovery
    assert not {name for _, name in found} & {"jain", "lag_ms"}
    assert {name for name, metric in found if metric.startswith("rec")} == {"control"}


# ---- capacity ----


@given(
    st.lists(st.floats(0.1, 2.0), min_size=2, max_size=12, unique=True),
    st.floats(0.05, 0.999),
    st.floats(-0.5, 2.5),
)
def test_a_capacity_on_a_straight_line_is_where_it_falls(
    loads: list[float], wanted: float, crossing: float
) -> None:
    shares = {load: wanted + (crossing - load) for load in loads}
    found = capacity_of(shares, wanted)
    if crossing < min(loads):
        assert found == 0.0
    elif crossing >= max(loads):
        assert found == math.inf
    else:
        assert found == pytest.approx(crossing, abs=1e-6)


def test_a_capacity_ends_at_the_first_load_that_misses() -> None:
    shares = {1.0: 1.0, 2.0: 0.8, 3.0: 1.0, 4.0: 0.0}
    assert capacity_of(shares, 0.9) == pytest.approx(1.5)


# ---- verdicts ----

RULES = Rules(
    baseline="fifo", again=None, primary=("control", "p99_ms"), options=OPTIONS
)


def cell(arm: str, *values: float, metric: str = "slowdown") -> CellSessions:
    return CellSessions(
        point="",
        class_name="control",
        arm=arm,
        metric=metric,
        sessions=tuple(range(len(values))),
        values=values,
        counts=(1,) * len(values),
    )


def test_two_infinite_values_have_no_ratio() -> None:
    found = [cell("fifo", 2.0, math.inf), cell("wfq", 4.0, math.inf)]
    _, rival = judge_cells(found, measures_of(OPTIONS), RULES)
    assert rival.word == "refused"
    assert rival.why == "mean slowdown is infinite in 1 of 2 sessions"


def test_an_arm_without_a_baseline_is_refused() -> None:
    (rival,) = judge_cells([cell("wfq", 4.0)], measures_of(OPTIONS), RULES)
    assert rival.why == "there is no mean slowdown under fifo"


def test_sessions_of_one_arm_alone_have_no_ratio() -> None:
    found = [cell("fifo", 2.0), replace(cell("wfq", 4.0), sessions=(7,))]
    _, rival = judge_cells(found, measures_of(OPTIONS), RULES)
    assert rival.why == "no session has a mean slowdown under both arms"


def test_more_attainment_is_better_and_at_most_1() -> None:
    base = [0.90, 0.92, 0.91, 0.93, 0.90, 0.92, 0.91, 0.93]
    found = [
        cell("fifo", *base, metric="attainment"),
        cell("wfq", *([0.99] * 4 + [1.0] * 4), metric="attainment"),
    ]
    _, rival = judge_cells(found, measures_of(OPTIONS), RULES)
    assert rival.word == "better"
    assert rival.value is not None
    assert rival.value.high <= 1.0


def test_a_recovery_of_zero_has_a_ratio() -> None:
    found = [
        cell("fifo", 5.0, 0.0, 3.0, metric="recovery_ms"),
        cell("wfq", 0.0, 0.0, 1.0, metric="recovery_ms"),
    ]
    _, rival = judge_cells(found, measures_of(OPTIONS), RULES)
    assert rival.contrast is not None
    assert list(rival.contrast.logs.values())[:2] == [-math.inf, 0.0]


# ---- documentation ----


def test_the_method_has_the_table_of_all_definitions() -> None:
    found = made({("control", "wfq"): BETTER})
    found["definitions"] = [definition(it) for it in definitions()]
    _, _, table = as_markdown(definitions_table(found)).partition("\n\n")
    text = METHOD.read_text(encoding="utf-8")
    written = text.partition(MARKS[0])[2].partition(MARKS[1])[0]
    assert written.strip() == table.strip()
