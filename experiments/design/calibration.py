"""What requests cost: measured by ``doorkeeper calibrate``, or stated by a config.

A config's ``[nominal]`` costs define the machine in whose time its traffic is written:
there a load becomes a rate, so the trace is the same wherever it is replayed. A
calibration of the machine says by how much that trace has to be stretched there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError, model_validator

from experiments.design.config_errors import ExperimentError, first_error
from experiments.design.values import Mean, Name, Section


class Cost(Section):
    """The mean CPU of one request in microseconds, and the ends of its interval."""

    mean_us: Mean
    low_us: float | None = None
    high_us: float | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        low, high = self.low_us, self.high_us
        if low is not None and high is not None and not low <= self.mean_us <= high:
            raise ValueError(f"mean_us = {self.mean_us} is outside of {low} to {high}")
        return self


class Calibration(Section):
    """The cost of each traffic entry's requests, by name, and where it comes from.

    ``source`` is the command that measured it and on what. ``reading_us`` is the part
    of every cost that is from before the request was queued, where the broker was busy;
    where it was idle, that is ``waking_us`` more. ``unbilled_us`` is the part that no
    request's row was billed: writing its answer, which is ``writing_us``, and the event
    loop and the broker's housekeeping. ``travel_us`` is what it takes from a client to
    an idle broker, or back: in the kernel, and until who waits for it has woken up.
    ``loop_us`` is what the fixed loop of `experiments.running.speed` took, in quiet
    episodes. ``bills_us`` is the median bill of a request of each entry in a cluster:
    without what nobody was billed, and without replication.
    """

    source: str
    costs: dict[Name, Cost] = Field(min_length=1)
    unbilled_us: float | None = None
    reading_us: float | None = None
    waking_us: float | None = None
    writing_us: float | None = None
    travel_us: float | None = None
    loop_us: float | None = None
    bills_us: dict[Name, Mean] | None = None
    confidence: float | None = None


def read(path: Path) -> Calibration:
    """Read what ``doorkeeper calibrate --out`` wrote.

    :raises ExperimentError: if it is no calibration.
    """
    try:
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        fault = first_error(error, Calibration)
        raise ExperimentError(str(path), str(fault)) from error


def write(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(calibration.model_dump(mode="json"), indent=1)
    path.write_text(text + "\n", encoding="utf-8")
