"""``results.json``: every number and verdict of a report as plain data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.incident_worlds import hold_incidents_together
from spark_analysis.judging.broken_laws import broken_laws
from spark_analysis.judging.cells import Cell
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.metrics import Measure, definitions
from spark_analysis.judging.study import Study
from spark_analysis.judging.world_agreement import WorldCell, Worlds, place
from spark_analysis.recordings.contract import Manifest, Run
from spark_analysis.report.content import schema
from spark_analysis.report.content.schema import Results
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.paired import smallest_p

SCHEMA: Final = 1
# Points with curves and phases; a sweep of hundreds of points has tables only.
POINTS_DRAWN_MAX: Final = 4


def results_of(worlds: Worlds, incidents: Mapping[str, Incident]) -> Results:
    """Return the content of ``results.json`` for one world or several.

    ``incidents`` are the judged elections by world, empty without elections.
    """
    studies = sorted(worlds.studies, key=lambda it: place(it.manifest.world))
    first = studies[0]
    manifest = first.manifest
    found: Results = {
        "schema": SCHEMA,
        "name": manifest.name,
        "title": manifest.title,
        "created": manifest.created,
        "baseline": manifest.baseline,
        "again": manifest.again,
        "alpha": manifest.options.alpha,
        "margin_worlds": manifest.options.margin_worlds,
        "slo_share": manifest.options.slo_share,
        "primary": _primary(first),
        "metrics": [
            {
                "name": metric.name,
                "label": metric.label,
                "unit": metric.unit,
                "quantile": None if metric.quantile is None else float(metric.quantile),
                "margin": metric.margin,
            }
            for metric in first.metrics
        ],
        "definitions": [definition(measure) for measure in definitions()],
        "classes": _classes(manifest),
        "arms": _arms(manifest),
        "worlds": [_world(study) for study in studies],
        "silent": dict(worlds.silent),
        "points": [
            {"point": point.name, "levels": dict(point.levels)}
            for point in manifest.points
            if point.name
        ],
        "rows": [row for study in studies for row in _rows(study)],
        "measures": [row for study in studies for row in _measures(study)],
        "agreement": [_agreement(cell) for cell in worlds.cells],
        "theory": [
            {
                "world": row.world,
                "class": row.class_name,
                "arm": row.arm,
                "predicted": row.predicted,
                **_ratio(row.measured),
                "verdict": row.verdict,
            }
            for row in worlds.theory.rows
        ],
        "effects": [row for study in studies for row in _effects(study)],
        "pairs": [row for study in studies for row in _pairs(study)],
        "levels": [row for study in studies for row in _levels(study)],
        "paired_costs": [row for study in studies for row in _paired_costs(study)],
        "curves": [row for study in studies for row in _curves(study)],
        "phases": [row for study in studies for row in _phases(study)],
        "queue": [row for study in studies for row in _queue(study)],
    }
    if incidents:
        found["election"] = _election(incidents)
    return found


def run_rows(worlds: Worlds) -> Iterator[dict[str, str | int | float | None]]:
    """Yield every recorded run, with the reason of its discard, if any."""
    for study in worlds.studies:
        for point in study.manifest.points:
            at = study.manifest.at(point)
            for run in at.runs:
                yield _run(at, run)


def finite(value: float) -> float | None:
    """Return the number, or None if JSON cannot represent it."""
    return value if math.isfinite(value) else None


def _numbers(
    found: Estimate | None,
) -> tuple[float | None, float | None, float | None]:
    """Return a value and the ends of its interval, as in JSON."""
    if found is None:
        return None, None, None
    return finite(found.value), finite(found.low), finite(found.high)


def _value(found: Estimate | None) -> schema.Value:
    value, low, high = _numbers(found)
    return {"value": value, "low": low, "high": high}


def _ratio(found: Estimate | None) -> schema.Ratio:
    ratio, low, high = _numbers(found)
    return {"ratio": ratio, "ratio_low": low, "ratio_high": high}


def _place(manifest: Manifest, class_name: str, arm: str) -> schema.Place:
    return {
        "world": manifest.world,
        "point": manifest.point.name,
        "class": class_name,
        "arm": arm,
    }


def _primary(study: Study) -> schema.Primary:
    """Return the configured class and metric."""
    class_name = study.manifest.sessions.primary
    return {"class_name": class_name, "metric": study.headline.name}


def definition(measure: Measure) -> schema.Definition:
    """Return the definition of a metric, as in ``results.json``."""
    return {
        "name": measure.name,
        "label": measure.label,
        "unit": measure.unit,
        "better": "lower" if measure.lower_is_better else "higher",
        "formula": measure.formula,
        "source": measure.source,
        "condition": measure.condition,
    }


def _classes(manifest: Manifest) -> list[schema.ClassEntry]:
    return [
        {
            "name": entry.name,
            "apis": list(entry.apis),
            "offered_per_s": entry.offered_per_s,
        }
        for entry in manifest.points[0].classes
    ]


def _arms(manifest: Manifest) -> list[schema.ArmEntry]:
    return [
        {
            "name": arm.name,
            "scheduler": arm.scheduler,
            "settings": {key: str(value) for key, value in arm.settings.items()},
            "again_of": arm.again_of,
            "factors": dict(arm.factors),
        }
        for arm in manifest.arms_compared
    ]


# ---- one world ----


def _world(study: Study) -> schema.World:
    manifest = study.manifest
    comparisons = study.comparisons
    blocks = min(len(of.manifest.blocks) for of in comparisons)
    sessions = _sessions(study)
    start, end = manifest.points[0].window_ns
    discarded: Counter[str] = Counter()
    for of in comparisons:
        reasons = (of.manifest.why_excluded(run) for run in of.manifest.runs)
        discarded.update(reason for reason in reasons if reason)
    return {
        "world": manifest.world,
        "deterministic": manifest.deterministic,
        "seed": manifest.seed,
        "created": manifest.created,
        "commit": str(manifest.code.get("commit", "unknown"))[:12],
        "config_sha256": manifest.config_sha256[:12],
        "sessions": sessions,
        "sessions_planned": manifest.sessions.planned,
        "rounds": blocks,
        "runs": len(manifest.runs),
        "discarded": dict(discarded),
        "requests": sum(run.counts["sent"] for run in manifest.runs_compared),
        "window_s": [start / 1e9, end / 1e9],
        "machine": _machine(manifest),
        "p_min": smallest_p(sessions),
        "cautions": list(_cautions(study, sessions)),
    }


def _sessions(study: Study) -> int:
    """Return the number of sessions with a complete round, the minimum over points."""
    return min(
        len({run.session for run in of.manifest.runs_compared})
        for of in study.comparisons
    )


def _machine(manifest: Manifest) -> str:
    environment = manifest.environment
    facts = [
        str(environment.get("cpu_model") or "unknown processor"),
        f"{environment.get('cores', '?')} CPUs",
        f"kernel {environment.get('kernel', '?')}",
        f"Python {environment.get('python', '?')}",
    ]
    return ", ".join(facts)


def _cautions(study: Study, sessions: int) -> Iterator[schema.Caution]:
    manifest = study.manifest
    planned = manifest.sessions.planned
    if not manifest.finished:
        yield _caution("unfinished", sessions=sessions, planned=planned)
    if manifest.sessions.exploratory:
        yield _caution("exploratory", sessions=sessions, planned=planned)
    for arm in manifest.arms_missing:
        yield _caution("arm missing", arm=arm)
    missing = len(study.points_missing)
    if missing:
        yield _caution("points missing", points=missing, of=len(manifest.points))
    rivals = sum(
        arm.name != manifest.baseline and not arm.again_of
        for arm in manifest.arms_compared
    )
    p_min = smallest_p(sessions, rivals)
    if not manifest.deterministic and p_min > manifest.options.alpha:
        yield _caution("few sessions", sessions=sessions, p_min=p_min)
    if manifest.deterministic and _differs_from_itself(study):
        yield _caution("replay differs")
    for broken in broken_laws(manifest):
        law = broken.law.replace("_", " ")
        yield _caution("law broken", arm=broken.arm, law=law, times=broken.times)


def _caution(kind: str, **values: str | int | float) -> schema.Caution:
    return {"kind": kind, "values": values}


def _differs_from_itself(study: Study) -> bool:
    """Return whether the A/A arm of a deterministic world differs from the baseline."""
    return any(
        cell.ratio is not None and cell.ratio.value != 1
        for of in study.comparisons
        for cell in of.cells
        if cell.arm == of.again
    )


def _run(manifest: Manifest, run: Run) -> dict[str, str | int | float | None]:
    late = run.lateness_p99_ns
    return {
        "world": manifest.world,
        "run": run.run_id,
        "block": run.block,
        "order": run.order,
        "arm": run.arm,
        **{name: run.counts.get(name) for name in _COUNTED},
        "late_p99_ms": None if late is None else late / 1e6,
        "load": run.load_average,
        "discarded": manifest.why_excluded(run),
    }


_COUNTED: Final = ("sent", "ok", "error", "timeout", "unfinished")


# ---- rows ----


def _rows(study: Study) -> Iterator[schema.Row]:
    for comparison in study.comparisons:
        for cell in comparison.cells:
            yield _row(comparison.manifest, cell)


def _measures(study: Study) -> Iterator[schema.Row]:
    for comparison in study.comparisons:
        for cell in comparison.measures:
            yield _row(comparison.manifest, cell)
    for cell in study.capacities:
        yield {**_row(study.comparisons[0].manifest, cell), "point": ""}


def _row(manifest: Manifest, cell: Cell) -> schema.Row:
    ratio = cell.ratio
    p = cell.contrast.p if cell.contrast else None
    if cell.word == "baseline":
        ratio, p = Estimate(1.0, 1.0, 1.0), 1.0
    _, noise_low, noise_high = _numbers(cell.noise)
    return {
        **_place(manifest, cell.class_name, cell.arm),
        "metric": cell.metric.name,
        **_value(cell.value),
        **_ratio(ratio),
        "p": p,
        "p_min": cell.p_min,
        "verdict": cell.verdict,
        "why": cell.why,
        "secondary": cell.secondary,
        "noise_low": noise_low,
        "noise_high": noise_high,
        "n": cell.requests,
        "blocks": len(manifest.blocks),
        "sessions": cell.sessions,
        "effective": None if cell.effective is None else finite(cell.effective),
    }


def _agreement(cell: WorldCell) -> schema.Agreement:
    quotient, low, high = _numbers(cell.quotient)
    return {
        "point": cell.point,
        "first": cell.first,
        "world": cell.world,
        "class": cell.reference.class_name,
        "arm": cell.reference.arm,
        "metric": cell.reference.metric.name,
        "agreement": cell.agreement,
        "quotient": quotient,
        "quotient_low": low,
        "quotient_high": high,
        "margin": cell.margin,
        "paired": cell.paired,
    }


def _effects(study: Study) -> Iterator[schema.Effect]:
    for comparison in study.comparisons:
        for of in comparison.effects:
            for effect in of.effects:
                part, low, high = _numbers(effect.part)
                yield {
                    **_place(comparison.manifest, of.class_name, of.design.full),
                    "metric": of.metric.name,
                    "kind": effect.kind,
                    "factors": list(effect.factors),
                    **_ratio(effect.ratio),
                    "part": part,
                    "part_low": low,
                    "part_high": high,
                    "p": effect.p,
                    "verdict": effect.direction,
                }


def _pairs(study: Study) -> Iterator[schema.Pair]:
    for cell in study.pairs:
        yield {
            "world": study.manifest.world,
            "point": cell.point,
            "class": cell.class_name,
            "metric": cell.metric.name,
            "first": cell.pair[0],
            "second": cell.pair[1],
            **_ratio(cell.ratio),
            "p": cell.p,
            "ahead": cell.ahead,
            "why": cell.why,
        }


def _levels(study: Study) -> Iterator[schema.Level]:
    for found in study.levels:
        yield {
            "world": study.manifest.world,
            "factor": found.factor,
            "level": found.level,
            "class": found.class_name,
            "arm": found.arm,
            **_ratio(found.ratio),
            "points": found.points,
            "of": found.of,
        }


def _paired_costs(study: Study) -> Iterator[schema.PairedCost]:
    for comparison in study.comparisons:
        for cost in comparison.paired_costs:
            yield {
                "world": study.manifest.world,
                "point": comparison.manifest.point.name,
                "arm": cost.arm,
                **_ratio(cost.ratio),
                "n": cost.pairs,
            }


# ---- data of figures ----


def _drawn(study: Study) -> tuple[Comparison, ...]:
    found = study.comparisons
    return found if len(found) <= POINTS_DRAWN_MAX else ()


def _curves(study: Study) -> Iterator[schema.Curve]:
    for comparison in _drawn(study):
        for curve in comparison.curves:
            yield {
                **_place(comparison.manifest, curve.class_name, curve.arm),
                "latency_ms": curve.latency_ms.tolist(),
                "share": curve.share.tolist(),
                "low": curve.low.tolist(),
                "high": curve.high.tolist(),
            }


def _phases(study: Study) -> Iterator[schema.Phases]:
    for comparison in _drawn(study):
        for means in comparison.phases:
            yield {
                **_place(comparison.manifest, means.class_name, means.arm),
                "slowest": means.slowest,
                "n": means.requests,
                "means_ms": dict(means.means_ms),
            }


def _queue(study: Study) -> Iterator[schema.QueueMoment]:
    for comparison in _drawn(study):
        for moment in comparison.queue:
            yield {
                "world": study.manifest.world,
                "point": comparison.manifest.point.name,
                "arm": moment.arm,
                "t_s": moment.t_s,
                "queued": moment.queued,
                "queued_low": moment.queued_low,
                "queued_high": moment.queued_high,
                "waiting": moment.waiting,
            }


# ---- elections ----


def _election(incidents: Mapping[str, Incident]) -> schema.Election:
    elections = hold_incidents_together(list(incidents.values()))
    ordered = sorted(incidents.values(), key=lambda it: place(it.manifest.world))
    return {
        "measures": [row for it in ordered for row in _incident(it)],
        "agreement": [
            {
                "arm": pair.mine.arm,
                "measure": pair.mine.measure.name,
                "first": pair.first,
                "world": pair.other,
                "agreement": pair.agreement,
            }
            for pair in elections.pairs
        ],
        "timelines": [
            {
                "world": it.manifest.world,
                "arm": line.arm,
                "lanes": {name: list(at) for name, at in line.lanes.items()},
                "obeyed_ms": [at for at in line.obeyed_ms if math.isfinite(at)],
                "writable_ms": line.writable_ms,
            }
            for it in ordered
            for line in it.timelines
        ],
        "overload": [
            {
                "world": it.manifest.world,
                "places": it.overload.places,
                "waiting_mean": it.overload.mean,
                "full": it.overload.full,
                "incidents": len(it.overload.waiting),
            }
            for it in ordered
        ],
    }


def _incident(incident: Incident) -> Iterator[schema.Incident]:
    for cell in incident.cells:
        difference, low, high = _numbers(cell.difference)
        yield {
            "world": incident.manifest.world,
            "arm": cell.arm,
            "measure": cell.measure.name,
            "label": cell.measure.label,
            "unit": cell.measure.unit,
            "meaning": cell.measure.meaning,
            **_value(cell.estimate),
            "difference": difference,
            "difference_low": low,
            "difference_high": high,
            "p": cell.p,
            "verdict": cell.word,
            "blocks": len(incident.manifest.blocks),
        }
