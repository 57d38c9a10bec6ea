"""Agreement of several worlds and theory: one table, a sentence per disagreement."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from spark_analysis.judging.world_agreement import Worlds, hold_together
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.theory import Theory, TheoryRow, load_theory
from spark_analysis.statistics.intervals import Estimate
from tests.spark_analysis.world_studies import study_in


def five() -> Worlds:
    """In three worlds of five planes beat wfq, in one wfq beats planes."""
    ratios = {"planes": 0.2, "wfq": 0.5}
    return hold_together(
        [
            study_in("kafka", {"planes": 0.1}),
            study_in("live", {"planes": 0.5, "wfq": 0.2}),
            study_in("kraft", {}),
            study_in("model", ratios),
            study_in("virtual", ratios),
        ],
        {},
        Theory(
            margin=0.25,
            rows=tuple(
                TheoryRow(
                    world=world,
                    arm="planes",
                    class_name="control",
                    predicted=0.2,
                    measured=Estimate(found, found * 0.95, found * 1.05),
                    verdict=verdict,
                )
                for world, found, verdict in (
                    ("model", 0.21, "agrees"),
                    ("kafka", 0.1, "differs"),
                )
            ),
        ),
    )


def test_theory_is_read_from_beside_the_worlds(tmp_path: Path) -> None:
    assert load_theory(tmp_path).rows == ()
    row = {
        "world": "live",
        "point": "",
        "arm": "planes",
        "reported": "control",
        "predicted": 0.5,
        "measured": 0.6,
        "low": None,
        "high": None,
        "verdict": "open",
    }
    content = {"schema": 1, "margin": 0.25, "ratios": [row]}
    (tmp_path / "theory.json").write_text(json.dumps(content))
    (read,) = load_theory(tmp_path).rows
    assert read.measured == Estimate(0.6, 0.0, math.inf)
    (tmp_path / "theory.json").write_text(json.dumps({**content, "schema": 2}))
    with pytest.raises(RecordingError, match="schema 2 found, 1 expected"):
        load_theory(tmp_path)
