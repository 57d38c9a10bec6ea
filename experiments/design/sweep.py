"""A sweep: one experiment at many points, as data.

A *factor* is varied. A *level* is one of its values and lists the keys of the file that
it sets or scales. A *point* is one combination of levels. Every arm runs at every
point. A full factorial design crosses all levels. A listed one names its points. A
bisection adds levels of the load where an arm ceases to meet an objective.

Keys are dotted paths of the file, with entries of arrays by their name:
``workload.traffic.produce.arrivals.load``. ``set`` replaces the value. ``scale``
multiplies it, after every ``set``, so that load and the share of a class can be
separate factors although both change the same rate. Two factors that set the same key
would depend on their order, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from experiments.design.values import Mean, Name, Section


class Change(Section):
    """A change of the file: keys and their new values, keys and multipliers."""

    set: dict[str, Any] = Field(default_factory=dict)
    scale: dict[str, Mean] = Field(default_factory=dict)


class Level(Change):
    """One value of a factor."""

    name: Name


class Factor(Section):
    """A varied factor, with its levels."""

    name: Name
    levels: Annotated[tuple[Level, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_twice("levels", (level.name for level in self.levels))
        return self

    def sets(self) -> list[str]:
        """Return the keys that any level of this factor sets."""
        return [key for level in self.levels for key in level.set]


class Factorial(Section):
    """Every combination of levels; the last factor varies fastest."""

    design: Literal["factorial"]
    factors: Annotated[tuple[Factor, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_twice("factors", (factor.name for factor in self.factors))
        for one, other in combinations(self.factors, 2):
            for mine in one.sets():
                for theirs in other.sets():
                    if _overlap(mine, theirs):
                        raise ValueError(
                            f"{one.name!r} sets {mine!r}, and {other.name!r} "
                            f"sets {theirs!r}"
                        )
        return self


class ListedPoint(Change):
    """One point: the level of each factor, and its change of the file."""

    levels: Annotated[dict[Name, Name], Field(min_length=1)]


class Listed(Section):
    """The listed points, in their order."""

    design: Literal["listed"]
    points: Annotated[tuple[ListedPoint, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_twice("points", (point_name(each.levels) for each in self.points))
        expected = list(self.points[0].levels)
        for each in self.points:
            if list(each.levels) != expected:
                raise ValueError(
                    f"point {point_name(each.levels)!r} has other factors than the "
                    f"first: {', '.join(expected)}"
                )
        return self


class Bisection(Section):
    """One factor, the load, in levels that multiply the numbers of ``scale``.

    After the stated ``levels`` have run, bisection adds levels. For each arm it adds
    the middle between the last level at which ``class`` meets its objective and the
    next one, until the distance of the stated levels is halved ``steps`` times. Every
    arm runs at every level.
    """

    design: Literal["bisection"]
    factor: Name = "load"
    request_class: Annotated[Name, Field(alias="class")]
    levels: Annotated[tuple[Mean, ...], Field(min_length=2)]
    scale: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: Annotated[int, Field(ge=0, le=20)] = 3

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_twice("levels", map(level_name, self.levels))
        return self


Sweep: TypeAlias = Annotated[
    Factorial | Listed | Bisection, Field(discriminator="design")
]


def level_name(level: float) -> str:
    """Return the name of a level of a bisection: six digits."""
    return f"{level:.6g}"


def point_name(levels: Mapping[str, str]) -> str:
    """Return the name of a point: its levels, ``load=0.7 share=0.02``."""
    return " ".join(f"{factor}={level}" for factor, level in levels.items())


def _overlap(one: str, other: str) -> bool:
    """Return whether two keys are equal, or one is inside the table of the other."""
    short, long = sorted((one, other), key=len)
    return long == short or long.startswith(short + ".")


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"two {what} have the name {name!r}")
        seen.add(name)
