"""An election under load as plain values: the content of tables and figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_analysis.incidents.incident_measures import IncidentMeasure
from spark_analysis.incidents.overload import Overload
from spark_analysis.judging.cells import Word
from spark_analysis.judging.contrast import Contrast
from spark_analysis.recordings.contract import Manifest
from spark_analysis.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentCell:
    """One measure of one arm: its mean over incidents, and its comparison.

    ``difference`` is the mean of arm minus baseline, block by block, and ``contrast``
    compares the arm with the baseline, adjusted for all arms of the measure. Both are
    None for the baseline itself.
    """

    arm: str
    measure: IncidentMeasure
    estimate: Estimate
    difference: Estimate | None
    contrast: Contrast | None
    word: Word

    @property
    def p(self) -> float | None:
        """The p-value of the ratio to the baseline."""
        return None if self.contrast is None else self.contrast.p


# The lanes of a panel, from top to bottom; the first is before the decision.
LANES: Final = ("accepted", "in vain", "by the new leader", "not leader", "timed out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One incident of an arm, in milliseconds since the decision.

    ``lanes`` are the instants of attempts to write, by their names in `LANES`. The old
    leader completed its LEADER_AND_ISRs at ``obeyed_ms`` and its UPDATE_METADATAs at
    ``told_ms``. At ``writable_ms`` the last partition accepted a write again; None if
    never.
    """

    arm: str
    lanes: dict[str, tuple[float, ...]]
    obeyed_ms: tuple[float, ...]
    told_ms: tuple[float, ...]
    writable_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """The values of an election: cells by measure, then by arm.

    ``timelines`` are those of one block, the same requests for every arm.
    """

    manifest: Manifest
    overload: Overload
    measures: tuple[IncidentMeasure, ...]
    cells: tuple[IncidentCell, ...]
    block: int
    timelines: tuple[Timeline, ...]

    def cell(self, arm: str, measure: str) -> IncidentCell:
        """Return one cell.

        :raises KeyError: if there is none.
        """
        for cell in self.cells:
            if (cell.arm, cell.measure.name) == (arm, measure):
                return cell
        raise KeyError((arm, measure))
