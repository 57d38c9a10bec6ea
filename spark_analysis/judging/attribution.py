"""Which parts of a treatment its effect comes from: values, as the report tells them.

``statistics.factorial`` says what each kind of line means; ``design_effects`` fills
these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_analysis.judging.decision import Decision
from spark_analysis.judging.metrics import Metric
from spark_analysis.statistics.factorial import Combination, Kind
from spark_analysis.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Arms as a full two-level design; a combination's factors are off the reference.

    ``levels`` are, by factor, the reference level and the other one. Where factors have
    more than two levels there is a design for each choice of others.
    """

    levels: Mapping[str, tuple[str, str]]
    arms: Mapping[Combination, str]

    @property
    def factors(self) -> tuple[str, ...]:
        """The treatment factors in the config's order."""
        return tuple(self.levels)

    @property
    def none(self) -> str:
        """The arm in which every factor is at its reference."""
        return self.arms[frozenset()]

    @property
    def full(self) -> str:
        """The arm in which no factor is."""
        return self.arms[frozenset(self.levels)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line of a design: a ratio, its interval for all lines of a class at once.

    ``part`` is what the line has in the whole effect, on the scale of logarithms, with
    an interval for all lines, too; None for effects, of which that cannot be said.
    """

    kind: Kind
    factors: tuple[str, ...]
    ratio: Estimate
    part: Estimate | None
    p: float
    decision: Decision

    @property
    def found(self) -> bool:
        """Whether the ratio is told from 1, by test and interval."""
        return self.decision in ("lower", "higher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Where the effect of a design on one class in one metric comes from.

    ``reach`` is how much of the whole each combination gets by itself, with intervals
    for all combinations of the class at once: those that get enough are picked. ``why``
    is not empty where nothing may be said, and then the rest is empty.
    """

    design: Design
    class_name: str
    metric: Metric
    effects: tuple[Effect, ...] = ()
    reach: Mapping[Combination, Estimate] | None = None
    why: str = ""

    def of(self, kind: Kind) -> tuple[Effect, ...]:
        """Return the effects of one kind, in the order of the factors."""
        return tuple(effect for effect in self.effects if effect.kind == kind)

    @property
    def whole(self) -> Effect:
        """The effect of all factors together."""
        return self.of("whole")[0]
