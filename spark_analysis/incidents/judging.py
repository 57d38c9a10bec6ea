"""From attempts to an incident: Spark sums up runs, the paired statistics decide.

An incident is a run, and one replication; arms of a block met the same requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spark_analysis.incidents.incident import Incident, IncidentCell, Timeline
from spark_analysis.incidents.measures import (
    Measure,
    measures_of,
    of_mark,
    of_partition,
    of_run,
)
from spark_analysis.incidents.order import Order, order_of
from spark_analysis.incidents.overload import overload_of
from spark_analysis.judging.group_functions import Contrast
from spark_analysis.judging.run_values import Key, RunValue, values_by_block
from spark_analysis.judging.spark_jobs import families
from spark_analysis.judging.verdict import word_of
from spark_analysis.recordings.contract import Manifest
from spark_analysis.recordings.load import aggregates, read_attempts
from spark_analysis.statistics.intervals import Estimate, mean_interval, median_interval

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The one class of the families here: incidents.
_CLASS: Final = "incident"
_PRODUCE, _LEADER_AND_ISR = 0, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What Spark found: a value per run, and the contrasts by measure."""

    manifest: Manifest
    values: tuple[RunValue, ...]
    families: Mapping[str, Mapping[Key, Contrast]]


def judge_incident(spark: SparkSession, manifest: Manifest) -> Incident | None:
    """Judge the election of a run directory; None if it has none, or is a sweep."""
    old_leader = manifest.old_leader
    if old_leader is None or len(manifest.points) > 1:
        return None
    measures = measures_of(manifest.world, manifest.options.margin_latency)
    attempts = _with_decision(read_attempts(spark, manifest), old_leader)
    attempts = attempts.cache()
    values = _values(attempts, manifest, measures, old_leader)
    found = families(spark, [values], manifest, measures)
    judged = _Found(
        manifest=manifest,
        values=values,
        families={it.name: found.get((0, it.name), {}) for it in measures},
    )
    arms = [arm.name for arm in manifest.arms_compared]
    block = manifest.blocks[0]
    return Incident(
        manifest=manifest,
        overload=overload_of(attempts, manifest, old_leader),
        measures=measures,
        cells=tuple(_cell(judged, m, arm) for m in measures for arm in arms),
        orders={it.name: _order(judged, it) for it in measures},
        block=block,
        timelines=_timelines(attempts.where(f"block = {block}"), arms, manifest),
    )


def _with_decision(attempts: DataFrame, old_leader: int) -> DataFrame:
    """Give every attempt its run's decision, end of unavailability, and gap."""
    decided = (
        attempts.where(f"api_key = {_LEADER_AND_ISR}")
        .groupBy("run_id")
        .agg(*aggregates({"decided_ns": "min(intended_ns)"}))
    )
    partitions = (
        attempts.where(f"api_key = {_PRODUCE} AND acks = -1")
        .groupBy("run_id", "partition")
        .agg(*aggregates(dict(of_partition(old_leader))))
        .join(decided, "run_id")
    )
    gap = "greatest(0, new_ns - greatest(decided_ns, coalesce(old_ns, decided_ns)))"
    never = "count_if(new_ns IS NULL) > 0"
    runs = partitions.groupBy("run_id").agg(
        *aggregates(
            {
                "decided_ns": "first(decided_ns)",
                "back_ns": f"IF({never}, NULL, max(new_ns))",
                "gap_ns": f"IF({never}, NULL, max({gap}))",
            }
        )
    )
    return attempts.join(runs, "run_id")


def _values(
    attempts: DataFrame,
    manifest: Manifest,
    measures: Sequence[Measure],
    old_leader: int,
) -> tuple[RunValue, ...]:
    """Return every run's measures, arms as they are shown, blocks ascending."""
    timeout_ns = _timeout_ns(manifest)
    found = attempts.groupBy("run_id", "arm", "block").agg(
        *aggregates(dict(of_run(old_leader, timeout_ns)))
    )
    rows = found.toArrow().to_pylist()
    order = {arm.name: rank for rank, arm in enumerate(manifest.arms_compared)}
    rows.sort(key=lambda row: (order[row["arm"]], row["block"]))
    return tuple(
        RunValue(
            class_name=_CLASS,
            arm=row["arm"],
            block=row["block"],
            counts={},
            values={
                it.name: math.inf if row[it.name] is None else row[it.name]
                for it in measures
            },
        )
        for row in rows
    )


def _timeout_ns(manifest: Manifest) -> int:
    """Return how long a client waits for an answer."""
    timeout_ms: float = manifest.config["cluster"]["request_timeout_ms"]
    return round(timeout_ms * 1e6)


def _cell(found: _Found, measure: Measure, arm: str) -> IncidentCell:
    manifest, options = found.manifest, found.manifest.options
    mine = values_by_block(found.values, Key(_CLASS, arm), measure.name)
    base = values_by_block(found.values, Key(_CLASS, manifest.baseline), measure.name)
    estimate = _interval(list(mine.values()), options.confidence)
    estimate = estimate._replace(low=max(0.0, estimate.low))
    contrast = found.families[measure.name].get(Key(_CLASS, arm))
    if contrast is None:
        return IncidentCell(
            arm=arm,
            measure=measure,
            estimate=estimate,
            difference=None,
            ratio=None,
            p=None,
            word="baseline",
        )
    differences = [value - base[block] for block, value in mine.items()]
    # Of whatever is measured of an election, less is better.
    word = word_of(contrast, options, lower_is_better=True)
    if (
        manifest.deterministic
        and arm == manifest.again
        and contrast.blocks_tied == contrast.blocks
    ):
        word = "identical"
    return IncidentCell(
        arm=arm,
        measure=measure,
        estimate=estimate,
        difference=_interval(differences, options.confidence),
        ratio=contrast.ratio,
        p=contrast.p,
        word=word,
    )


def _order(found: _Found, measure: Measure) -> Order:
    """Return the order of all arms but the A/A arm in the blocks that all have."""
    manifest = found.manifest
    by_block = {
        arm.name: values_by_block(found.values, Key(_CLASS, arm.name), measure.name)
        for arm in manifest.arms_compared
        if arm.name != manifest.again
    }
    blocks = sorted(set.intersection(*(set(of) for of in by_block.values())))
    values = {arm: [of[block] for block in blocks] for arm, of in by_block.items()}
    return order_of(values, manifest.options.alpha, manifest.seed)


def _interval(values: Sequence[float], confidence: float) -> Estimate:
    """Return a mean with its t interval; the median where some value is infinite."""
    array = np.array(values)
    if np.all(np.isfinite(array)):
        return mean_interval(array, confidence)
    # The difference of two that never ended is no number; it favours neither.
    return median_interval(np.nan_to_num(array, nan=0.0, posinf=np.inf), confidence)


def _timelines(
    attempts: DataFrame, arms: Sequence[str], manifest: Manifest
) -> tuple[Timeline, ...]:
    """Return what happened in one block, for every arm."""
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
