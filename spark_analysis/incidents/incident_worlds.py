"""Agreement of one election's effects in several worlds.

Machines differ in milliseconds, so ratios to the baseline are compared, by the rule of
``judging.world_agreement``. A measure that is zero under both arms in some world has no
ratio there, and is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from spark_analysis.incidents.incident import Incident, IncidentCell
from spark_analysis.judging.world_agreement import (
    Agreement,
    agreement_of,
    margin_of,
    place,
    quotient_of,
    shared_sessions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentPair:
    """One measure of one arm in two worlds, with their agreement."""

    first: str
    other: str
    mine: IncidentCell
    theirs: IncidentCell
    agreement: Agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentWorlds:
    """An election in each world, in the order of worlds, and all pairs of worlds."""

    incidents: tuple[Incident, ...]
    pairs: tuple[IncidentPair, ...]


def hold_incidents_together(incidents: Sequence[Incident]) -> IncidentWorlds:
    """Compare the elections of one experiment, one or more."""
    ordered = sorted(incidents, key=lambda it: place(it.manifest.world))
    twos = list(combinations(ordered, 2))
    return IncidentWorlds(
        incidents=tuple(ordered),
        pairs=tuple(pair for two in twos for pair in _pairs(*two)),
    )


def _pairs(first: Incident, other: Incident) -> Iterator[IncidentPair]:
    there = {(it.arm, it.measure.name): it for it in other.cells}
    options = first.manifest.options
    shared = shared_sessions(first.manifest, other.manifest)
    for mine in first.cells:
        theirs = there.get((mine.arm, mine.measure.name))
        if theirs is None or mine.contrast is None or theirs.contrast is None:
            continue
        if mine.arm == first.manifest.again:
            continue
        if not (_happened(first, mine) and _happened(other, theirs)):
            continue
        _, found = quotient_of(
            mine.contrast,
            theirs.contrast,
            shared,
            confidence=options.confidence,
            calibration_error=0.0,
        )
        margin = margin_of(
            mine.contrast.ratio, mine.measure.margin, options.margin_worlds
        )
        yield IncidentPair(
            first=first.manifest.world,
            other=other.manifest.world,
            mine=mine,
            theirs=theirs,
            agreement=agreement_of(found, margin),
        )


def _happened(incident: Incident, cell: IncidentCell) -> bool:
    """Return whether a measure is above zero under the arm or the baseline."""
    base = incident.cell(incident.manifest.baseline, cell.measure.name)
    return cell.estimate.value > 0 or base.estimate.value > 0
