"""The paper compiles offline, to the same bytes, with no number of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from spark_analysis.analyze import write_report
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.telling.paper import SOURCES, build, facts_of
from spark_analysis.telling.quotes import words

# Names, not measurements: issues, versions, the two delays, Kafka's own queue of 20.
NAMES = (
    r"KAFKA-4453|kafka4453|KIP-291|kip291|Kafka (?:before )?2\.2|\bS[12]\b|queue of 20"
)


@pytest.mark.spark
def test_the_paper_is_the_same_bytes_twice(
    study: Study, recorded: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    shutil.copy(recorded / "manifest.json", run_dir)
    write_report(study, run_dir / "report")
    build(run_dir, tmp_path / "one.pdf")
    build(run_dir, tmp_path / "two" / "two.pdf")
    first = (tmp_path / "one.pdf").read_bytes()
    assert first.startswith(b"%PDF-")
    assert first == (tmp_path / "two" / "two.pdf").read_bytes()


@pytest.mark.spark
def test_facts_come_from_the_recordings(study: Study) -> None:
    manifest = study.manifest
    facts = facts_of(manifest, words(study))
    sent = {run.block: run.counts["sent"] for run in manifest.runs_compared}
    assert facts["requests"].replace("\u202f", "") == str(sum(sent.values()))
    assert facts["blocks"] == "7"
    # Six runs of 41: one late, one crashed, four of the block that this one spoiled.
    assert (facts["excluded"], facts["runs_all"]) == ("6", "41")
    assert facts["smallest_p"] == "0.016"
    assert len(facts["main"]["rows"]) == 15


def test_the_sources_hold_no_number() -> None:
    text = (SOURCES / "main.typ").read_text()
    prose = re.sub(r"width: \d+%|\.at\(\d\)|len\(\) > 0|//.*", "", text)
    assert re.findall(r"\d+", re.sub(NAMES, "", prose)) == []


def test_without_a_report_the_command_to_run_is_named(
    recorded: Path, tmp_path: Path
) -> None:
    shutil.copy(recorded / "manifest.json", tmp_path)
    with pytest.raises(RecordingError, match="run `doorkeeper analyze` first"):
        build(tmp_path, tmp_path / "paper.pdf")
