"""One experiment in several worlds: where they agree, and on which of them it stands.

The *witness* is a world whose runs no neighbour can disturb, if there is one: virtual
time, else the model. Every other world is held against it, cell by cell, by what each
has found on its own: the same decision, and intervals of the ratio to the baseline that
overlap. Worlds differ in milliseconds as machines do, so values are compared in units
of the mean request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.quotient import quotient

# Who is the witness, the steadiest first; worlds that are not named come last.
ORDER: Final = ("virtual", "model", "live", "kafka")

Agreement = Literal["agrees", "size differs", "contradicts", "undecided", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCell:
    """One class under one arm in one metric, in the witness and in another world.

    ``agreement`` is ``agrees`` (the same decision, ratios within reach of each other),
    ``size differs`` (the same decision, intervals apart), ``contradicts``,
    ``undecided`` in the other world, or ``open``: the witness has not decided.
    ``between`` is the quotient of the values, other to witness, in mean requests where
    both know what that costs.
    """

    point: str
    world: str
    witness: Cell
    other: Cell
    agreement: Agreement
    between: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """The studies of one experiment, the witness's first.

    ``silent`` says of worlds that cannot be compared at all why not.
    """

    studies: tuple[Study, ...]
    silent: Mapping[str, str]
    cells: tuple[WorldCell, ...]

    @property
    def witness(self) -> Study:
        """The study that the others are held against."""
        return self.studies[0]

    @property
    def others(self) -> tuple[Study, ...]:
        """The studies that are held against the witness."""
        return self.studies[1:]

    def told(self, world: str, class_name: str, metric: Metric) -> list[WorldCell]:
        """Return the cells of a class in a metric, in the order of arms."""
        return [
            it
            for it in self.cells
            if it.world == world
            and it.witness.class_name == class_name
            and it.witness.metric.name == metric.name
        ]


def hold_together(studies: Sequence[Study], silent: Mapping[str, str]) -> Worlds:
    """Hold the studies of one experiment against their witness.

    :raises RecordingError: if they are not of one experiment.
    """
    ordered = sorted(studies, key=lambda it: _place(it.manifest.world))
    witness, *others = ordered
    for other in others:
        _check(witness.manifest, other.manifest)
    return Worlds(
        studies=tuple(ordered),
        silent=dict(silent),
        cells=tuple(cell for other in others for cell in _cells(witness, other)),
    )


def same_requests(one: Manifest, other: Manifest) -> tuple[int, int]:
    """Return of how many blocks both worlds replayed the same trace, and had any.

    A trace's hash is of what was drawn, before it was stretched to a machine. Blocks
    that one of them alone has played are not counted.
    """
    mine, theirs = (
        {(run.point, run.block): run.trace_sha256 for run in manifest.runs_compared}
        for manifest in (one, other)
    )
    both = mine.keys() & theirs.keys()
    return sum(mine[at] == theirs[at] for at in both), len(both)


def _place(world: str) -> int:
    return ORDER.index(world) if world in ORDER else len(ORDER)


def _check(one: Manifest, other: Manifest) -> None:
    for name in ("name", "baseline"):
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            raise RecordingError(
                f"{other.directory}: {name} {theirs!r} found, but {mine!r} in "
                f"{one.directory}: worlds of different experiments"
            )


def _cells(witness: Study, other: Study) -> Iterator[WorldCell]:
    there = {it.manifest.point.name: it for it in other.comparisons}
    for comparison in witness.comparisons:
        point = comparison.manifest.point.name
        if point in there:
            yield from _at_point(point, comparison, there[point])


def _at_point(point: str, one: Comparison, two: Comparison) -> Iterator[WorldCell]:
    known = {(it.class_name, it.arm, it.metric.name): it for it in two.cells}
    requests = [it.manifest.point.mean_request_ms for it in (one, two)]
    for cell in one.cells:
        other = known.get((cell.class_name, cell.arm, cell.metric.name))
        if other is None or cell.arm == one.again:
            continue
        yield WorldCell(
            point=point,
            world=two.manifest.world,
            witness=cell,
            other=other,
            agreement=_agreement(cell, other),
            between=_between(cell, other, requests),
        )


def _agreement(witness: Cell, other: Cell) -> Agreement:
    if not witness.decided:
        return "open"
    if not other.decided:
        return "undecided"
    if witness.verdict.word != other.verdict.word:
        return "contradicts"
    mine, theirs = witness.shown_contrast, other.shown_contrast
    assert mine is not None
    assert theirs is not None
    overlap = (
        mine.ratio.low <= theirs.ratio.high and theirs.ratio.low <= mine.ratio.high
    )
    return "agrees" if overlap else "size differs"


def _between(
    witness: Cell, other: Cell, requests_ms: Sequence[float | None]
) -> Estimate | None:
    if witness.estimate is None or other.estimate is None:
        return None
    found = quotient(other.estimate, witness.estimate)
    mine, theirs = requests_ms
    if found is None or witness.metric.level is None or not mine or not theirs:
        return found
    return Estimate(*(end * mine / theirs for end in found))
