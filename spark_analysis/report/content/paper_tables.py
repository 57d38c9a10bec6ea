"""Tables of the paper: of one experiment by its shape, and over several experiments.

A cell holds a ratio to the baseline, the mark of its verdict, and its interval if there
is room. The baseline's own cell is its value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from spark_analysis.report.content.numbers import (
    NONE,
    digits,
    interval,
    p_value,
    ratio,
    ratio_interval,
)
from spark_analysis.report.content.rendering import sentence
from spark_analysis.report.content.schema import (
    ArmEntry,
    Incident,
    Metric,
    Results,
    Row,
    World,
)
from spark_analysis.report.content.summary import Summary
from spark_analysis.report.content.tables import (
    Table,
    confidence,
    count,
    factors_of,
    metric_label,
    text,
)

_MARKS: Final = {"better": "*", "worse": "†", "equivalent": "="}
# Largest numbers of points for a table with all classes, and with the primary class.
# Larger sweeps have capacities or counts of verdicts.
_ALL_CLASSES_MAX, _POINTS_MAX = 4, 8
_GOODPUT: Final = "goodput_per_s"
_CAPACITY: Final = "capacity"
# Prefix of the discard reason of a run that a later one has replaced.
_SUPERSEDED: Final = "superseded"
_READER, _ADMISSION = "doorkeeper.reader", "doorkeeper.admission"
# Columns of an arm besides its names.
_ARM: Final = ("scheduler", "reader", "admission", "settings")


def tables_of(found: Results) -> list[Table]:
    """Return the tables of one experiment."""
    if "election" in found:
        return [_measures_by_arm(found, found["election"]["measures"])]
    if not found["points"]:
        return [_ratios_by_class(found)]
    if len(found["points"]) <= _ALL_CLASSES_MAX:
        return [_ratios_by_point(found)]
    if len(found["points"]) <= _POINTS_MAX:
        return [_primary_by_point(found)]
    # Results of earlier versions have no measures.
    measures = found.get("measures", [])
    capacities = [row for row in measures if row["metric"] == _CAPACITY]
    if capacities:
        return [_capacity_by_class(found, capacities)]
    return [Summary(found).table]


def marked(word: str, verdict: str) -> str:
    """Return a formatted number with the mark of its verdict."""
    return f"{word}{_MARKS.get(verdict, '')}"


def _cell(row: Row | None, unit: str, *, ends: bool) -> str:
    if row is None:
        return NONE
    if row["verdict"] == "baseline":
        return f"{digits(row['value'])} {unit}".strip()
    if row["ratio"] is None:
        return row["verdict"].partition(":")[0]
    word = marked(ratio(row["ratio"]), row["verdict"])
    if not ends:
        return word
    return f"{word} ({ratio_interval(row['ratio_low'], row['ratio_high'])})"


def _compared(found: Results) -> list[str]:
    """Return the baseline and its rivals."""
    return [found["baseline"], *Summary(found).rivals]


def _caption(found: Results, name: str, **values: object) -> str:
    primary = found["primary"]["metric"]
    return sentence(
        name,
        metric=metric_label(found, primary),
        baseline=found["baseline"],
        world=found["worlds"][0]["world"],
        level=confidence(found),
        **values,
    )


# ---- one experiment ----


def _ratios_by_class(found: Results) -> Table:
    """Return a row per arm: quantiles of the primary class, other classes, goodput."""
    summary, primary = Summary(found), found["primary"]["class_name"]
    classes = _comparable(summary)
    busiest = _busiest(found, classes[1:] or classes)
    columns = {
        **{f"{primary} {it['label']}": (primary, it) for it in _quantiles(found)},
        **{name: (name, _headline(found)) for name in classes[1:]},
        **{
            f"goodput of {busiest}": (busiest, it)
            for it in found["metrics"]
            if it["name"] == _GOODPUT
        },
    }
    cells = {
        (row["class"], row["metric"], row["arm"]): row
        for row in found["rows"]
        if row["world"] == summary.world
    }
    rows = [
        {
            "arm": arm,
            **{
                heading: _cell(
                    cells.get((name, metric["name"], arm)),
                    metric["unit"],
                    ends=metric["quantile"] is not None,
                )
                for heading, (name, metric) in columns.items()
            },
        }
        for arm in _compared(found)
    ]
    return Table(
        name="classes",
        caption=_caption(found, "by_class_caption"),
        columns=(text("arm"), *map(text, columns)),
        rows=tuple(rows),
    )


def _headline(found: Results) -> Metric:
    return next(
        it for it in found["metrics"] if it["name"] == found["primary"]["metric"]
    )


def _quantiles(found: Results) -> list[Metric]:
    """Return the quantiles up to the primary one."""
    most = _headline(found)["quantile"] or 0.0
    return [it for it in found["metrics"] if 0 < (it["quantile"] or 0.0) <= most]


def _busiest(found: Results, names: Sequence[str]) -> str:
    offered = {it["name"]: it["offered_per_s"] for it in found["classes"]}
    return max(names, key=lambda name: offered.get(name, 0.0))


def _ratios_by_point(found: Results) -> Table:
    """Return a row per class and arm, a column per point."""
    summary, unit = Summary(found), _headline(found)["unit"]
    points = [it["point"] for it in found["points"]]
    rows = []
    for name, arm in product(_comparable(summary), _compared(found)):
        cells = {
            point: _cell(summary.row(summary.world, name, arm, point), unit, ends=True)
            for point in points
        }
        head = name if arm == found["baseline"] else ""
        rows.append({"class": head, "arm": arm, **cells})
    factors = factors_of(found)
    headings = (
        ", ".join(it["levels"][name] for name in factors) for it in found["points"]
    )
    return Table(
        name="points",
        caption=_caption(found, "by_point_caption", label="", factors=list(factors)),
        columns=(text("class"), text("arm"), *map(text, headings, points)),
        rows=tuple(rows),
    )


def _comparable(summary: Summary) -> list[str]:
    """Return the primary class, and others in which some arm was compared."""
    known = {
        row["class"]
        for row in summary.found["rows"]
        if row["metric"] == summary.found["primary"]["metric"]
        and row["arm"] in summary.rivals
        and not row["verdict"].startswith("refused")
    }
    others = [name for name in summary.price_classes if name in known]
    return [summary.found["primary"]["class_name"], *others]


def _primary_by_point(found: Results) -> Table:
    """Return a row per point, a column per arm: the primary class."""
    summary, unit = Summary(found), _headline(found)["unit"]
    primary, factors = found["primary"]["class_name"], list(factors_of(found))
    rows = []
    for it in found["points"]:
        cells = {
            arm: _cell(
                summary.row(summary.world, primary, arm, it["point"]), unit, ends=True
            )
            for arm in _compared(found)
        }
        rows.append({**it["levels"], **cells})
    return Table(
        name="points",
        caption=_caption(found, "by_point_caption", label=primary, factors=factors),
        columns=(*map(text, factors), *map(text, _compared(found))),
        rows=tuple(rows),
    )


def _capacity_by_class(found: Results, capacities: Sequence[Row]) -> Table:
    """Return a row per arm, a column per class with an objective."""
    rows: dict[str, dict[str, str]] = {}
    for row in capacities:
        refused = row["verdict"].startswith("refused")
        value = "refused" if refused else _bounded(row["value"])
        word = marked(value, row["verdict"])
        ends = "" if refused else f" ({interval(row['low'], row['high'])})"
        rows.setdefault(row["arm"], {"arm": row["arm"]})[row["class"]] = word + ends
    classes = dict.fromkeys(row["class"] for row in capacities)
    return Table(
        name="capacity",
        caption=_caption(found, "capacity_caption", share=f"{found['slo_share']:g}"),
        columns=(text("arm"), *(text(name) for name in classes)),
        rows=tuple(rows.values()),
    )


def _bounded(value: float | None) -> str:
    return "∞" if value is None else digits(value)


def _measures_by_arm(found: Results, measures: Sequence[Incident]) -> Table:
    """Return a row per world and arm, a column per measure that is not always 0."""
    present = [row for row in measures if row["arm"] != found["again"]]
    labels = {row["measure"]: _heading(row) for row in present}
    nought = [
        name
        for name in labels
        if all(row["value"] == 0 for row in present if row["measure"] == name)
    ]
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for row in present:
        at = rows.setdefault((row["world"], row["arm"]), {})
        at |= {"world": row["world"], "arm": row["arm"]}
        at[row["measure"]] = marked(_bounded(row["value"]), row["verdict"])
    return Table(
        name="incident",
        caption=_caption(
            found, "incident_caption", nought=[labels[name] for name in nought]
        ),
        columns=(
            *([text("world")] if len(found["worlds"]) > 1 else []),
            text("arm"),
            *(text(labels[name], name) for name in labels if name not in nought),
        ),
        rows=tuple(rows.values()),
    )


def _heading(row: Incident) -> str:
    return f"{row['label']} [{row['unit']}]" if row["unit"] else row["label"]


# ---- order and reader, over several experiments ----


def _factorial(found: Results) -> dict[tuple[str, str], str]:
    """Return the arm of each order and reader; planes have their own reader."""
    arms = {
        (arm["factors"]["policy"], arm["factors"]["reading"]): arm["name"]
        for arm in found["arms"]
        if {"policy", "reading"} <= arm["factors"].keys()
    }
    for arm in found["arms"]:
        if arms and arm["scheduler"] == "planes" and not arm["factors"]:
            arms["planes", "class-aware"] = arm["name"]
    return arms


def _systems(experiments: Sequence[Results]) -> Iterator[tuple[Results, str]]:
    """Yield each experiment with orders and readers, with each of its worlds."""
    for found in experiments:
        if _factorial(found):
            yield from ((found, it["world"]) for it in found["worlds"])


def reader_by_order(experiments: Sequence[Results]) -> Table | None:
    """Return a row per world and reader, a column per order; None without any."""
    rows, orders = [], dict[str, None]()
    for found, world in _systems(experiments):
        summary, arms = Summary(found), _factorial(found)
        unit = _headline(found)["unit"]
        for reader in dict.fromkeys(reader for _, reader in arms):
            cells = {}
            for (order, reads), arm in arms.items():
                if reads == reader:
                    row = summary.row(world, found["primary"]["class_name"], arm)
                    cells[order] = _cell(row, unit, ends=True)
            rows.append({"system": world, "reader": reader, **cells})
            orders.update(dict.fromkeys(cells))
    if not rows:
        return None
    first = next(found for found, _ in _systems(experiments))
    return Table(
        name="reader-by-order",
        caption=_caption(first, "reader_by_order_caption", label=Summary(first).label),
        columns=(text("system"), text("reader"), *(text(order) for order in orders)),
        rows=tuple(rows),
    )


def parts(experiments: Sequence[Results]) -> str:
    """Return the ratios of one order, of the reader, and of both, by world.

    The order is the first after the baseline's for which all three were compared.
    """
    heads: dict[str, list[str]] = {}
    for found, world in _systems(experiments):
        summary, arms = Summary(found), _factorial(found)
        base = next((at for at, it in arms.items() if it == found["baseline"]), None)
        if base is None:
            continue
        for order in dict.fromkeys(order for order, _ in arms if order != base[0]):
            at = ((order, "blind"), (base[0], "class-aware"), (order, "class-aware"))
            words = _parts(summary, world, [arms[it] for it in at if it in arms])
            if words:
                lead = _caption(found, "parts_lead", label=summary.label, order=order)
                heads.setdefault(lead, []).append(words)
                break
    return " ".join(f"{lead} {'; '.join(words)}." for lead, words in heads.items())


def _parts(summary: Summary, world: str, arms: Sequence[str]) -> str:
    """Return the ratios of three arms, empty if one was not compared."""
    primary = summary.found["primary"]["class_name"]
    rows = [summary.row(world, primary, arm) for arm in arms]
    ratios = [
        {
            "value": ratio(row["ratio"]),
            "interval": ratio_interval(row["ratio_low"], row["ratio_high"]),
            "verdict": row["verdict"],
        }
        for row in rows
        if row is not None and row["ratio"] is not None
    ]
    return sentence("parts", world=world, ratios=ratios) if len(ratios) == 3 else ""


def contradictions(experiments: Sequence[Results]) -> str:
    """Return how Apache Kafka's ratios differ from this broker's, if recorded."""
    systems = {world: found for found, world in reversed(list(_systems(experiments)))}
    kafka = systems.pop("kafka", None)
    if kafka is None or not systems:
        return ""
    world = next(it for it in ("live", *systems) if it in systems)
    here, there = Summary(systems[world]), Summary(kafka)
    disjoint, smaller, of = [], 0, 0
    for arm in here.rivals:
        mine = here.row(world, here.found["primary"]["class_name"], arm)
        other = there.row("kafka", there.found["primary"]["class_name"], arm)
        if mine is None or other is None or not mine["ratio"] or not other["ratio"]:
            continue
        of += 1
        if _apart(mine, other) or _apart(other, mine):
            disjoint.append(arm)
            smaller += _distance(other["ratio"]) < _distance(mine["ratio"])
    return sentence(
        "contradictions",
        label=there.label,
        world=world,
        disjoint=disjoint,
        smaller=smaller,
        arms=of,
    )


def _apart(low: Row, high: Row) -> bool:
    """Return whether one interval ends before the other begins."""
    end, start = low["ratio_high"], high["ratio_low"]
    return end is not None and start is not None and end < start


def _distance(value: float) -> float:
    return max(value, 1 / value)


# ---- all experiments ----


def arms_table(experiments: Sequence[Results]) -> Table:
    """Return the arms by their settings, with their names.

    A name that has different settings in several experiments is listed with these.
    """
    names: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for found in experiments:
        for arm in found["arms"]:
            if not arm["again_of"]:
                of = names.setdefault(_described(arm), {})
                of.setdefault(arm["name"], []).append(found["name"])
    uses = Counter(name for of in names.values() for name in of)
    return Table(
        name="arms",
        caption=sentence("arms_caption"),
        columns=(
            *(text(it) for it in _ARM[:3]),
            text("further settings", "settings"),
            text("names"),
        ),
        rows=tuple(
            {
                **dict(zip(_ARM, what, strict=True)),
                "names": ", ".join(
                    f"{name} ({', '.join(where)})" if uses[name] > 1 else name
                    for name, where in of.items()
                ),
            }
            for what, of in names.items()
        ),
    )


def _described(arm: ArmEntry) -> tuple[str, ...]:
    settings = dict(arm["settings"])
    reader = settings.pop(_READER, "blind")
    admission = settings.pop(_ADMISSION, "block")
    rest = ", ".join(
        f"{key.removeprefix('doorkeeper.')}={value}" for key, value in settings.items()
    )
    own = "own" if arm["scheduler"] == "planes" else reader
    return arm["scheduler"], own, admission, rest


def recordings_table(experiments: Sequence[Results]) -> Table:
    """Return a row per experiment and world: size, discarded runs, origin."""
    return Table(
        name="recordings",
        caption=sentence("recordings_caption"),
        columns=(
            *(text(it) for it in ("experiment", "world", "sessions")),
            count("rounds"),
            text("discarded runs", "discarded"),
            count("requests"),
            *(text(it) for it in ("seed", "least p", "config", "commit", "date")),
        ),
        rows=tuple(
            {
                "experiment": found["name"],
                "world": world["world"],
                "sessions": f"{world['sessions']} of {world['sessions_planned']}",
                "rounds": world["rounds"],
                "discarded": _discarded(world),
                "requests": world["requests"],
                "seed": str(world["seed"]),
                "least p": NONE if world["deterministic"] else p_value(world["p_min"]),
                "config": world["config_sha256"][:8],
                "commit": world["commit"][:8],
                "date": world["created"][:10],
            }
            for found in experiments
            for world in found["worlds"]
        ),
    )


def _discarded(world: World) -> str:
    """Return the numbers of disturbed and all runs, without those of earlier plans."""
    superseded = sum(
        runs for why, runs in world["discarded"].items() if why.startswith(_SUPERSEDED)
    )
    disturbed = sum(world["discarded"].values()) - superseded
    return f"{disturbed} of {world['runs'] - superseded}"


def further_table(experiments: Sequence[Results]) -> Table:
    """Return a row per experiment: its question and the counts of its verdicts."""
    return Table(
        name="further",
        caption=sentence("further_caption"),
        columns=(text("experiment"), text("question"), text("worlds"), text("result")),
        rows=tuple(
            {
                "experiment": found["name"],
                "question": found["title"],
                "worlds": ", ".join(it["world"] for it in found["worlds"]),
                "result": Summary(found).outcome,
            }
            for found in experiments
        ),
    )
