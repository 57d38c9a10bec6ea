"""Effects of the factors of a two-level design on each class and metric.

``statistics.factorial`` defines the lines of a design. The response of an arm in a
session is the logarithm of its value, so a line is a contrast with a value per session.
If some session of some arm is too thin for a quantile, all arms respond with the
jackknife's values of their pooled quantiles. A line that compares an arm with the
baseline has that cell's p-value. The other lines of a class are a separate family.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from spark_analysis.judging.cell_sessions import CellSessions
from spark_analysis.judging.cells import Cell, CellKey
from spark_analysis.judging.contrast import (
    Contrast,
    adjust,
    contrast_from,
    is_thin,
    pooled_logs,
    session_logs,
)
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.rules import Rules
from spark_analysis.recordings.contract import Arm, Manifest
from spark_analysis.statistics import FloatArray
from spark_analysis.statistics.factorial import (
    Combination,
    Kind,
    Line,
    by_session,
    combinations_of,
    lines,
    part_of_whole,
)
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.multiplicity import holm

Direction = Literal["lower", "higher", "not significant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Arms as a full two-level design; a combination's factors are off the reference.

    ``levels`` are, by factor, the reference level and the other one. If factors have
    more than two levels, each choice of other levels is a design.
    """

    levels: Mapping[str, tuple[str, str]]
    arms: Mapping[Combination, str]

    @property
    def factors(self) -> tuple[str, ...]:
        """The treatment factors in the config's order."""
        return tuple(self.levels)

    @property
    def none(self) -> str:
        """The arm with every factor at its reference level."""
        return self.arms[frozenset()]

    @property
    def full(self) -> str:
        """The arm with no factor at its reference level."""
        return self.arms[frozenset(self.levels)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line of a design: a ratio with its interval, and its direction.

    ``part`` is the line's share of the whole effect, on the scale of logarithms. Main
    effects and interactions are no shares of it and have None.
    """

    kind: Kind
    factors: tuple[str, ...]
    ratio: Estimate
    part: Estimate | None
    p: float | None
    direction: Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignEffects:
    """Effects of a design on one class in one metric; ``why`` if there are none."""

    design: Design
    class_name: str
    metric: Metric
    effects: tuple[Effect, ...] = ()
    why: str = ""


def designs_of(manifest: Manifest) -> tuple[Design, ...]:
    """Return the full two-level designs that the compared arms form.

    A factor with several levels besides the reference forms a design with each of them:
    three policies, each combined with a reader, are three designs of two factors. The
    reference is the first arm's level. A design with a missing arm is left out.
    """
    arms = [arm for arm in manifest.arms_compared if arm.factors]
    if not arms:
        return ()
    others: list[list[tuple[str, str]]] = []
    for name, reference in arms[0].factors.items():
        found = dict.fromkeys(arm.factors[name] for arm in arms)
        if len(found) == 1:
            return ()
        others.append([(reference, level) for level in found if level != reference])
    found_designs = (
        _design(arms, dict(zip(arms[0].factors, chosen, strict=True)))
        for chosen in product(*others)
    )
    return tuple(design for design in found_designs if design is not None)


def _design(
    arms: Sequence[Arm], levels: Mapping[str, tuple[str, str]]
) -> Design | None:
    """Return the arms with these levels as a design, None if one is missing."""
    by_combination = {
        frozenset(f for f, two in levels.items() if arm.factors[f] != two[0]): arm.name
        for arm in arms
        if all(arm.factors[factor] in two for factor, two in levels.items())
    }
    if by_combination.keys() < set(combinations_of(tuple(levels))):
        return None
    return Design(levels=levels, arms=by_combination)


def effects_of(
    designs: Sequence[Design],
    sessions: Mapping[CellKey, CellSessions],
    cells: Sequence[Cell],
    rules: Rules,
) -> Iterator[DesignEffects]:
    """Yield the effects of every design on every class in every metric."""
    judged = {CellKey(it.class_name, it.arm, it.metric.name): it for it in cells}
    for design in designs:
        for key, base in judged.items():
            if key.arm != design.none:
                continue
            there = {
                combination: judged[key._replace(arm=arm)]
                for combination, arm in design.arms.items()
            }
            refused = [it.arm for it in there.values() if it.word == "refused"]
            arms = {
                combination: sessions[key._replace(arm=it.arm)]
                for combination, it in there.items()
            }
            responses = _responses(arms, base.metric)
            why = "refused: " + ", ".join(refused) if refused else ""
            if responses is None:
                why = why or f"no finite {base.metric.label} in some session"
            yield DesignEffects(
                design=design,
                class_name=key.class_name,
                metric=base.metric,
                effects=()
                if why or responses is None
                else _effects(design, there, responses, rules),
                why=why,
            )


def _responses(
    arms: Mapping[Combination, CellSessions], metric: Metric
) -> dict[Combination, FloatArray] | None:
    """Return the logarithm of the metric by session; None unless all are finite."""
    logs = pooled_logs if is_thin(metric, *arms.values()) else session_logs
    found = {combination: logs(cell) for combination, cell in arms.items()}
    same = len({cell.sessions for cell in arms.values()}) == 1
    finite = same and all(np.all(np.isfinite(of)) for of in found.values())
    return found if finite else None


def _effects(
    design: Design,
    cells: Mapping[Combination, Cell],
    responses: Mapping[Combination, FloatArray],
    rules: Rules,
) -> tuple[Effect, ...]:
    margin = cells[frozenset()].metric.margin
    values = {line: by_session(line, responses) for line in lines(design.factors)}
    own, others = {}, {}
    for line, of in values.items():
        contrast = contrast_from(dict(enumerate(of.tolist())), margin, rules)
        cell = _cell_of(line, design, cells, rules)
        if cell is None:
            others[line] = contrast
        else:
            own[line] = cell
    adjusted = dict(zip(others, adjust(list(others.values()), holm), strict=True))
    found = own | adjusted
    whole = values[lines(design.factors)[-1]]
    return tuple(
        Effect(
            kind=line.kind,
            factors=line.factors,
            ratio=found[line].ratio,
            part=None
            if line.kind == "effect"
            else part_of_whole(of, whole, rules.options.confidence),
            p=found[line].p,
            direction=_direction(found[line], rules.options.alpha),
        )
        for line, of in values.items()
    )


def _cell_of(
    line: Line, design: Design, cells: Mapping[Combination, Cell], rules: Rules
) -> Contrast | None:
    """Return the contrast of the arm that a line compares to the baseline, or None."""
    if line.kind not in ("alone", "whole") or design.none != rules.baseline:
        return None
    return cells[frozenset(line.factors)].contrast


def _direction(contrast: Contrast, alpha: float) -> Direction:
    ratio = contrast.ratio
    if ratio.low <= 1 <= ratio.high or (contrast.p is not None and contrast.p >= alpha):
        return "not significant"
    return "lower" if ratio.high < 1 else "higher"
