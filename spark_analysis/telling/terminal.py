"""The comparison on a terminal: the answer, the table, what to beware of."""

from __future__ import annotations

from typing import Final

from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable
from rich.text import Text

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.worlds import IncidentWorlds
from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import Worlds
from spark_analysis.telling.sentences.answer_of_worlds import worlds_lead
from spark_analysis.telling.sentences.incident_sentences import incident_lead
from spark_analysis.telling.sentences.incident_world_sentences import worlds_sentences
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.numbers import (
    NONE,
    THIN_SPACE,
    counted,
    digits,
    listed,
    p_value,
    ratio,
    ratio_interval,
)
from spark_analysis.telling.sentences.sweep_sentences import (
    pair_sentences,
    study_again,
    study_attribution,
    study_cautions,
    study_lead,
)
from spark_analysis.telling.sentences.verdict_sentences import (
    again_sentence,
    headline,
    story,
)
from spark_analysis.telling.tables.agreement_table import agreement_tables
from spark_analysis.telling.tables.glance_table import glance_table
from spark_analysis.telling.tables.incident_table import incident_summary
from spark_analysis.telling.tables.point_tables import verdict_word
from spark_analysis.telling.tables.table import Column, Table

# Below this many columns only the headline and goodput are shown.
_WIDE: Final = 116
_STYLES: Final = {
    "better": "green",
    "worse": "red",
    "equivalent": "blue",
    "identical": "blue",
    "inconclusive": "yellow",
    "refused": "dim",
    "baseline": "dim",
}


def show(study: Study, console: Console) -> None:
    """Print the answer: of one point with its table, of a sweep in sentences."""
    console.print()
    console.print(Text(study.manifest.title, style="bold"))
    if study.swept:
        _show_sweep(study, console)
    else:
        _show_point(study, console)


def show_incident(incident: Incident, console: Console) -> None:
    """Print what an election was like under every arm."""
    console.print()
    for text in incident_lead(incident):
        console.print(_text(text))
    summary = incident_summary(incident)
    # A person compares arms: they stand side by side.
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    rows = summary.written()
    table.add_column("")
    for row in rows:
        table.add_column(row[0], justify="right")
    for number, column in enumerate(summary.columns[1:], start=1):
        table.add_row(column.heading, *(row[number] for row in rows))
    console.print()
    console.print(table)
    console.print(_text(summary.caption, "dim"))


def show_elections(worlds: IncidentWorlds, console: Console) -> None:
    """Print what the election was like in each world, and where they agree."""
    for incident in worlds.incidents:
        console.print()
        world = f"The election in the {incident.manifest.world} world"
        console.print(Text(world, style="bold"))
        show_incident(incident, console)
    for text in worlds_sentences(worlds):
        console.print(_text(f"· {text}"))


def show_worlds(worlds: Worlds, console: Console) -> None:
    """Print the answer of several worlds on one screen; the rest is in the report."""
    console.print(Text(worlds.witness.manifest.title, style="bold"))
    # What a reader must know of the world on which the answer stands, comes first.
    for text in study_cautions(worlds.witness):
        console.print(_text(f"{worlds.witness.manifest.world}: {text}", "bold red"))
    head, *rest = worlds_lead(worlds)
    console.print(_text(head, "bold"))
    for text in rest:
        console.print(_text(f"· {text}"))
    for found in _side_by_side(worlds):
        console.print(_narrow(found))
        console.print(_text(found.caption, "dim"))
    beware = [
        f"{counted(len(said), 'thing')} in the {study.manifest.world} world"
        for study in worlds.others
        if (said := study_cautions(study))
    ]
    if beware:
        words = f"To beware of in the report: {listed(beware)}."
        console.print(_text(words, "bold red"))


def _narrow(found: Table) -> RichTable:
    """Return a table with each interval below its value.

    Where room is scarce, words get more lines; a number would lose digits.
    """
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    last = found.columns[-1]
    for column in found.columns:
        if not _below(column):
            justify: JustifyMethod = "right" if column.numeric else "left"
            whole = column.numeric or column is not last
            table.add_column(column.heading, justify=justify, no_wrap=whole)
    for row in found.written():
        cells: list[str] = []
        for column, text in zip(found.columns, row, strict=True):
            if not _below(column):
                cells.append(text)
            elif text != NONE:
                cells[-1] += f"\n{text}"
        table.add_row(*(_text(text) for text in cells))
    return table


def _below(column: Column) -> bool:
    return column.name.endswith("_interval")


def _side_by_side(worlds: Worlds) -> tuple[Table, ...]:
    """Return the witness beside another world; of several, all of them in one table."""
    if len(worlds.others) > 1:
        return agreement_tables(worlds)
    if worlds.witness.swept:
        return ()
    return tuple(glance_table(worlds, study) for study in worlds.others)


def _show_sweep(study: Study, console: Console) -> None:
    points = counted(len(study.comparisons), "point")
    console.print(f"{points}, {study.headline.label} each")
    console.print()
    for text in study_cautions(study):
        console.print(_text(text, "bold red"))
    for text in study_lead(study):
        console.print(_text(f"· {text}"))
    console.print(_text(f"· {study_again(study)}", "dim"))


def _show_point(study: Study, console: Console) -> None:
    (comparison,) = study.comparisons
    metrics = comparison.metrics
    if console.width < _WIDE:
        metrics = (comparison.headline, metrics[-1])
    console.print(_table(comparison, metrics))
    console.print()
    for text in study_cautions(study):
        console.print(_text(text, "bold red"))
    console.print(_text(" ".join(lead(comparison)), "bold"))
    for arm in comparison.rivals:
        console.print(_text(f"· {headline(comparison, story(comparison, arm))}"))
    for text in pair_sentences(study, study.class_names):
        console.print(_text(f"· {text}"))
    # Of several designs the answer has told what there is room for.
    for said in study_attribution(study) if len(comparison.designs) < 2 else ():
        console.print(_text(said.plain, "bold"))
    console.print(_text(f"· {again_sentence(comparison)}"))
    for text in _refusals(comparison):
        console.print(_text(f"· {text}", "dim"))


def _text(text: str, style: str = "") -> Text:
    """Return text without the narrow spaces at which a terminal would break lines."""
    return Text(text.replace(f"{THIN_SPACE}%", "%").replace(THIN_SPACE, ","), style)


def _refusals(comparison: Comparison) -> list[str]:
    """Say why a class's p99 is not shown, once for all arms: readers look for it."""
    metric = comparison.tail_metric
    said = []
    for name in comparison.class_names:
        cells = [
            comparison.cell(name, arm, metric.name) for arm in comparison.arm_names
        ]
        reasons = {cell.arm: _reason(cell) for cell in cells if _reason(cell)}
        if reasons:
            first = next(iter(reasons))
            said.append(
                f"The {metric.label} of {name} is not shown, or not compared, under "
                f"{', '.join(reasons)}. Under {first}, {reasons[first]}."
            )
    return said


def _reason(cell: Cell) -> str:
    """Return why a value is withheld or an arm not compared, or an empty string."""
    uncompared = cell.contrast is not None and cell.compared is None
    return cell.withheld or (cell.verdict.why if uncompared else "")


def _table(comparison: Comparison, metrics: tuple[Metric, ...]) -> RichTable:
    label = comparison.headline.label
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("class\n  arm", no_wrap=True)
    for metric in metrics:
        table.add_column(
            f"{metric.label}\n{metric.unit}", justify="right", no_wrap=True
        )
    for heading in (f"{label}\nratio", "\ninterval", "\np"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"{label}\nverdict", no_wrap=True)
    for name in comparison.class_names:
        table.add_row(Text(name, style="bold"))
        for arm in comparison.arm_names:
            table.add_row(f"  {arm}", *_numbers(comparison, metrics, name, arm))
    return table


def _numbers(
    comparison: Comparison, metrics: tuple[Metric, ...], class_name: str, arm: str
) -> list[Text]:
    cells = [comparison.cell(class_name, arm, metric.name) for metric in metrics]
    leading = comparison.cell(class_name, arm, comparison.headline.name)
    contrast = leading.shown_contrast
    texts = [NONE if c.withheld else digits(c.measured.estimate.value) for c in cells]
    texts += (
        [
            ratio(contrast.ratio.value),
            ratio_interval(contrast.ratio),
            p_value(contrast.p),
        ]
        if contrast
        else [NONE, NONE, NONE]
    )
    verdict = Text(verdict_word(leading), style=_STYLES[leading.verdict.word])
    return [*(_text(text) for text in texts), verdict]
