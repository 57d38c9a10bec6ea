"""The parts of the page: cards, tables, sentences, warnings."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest
from spark_analysis.telling.figures.style import INK, colour
from spark_analysis.telling.sentences.cost_sentences import cost_sentences
from spark_analysis.telling.sentences.lead import lead
from spark_analysis.telling.sentences.machine_sentences import (
    load_sentence,
    reasons_sentence,
    steadiness_sentence,
)
from spark_analysis.telling.sentences.numbers import (
    NONE,
    counted,
    digits,
    interval,
    p_value,
    percent,
    ratio,
    ratio_interval,
)
from spark_analysis.telling.sentences.sweep_sentences import study_cautions
from spark_analysis.telling.sentences.verdict_sentences import (
    Story,
    again_sentence,
    differs,
    finding,
    from_to,
    sentence,
    story,
    subject,
    treatment,
)
from spark_analysis.telling.tables.cpu_table import cpu_table
from spark_analysis.telling.tables.point_tables import (
    again_table,
    comparison_table,
    phases_table,
    runs_table,
    verdict_word,
)
from spark_analysis.telling.tables.speed_table import speed_table
from spark_analysis.telling.tables.table import Table
from spark_analysis.telling.tables.violations_table import violations_table


def cards(comparison: Comparison) -> str:
    """Return the answer in words, then one card per rival."""
    cards = [_card(comparison, story(comparison, arm)) for arm in comparison.rivals]
    said = " ".join(escape(sentence) for sentence in lead(comparison))
    return (
        f"<p class='lead'>{said}</p><div class='cards'>{''.join(cards)}</div>"
        f"<p class='note'>{escape(again_sentence(comparison))}</p>"
    )


def _card(comparison: Comparison, of_arm: Story) -> str:
    cell, base = of_arm.benefit, comparison.manifest.baseline
    style = f"style='--arm:{colour(comparison, of_arm.arm)}'"
    about = treatment(comparison, of_arm.arm)
    name = escape(of_arm.arm) + (f" <small>{escape(about)}</small>" if about else "")
    if cell is None:
        first = escape(comparison.class_names[0])
        return (
            f"<section class='card' {style}><h3>{name}</h3><p class='big'>refused</p>"
            f"<p>No quantile of {first} can be compared: its tails are too thin.</p>"
            "</section>"
        )
    than = f" than under {base}" if differs(cell) else f" to {base}'s"
    if cell.verdict.word == "inconclusive":
        than = f" against {base}"
    prices = "".join(
        f"<div><dt>{escape(f'{p.class_name} {p.metric.label}')}</dt>"
        f"<dd>{_chip(p, finding(p))}</dd></div>"
        for p in of_arm.others
    )
    return (
        f"<section class='card' {style}><h3>{name}</h3>"
        f"<p class='big'>{escape(finding(cell))}</p>"
        f"<p>{escape(subject(cell) + than)}: {escape(from_to(comparison, cell))}"
        f"<br><span class='meta'>{escape(_sureness(comparison, cell))}</span></p>"
        f"<dl>{prices}</dl></section>"
    )


def _sureness(comparison: Comparison, cell: Cell) -> str:
    contrast = cell.contrast
    assert contrast is not None
    level = percent(comparison.manifest.options.confidence)
    return (
        f"ratio {ratio_interval(contrast.ratio)} ({level}), p = {p_value(contrast.p)}"
        + (", exploratory †" if cell.verdict.exploratory else "")
    )


def warnings_part(study: Study) -> str:
    """Return what a reader must know before believing anything."""
    warnings = "".join(
        f"<p class='warning'>{escape(text)}</p>" for text in study_cautions(study)
    )
    named = {
        "Broken laws": violations_table(study.manifest),
        "Who was billed for the broker's CPU": cpu_table(study.manifest),
    }
    tables = "".join(
        f"<details><summary>{escape(name)}</summary>{plain_table(table)}</details>"
        for name, table in named.items()
        if table.rows
    )
    return warnings + tables


def comparison_part(comparison: Comparison) -> str:
    """Return the main table, classes as groups of rows, verdicts as chips."""
    metrics, headline = comparison.metrics, comparison.headline
    heads = [
        "<th>arm</th>",
        *(f"<th class=n>{m.label} [{m.unit}]</th>" for m in metrics),
        f"<th class=n>{headline.label} ratio</th><th class=n>p</th><th>verdict</th>",
    ]
    rows = []
    for name in comparison.class_names:
        rows.append(
            f"<tr><th scope='rowgroup' colspan='{len(metrics) + 4}'>{escape(name)}</th>"
            "</tr>"
        )
        rows += [_arm_row(comparison, name, arm) for arm in comparison.arm_names]
    caption = comparison_table(comparison).caption
    return _table("".join(heads), "".join(rows), caption)


def _arm_row(comparison: Comparison, class_name: str, arm: str) -> str:
    """Return one arm's row; intervals stand small beside what they belong to."""
    leading = comparison.cell(class_name, arm, comparison.headline.name)
    shade = colour(comparison, arm)
    style = "" if shade == INK else f" style='--arm:{shade}'"
    parts = [f"<td><span class='arm'{style}>{escape(arm)}</span></td>"]
    for metric in comparison.metrics:
        cell = comparison.cell(class_name, arm, metric.name)
        text = digits(cell.estimate.value) if cell.estimate else NONE
        if cell is leading and cell.estimate:
            text += f" <small>{interval(cell.estimate)}</small>"
        parts.append(f"<td class='n'>{text}</td>")
    contrast = leading.shown_contrast
    parts.append(
        f"<td class='n'>{ratio(contrast.ratio.value)} "
        f"<small>{ratio_interval(contrast.ratio)}</small></td>"
        f"<td class='n'>{p_value(contrast.p)}</td>"
        if contrast
        else f"<td class='n'>{NONE}</td><td class='n'>{NONE}</td>"
    )
    parts.append(f"<td>{_chip(leading, verdict_word(leading))}</td>")
    return f"<tr>{''.join(parts)}</tr>"


def _chip(cell: Cell, text: str) -> str:
    word = cell.verdict.word
    return f"<span class='chip {word}'>{escape(text)}</span>"


def sentences_part(comparison: Comparison) -> str:
    """Return every verdict as a sentence, by class, folded."""
    parts = []
    for name in comparison.class_names:
        said = "".join(
            f"<li>{escape(sentence(comparison, cell))}</li>"
            for cell in comparison.cells
            if cell.class_name == name and cell.contrast is not None
        )
        parts.append(
            f"<details><summary>{escape(name)}</summary><ul>{said}</ul></details>"
        )
    return "".join(parts)


def again_part(comparison: Comparison) -> str:
    """Return the A/A sentence and its table."""
    said = f"<p>{escape(again_sentence(comparison))}</p>"
    if comparison.again is None:
        return said
    return said + plain_table(again_table(comparison))


def runs_part(comparison: Comparison) -> str:
    """Return how many runs count, the excluded ones, and all of them folded."""
    manifest = comparison.manifest
    excluded = [run for run in manifest.runs if manifest.why_excluded(run)]
    said = (
        f"<p>Compared: {len(manifest.runs_compared)} of "
        f"{counted(len(manifest.runs), 'run')}.</p>"
    )
    if manifest.episodes is None:
        told = [steadiness_sentence(manifest)]
        told += [f"{run.run_id}: {manifest.why_excluded(run)}" for run in excluded]
    else:
        # Thousands of episodes: the table and the CSV beside it have each of them.
        told = [steadiness_sentence(manifest), reasons_sentence(manifest)]
    told += [load_sentence(manifest), *cost_sentences(comparison)]
    listed = "".join(f"<li>{escape(text)}</li>" for text in told if text)
    return (
        said
        + (f"<ul>{listed}</ul>" if listed else "")
        + (plain_table(speed_table(comparison)) if comparison.paired_costs else "")
        + "<details><summary>All runs</summary>"
        + plain_table(runs_table(comparison))
        + "</details>"
        + (_phases_part(comparison) if comparison.phases else "")
    )


def _phases_part(comparison: Comparison) -> str:
    return (
        "<details><summary>Time by phase, as a table</summary>"
        + plain_table(phases_table(comparison))
        + "</details>"
    )


def environment_part(manifest: Manifest) -> str:
    """Return the machine, the versions and the program, as recorded."""
    facts = {**manifest.environment}
    packages = facts.pop("packages", {})
    rows = [*_facts(facts), *_facts({f"code {k}": v for k, v in manifest.code.items()})]
    rows.append(
        ("packages", ", ".join(f"{k} {v}" for k, v in sorted(packages.items())))
    )
    for arm in manifest.arms:
        settings = ", ".join(f"{k}={v}" for k, v in arm.settings.items())
        program = f"scheduler {arm.scheduler}" + (f", {settings}" if settings else "")
        rows.append((f"arm {arm.name}", program))
    body = "".join(
        f"<tr><td>{escape(key.replace('_', ' '))}</td>"
        f"<td class='w'>{escape(text)}</td></tr>"
        for key, text in rows
    )
    return _table("<th>fact</th><th>recorded</th>", body, "")


def _facts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Write nested facts in a line: {"broker": 0} becomes "broker 0"."""
    facts = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        if value is not None:
            facts.append((key, str(value)))
    return facts


def plain_table(table: Table) -> str:
    """Return a table as HTML as it is."""
    heads = "".join(
        f"<th{' class=n' if column.numeric else ''}>{escape(column.heading)}</th>"
        for column in table.columns
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=n' if column.numeric else ''}>{escape(text)}</td>"
            for column, text in zip(table.columns, row, strict=True)
        )
        + "</tr>"
        for row in table.written()
    )
    return _table(heads, body, table.caption)


def _table(heads: str, body: str, caption: str) -> str:
    head = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"<div class='scroll'><table>{head}<thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
