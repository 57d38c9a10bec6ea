"""``results.json``: every number of a report for whoever computes with it."""

from __future__ import annotations

import math
from typing import Any

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.worlds import IncidentWorlds
from spark_analysis.judging.attribution import Attribution, Effect
from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.pairs import PairCell
from spark_analysis.judging.study import Study
from spark_analysis.judging.worlds import WorldCell, Worlds
from spark_analysis.recordings.machine_speed import loop_ratio
from spark_analysis.recordings.paired_cost import PairedCost
from spark_analysis.recordings.theory import TheoryRow
from spark_analysis.statistics.intervals import Estimate


def results(study: Study) -> dict[str, Any]:
    """Return what ``results.json`` holds.

    A number that does not exist, is infinite, or was refused is null; ``withheld`` says
    why a value may not be quoted, which a verdict may be without; ``factors`` are those
    in which the arm differs from the baseline, with the arm's levels; a latency is in
    milliseconds and, as ``in_requests``, in units of the mean request, where what that
    costs is known. Rows have a ``point`` in a sweep only; ``pairs`` and ``effects`` are
    there where some were asked for (``low_at_once`` to ``high_at_once`` hold for a
    pair's ratios at all points of the class), and ``paired_costs``, how the cost of
    identical requests differed in each block and over all, where brokers measured it.
    ``loop_ratio`` beside it is the probe's.
    """
    found: dict[str, Any] = {"schema": 1}
    if study.swept:
        found["points"] = [
            {"point": point.name, "levels": dict(point.levels)}
            for point in study.manifest.points
        ]
    found["rows"] = [
        {**_at(study, comparison), **_row(comparison, cell)}
        for comparison in study.comparisons
        for cell in comparison.cells
    ]
    effects = [
        {**_at(study, comparison), **row}
        for comparison in study.comparisons
        for of in comparison.attributions
        for row in _effects(of)
    ]
    if effects:
        found["effects"] = effects
    costs = [
        {**_at(study, comparison), **_paired_cost(comparison, cost)}
        for comparison in study.comparisons
        for cost in comparison.paired_costs
    ]
    if costs:
        found["paired_costs"] = costs
    if study.pairs:
        found["pairs"] = [_pair(study, cell) for cell in study.pairs]
    return found


def results_of_incident(incident: Incident) -> list[dict[str, Any]]:
    """Return what ``results.json`` says of an election: a row per measure and arm."""
    return [
        {
            "arm": cell.arm,
            "measure": cell.measure.name,
            "value": finite(cell.estimate.value),
            "low": finite(cell.estimate.low),
            "high": finite(cell.estimate.high),
            "difference": _end(cell.difference, 0),
            "difference_low": _end(cell.difference, 1),
            "difference_high": _end(cell.difference, 2),
            "p": cell.p,
            "verdict": cell.word,
            "blocks": len(incident.manifest.blocks),
        }
        for cell in incident.cells
    ]


def results_of_elections(worlds: IncidentWorlds) -> dict[str, Any]:
    """Return what ``results.json`` says of an election in several worlds."""
    return {
        "incident": [
            {"world": incident.manifest.world, **row}
            for incident in worlds.incidents
            for row in results_of_incident(incident)
        ],
        "incident_agreement": [
            {
                "arm": pair.mine.arm,
                "measure": pair.mine.measure.name,
                "first": pair.first,
                "world": pair.other,
                "agreement": pair.agreement,
            }
            for pair in worlds.pairs
        ],
        "incident_orders": [
            {
                "measure": name,
                "world": incident.manifest.world,
                "arms": list(order.arms),
                "best": list(order.best),
                "ahead": sorted(map(list, order.ahead)),
            }
            for incident in worlds.incidents
            for name, order in incident.orders.items()
        ],
    }


def _end(estimate: Estimate | None, index: int) -> float | None:
    return None if estimate is None else finite(estimate[index])


def _at(study: Study, comparison: Comparison) -> dict[str, str]:
    world = {"world": comparison.manifest.world}
    point = {"point": comparison.manifest.point.name} if study.swept else {}
    return {**world, **point}


def _row(comparison: Comparison, cell: Cell) -> dict[str, Any]:
    nothing = Estimate(math.nan, math.nan, math.nan)
    estimate, contrast = cell.estimate or nothing, cell.shown_contrast
    row: dict[str, Any] = {
        "class": cell.class_name,
        "arm": cell.arm,
        "factors": comparison.manifest.differs_in(cell.arm),
        "metric": cell.metric.name,
        "value": finite(estimate.value),
        "low": finite(estimate.low),
        "high": finite(estimate.high),
        "in_requests": _in_requests(comparison, cell),
        "ratio": None,
        "ratio_low": None,
        "ratio_high": None,
        "p": None,
        "verdict": cell.verdict.text,
        "withheld": cell.withheld,
        "n": cell.measured.requests,
        "blocks": cell.blocks,
    }
    if cell.verdict.word == "baseline":
        row |= {"ratio": 1.0, "ratio_low": 1.0, "ratio_high": 1.0, "p": 1.0}
    elif contrast is not None:
        row |= {**_ratio(contrast.ratio), "p": contrast.p}
    return row


def _in_requests(comparison: Comparison, cell: Cell) -> float | None:
    request_ms = comparison.manifest.point.mean_request_ms
    if cell.metric.quantile is None or cell.estimate is None or not request_ms:
        return None
    return finite(cell.estimate.value / request_ms)


def _effects(of: Attribution) -> list[dict[str, Any]]:
    key = {
        "arm": of.design.full,
        "class": of.class_name,
        "metric": of.metric.name,
    }
    if of.why:
        return [{**key, "kind": None, "verdict": f"refused: {of.why}"}]
    return [{**key, **_effect(effect)} for effect in of.effects]


def _effect(effect: Effect) -> dict[str, Any]:
    part = effect.part or Estimate(math.nan, math.nan, math.nan)
    return {
        "kind": effect.kind,
        "factors": list(effect.factors),
        **_ratio(effect.ratio),
        "part": finite(part.value),
        "part_low": finite(part.low),
        "part_high": finite(part.high),
        "p": effect.p,
        "verdict": effect.decision if effect.found else "inconclusive",
    }


def _paired_cost(comparison: Comparison, cost: PairedCost) -> dict[str, Any]:
    manifest = comparison.manifest
    loop = loop_ratio(manifest, cost.arm)
    return {
        "arm": cost.arm,
        **_ratio(cost.ratio),
        "by_block": {str(block): ratio for block, ratio in cost.ratios.items()},
        "loop_ratio": _end(loop, 0),
        "loop_ratio_low": _end(loop, 1),
        "loop_ratio_high": _end(loop, 2),
        "n": cost.pairs,
        "left_out": cost.left_out,
    }


def _pair(study: Study, cell: PairCell) -> dict[str, Any]:
    nothing = Estimate(math.nan, math.nan, math.nan)
    return {
        **({"point": cell.point} if study.swept else {}),
        "class": cell.class_name,
        "first": cell.pair[0],
        "second": cell.pair[1],
        "metric": cell.metric.name,
        **_ratio(cell.ratio or nothing),
        "low_at_once": _end(cell.at_once, 1),
        "high_at_once": _end(cell.at_once, 2),
        "q": cell.q if cell.ratio else None,
        "margin": cell.metric.margin,
        "ahead": cell.ahead if not cell.why else f"refused: {cell.why}",
    }


def _ratio(ratio: Estimate) -> dict[str, float | None]:
    return {
        "ratio": finite(ratio.value),
        "ratio_low": finite(ratio.low),
        "ratio_high": finite(ratio.high),
    }


def finite(value: float) -> float | None:
    """Return the number, or None where JSON has no word for it."""
    return value if math.isfinite(value) else None


def results_of_worlds(worlds: Worlds) -> dict[str, Any]:
    """Return what ``results.json`` holds of several worlds: all their rows.

    ``worlds`` are the cells of every two worlds (``first`` and ``world``), with the
    quotient of their ratios to the baseline and that of their values (in mean requests
    where both know what that costs); ``theory`` is there where a closed form is known.
    """
    each = [results(study) for study in worlds.studies]
    found: dict[str, Any] = {
        "schema": 1,
        "witness": worlds.witness.manifest.world,
        "silent": dict(worlds.silent),
        "rows": [row for of in each for row in of["rows"]],
        "worlds": [_world_row(worlds, cell) for cell in worlds.cells],
    }
    if "points" in each[0]:
        found["points"] = each[0]["points"]
    if worlds.theory.rows:
        found["theory"] = [_theory_row(row) for row in worlds.theory.rows]
    for key in ("effects", "paired_costs", "pairs"):
        rows = [
            {"world": study.manifest.world, **row}
            for study, of in zip(worlds.studies, each, strict=True)
            for row in of.get(key, [])
        ]
        if rows:
            found[key] = rows
    return found


def _world_row(worlds: Worlds, cell: WorldCell) -> dict[str, Any]:
    nothing = Estimate(math.nan, math.nan, math.nan)
    between, ratios = cell.between or nothing, cell.ratios or nothing
    return {
        **({"point": cell.point} if worlds.witness.swept else {}),
        "first": cell.first,
        "world": cell.world,
        "class": cell.witness.class_name,
        "arm": cell.witness.arm,
        "metric": cell.witness.metric.name,
        "agreement": None
        if cell.witness.verdict.word == "baseline"
        else cell.agreement,
        "ratios": finite(ratios.value),
        "ratios_low": finite(ratios.low),
        "ratios_high": finite(ratios.high),
        "between": finite(between.value),
        "between_low": finite(between.low),
        "between_high": finite(between.high),
    }


def _theory_row(row: TheoryRow) -> dict[str, Any]:
    return {
        "world": row.world,
        "class": row.class_name,
        "arm": row.arm,
        "predicted": row.predicted,
        **_ratio(row.measured),
        "verdict": row.verdict,
    }
