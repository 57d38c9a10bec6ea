"""What requests cost: measured by ``doorkeeper calibrate``, or stated by a config.

A config's ``[nominal]`` costs define the machine in whose time its traffic is written:
there a load becomes a rate, so the trace is the same wherever it is replayed. A
calibration of the machine says by how much that trace has to be stretched there.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from pydantic import Field, ValidationError, model_validator

from experiments.design.config_errors import ExperimentError, first_error
from experiments.design.values import Mean, Name, Section

# Shares are written with four digits.
_ROUNDED: Final = 1e-3


class Cost(Section):
    """The mean CPU of one request in microseconds, and the ends of its interval.

    ``busy_us`` and ``idle_us`` are the means of those that came behind others, and that
    found the broker idle. ``spread`` says how single requests differ: costs over their
    mean, in order, by equal parts of the requests (of fifty: the mean of the cheapest
    fiftieth first). Without either all requests of an entry cost the same.
    """

    mean_us: Mean
    low_us: float | None = None
    high_us: float | None = None
    busy_us: Mean | None = None
    idle_us: Mean | None = None
    spread: tuple[Mean, ...] = ()

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        low, high = self.low_us, self.high_us
        if low is not None and high is not None and not low <= self.mean_us <= high:
            raise ValueError(f"mean_us = {self.mean_us} is outside of {low} to {high}")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Self:
        busy, idle = self.busy_us, self.idle_us
        if (busy is None) != (idle is None):
            raise ValueError(
                "busy_us and idle_us are the parts of one mean: state both"
            )
        if busy is not None and idle is not None:
            low, high = sorted((busy, idle))
            if not low <= self.mean_us <= high:
                raise ValueError(
                    f"mean_us = {self.mean_us} is not between busy_us and idle_us"
                )
        mean = math.fsum(self.spread) / max(1, len(self.spread))
        if self.spread and not math.isclose(mean, 1.0, abs_tol=_ROUNDED):
            raise ValueError(f"spread: shares of a mean have mean 1, not {mean:.4f}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """Parts of every request's cost on one machine, in microseconds; 0 if unknown.

    A broker that was idle when a request came has to be woken, and goes back to sleep;
    its caches have seen something else meanwhile. So a request costs more then, and one
    that came behind others costs less than the mean of both.

    Where the broker was busy reading takes ``reading_us``, after ``turning_us`` for all
    that are read at once, of whom ``turning_share`` are the first; writing the answer
    takes ``writing_us``, and ``event_loop_us`` is nobody's, not even its flow's. Where
    it was idle reading takes ``waking_us`` more, and ``settling_us`` more is nobody's.
    No part of a cost are ``travel_us`` and ``returning_us``, which bytes take to a
    broker and back, and ``rousing_us``, until one that was idle has begun.
    ``busy_share`` and ``idle_share`` are the cost of an entry's request in either case
    over its mean, as far as known, and ``arms`` the cost under an arm, of each entry,
    over what it is under the baseline.
    """

    reading_us: float = 0.0
    turning_us: float = 0.0
    turning_share: float = 0.0
    waking_us: float = 0.0
    writing_us: float = 0.0
    event_loop_us: float = 0.0
    settling_us: float = 0.0
    travel_us: float = 0.0
    returning_us: float = 0.0
    rousing_us: float = 0.0
    busy_share: dict[str, float] = field(default_factory=dict)
    idle_share: dict[str, float] = field(default_factory=dict)
    arms: dict[str, dict[str, float]] = field(default_factory=dict)

    def beside_handlers(self, arm: str) -> bool:
        """Say whether a cost under an arm is more than what its handler always is."""
        before = (self.reading_us, self.turning_us, self.waking_us)
        after = (self.writing_us, self.event_loop_us, self.settling_us)
        own = [share - 1.0 for share in self.arms.get(arm, {}).values()]
        return any((*before, *after, self.busy_share, *own))


class Calibration(Section):
    """The cost of each traffic entry's requests, by name, and where it comes from.

    ``source`` is the command that measured it and on what. Where the broker was busy
    ``reading_us`` is the part of every cost that is from before the request was queued,
    and ``turning_us`` what else is billed before its handler: the event loop has turned
    to its sockets meanwhile; ``turning_share`` of the requests were the first that were
    read then. Where it was idle, ``waking_us`` is all that is billed before a handler,
    but for reading. ``unbilled_us`` is the part that no request's row was billed:
    writing its answer, which is ``writing_us``, and the event loop and the broker's
    housekeeping; where the broker was idle, that is ``settling_us`` more.

    ``travel_us`` is what a client takes to send what is due, ``rousing_us`` what passes
    then until a broker that sleeps has begun, and ``returning_us`` is the way back, as
    long as the first if it is not known. ``loop_us`` is what the fixed loop of
    `experiments.running.speed` took, in quiet episodes. ``arms`` are what requests of
    each entry cost under other arms than the baseline, over what they do under that: a
    policy and a reader use CPU, too. ``bills_us`` is the median bill of a request of
    each entry in a cluster: without what nobody was billed, and without replication.
    """

    source: str
    costs: dict[Name, Cost] = Field(min_length=1)
    unbilled_us: float | None = None
    settling_us: float | None = None
    reading_us: float | None = None
    turning_us: float | None = None
    turning_share: float | None = None
    waking_us: float | None = None
    writing_us: float | None = None
    travel_us: float | None = None
    returning_us: float | None = None
    rousing_us: float | None = None
    loop_us: float | None = None
    arms: dict[Name, dict[Name, Mean]] = Field(default_factory=dict)
    bills_us: dict[Name, Mean] | None = None
    confidence: float | None = None

    @model_validator(mode="after")
    def _turns_are_shared(self) -> Self:
        if (self.turning_us is None) != (self.turning_share is None):
            raise ValueError("turning_us is spent by turning_share: state both")
        return self

    @model_validator(mode="after")
    def _arms_cost_what_is_known(self) -> Self:
        for arm, shares in self.arms.items():
            for name in shares.keys() - self.costs.keys():
                raise ValueError(f"arms.{arm}: there is no cost of {name!r}")
        return self

    def parts(self) -> CostParts:
        """Return what of a cost is spent where.

        Where nobody has told writing from the rest that no row was billed, that is a
        part of the handler's.
        """
        writing_us = self.writing_us
        loop_us = 0.0
        if writing_us is not None:
            loop_us = max(0.0, (self.unbilled_us or 0.0) - writing_us)
        busy_us, idle_us = (
            {name: getattr(cost, state) for name, cost in self.costs.items()}
            for state in ("busy_us", "idle_us")
        )
        travel_us = self.travel_us or 0.0
        returning_us = self.returning_us
        return CostParts(
            reading_us=self.reading_us or 0.0,
            turning_us=self.turning_us or 0.0,
            turning_share=self.turning_share or 0.0,
            waking_us=self.waking_us or 0.0,
            writing_us=writing_us or 0.0,
            event_loop_us=loop_us,
            settling_us=self.settling_us or 0.0,
            travel_us=travel_us,
            returning_us=travel_us if returning_us is None else returning_us,
            rousing_us=self.rousing_us or 0.0,
            busy_share=self._shares(busy_us),
            idle_share=self._shares(idle_us),
            arms=self.arms,
        )

    def _shares(self, costs_us: dict[str, float | None]) -> dict[str, float]:
        return {
            name: us / self.costs[name].mean_us
            for name, us in costs_us.items()
            if us is not None
        }


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
