"""Columns of recorder and analysis agree: names, types, order, outcomes."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from experiments.records import attempts, recording
from spark_analysis.recordings import columns, contract
from spark_analysis.recordings.phases import PHASES

SPARK_TYPES = {
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.dictionary(pa.int32(), pa.string()): "string",
}
HERE = Path(__file__).parent
SOURCES = [
    path
    for folder in (HERE.parents[1] / "spark_analysis", HERE)
    for path in sorted(folder.rglob("*.py"))
]


@pytest.mark.parametrize(
    ("declared", "recorded"),
    [
        (columns.REQUESTS, recording.REQUESTS_SCHEMA),
        (columns.SAMPLES, recording.SAMPLES_SCHEMA),
        (columns.ATTEMPTS, attempts.ATTEMPTS_SCHEMA),
    ],
)
def test_the_analysis_declares_what_the_recorder_writes(
    declared: dict[str, str], recorded: pa.Schema
) -> None:
    written = {field.name: SPARK_TYPES[field.type] for field in recorded}
    assert list(declared.items()) == list(written.items())


def test_stamps_outcomes_and_version_are_the_recorders() -> None:
    assert ("intended_ns", *recording.STAMPS) == columns.STAMPS
    assert columns.OUTCOMES == recording.OUTCOMES
    assert str(contract.SCHEMA).encode() == recording.SCHEMA_VERSION


def test_phases_lead_from_the_first_stamp_to_the_last() -> None:
    """The sum telescopes: every inner stamp is added and subtracted once."""
    signed = " ".join(f"+ {phase.sql}" for phase in PHASES)
    found = re.findall(r"([+-]) (\w+)", signed)
    total = {name: 0 for _, name in found}
    for sign, name in found:
        total[name] += 1 if sign == "+" else -1
    left = {name: count for name, count in total.items() if count}
    assert left == {columns.STAMPS[-1]: 1, columns.STAMPS[0]: -1}


def test_columns_are_listed_once() -> None:
    """One file declares the columns; the synthetic recorder of the tests fills them."""
    listing = [
        path.name
        for path in SOURCES
        if sum(f'"{name}"' in path.read_text("utf-8") for name in columns.STAMPS)
        > len(columns.STAMPS) / 2
    ]
    assert listing == ["columns.py", "synthetic.py"]
