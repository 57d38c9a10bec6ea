"""Agreement of worlds on one election."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_analysis.incidents.incident import Incident
from spark_analysis.incidents.incident_worlds import hold_incidents_together
from spark_analysis.statistics.intervals import Estimate

pytestmark = pytest.mark.spark


def test_an_event_missing_in_a_world_contradicts_nothing(judged: Incident) -> None:
    """Live runs had no time-outs: two zeros are neither agreement nor contradiction."""
    live = replace(
        judged,
        manifest=replace(judged.manifest, world="live"),
        cells=tuple(
            replace(cell, estimate=Estimate(0.0, 0.0, 0.0))
            if cell.measure.name == "timed_out"
            else cell
            for cell in judged.cells
        ),
    )
    found = hold_incidents_together([judged, live])
    told = {it.mine.measure.name for it in found.pairs}
    # Two worlds without a violation under any arm are no agreement either.
    assert {it.name for it in judged.measures} - told == {"timed_out", "lost_by_all"}
