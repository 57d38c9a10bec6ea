"""From attempts to an incident: Spark aggregates runs, paired contrasts decide.

An incident is a run with its own processes, so a block is a session. Arms of a block
received the same requests. A measure of all arms is a family under Holm's rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_analysis.incidents.incident import Incident, IncidentCell, Timeline
from spark_analysis.incidents.incident_measures import (
    OF_PARTITION,
    IncidentMeasure,
    measures_of,
    of_mark,
    of_run,
    of_write,
)
from spark_analysis.incidents.overload import overload_of
from spark_analysis.judging.cells import Word, noise_floor, verdict_of
from spark_analysis.judging.contrast import Contrast, adjust, contrast_from
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.rules import Rules, rules_of
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.load import aggregates, read_attempts
from spark_analysis.statistics.intervals import Estimate, mean_interval, median_interval
from spark_analysis.statistics.multiplicity import holm
from spark_analysis.statistics.ratios import log_ratio

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PRODUCE, _LEADER_AND_ISR = 0, 4
# A measure of every arm, by block.
Values = Mapping[str, Mapping[int, float]]


def judge_incident(spark: SparkSession, manifest: Manifest) -> Incident | None:
    """Judge the election of a run directory; None for a sweep or without election."""
    old_leader = manifest.old_leader
    if old_leader is None or len(manifest.points) > 1:
        return None
    measures = measures_of(manifest.options.margin_latency)
    attempts = _with_decision(read_attempts(spark, manifest), old_leader)
    attempts = attempts.cache()
    values = _values(attempts, manifest, measures, old_leader)
    arms = [arm.name for arm in manifest.arms_compared]
    block = manifest.blocks[0]
    incident = Incident(
        manifest=manifest,
        overload=overload_of(attempts, manifest, old_leader),
        measures=measures,
        cells=tuple(
            cell
            for measure in measures
            for cell in judge_measure(measure, values[measure.name], manifest)
        ),
        block=block,
        timelines=_timelines(attempts.where(f"block = {block}"), arms, manifest),
    )
    attempts.unpersist()
    return incident


def _with_decision(attempts: DataFrame, old_leader: int) -> DataFrame:
    """Add to every attempt its run's decision, end of unavailability, and gap."""
    decided = (
        attempts.where(f"api_key = {_LEADER_AND_ISR}")
        .groupBy("run_id")
        .agg(*aggregates({"decided_ns": "min(intended_ns)"}))
    )
    partitions = (
        attempts.where(f"api_key = {_PRODUCE} AND acks = -1")
        .groupBy("run_id", "partition", "request_id")
        .agg(*aggregates(dict(of_write(old_leader))))
        .groupBy("run_id", "partition")
        .agg(*aggregates(dict(OF_PARTITION)))
        .join(decided, "run_id")
    )
    # `greatest` skips nulls: the gap of a partition that no write was due for is 0.
    gap = "greatest(0, new_ns - greatest(decided_ns, old_ns, due_ns))"
    never = "count_if(new_ns IS NULL AND due_ns IS NOT NULL) > 0"
    back = "coalesce(max(new_ns), first(decided_ns))"
    runs = partitions.groupBy("run_id").agg(
        *aggregates(
            {
                "decided_ns": "first(decided_ns)",
                "back_ns": f"IF({never}, NULL, {back})",
                "gap_ns": f"IF({never}, NULL, max({gap}))",
            }
        )
    )
    return attempts.join(runs, "run_id")


def _values(
    attempts: DataFrame,
    manifest: Manifest,
    measures: Sequence[IncidentMeasure],
    old_leader: int,
) -> dict[str, Values]:
    """Return every measure of every arm, by block; infinite if it did not end."""
    timeout_ns = _timeout_ns(manifest)
    found = attempts.groupBy("run_id", "arm", "block").agg(
        *aggregates(dict(of_run(old_leader, timeout_ns)))
    )
    rows = sorted(found.toArrow().to_pylist(), key=lambda row: row["block"])
    return {
        it.name: {
            arm.name: {
                row["block"]: math.inf if row[it.name] is None else row[it.name]
                for row in rows
                if row["arm"] == arm.name
            }
            for arm in manifest.arms_compared
        }
        for it in measures
    }


def _timeout_ns(manifest: Manifest) -> int:
    """Return the time for which a client waits for an answer."""
    timeout_ms: float = manifest.config["cluster"]["request_timeout_ms"]
    return round(timeout_ms * 1e6)


def judge_measure(
    measure: IncidentMeasure, values: Values, manifest: Manifest
) -> list[IncidentCell]:
    """Return one cell per arm: value, difference and ratio to the baseline, verdict."""
    metric = Metric(
        name=measure.name,
        label=measure.label,
        unit=measure.unit,
        quantile=None,
        margin=measure.margin,
    )
    rules = rules_of(manifest)
    base = values[manifest.baseline]
    contrasts = {
        arm: contrast_from(
            {at: log_ratio(value, base[at]) for at, value in of.items() if at in base},
            measure.margin,
            rules,
        )
        for arm, of in values.items()
        if arm != manifest.baseline
    }
    rivals = [arm for arm in contrasts if arm != manifest.again]
    judged = adjust([contrasts[arm] for arm in rivals], holm)
    contrasts |= dict(zip(rivals, judged, strict=True))
    noise = noise_floor(contrasts.get(manifest.again or ""))
    return [
        _cell(arm, measure, metric, values, contrasts.get(arm), noise, rules)
        for arm in values
    ]


def _cell(
    arm: str,
    measure: IncidentMeasure,
    metric: Metric,
    values: Values,
    contrast: Contrast | None,
    noise: Estimate | None,
    rules: Rules,
) -> IncidentCell:
    confidence = rules.options.confidence
    mine, base = values[arm], values[rules.baseline]
    estimate = _interval(list(mine.values()), confidence)
    estimate = estimate._replace(low=max(0.0, estimate.low))
    word: Word = "baseline"
    difference = None
    if contrast is not None:
        differences = [value - base[at] for at, value in mine.items() if at in base]
        difference = _interval(differences, confidence)
        word = "A/A"
        if arm != rules.again:
            word, _ = verdict_of(contrast, noise, metric, rules.options.alpha)
        if word == "equivalent" and not _means_agree(mine, base, measure.margin):
            word = "not significant"
    return IncidentCell(
        arm=arm,
        measure=measure,
        estimate=estimate,
        difference=difference,
        contrast=contrast,
        word=word,
    )


def _means_agree(
    mine: Mapping[int, float], base: Mapping[int, float], margin: float
) -> bool:
    """Whether means are finite and nearly equal, as they are shown.

    A typical ratio of 1 may come from blocks without any event, or without an end.
    """
    mean, expected = fmean(mine.values()), fmean(base.values())
    return math.isfinite(mean) and abs(log_ratio(mean, expected)) <= math.log1p(margin)


def _interval(values: Sequence[float], confidence: float) -> Estimate:
    """Return a mean with its t interval; the median if some value is infinite."""
    array = np.array(values)
    if np.all(np.isfinite(array)):
        return mean_interval(array, confidence)
    # The difference of two infinite times is undefined; it favours neither arm.
    return median_interval(np.nan_to_num(array, nan=0.0, posinf=np.inf), confidence)


def _timelines(
    attempts: DataFrame, arms: Sequence[str], manifest: Manifest
) -> tuple[Timeline, ...]:
    """Return the events of one block, for every arm."""
    assert manifest.old_leader is not None
    seen = aggregates(dict(of_mark(manifest.old_leader, _timeout_ns(manifest))))
    rows = attempts.select("arm", "decided_ns", "back_ns", *seen).toArrow().to_pylist()
    by_arm: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    for row in rows:
        by_arm[row["arm"]].append(row)
    return tuple(_timeline(arm, by_arm[arm]) for arm in arms)


def _timeline(arm: str, rows: Sequence[Mapping[str, Any]]) -> Timeline:
    decided_ns, back_ns = rows[0]["decided_ns"], rows[0]["back_ns"]

    def instants(mark: str, wanted: Callable[[Any], bool] = bool) -> tuple[float, ...]:
        found = [row[mark] for row in rows if row[mark] is not None and wanted(row)]
        return tuple(sorted((at_ns - decided_ns) / 1e6 for at_ns in found))

    return Timeline(
        arm=arm,
        lanes={
            "accepted": instants(
                "appended", lambda it: it["at_old"] and it["appended"] <= decided_ns
            ),
            "in vain": instants(
                "appended", lambda it: it["at_old"] and it["appended"] > decided_ns
            ),
            "by the new leader": instants("appended", lambda it: not it["at_old"]),
            "not leader": instants("refused"),
            "timed out": instants("given_up"),
        },
        obeyed_ms=instants("obeyed"),
        told_ms=instants("told"),
        writable_ms=None if back_ns is None else (back_ns - decided_ns) / 1e6,
    )
