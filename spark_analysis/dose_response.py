"""Dose and response of an incident: an election judged at every point of a sweep.

``python -m spark_analysis.dose_response RUN_DIR DIRECTORY`` writes the measures and a
figure to ``doses/`` in the directory of results.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from spark_analysis.incidents.judging import judge_incident
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.spark_session import LOCAL, spark_session
from spark_analysis.report.doses import DOSES, doses_of, figure, written_doses
from spark_analysis.report.figures.style import styled

_USAGE = "usage: python -m spark_analysis.dose_response RUN_DIR DIRECTORY"


def judge_doses(run_dir: Path, directory: Path) -> Path:
    """Judge a recording at each of its points; return the written file.

    :raises RecordingError: if the recording has no election.
    """
    manifest = load_manifest(run_dir)
    rows = sum(run.counts["sent"] for run in manifest.runs_compared)
    incidents = {}
    with spark_session(LOCAL, rows=rows) as spark:
        for point in manifest.points:
            incident = judge_incident(spark, manifest.at(point))
            if incident is None:
                raise RecordingError(f"{run_dir}: there is no election to judge")
            incidents[point.name] = incident
    found = doses_of(manifest, incidents)
    folder = directory / DOSES
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{manifest.name}.json"
    file.write_text(written_doses(found), encoding="utf-8")
    with styled():
        # No date, so that equal results give equal bytes.
        metadata = {"Date": None, "Creator": "doorkeeper"}
        figure(found).savefig(file.with_suffix(".svg"), metadata=metadata)
    return file


def main(arguments: Sequence[str]) -> int:
    """Judge a recording; return 1 if it was refused."""
    if len(arguments) != 3:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        print(judge_doses(*map(Path, arguments[1:])))
    except (RecordingError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
