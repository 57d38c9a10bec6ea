"""Bisection of the load, between levels where an arm ceases to meet an objective.

The objective of a class is met at a level if at least ``analysis.slo_share`` of its
requests, over all blocks, have a good answer within ``slo_ms``. The capacity of an arm
lies between the last level at which it is met and the next one. A round of bisection
adds the middle between these two. All arms run at all levels, so they are compared
under the same requests, and an interrupted experiment continues like any other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from experiments.design.config import Experiment
from experiments.design.sweep import Bisection, level_name
from experiments.running.manifest import Manifest

_COLUMNS: Final = ("class", "intended_ns", "client_done_ns", "outcome")


def further_levels(experiment: Experiment) -> int:
    """Return the largest number of further levels, if attainment falls with load.

    Arms may share levels; the A/A arm shares those of the baseline.
    """
    sweep = experiment.sweep
    return sweep.steps * len(experiment.arms) if isinstance(sweep, Bisection) else 0


def continued(experiment: Experiment, directory: Path) -> Experiment:
    """Return an experiment with the levels that a directory's recording contains."""
    old = Manifest.load(directory)
    if old is None or not isinstance(experiment.sweep, Bisection):
        return experiment
    recorded = old.content["config"]["sweep"] or {}
    return _with_levels(experiment, recorded.get("levels", ()))


def refined(experiment: Experiment, directory: Path, stated: Bisection) -> Experiment:
    """Return an experiment with a further level for each arm, from its recording.

    The distances of the ``stated`` levels are halved ``steps`` times.
    """
    manifest = Manifest.load(directory)
    assert manifest is not None
    shares = _attainments(experiment, manifest)
    wanted = experiment.analysis.slo_share
    brackets = {bracket(of, wanted) for of in shares.values()}
    middles = [
        float(level_name((it[0] + it[1]) / 2))
        for it in brackets
        if it is not None and _is_wide(it, stated)
    ]
    return _with_levels(experiment, sorted(middles))


def bracket(shares: Mapping[float, float], wanted: float) -> tuple[float, float] | None:
    """Return the last level that meets the objective and the next; None without both.

    ``shares`` are those of good answers by level.
    """
    for low, high in pairwise(sorted(shares)):
        if shares[low] < wanted:
            return None
        if shares[high] < wanted:
            return low, high
    return None


def _is_wide(levels: tuple[float, float], stated: Bisection) -> bool:
    """Return whether the distance of two levels exceeds that after the last halving."""
    low, high = levels
    ends = [it for it in pairwise(sorted(stated.levels)) if it[0] <= low < it[1]]
    gap = ends[0][1] - ends[0][0] if ends else 0.0
    # Levels are rounded to six digits, so a half is not exact.
    return high - low > math.ldexp(1.5 * gap, -stated.steps)


def _with_levels(experiment: Experiment, levels: Sequence[float]) -> Experiment:
    """Return an experiment with further levels after its own."""
    sweep = experiment.sweep
    assert isinstance(sweep, Bisection)
    known = {level_name(level): level for level in sweep.levels}
    for level in levels:
        known.setdefault(level_name(level), level)
    return experiment.changed(sweep=sweep.changed(levels=tuple(known.values())))


def _attainments(
    experiment: Experiment, manifest: Manifest
) -> dict[str, dict[float, float]]:
    """Return the share of good answers by arm and level, over all valid runs."""
    sweep = experiment.sweep
    assert isinstance(sweep, Bisection)
    slo_ms = max(
        entry.slo_ms
        for entry in experiment.workload.traffic
        if entry.reported_class == sweep.request_class and entry.slo_ms is not None
    )
    points = {it["point"]: it for it in manifest.content["points"]}
    good: Counter[tuple[str, float]] = Counter()
    sent: Counter[tuple[str, float]] = Counter()
    for run in _files(manifest.runs):
        point = points[run["point"]]
        key = run["arm"], float(point["levels"][sweep.factor])
        rows = pq.read_table(manifest.directory / run["requests"], columns=[*_COLUMNS])
        rows = _in_window(rows, sweep.request_class, point["window_ns"])
        sent[key] += len(rows)
        good[key] += _good(rows, round(slo_ms * 1e6))
    found: dict[str, dict[float, float]] = {}
    for (arm, level), count in sent.items():
        if count:
            found.setdefault(arm, {})[level] = good[arm, level] / count
    return found


def _files(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one run for each file of rows: rounds of a session share a file."""
    return list({it["requests"]: it for it in runs if it["valid"]}.values())


def _in_window(rows: pa.Table, class_name: str, window_ns: tuple[int, int]) -> pa.Table:
    start_ns, end_ns = window_ns
    intended = rows["intended_ns"]
    inside = pc.and_(pc.greater_equal(intended, start_ns), pc.less(intended, end_ns))
    return rows.filter(pc.and_(pc.equal(rows["class"], class_name), inside))


def _good(rows: pa.Table, slo_ns: int) -> int:
    latency = pc.subtract(rows["client_done_ns"], rows["intended_ns"])
    in_time = pc.and_(pc.equal(rows["outcome"], "ok"), pc.less_equal(latency, slo_ns))
    return int(pc.sum(pc.fill_null(in_time, False)).as_py() or 0)
