"""The fuzzer's corpus without the fuzzer, and the files written for a failure."""

from __future__ import annotations

from pathlib import Path

from tests.fuzzing.cases import play
from tests.fuzzing.findings import Findings
from tests.fuzzing.guided import corpus
from tests.fuzzing.known import Broken, is_known


def test_no_case_of_the_corpus_finds_anything() -> None:
    cases = corpus()
    assert 20 <= len(cases) <= 100
    for case in cases:
        try:
            play(case)
        except Exception as error:
            error.add_note(case.hex())
            if not is_known(error):
                raise


def failed(message: str) -> Broken:
    try:
        raise Broken(message)
    except Broken as error:
        return error


def test_of_each_kind_of_failure_the_first_is_written_down(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "found")
    assert findings.note(failed("one"), "again {}", b"case")
    assert not findings.note(failed("two"), "again {}", b"other")
    (name,) = findings.told()
    written = (tmp_path / "found" / name).read_text()
    case = (tmp_path / "found" / name).with_suffix(".case")
    assert f"again {case}" in written
    assert "one" in written
    assert case.read_bytes() == b"case"
