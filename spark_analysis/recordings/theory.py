"""Predictions for an experiment, as ``doorkeeper theory --out`` wrote them.

The file lies next to the run directories of its worlds. It is optional: an experiment
without a known closed form has none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spark_analysis.recordings.contract import RecordingError
from spark_analysis.statistics.intervals import Estimate

FILE: Final = "theory.json"
_SCHEMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TheoryRow:
    """The mean latency of a class under an arm relative to the baseline's, in a world.

    ``verdict`` is ``agrees`` (the interval lies within the margin about the
    prediction), ``differs`` (it lies outside) or ``open``.
    """

    world: str
    arm: str
    class_name: str
    predicted: float
    measured: Estimate
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """All rows, and the margin of their verdicts."""

    margin: float
    rows: tuple[TheoryRow, ...]


NO_THEORY: Final = Theory(margin=0.0, rows=())


def load_theory(directory: Path) -> Theory:
    """Read the file of a directory of worlds, if there is one.

    :raises RecordingError: if it is of another schema or incomplete.
    """
    path = directory / FILE
    if not path.exists():
        return NO_THEORY
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw["schema"] != _SCHEMA:
            raise RecordingError(
                f"{path}: schema {raw['schema']!r} found, {_SCHEMA} expected"
            )
        rows = tuple(_row(row) for row in raw["ratios"])
        return Theory(margin=raw["margin"], rows=rows)
    except (KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{path}: {type(error).__name__}: {error}") from error


def _row(raw: dict[str, Any]) -> TheoryRow:
    low, high = raw["low"], raw["high"]
    return TheoryRow(
        world=raw["world"],
        arm=raw["arm"],
        class_name=raw["reported"],
        predicted=raw["predicted"],
        measured=Estimate(
            raw["measured"],
            0.0 if low is None else low,
            float("inf") if high is None else high,
        ),
        verdict=raw["verdict"],
    )
