"""docs/results.md is what ``make results`` wrote, and still says what is so."""

import re
from pathlib import Path

import pytest

from experiments.design.config import load
from experiments.running.answers import answers
from spark_analysis.telling.findings import page
from spark_analysis.telling.findings.spec import load as load_spec

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/results.md").read_text()
MARKS = page.marks(PAGE)
WHOLE = load_spec(ROOT / "docs/results.toml")
# What Apache Kafka says is told where it was asked.
SPEC = WHOLE.with_optional([mark.config for mark in MARKS])
# Names, not measurements: an issue's, a quantile's, a file's.
NAMES = r"KIP-291|KAFKA-4453|\bp9[59]\b|`[^`]*`"


def test_every_section_was_made_and_nobody_has_typed_in_it() -> None:
    assert [mark.config for mark in MARKS] == [it.config for it in SPEC.sections]
    assert [mark.config for mark in MARKS if not mark.untouched] == []


def test_what_stands_between_is_the_prose_of_the_specification() -> None:
    assert page.without_made(PAGE) == page.typed(SPEC)


def test_the_prose_has_no_figures() -> None:
    assert re.findall(r"\d+", re.sub(NAMES, "", page.typed(WHOLE))) == []


@pytest.mark.parametrize("mark", MARKS, ids=lambda it: Path(it.config).stem)
def test_a_section_is_of_its_config_and_code_as_they_are(mark: page.Mark) -> None:
    """If not: `make results`, and read whether the prose is still true."""
    config = ROOT / mark.config
    assert page.content_hash(config) == mark.content
    assert answers(load(config)) == mark.answers
