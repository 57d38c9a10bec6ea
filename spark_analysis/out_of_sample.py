"""Out-of-sample prediction in two steps: predictions to a file, then their judgement.

``python -m spark_analysis.out_of_sample predict CONFIG RUNS FILE`` writes the
predictions of the simulated worlds in ``RUNS`` for the measurement that ``CONFIG``
plans. ``... judge CONFIG RUN_DIR FILE`` compares them with the recording and writes
``judgement.json`` next to ``FILE``. It refuses predictions that are newer than the
recording or of another config.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from spark_analysis.judging.assembly import compare
from spark_analysis.judging.registered_predictions import judge, predictions_of
from spark_analysis.recordings.contract import RecordingError
from spark_analysis.recordings.manifest import load_manifest
from spark_analysis.recordings.run_directory import recordings_here
from spark_analysis.recordings.spark_session import LOCAL, spark_session
from spark_analysis.report.paper import naming
from spark_analysis.report.predictions import (
    JUDGEMENT,
    OutOfSample,
    judgement_of,
    read_predictions,
    written_judgement,
    written_predictions,
)

_USAGE: Final = "usage: python -m spark_analysis.out_of_sample predict|judge " + (
    "CONFIG RUNS FILE"
)


def predict(config: Path, runs: Path, file: Path) -> None:
    """Write the predictions of all simulated worlds in a directory.

    :raises RecordingError: if a recording predicts nothing, or ``file`` exists.
    """
    if file.exists():
        raise RecordingError(f"{file}: is there; predictions are not made twice")
    stated = _stated(config)
    manifests = recordings_here(runs).manifests
    rows = sum(run.counts["sent"] for it in manifests for run in it.runs_compared)
    with spark_session(LOCAL, rows=rows) as spark:
        studies = [compare(spark, manifest) for manifest in manifests]
    written = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    found = predictions_of(stated, studies, written)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(written_predictions(found), encoding="utf-8")
    print(f"{file}: {len(found.found)} predictions by {', '.join(found.worlds)}")


def judge_measured(config: Path, run_dir: Path, file: Path) -> None:
    """Compare predictions with a recording; write and print the judgement.

    :raises RecordingError: if the predictions do not belong to the recording.
    """
    stated = _stated(config)
    with naming(file):
        predictions = read_predictions(file.read_text(encoding="utf-8"))
    manifest = load_manifest(run_dir)
    rows = sum(run.counts["sent"] for run in manifest.runs_compared)
    with spark_session(LOCAL, rows=rows) as spark:
        study = compare(spark, manifest)
    judged = judge(stated, predictions, study)
    found = judgement_of(predictions, judged, study)
    file.with_name(JUDGEMENT.name).write_text(
        written_judgement(found), encoding="utf-8"
    )
    shown = OutOfSample(found)
    print(f"{shown.sentences}\n\n{shown.markdown}")


def _stated(config: Path) -> dict[str, Any]:
    return tomllib.loads(config.read_text(encoding="utf-8-sig"))


def main(arguments: Sequence[str]) -> int:
    """Run a step; return 1 if it was refused."""
    steps = {"predict": predict, "judge": judge_measured}
    if len(arguments) != 4 or arguments[0] not in steps:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        steps[arguments[0]](*map(Path, arguments[1:]))
    except (RecordingError, OSError, tomllib.TOMLDecodeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
