"""Predictions of simulated worlds, written before a measurement, and their errors.

The predicted quantity is an arm's ratio to the baseline of the same session, in the
primary metric. In a ratio the machine's speed, also its deviation in a session, cancels
out, and each claim of this project is such a ratio. An absolute quantile of a simulated
world lacks the time of the network and of the generator, so its error is known in
advance.

A prediction has an interval for the mean over as many sessions as will be measured, on
traces that were not simulated (`spark_analysis.statistics.prediction`). The error of a
prediction is the logarithm of measured over predicted ratio. A condition is one arm at
one point. Arms of a point share the sessions of a baseline, so conditions are not
independent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from spark_analysis.judging.cells import Cell
from spark_analysis.judging.study import Study
from spark_analysis.recordings.contract import Manifest, RecordingError
from spark_analysis.statistics.intervals import Estimate
from spark_analysis.statistics.prediction import prediction_interval
from spark_analysis.statistics.ratios import ratio_of

_WORLD: Final = "experiment.world"
# Predictions use other and more traces than the measurement.
_TRACES: Final = ("experiment.seed", "sessions.count")


class Condition(NamedTuple):
    """A class under an arm at a point."""

    point: str
    class_name: str
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The ratio to the baseline that a world predicts for a condition."""

    world: str
    condition: Condition
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """All predictions of a measurement, as registered.

    ``config_sha256`` is the hash of the config file's content, ``written`` the instant
    of the predictions. ``sessions`` is the number to be measured, ``worlds`` has the
    number of simulated ones.
    """

    name: str
    config_sha256: str
    written: str
    sessions: int
    baseline: str
    primary: str
    metric: str
    confidence: float
    worlds: Mapping[str, int]
    found: tuple[Prediction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A prediction and the measured ratio of its condition.

    ``measured`` is None if the measurement refused the ratio.
    """

    prediction: Prediction
    measured: Estimate | None

    @property
    def error(self) -> float | None:
        """Logarithm of measured over predicted ratio; None without a measured ratio."""
        if self.measured is None or not 0 < self.measured.value < math.inf:
            return None
        return math.log(self.measured.value / self.prediction.ratio.value)

    @property
    def is_covered(self) -> bool:
        """Whether the measured ratio lies inside the prediction interval."""
        interval = self.prediction.ratio
        return (
            self.measured is not None
            and interval.low <= self.measured.value <= interval.high
        )


def content_sha256(content: Mapping[str, Any]) -> str:
    """Return the hash of a config file's content; comments do not count."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def predictions_of(
    config: Mapping[str, Any], studies: Sequence[Study], written: str
) -> Predictions:
    """Return the predictions of simulated worlds for the measurement of a config.

    :raises RecordingError: if a world is measured, has another config, or replayed the
        traces of the measurement.
    """
    for manifest in (study.manifest for study in studies):
        if not manifest.deterministic:
            raise RecordingError(
                f"{manifest.directory}: {manifest.world} is measured, and predicts "
                "nothing"
            )
        _refuse_other(config, manifest, {_WORLD, *_TRACES})
        if manifest.seed == config["experiment"]["seed"]:
            raise RecordingError(
                f"{manifest.directory}: seed {manifest.seed} is that of the "
                "measurement; predict on other traces"
            )
    first = studies[0]
    sessions = int(config["sessions"]["count"])
    return Predictions(
        name=first.manifest.name,
        config_sha256=content_sha256(config),
        written=written,
        sessions=sessions,
        baseline=first.manifest.baseline,
        primary=first.manifest.sessions.primary,
        metric=first.headline.name,
        confidence=first.manifest.options.confidence,
        worlds={
            it.manifest.world: len({run.session for run in it.manifest.runs_compared})
            for it in studies
        },
        found=tuple(it for study in studies for it in _of_world(study, sessions)),
    )


def judge(
    config: Mapping[str, Any], predictions: Predictions, study: Study
) -> tuple[Judged, ...]:
    """Compare predictions with the measurement of ``config``.

    :raises RecordingError: if the predictions are newer than the recording, or either
        belongs to another config.
    """
    manifest = study.manifest
    found = content_sha256(config)
    if found != predictions.config_sha256:
        raise RecordingError(
            f"the config has the hash {found[:12]}, predictions were made for "
            f"{predictions.config_sha256[:12]}"
        )
    if predictions.written >= manifest.created:
        raise RecordingError(
            f"predictions of {predictions.written} are newer than the recording, which "
            f"began at {manifest.created}"
        )
    if manifest.deterministic:
        raise RecordingError(f"{manifest.directory}: {manifest.world} measures nothing")
    _refuse_other(config, manifest, {_WORLD})
    measured = {
        condition: cell.ratio for condition, cell in _cells(study, predictions.metric)
    }
    return tuple(
        Judged(prediction=it, measured=measured.get(it.condition))
        for it in predictions.found
    )


def _refuse_other(
    config: Mapping[str, Any], manifest: Manifest, apart: Collection[str]
) -> None:
    """Refuse a recording that differs from a config in a stated key."""
    for path in _unlike(config, manifest.config):
        if path not in apart:
            raise RecordingError(
                f"{manifest.directory}: {path} is recorded with another value than "
                "that of the config"
            )


def _unlike(stated: object, recorded: object, path: str = "") -> Iterator[str]:
    """Yield the paths of stated values with a different recorded value.

    Keys with default values are in recordings only.
    """
    match stated, recorded:
        case dict(), dict():
            for key, value in stated.items():
                where = f"{path}.{key}" if path else str(key)
                yield from _unlike(value, recorded.get(key), where)
        case list(), list() if len(stated) == len(recorded):
            for number, pair in enumerate(zip(stated, recorded, strict=True)):
                yield from _unlike(*pair, f"{path}[{number}]")
        case _ if stated != recorded:
            yield path


def _of_world(study: Study, sessions: int) -> Iterator[Prediction]:
    """Yield the predictions of a world: none for a refused or infinite ratio."""
    errors = {
        it.manifest.point.name: it.rules.calibration_error or 0.0
        for it in study.comparisons
    }
    for condition, cell in _cells(study, study.headline.name):
        if cell.contrast is None or not np.all(np.isfinite(cell.contrast.values)):
            continue
        found = prediction_interval(
            cell.contrast.values,
            study.manifest.options.confidence,
            errors[condition.point],
            measured=sessions,
        )
        yield Prediction(
            world=study.manifest.world, condition=condition, ratio=ratio_of(found)
        )


def _cells(study: Study, metric: str) -> Iterator[tuple[Condition, Cell]]:
    """Yield the rivals' cells in a metric, at all points."""
    for comparison in study.comparisons:
        point = comparison.manifest.point.name
        for cell in comparison.cells:
            if cell.metric.name == metric and cell.arm in comparison.rivals:
                yield Condition(point, cell.class_name, cell.arm), cell
