"""One election in several worlds: the order of arms in each, and where they agree.

Machines differ in milliseconds, so what is held against each other are ratios to the
baseline: two worlds agree where the quotient of theirs lies within the margin that was
named before (`judging.worlds`); and who is ahead of whom, each by its own tests. What
happened in one of the worlds under neither arm has no ratio there, and says nothing of
the other world.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from spark_analysis.incidents.incident import Incident, IncidentCell
from spark_analysis.incidents.measures import Measure
from spark_analysis.judging.worlds import ORDER, Agreement, agreement_of
from spark_analysis.statistics.quotient import quotient


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPair:
    """One measure of one arm in two worlds, and how they agree on it."""

    first: str
    other: str
    mine: IncidentCell
    theirs: IncidentCell
    agreement: Agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class SameOrder:
    """How two worlds order the arms by a measure: pairs that both tell apart."""

    first: str
    other: str
    measure: Measure
    same: tuple[tuple[str, str], ...]
    opposite: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentWorlds:
    """An election in each world, the witness's first; what every two of them have."""

    incidents: tuple[Incident, ...]
    pairs: tuple[IncidentPair, ...]
    orders: tuple[SameOrder, ...]

    @property
    def witness(self) -> Incident:
        """The election that the others are held against."""
        return self.incidents[0]


def hold_incidents_together(incidents: Sequence[Incident]) -> IncidentWorlds:
    """Hold the elections of one experiment, one or more, against each other."""
    ordered = sorted(incidents, key=lambda it: ORDER.index(it.manifest.world))
    twos = list(combinations(ordered, 2))
    return IncidentWorlds(
        incidents=tuple(ordered),
        pairs=tuple(pair for two in twos for pair in _pairs(*two)),
        orders=tuple(order for two in twos for order in _orders(*two)),
    )


def _pairs(first: Incident, other: Incident) -> Iterator[IncidentPair]:
    there = {(it.arm, it.measure.name): it for it in other.cells}
    margin = first.manifest.options.margin_worlds
    for mine in first.cells:
        theirs = there.get((mine.arm, mine.measure.name))
        if theirs is None or mine.ratio is None or theirs.ratio is None:
            continue
        if mine.arm == first.manifest.again:
            continue
        if not (_happened(first, mine) and _happened(other, theirs)):
            continue
        ratios = quotient(theirs.ratio, mine.ratio)
        yield IncidentPair(
            first=first.manifest.world,
            other=other.manifest.world,
            mine=mine,
            theirs=theirs,
            agreement=agreement_of(_word(mine), _word(theirs), ratios, margin),
        )


def _happened(incident: Incident, cell: IncidentCell) -> bool:
    """Tell whether there is anything to be a ratio of: nought to nought is none."""
    base = incident.cell(incident.manifest.baseline, cell.measure.name)
    return cell.estimate.value > 0 or base.estimate.value > 0


def _word(cell: IncidentCell) -> str | None:
    return None if cell.word == "inconclusive" else cell.word


def _orders(first: Incident, other: Incident) -> Iterator[SameOrder]:
    for measure in first.measures:
        if measure.name not in other.orders:
            continue
        mine, theirs = first.orders[measure.name], other.orders[measure.name]
        yield SameOrder(
            first=first.manifest.world,
            other=other.manifest.world,
            measure=measure,
            same=tuple(sorted(mine.ahead & theirs.ahead)),
            opposite=tuple(sorted(it for it in mine.ahead if it[::-1] in theirs.ahead)),
        )
