"""Costs of requests: the mean CPU time per traffic entry, and one fixed read cost.

A config's ``[nominal]`` costs define the machine in whose time its traffic is stated.
In that time a load becomes a rate, so the trace is the same on every machine. The
calibration of another machine gives the factor by which the trace is stretched there
(``doorkeeper calibrate``, `experiments.running.calibrate`).

All requests of an entry have its mean cost. A ``service`` in the traffic entry is the
only source of other service times; no distribution is fitted to a measurement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from experiments.design.config_errors import ExperimentError, first_error
from experiments.design.values import Mean, Name, Section


class Cost(Section):
    """The mean CPU time of one request in microseconds, and its confidence interval.

    A cost that was stated or measured once has no interval.
    """

    mean_us: Mean
    low_us: float | None = None
    high_us: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        low, high = self.low_us, self.high_us
        if low is not None and high is not None and not low <= self.mean_us <= high:
            raise ValueError(f"mean_us = {self.mean_us} is outside of {low} to {high}")
        return self

    def times(self, factor: float) -> Cost:
        """Return the cost multiplied by ``factor``."""
        if factor == 1:
            return self
        low, high = self.low_us, self.high_us
        return Cost(
            mean_us=self.mean_us * factor,
            low_us=None if low is None else low * factor,
            high_us=None if high is None else high * factor,
        )


class Calibration(Section):
    """The cost of each traffic entry's requests, by name, and its source.

    ``source`` is the command that measured it, and the machine. ``read`` is the part of
    every request's cost before the request is queued, which no policy affects.
    Intervals have the given ``confidence``. ``loop_us`` is the mean time of the
    reference loop during the calibration (`processes.idle_probe`). Runs record theirs,
    so the machine's speeds can be compared.
    """

    source: str
    costs: dict[Name, Cost] = Field(min_length=1)
    read: Cost | None = None
    confidence: float | None = None
    loop_us: Mean | None = None

    @property
    def read_ns(self) -> int:
        """The cost of reading one request; 0 if it was not measured."""
        return 0 if self.read is None else round(self.read.mean_us * 1000)


def read(path: Path) -> Calibration:
    """Read the output of ``doorkeeper calibrate --out``.

    :raises ExperimentError: if it is no calibration.
    """
    try:
        return Calibration.model_validate_json(path.read_bytes())
    except ValidationError as error:
        fault = first_error(error, Calibration)
        raise ExperimentError(str(path), str(fault)) from error


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(calibration.model_dump(mode="json"), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
