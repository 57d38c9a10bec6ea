"""One experiment in several worlds: where they agree, and on which of them it stands.

The *witness* is a world whose runs no neighbour can disturb, if there is one: virtual
time, else the model. Every two worlds are held against each other, cell by cell, by
what each has found on its own. They agree where the quotient of their ratios to the
baseline is shown to lie within a margin that was named before; intervals that merely
overlap show no agreement. Worlds differ in milliseconds as machines do, so values are
compared in units of the mean request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, get_args

from spark_analysis.judging.comparison import Cell, Comparison
from spark_analysis.judging.metrics import Metric
from spark_analysis.judging.ranking import Ranking, rank
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.recordings.theory import NO_THEORY, Theory
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.quotient import quotient

# Who is the witness, the steadiest first; worlds that are not named come last.
ORDER: Final = ("virtual", "model", "live", "kafka", "kraft")

Agreement = Literal[
    "agrees", "size open", "size differs", "contradicts", "undecided", "open"
]
AGREEMENTS: Final[tuple[Agreement, ...]] = get_args(Agreement)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCell:
    """One class under one arm in one metric, in two worlds.

    ``witness`` is the cell of the world ``first``, ``other`` that of ``world``.
    ``agreement`` is ``agrees`` (ratios the same within the margin, no opposite
    decisions), ``size open`` (no opposite decisions, and the margin neither kept nor
    left for certain), ``size differs`` (the same decision, sizes apart by more than the
    margin), ``contradicts``, ``undecided`` in the other world, or ``open``: the first
    has not decided. ``ratios`` is the quotient of the ratios to the baseline, other to
    first; ``between`` that of the values, in mean requests where both know what that
    costs.
    """

    point: str
    first: str
    world: str
    witness: Cell
    other: Cell
    agreement: Agreement
    ratios: Estimate | None
    between: Estimate | None

    @property
    def same_direction(self) -> bool:
        """Whether both decided the same, and not one a change and one sameness."""
        return self.witness.verdict.word == self.other.verdict.word


@dataclass(frozen=True, slots=True, kw_only=True)
class Worlds:
    """The studies of one experiment, the witness's first.

    ``silent`` says of worlds that cannot be compared at all why not. ``cells`` are of
    every two worlds, ``orders`` those of the arms, by world and class, in the metric
    that is told first.
    """

    studies: tuple[Study, ...]
    silent: Mapping[str, str]
    cells: tuple[WorldCell, ...]
    orders: Mapping[tuple[str, str], Ranking]
    theory: Theory = NO_THEORY

    @property
    def witness(self) -> Study:
        """The study that the others are held against."""
        return self.studies[0]

    @property
    def others(self) -> tuple[Study, ...]:
        """The studies that are held against the witness."""
        return self.studies[1:]

    @property
    def margin(self) -> float:
        """The relative difference of two ratios below which worlds agree."""
        return self.witness.manifest.options.margin_worlds

    def beside(self, world: str) -> list[WorldCell]:
        """Return the cells of a world beside the witness."""
        first = self.witness.manifest.world
        return [it for it in self.cells if (it.first, it.world) == (first, world)]

    def told(self, world: str, class_name: str, metric: Metric) -> list[WorldCell]:
        """Return those of a class in a metric, in the order of arms."""
        return [
            it
            for it in self.beside(world)
            if it.witness.class_name == class_name
            and it.witness.metric.name == metric.name
        ]


def hold_together(
    studies: Sequence[Study], silent: Mapping[str, str], theory: Theory = NO_THEORY
) -> Worlds:
    """Hold the studies of one experiment against each other.

    :raises RecordingError: if they are not of one experiment.
    """
    ordered = sorted(studies, key=lambda it: _place(it.manifest.world))
    for other in ordered[1:]:
        _check(ordered[0].manifest, other.manifest)
    return Worlds(
        studies=tuple(ordered),
        silent=dict(silent),
        cells=tuple(cell for two in combinations(ordered, 2) for cell in _cells(*two)),
        orders=dict(_orders(ordered)),
        theory=theory,
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


def _orders(studies: Sequence[Study]) -> Iterator[tuple[tuple[str, str], Ranking]]:
    """Yield the order of arms in each world and class; of a sweep there is none."""
    metric = studies[0].headline
    for study in studies:
        if study.swept:
            continue
        (comparison,) = study.comparisons
        for name in comparison.class_names:
            if comparison.rivals:
                key = study.manifest.world, name
                yield key, rank(comparison, name, metric)


def _cells(one: Study, two: Study) -> Iterator[WorldCell]:
    there = {it.manifest.point.name: it for it in two.comparisons}
    for comparison in one.comparisons:
        point = comparison.manifest.point.name
        if point in there:
            yield from _at_point(point, comparison, there[point])


def _at_point(point: str, one: Comparison, two: Comparison) -> Iterator[WorldCell]:
    known = {(it.class_name, it.arm, it.metric.name): it for it in two.cells}
    requests = [it.manifest.point.mean_request_ms for it in (one, two)]
    margin = one.manifest.options.margin_worlds
    for cell in one.cells:
        other = known.get((cell.class_name, cell.arm, cell.metric.name))
        if other is None or cell.arm == one.again:
            continue
        ratios = _of_ratios(cell, other)
        yield WorldCell(
            point=point,
            first=one.manifest.world,
            world=two.manifest.world,
            witness=cell,
            other=other,
            agreement=agreement_of(_word(cell), _word(other), ratios, margin),
            ratios=ratios,
            between=_between(cell, other, requests),
        )


def _word(cell: Cell) -> str | None:
    return cell.verdict.word if cell.decided else None


def _of_ratios(witness: Cell, other: Cell) -> Estimate | None:
    mine, theirs = witness.shown_contrast, other.shown_contrast
    if mine is None or theirs is None:
        return None
    return quotient(theirs.ratio, mine.ratio)


def agreement_of(
    mine: str | None, theirs: str | None, ratios: Estimate | None, margin: float
) -> Agreement:
    """Return how two worlds agree, from the words of their decisions, None if open.

    ``ratios`` is the quotient of their ratios to the baseline.
    """
    if mine is None:
        return "open"
    if theirs is None:
        return "undecided"
    words = {mine, theirs}
    if words == {"better", "worse"}:
        return "contradicts"
    if ratios is None:
        # Both lost requests: a quantile that is infinite has no size.
        return "agrees" if len(words) == 1 else "contradicts"
    if ratios.low >= 1 / (1 + margin) and ratios.high <= 1 + margin:
        return "agrees"
    if ratios.high < 1 / (1 + margin) or ratios.low > 1 + margin:
        return "size differs" if len(words) == 1 else "contradicts"
    return "size open"


def _between(
    witness: Cell, other: Cell, requests_ms: Sequence[float | None]
) -> Estimate | None:
    if witness.estimate is None or other.estimate is None:
        return None
    found = quotient(other.estimate, witness.estimate)
    mine, theirs = requests_ms
    if found is None or witness.metric.quantile is None or not mine or not theirs:
        return found
    return Estimate(*(end * mine / theirs for end in found))
