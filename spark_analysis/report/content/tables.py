"""Tables of a report, and the files written from them.

A column reads keys of rows, which are dictionaries of ``results.json``. The same table
is written as CSV with every digit, and as Markdown, LaTeX (booktabs) and HTML with
three significant digits.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from spark_analysis.report.content.numbers import (
    NONE,
    THIN_SPACE,
    digits,
    interval,
    p_value,
    ratio,
    ratio_interval,
)
from spark_analysis.report.content.schema import Results, Row

Value = str | int | float | None
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its heading, the keys that it reads, and their format.

    ``meaning`` defines a heading that needs an explanation.
    """

    heading: str
    keys: tuple[str, ...]
    write: Callable[..., str]
    meaning: str = ""

    @property
    def numeric(self) -> bool:
        """Whether the column is aligned to the right."""
        return self.write is not _text

    def text(self, row: Values) -> str:
        """Return a row's text in this column."""
        return self.write(*(row.get(key) for key in self.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table: file name, caption, columns and rows."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Values, ...]


def _text(value: object) -> str:
    return NONE if value is None else str(value)


def _count(value: int | None) -> str:
    return NONE if value is None else f"{value:,}".replace(",", THIN_SPACE)


def text(heading: str, key: str | None = None, meaning: str = "") -> Column:
    """Return a column of words."""
    return Column(heading=heading, keys=(key or heading,), write=_text, meaning=meaning)


def number(heading: str, key: str | None = None, meaning: str = "") -> Column:
    """Return a column of measured numbers."""
    return Column(
        heading=heading, keys=(key or heading,), write=digits, meaning=meaning
    )


def count(heading: str, key: str | None = None) -> Column:
    """Return a column of whole numbers."""
    return Column(heading=heading, keys=(key or heading,), write=_count)


def p() -> Column:
    """Return the column of p-values."""
    return Column(heading="p", keys=("p",), write=p_value, meaning=_P)


def verdict(key: str = "verdict") -> Column:
    """Return the column of verdicts, or of their agreement."""
    return text(key, meaning=_VERDICTS[key])


def ends(heading: str, low: str, high: str, meaning: str = "") -> Column:
    """Return a column of intervals."""
    return Column(heading=heading, keys=(low, high), write=interval, meaning=meaning)


def ratio_columns(found: Results, of: str = "") -> tuple[Column, Column]:
    """Return the columns of a ratio and its interval; ``of`` names another ratio."""
    meaning = of or f"value under the arm divided by that under {found['baseline']}"
    return (
        Column(heading="ratio", keys=("ratio",), write=ratio, meaning=meaning),
        Column(
            heading=f"{confidence(found)} CI",
            keys=("ratio_low", "ratio_high"),
            write=ratio_interval,
        ),
    )


def heads(found: Results, *keys: str) -> tuple[Column, ...]:
    """Return the columns that identify a row, without constant ones."""
    constant = {
        *([] if len(found["worlds"]) > 1 else ["world"]),
        *([] if found["points"] else ["point"]),
    }
    return tuple(text(key) for key in keys if key not in constant)


_PLACE: Final = ("world", "point", "class", "arm")
_P: Final = "p-value of no difference (ratio 1), adjusted by Holm's rule"
_EFFECTIVE: Final = "requests beyond the quantile, counted as independent ones"
_NOISE: Final = "ratios that two runs of the baseline may have"
_VERDICTS: Final = {
    "verdict": (
        "better, worse or equivalent where the sessions decide; refused where too few "
        "requests lie beyond the quantile"
    ),
    "agreement": "whether the interval lies inside the margin, outside it, or on it",
}


# ---- the tables ----


def all_tables(found: Results, runs: Iterable[Values]) -> tuple[Table, ...]:
    """Return every table that has rows."""
    tables = (
        comparison_table(found),
        _cells_table(found),
        noise_table(found),
        agreement_table(found),
        theory_table(found),
        effects_table(found),
        pairs_table(found),
        levels_table(found),
        measures_table(found),
        definitions_table(found),
        paired_cpu_table(found),
        phases_table(found),
        incident_table(found),
        _runs_table(runs),
    )
    return tuple(table for table in tables if table.rows)


def confidence(found: Results) -> str:
    """Return the confidence level of every interval: ``95 %``."""
    return f"{(1 - found['alpha']) * 100:g}{THIN_SPACE}%"


def metric_label(found: Results, name: str) -> str:
    """Return a metric's label: ``p99``."""
    return next(it["label"] for it in found["metrics"] if it["name"] == name)


def factors_of(found: Results) -> dict[str, list[str]]:
    """Return the factors that vary; levels that are numbers are sorted."""
    factors: dict[str, dict[str, None]] = {}
    for point in found["points"]:
        for factor, level in point["levels"].items():
            factors.setdefault(factor, {})[level] = None
    return {name: _ordered(of) for name, of in factors.items() if len(of) > 1}


def _ordered(levels: Iterable[str]) -> list[str]:
    try:
        return sorted(levels, key=float)
    except ValueError:
        return list(levels)


def comparison_table(found: Results) -> Table:
    """Return one row per world, point, class and arm, with all metrics."""
    primary, level = found["primary"]["metric"], confidence(found)
    label = metric_label(found, primary)
    columns = [*heads(found, *_PLACE)]
    for metric in found["metrics"]:
        heading = f"{metric['label']} [{metric['unit']}]"
        columns.append(number(heading, metric["name"]))
        if metric["name"] == primary:
            columns.append(ends(f"{level} CI of {label}", "low", "high"))
    columns += [*ratio_columns(found), p(), verdict()]
    return Table(
        name="comparison",
        caption=(
            f"Latency from the intended instant, and goodput. Ratio, interval, p and "
            f"verdict compare {label} with {found['baseline']}."
        ),
        columns=tuple(columns),
        rows=tuple(_pivoted(found["rows"], primary)),
    )


def _pivoted(rows: Sequence[Row], primary: str) -> Iterable[dict[str, object]]:
    """Yield the primary metric's row of each place, with all metrics' values added."""
    for _, group in groupby(rows, key=_place):
        of = {row["metric"]: row for row in group}
        values = {name: row["value"] for name, row in of.items()}
        yield {**of[primary], **values}


def _place(row: Row) -> tuple[str, str, str, str]:
    return row["world"], row["point"], row["class"], row["arm"]


def _cells_table(found: Results) -> Table:
    level = confidence(found)
    return Table(
        name="cells",
        caption=f"Every class, arm and metric, compared with {found['baseline']}.",
        columns=(
            *heads(found, *_PLACE),
            text("metric"),
            number("value"),
            ends(f"{level} CI of value", "low", "high"),
            *ratio_columns(found),
            p(),
            verdict(),
            text("why"),
            ends("A/A interval", "noise_low", "noise_high", _NOISE),
            count("requests", "n"),
            number("effective exceedances", "effective", _EFFECTIVE),
            count("sessions"),
            count("rounds", "blocks"),
        ),
        rows=tuple(found["rows"]),
    )


def noise_table(found: Results) -> Table:
    """Return the A/A arm's ratios: the noise floor of every comparison."""
    return Table(
        name="noise",
        caption=(
            f"{found['again']} against {found['baseline']}: the same program under the "
            "same requests. A difference inside these intervals is noise."
        ),
        columns=(
            *heads(found, *_PLACE),
            text("metric"),
            *ratio_columns(found),
            p(),
        ),
        rows=tuple(row for row in found["rows"] if row["arm"] == found["again"]),
    )


def agreement_table(found: Results) -> Table:
    """Return the agreement of every two worlds in the primary metric."""
    primary = found["primary"]["metric"]
    rows = [
        {
            **row,
            "ratio": row["quotient"],
            "ratio_low": row["quotient_low"],
            "ratio_high": row["quotient_high"],
        }
        for row in found["agreement"]
        if row["metric"] == primary
    ]
    margin = f"{found['margin_worlds'] * 100:g}{THIN_SPACE}%"
    return Table(
        name="agreement",
        caption=(
            f"Quotient of two worlds' {metric_label(found, primary)} ratios to "
            f"{found['baseline']}. Worlds agree where its interval lies within the "
            f"margin: {margin} of the logarithm of the first world's ratio, or the "
            "equivalence margin if that is larger."
        ),
        columns=(
            *heads(found, "point", "class", "arm"),
            text("world", "first"),
            text("against", "world"),
            *ratio_columns(found, "ratio of the second world divided by the first's"),
            verdict("agreement"),
        ),
        rows=tuple(rows),
    )


def theory_table(found: Results) -> Table:
    """Return predicted and measured ratios of the mean latency."""
    return Table(
        name="theory",
        caption=f"Mean latency relative to {found['baseline']}: closed form and world.",
        columns=(
            *heads(found, "world", "class", "arm"),
            number("predicted"),
            *ratio_columns(found),
            text("verdict"),
        ),
        rows=tuple(found["theory"]),
    )


def effects_table(found: Results) -> Table:
    """Return the effects of the factors that the arms combine."""
    rows = [
        {
            **effect,
            "of": " × ".join(effect["factors"]),
            "metric": metric_label(found, effect["metric"]),
        }
        for effect in found["effects"]
    ]
    return Table(
        name="effects",
        caption=(
            "Effects of the factors: added alone, on average over all orders (share), "
            "added last, and as main effects and interactions. Part is the share of "
            "the whole effect on the log scale."
        ),
        columns=(
            *heads(found, *_PLACE),
            text("metric"),
            text("kind"),
            text("factors", "of"),
            *ratio_columns(found),
            number("part"),
            ends("CI of part", "part_low", "part_high"),
            p(),
            text("verdict"),
        ),
        rows=tuple(rows),
    )


def pairs_table(found: Results) -> Table:
    """Return the arms compared with each other."""
    return Table(
        name="pairs",
        caption="Arms against each other: ratio of the first to the second.",
        columns=(
            *heads(found, "world", "point", "class"),
            text("first"),
            text("second"),
            text("metric"),
            *ratio_columns(found, "value under the first divided by the second's"),
            p(),
            text("ahead", meaning="the arm with the better value, where significant"),
            text("why"),
        ),
        rows=tuple(found["pairs"]),
    )


def levels_table(found: Results) -> Table:
    """Return the ratio to the baseline, averaged over the points of each level."""
    label = metric_label(found, found["primary"]["metric"])
    return Table(
        name="levels",
        caption=(
            f"Ratio of {label} to {found['baseline']}: geometric mean over the points "
            "of a level."
        ),
        columns=(
            *heads(found, "world"),
            text("factor"),
            text("level"),
            *heads(found, "class", "arm"),
            *ratio_columns(found),
            count("compared at", "points"),
            count("of"),
        ),
        rows=tuple(found["levels"]),
    )


def paired_cpu_table(found: Results) -> Table:
    """Return the CPU time of identical requests relative to the baseline."""
    return Table(
        name="paired-cpu",
        caption=(
            f"Handler CPU of identical requests relative to {found['baseline']}: "
            "geometric mean over rounds of the median request."
        ),
        columns=(
            *heads(found, "world", "point", "arm"),
            *ratio_columns(found),
            count("requests", "n"),
        ),
        rows=tuple(found["paired_costs"]),
    )


def measures_table(found: Results) -> Table:
    """Return the metrics of every class and arm besides quantiles and goodput."""
    defined = {it["name"]: it for it in found["definitions"]}
    level = confidence(found)
    return Table(
        name="measures",
        caption=(
            f"Further metrics: mean over sessions, compared with {found['baseline']}."
        ),
        columns=(
            *heads(found, *_PLACE),
            text("metric", "label"),
            text("unit"),
            number("value"),
            ends(f"{level} CI of value", "low", "high"),
            *ratio_columns(found),
            p(),
            verdict(),
            count("requests", "n"),
        ),
        rows=tuple(
            {
                **row,
                "label": defined[row["metric"]]["label"],
                "unit": defined[row["metric"]]["unit"],
            }
            for row in found["measures"]
        ),
    )


def definitions_table(found: Results) -> Table:
    """Return the definition of every metric."""
    return Table(
        name="definitions",
        caption=(
            "Metrics by class and arm. A request without a good answer has an infinite "
            "latency, slowdown and wait. Attainment and goodput count answers within "
            "slo_ms, and all where a class has none."
        ),
        columns=(
            text("metric", "name"),
            text("unit"),
            text("better"),
            text("formula"),
            text("source"),
            text("where", "condition"),
        ),
        rows=tuple(found["definitions"]),
    )


def phases_table(found: Results) -> Table:
    """Return the mean time of answered requests in each phase."""
    names = list(dict.fromkeys(k for row in found["phases"] for k in row["means_ms"]))
    rows = [
        {
            "world": row["world"],
            "point": row["point"],
            "class": row["class"],
            "arm": row["arm"],
            "n": row["n"],
            "of": "slowest" if row["slowest"] else "all",
            **row["means_ms"],
        }
        for row in found["phases"]
    ]
    headings = {name: name.removesuffix("_ns").replace("_", " ") for name in names}
    return Table(
        name="phases",
        caption="Mean milliseconds of answered requests in each phase.",
        columns=(
            *heads(found, *_PLACE),
            text("requests", "of"),
            count("number", "n"),
            *(number(headings[name], name) for name in names),
        ),
        rows=tuple(rows),
    )


def incident_table(found: Results) -> Table:
    """Return every measure of an election under every arm."""
    level = confidence(found)
    rows = found["election"]["measures"] if "election" in found else []
    return Table(
        name="incident",
        caption=(
            "Election under load: mean over incidents, and its difference to "
            f"{found['baseline']} under the same requests."
        ),
        columns=(
            *heads(found, "world"),
            text("measure", "label"),
            text("unit"),
            text("arm"),
            number("mean", "value"),
            ends(f"{level} CI of mean", "low", "high"),
            number("difference"),
            ends(f"{level} CI of difference", "difference_low", "difference_high"),
            p(),
            verdict(),
        ),
        rows=tuple(rows),
    )


def _runs_table(runs: Iterable[Values]) -> Table:
    return Table(
        name="runs",
        caption="Every recorded run, and why it was discarded.",
        columns=(
            text("world"),
            text("run"),
            count("block"),
            count("order"),
            text("arm"),
            *(count(name) for name in ("sent", "ok", "error", "timeout", "unfinished")),
            number("late p99 [ms]", "late_p99_ms"),
            number("load average", "load"),
            text("discarded"),
        ),
        rows=tuple(runs),
    )


# ---- files ----


def as_csv(table: Table) -> str:
    """Return the rows with every digit; a missing value is an empty field."""
    keys = list(dict.fromkeys(key for column in table.columns for key in column.keys))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    for row in table.rows:
        writer.writerow("" if row.get(key) is None else row.get(key) for key in keys)
    return out.getvalue()


def as_markdown(table: Table) -> str:
    """Return the caption and a Markdown table."""
    headings = [column.heading for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [
        [_piped(column.text(row)) for column in table.columns] for row in table.rows
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in [headings, rules, *rows])
    return f"{table.caption}\n\n{body}\n"


def _piped(words: str) -> str:
    return words.replace("|", "\\|")


def as_latex(table: Table) -> str:
    """Return a ``table`` environment with booktabs rules."""
    spec = "".join("r" if column.numeric else "l" for column in table.columns)
    headings = " & ".join(_latex(column.heading) for column in table.columns)
    body = "\n".join(
        " & ".join(_latex(column.text(row)) for column in table.columns) + r" \\"
        for row in table.rows
    )
    return (
        "\\begin{table}\n"
        f"\\caption{{{_latex(table.caption)}}}\n"
        f"\\begin{{tabular}}{{{spec}}}\n\\toprule\n{headings} \\\\\n\\midrule\n"
        f"{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


_LATEX: Final = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "∞": r"$\infty$",
    "−": r"$-$",
    "×": r"$\times$",
    "–": "--",
    "…": r"\ldots{}",
    "⌈": r"$\lceil$",
    "⌉": r"$\rceil$",
    "Σ": r"$\Sigma$",
    "²": "$^2$",
    THIN_SPACE: r"\,",
}


def _latex(words: str) -> str:
    return "".join(_LATEX.get(character, character) for character in words)
