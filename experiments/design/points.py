"""The points of a sweep, each as an experiment, and planned in rates.

There are three stages. `Experiment` is the file, a `Point` of it one combination of
levels; loads may still be shares of capacity. A `PlannedPoint` has rates in nominal
time: traces are drawn and trials are hashed from it. `worlds.world.MachineTrial` is a
trial in the time of the machine that runs it.

A point is the file with other values, so it is checked like any file, and a run at a
point does not depend on the sweep. The seed, the arms, the request classes and the
analysis are the same at all points, so runs at different points are comparable.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from experiments.design.capacity import drawable, on_machine, stretch
from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError
from experiments.design.sweep import (
    Bisection,
    Change,
    Listed,
    level_name,
    point_name,
)

# The sections that a level may change.
_OPEN = ("workload", "arms", "broker", "limits", "virtual", "model", "nominal")
# Tables with foreign keys: the rest of a path is one key.
_FREE = ("set", "slice_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination of levels, and the experiment with their keys set.

    ``number`` is its index in the design, None for an experiment without a sweep.
    """

    name: str
    levels: Mapping[str, str]
    number: int | None
    experiment: Experiment

    def planned(self) -> PlannedPoint:
        """Return the point with rates for loads.

        :raises ExperimentError: if a needed cost of some traffic is not known.
        """
        return PlannedPoint(
            name=self.name,
            levels=self.levels,
            number=self.number,
            experiment=drawable(self.experiment),
            stretch=stretch(self.experiment),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPoint:
    """A point whose ``experiment`` has rates and service times in nominal time.

    ``stretch`` is the factor from there to the machine.
    """

    name: str = ""
    levels: Mapping[str, str] = field(default_factory=dict)
    number: int | None = None
    experiment: Experiment
    stretch: float = 1.0

    def __post_init__(self) -> None:
        if self.experiment.workload.in_shares:
            raise ValueError("a planned point has rates, found loads")

    @property
    def prefix(self) -> str:
        """Return the prefix of its runs' names."""
        return "" if self.number is None else f"p{self.number:03d}-"

    def on_machine(self) -> Experiment:
        """Return the experiment in the machine's time."""
        return on_machine(self.experiment, self.stretch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A change, and its place in the file."""

    where: str
    change: Change


def points(experiment: Experiment) -> tuple[Point, ...]:
    """Return the points of an experiment in the order of its design; at least one.

    :raises ExperimentError: naming the first key or level that does not fit.
    """
    if experiment.sweep is None:
        return (Point(name="", levels={}, number=None, experiment=experiment),)
    return tuple(
        Point(
            name=point_name(levels),
            levels=levels,
            number=number,
            experiment=_at(experiment, point_name(levels), steps),
        )
        for number, (levels, steps) in enumerate(_combinations(experiment))
    )


def planned_points(experiment: Experiment) -> tuple[PlannedPoint, ...]:
    """Return the points of an experiment, ready to be drawn.

    :raises ExperimentError: naming the first key or level that does not fit, or the
        traffic with an unknown but needed cost.
    """
    return tuple(point.planned() for point in points(experiment))


def factors(found: Iterable[Point | PlannedPoint]) -> dict[str, list[str]]:
    """Return the levels of each factor, in order of appearance."""
    levels: dict[str, list[str]] = {}
    for point in found:
        for factor, level in point.levels.items():
            known = levels.setdefault(factor, [])
            if level not in known:
                known.append(level)
    return levels


def _combinations(
    experiment: Experiment,
) -> Iterator[tuple[dict[str, str], list[_Step]]]:
    """Yield the levels of each point, and their changes."""
    sweep = experiment.sweep
    assert sweep is not None
    if isinstance(sweep, Bisection):
        for level in sweep.levels:
            change = Change(scale=dict.fromkeys(sweep.scale, level))
            yield (
                {sweep.factor: level_name(level)},
                [_Step(where="sweep", change=change)],
            )
        return
    if isinstance(sweep, Listed):
        for number, listed in enumerate(sweep.points):
            step = _Step(where=f"sweep.points[{number}]", change=listed)
            yield dict(listed.levels), [step]
        return
    for choice in product(*(factor.levels for factor in sweep.factors)):
        chosen = list(zip(sweep.factors, choice, strict=True))
        yield (
            {factor.name: level.name for factor, level in chosen},
            [
                _Step(
                    where=f"sweep.factors[{factor.name!r}].levels[{level.name!r}]",
                    change=level,
                )
                for factor, level in chosen
            ],
        )


def _at(experiment: Experiment, name: str, steps: Iterable[_Step]) -> Experiment:
    """Return the experiment at one point."""
    content = experiment.content()
    content["sweep"] = None
    for step in steps:
        for key, value in step.change.set.items():
            table, last = _place(content, key, f"{step.where}.set")
            table[last] = value
    for step in steps:
        for key, multiplier in step.change.scale.items():
            where = f"{step.where}.scale"
            table, last = _place(content, key, where)
            table[last] = _scaled(table.get(last), multiplier, key, where)
    try:
        found = parse(content)
    except ExperimentError as error:
        raise ExperimentError(f"sweep, point {name!r}", str(error)) from error
    if _identity(found) != _identity(experiment):
        fault = "changes the definition of an arm or a class of requests, or the trace"
        raise ExperimentError(f"sweep, point {name!r}", fault)
    return _in_proportion(found, experiment)


def _in_proportion(found: Experiment, base: Experiment) -> Experiment:
    """Return a point with the machine's costs in proportion to its nominal ones.

    The machine was calibrated with the requests of the file. A level with another
    nominal cost has requests of another size.
    """
    if found.machine is None or found.nominal is None or base.nominal is None:
        return found
    before, now = base.nominal.costs, found.nominal.costs
    costs = {
        name: cost.times(now[name].mean_us / before[name].mean_us)
        if name in now and name in before
        else cost
        for name, cost in found.machine.costs.items()
    }
    return found.changed(machine=found.machine.changed(costs=costs))


def _place(content: dict[str, Any], key: str, where: str) -> tuple[dict[str, Any], str]:
    """Return the table at the end of a path, and the path's last key.

    :raises ExperimentError: if there is no such key.
    """
    first = key.partition(".")[0]
    if first not in _OPEN:
        fault = f"{key!r}: only keys of {', '.join(_OPEN)} can be varied"
        raise ExperimentError(where, fault)
    table, rest, free = content, key, False
    while True:
        part, dot, below = (rest, "", "") if free else rest.partition(".")
        if part not in table and not free:
            raise _unknown(part, table, key, where)
        if not dot:
            return table, part
        value = table[part]
        if isinstance(value, list):
            value, part, below = _entry(value, part, below, key, where)
        if not isinstance(value, dict):
            raise ExperimentError(where, f"{key!r}: {part!r} is no table in this file")
        table, rest, free = value, below, part in _FREE


def _entry(
    entries: list[Any], array: str, rest: str, key: str, where: str
) -> tuple[dict[str, Any], str, str]:
    """Return the array entry that a path names, its name, and the rest of the path."""
    named = {
        each["name"]: each
        for each in entries
        if isinstance(each, dict) and "name" in each
    }
    # Names may contain dots: choose the longest that fits.
    for name in sorted(named, key=len, reverse=True):
        if rest.startswith(name + "."):
            return named[name], name, rest.removeprefix(name + ".")
    if rest in named:
        fault = f"{key!r} is an entry of {array!r}; name a key in it"
    else:
        fault = f"{key!r}: {array!r} has only {', '.join(named)}"
    raise ExperimentError(where, fault)


def _unknown(
    part: str, table: Mapping[str, Any], key: str, where: str
) -> ExperimentError:
    close = difflib.get_close_matches(part, table, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    fault = f"{key!r}: unknown key {part!r}; {hint}known here: {', '.join(table)}"
    return ExperimentError(where, fault)


def _scaled(value: Any, multiplier: float, key: str, where: str) -> int | float:
    """Return a number times another; whole numbers stay whole if possible."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fault = f"{key!r} is {value!r} in this file, no number to scale"
        raise ExperimentError(where, fault)
    scaled = value * multiplier
    return round(scaled) if isinstance(value, int) and scaled % 1 == 0 else scaled


def _identity(experiment: Experiment) -> tuple[Any, ...]:
    """Return the values that must be equal at all points."""
    return (
        [(arm.name, arm.scheduler, arm.factors) for arm in experiment.arms],
        [(each.name, each.reported_class) for each in experiment.workload.traffic],
        (experiment.workload.trace, experiment.workload.trace_sha256),
    )
