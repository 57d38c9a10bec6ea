"""Agreement of the effects of one experiment in several worlds.

Measurement decides, simulation predicts: the first world of `ORDER` is the reference.
Machines differ in milliseconds, so ratios to the baseline are compared, by the
logarithm of their quotient. Worlds that replayed the same traces are paired session by
session. The margin is relative to the effect of the reference, and at least the margin
of the metric. Without this minimum a world with a small effect could not agree with a
reference without any.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal

import numpy as np

from spark_analysis.judging.cells import Cell, CellKey
from spark_analysis.judging.comparison import Comparison
from spark_analysis.judging.contrast import Contrast
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.theory import NO_THEORY, Theory
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.prediction import prediction_interval
from spark_analysis.statistics.quotient import quotient
from spark_analysis.statistics.ratios import ratio_of

# Measured worlds first; worlds without a place come last.
ORDER: Final = ("live", "kafka", "kraft", "virtual", "model")

Agreement = Literal["agrees", "differs", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCell:
    """One class under one arm in one metric, in two worlds.

    ``reference`` is the cell of the world ``first``, ``other`` that of ``world``.
    ``quotient`` is that of their ratios, other to reference, over ``paired`` sessions
    (0: the intervals were combined). ``margin`` is the largest quotient that agrees.
    """

    point: str
    first: str
    world: str
    reference: Cell
    other: Cell
    agreement: Agreement
    quotient: Estimate | None
    margin: float
    paired: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """The studies of one experiment, in the order of worlds.

    ``silent`` gives the reason for each world that cannot be compared. ``cells`` are
    those of all pairs of worlds.
    """

    studies: tuple[Study, ...]
    silent: Mapping[str, str]
    cells: tuple[WorldCell, ...]
    theory: Theory = NO_THEORY


def hold_together(
    studies: Sequence[Study], silent: Mapping[str, str], theory: Theory = NO_THEORY
) -> Worlds:
    """Compare the studies of one experiment.

    :raises RecordingError: if they are not of one experiment.
    """
    ordered = sorted(studies, key=lambda it: place(it.manifest.world))
    for other in ordered[1:]:
        _check(ordered[0].manifest, other.manifest)
    return Worlds(
        studies=tuple(ordered),
        silent=dict(silent),
        cells=tuple(cell for two in combinations(ordered, 2) for cell in _cells(*two)),
        theory=theory,
    )


def place(world: str) -> int:
    """Return the position of a world in the order of worlds."""
    return ORDER.index(world) if world in ORDER else len(ORDER)


def _check(one: Manifest, other: Manifest) -> None:
    theirs_by_name = _design(other)
    for name, mine in _design(one).items():
        theirs = theirs_by_name[name]
        if mine != theirs:
            raise RecordingError(
                f"{other.directory}: {name} {theirs!r} found, but {mine!r} in "
                f"{one.directory}: worlds of different experiments"
            )


def _design(manifest: Manifest) -> dict[str, str | list[float]]:
    """Return the common values of the worlds of one experiment."""
    return {
        "name": manifest.name,
        "baseline": manifest.baseline,
        "class": manifest.sessions.primary,
        "quantiles": [float(level) for level in manifest.options.quantiles],
    }


def _cells(one: Study, two: Study) -> Iterator[WorldCell]:
    there = {it.manifest.point.name: it for it in two.comparisons}
    for comparison in one.comparisons:
        point = comparison.manifest.point.name
        if point in there:
            yield from _at_point(point, comparison, there[point])


def _at_point(point: str, one: Comparison, two: Comparison) -> Iterator[WorldCell]:
    known = {CellKey(it.class_name, it.arm, it.metric.name): it for it in two.cells}
    shared = shared_sessions(one.manifest, two.manifest)
    relative = one.rules.options.margin_worlds
    error = math.hypot(*(it.rules.calibration_error or 0.0 for it in (one, two)))
    for cell in one.cells:
        other = known.get(CellKey(cell.class_name, cell.arm, cell.metric.name))
        if other is None or cell.arm not in one.rivals:
            continue
        paired, found = 0, None
        if cell.contrast is not None and other.contrast is not None:
            paired, found = quotient_of(
                cell.contrast,
                other.contrast,
                shared,
                confidence=one.rules.options.confidence,
                calibration_error=error,
            )
        margin = margin_of(cell.ratio, cell.metric.margin, relative)
        yield WorldCell(
            point=point,
            first=one.manifest.world,
            world=two.manifest.world,
            reference=cell,
            other=other,
            agreement=agreement_of(found, margin),
            quotient=found,
            margin=margin,
            paired=paired,
        )


def shared_sessions(one: Manifest, other: Manifest) -> frozenset[int]:
    """Return the sessions in which two worlds replayed the same traces.

    A trace's hash is computed before its stretching to a machine. A round that one
    world discarded is not compared.
    """
    mine, theirs = _traces(one), _traces(other)
    return frozenset(
        session
        for session in mine.keys() & theirs.keys()
        if (both := mine[session].keys() & theirs[session].keys())
        and all(mine[session][block] == theirs[session][block] for block in both)
    )


def _traces(manifest: Manifest) -> dict[int, dict[int, str]]:
    found: dict[int, dict[int, str]] = defaultdict(dict)
    for run in manifest.runs_compared:
        found[run.session][run.block] = run.trace_sha256
    return found


def quotient_of(
    reference: Contrast,
    other: Contrast,
    shared: frozenset[int],
    *,
    confidence: float,
    calibration_error: float,
) -> tuple[int, Estimate | None]:
    """Return the quotient of two worlds' ratios, and the number of paired sessions.

    Sessions are paired if the worlds share all sessions of the smaller one. Otherwise
    the intervals of the ratios are combined, as for independent samples. None if a
    ratio is zero or infinite.
    """
    mine, theirs = reference.logs, other.logs
    pairs = sorted(shared & mine.keys() & theirs.keys())
    logs = np.array([theirs[session] - mine[session] for session in pairs])
    fewer = min(len(mine), len(theirs))
    if len(pairs) >= 2 and len(pairs) == fewer and bool(np.all(np.isfinite(logs))):
        found = prediction_interval(
            logs, confidence, calibration_error, same_traces=True
        )
        return len(pairs), ratio_of(found)
    return 0, quotient(other.ratio, reference.ratio)


def margin_of(ratio: Estimate | None, margin: float, relative: float) -> float:
    """Return the largest quotient of two worlds that agree: exp of the log margin.

    ``relative`` is the share of the reference's log-ratio by which a world may deviate,
    ``margin`` the relative difference that is equivalent in any case.
    """
    least = math.log1p(margin)
    if ratio is None or not 0 < ratio.value < math.inf:
        return 1 + margin
    return math.exp(max(least, relative * abs(math.log(ratio.value))))


def agreement_of(found: Estimate | None, margin: float) -> Agreement:
    """Return whether the quotient of two worlds' ratios lies within the margin."""
    if found is None:
        return "open"
    if found.low >= 1 / margin and found.high <= margin:
        return "agrees"
    if found.high < 1 / margin or found.low > margin:
        return "differs"
    return "open"
