"""Numbers and the words beside them agree: one helper inflects, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spark_analysis.telling
from spark_analysis.telling.sentences.numbers import agreeing, counted, for_all

TELLING = Path(spark_analysis.telling.__file__).parent
# A value that is put in, followed by a form that is wrong where the value is 1.
PLURAL = re.compile(
    r"\} (?:are|were|have|do|come|agree)\b"
    r"|\} (?:arm|block|cell|comparison|episode|incident|pair|point|ratio|round|run)s\b"
)


@pytest.mark.parametrize(
    ("number", "are", "blocks", "at_once"),
    [
        (0, "are", "0 blocks", ""),
        (1, "is", "1 block", ""),
        (2, "are", "2 blocks", " for all 2 blocks at once"),
    ],
)
def test_a_number_decides_the_form(
    number: int, are: str, blocks: str, at_once: str
) -> None:
    assert agreeing(number, "is", "are") == are
    assert counted(number, "block") == blocks
    assert for_all(number, "block") == at_once


@pytest.mark.parametrize("text", ['f"{n} are open"', 'f"of {len(it)} rounds some"'])
def test_a_form_that_no_number_has_chosen_is_seen(text: str) -> None:
    assert PLURAL.search(text)


def test_no_sentence_has_a_form_that_no_number_has_chosen() -> None:
    sources = sorted(TELLING.rglob("*.py"))
    assert len(sources) > 40
    found = [
        f"{path.relative_to(TELLING)}: {line.strip()}"
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if PLURAL.search(line)
    ]
    assert found == []
