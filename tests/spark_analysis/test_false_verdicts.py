"""The rate of false verdicts of `make aa`: rows judged better or worse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from spark_analysis import false_verdicts
from spark_analysis.false_verdicts import count

ROWS = [
    {"metric": "p50_ms", "verdict": word}
    for word in (
        *("baseline", "A/A", "better", "worse"),
        *("not significant",) * 7,
        *("equivalent", "refused: too few tail samples"),
    )
]


def test_better_and_worse_are_false_and_refused_rows_are_not_compared() -> None:
    found = count(ROWS)
    assert (found.compared, found.false, found.refused) == (10, 2, 1)
    assert found.sentence().startswith(
        "2 of 10 verdicts are false (20.0%, 95 % CI 2.5%"
    )


def test_nothing_compared_is_said_so() -> None:
    assert count(ROWS[:2]).sentence() == "no row was compared (0 refused)"


def test_the_program_prints_a_line_per_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rows": ROWS}))
    monkeypatch.setattr(sys, "argv", ["", str(path)])
    false_verdicts.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["p50_ms", "all"]
