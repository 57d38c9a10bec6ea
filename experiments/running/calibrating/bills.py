"""What the rows of a run under the experiment's own load say that its requests cost.

An entry's cost is what its rows were billed on average, and its part of what nobody was
billed: the broker's CPU beyond all bills, over all requests. Where a request met an
idle broker, what it took beyond its cost is the way there and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.calibration import Calibration
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    cost,
    rounded,
    writing_us,
)

# Of a run's rows, what is asked for.
COLUMNS: Final = (
    "request_id",
    "outcome",
    "sent_ns",
    "response_dequeued_ns",
    "response_sent_ns",
    "client_done_ns",
    "service_ns",
    "prior_ns",
)
# Since the last answer, for a request to find the broker asleep.
_PAUSE_NS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Bills:
    """What a request of a run was billed: by entry, for reading, and nobody.

    And what writing its answer took, and its way; None if none met an idle broker.
    """

    billed_us: dict[str, float]
    reading_us: float
    waking_us: float
    writing_us: float
    unbilled_us: float
    travel_us: float | None


def bills(rows: pa.Table, traffic: Sequence[str], cpu_s: float | None) -> Bills | None:
    """Return what a run's requests were billed, if its broker's CPU is known.

    ``traffic`` are the entries of the trace's requests, by number.
    """
    rows = rows.filter(pc.equal(rows["outcome"], "ok"))
    if cpu_s is None or not len(rows):
        return None
    prior_us = rows["prior_ns"].to_numpy() / 1000
    billed_us = rows["service_ns"].to_numpy() / 1000 + prior_us
    entry = np.array([traffic[number] for number in rows["request_id"].to_pylist()])
    pauses_ns = _pauses_ns(rows)
    alone, behind = pauses_ns >= _PAUSE_NS, pauses_ns < 0
    reading_us = float(prior_us[behind if behind.any() else ...].mean())
    waking_us = 0.0
    if alone.any() and behind.any():
        waking_us = max(0.0, float(prior_us[alone].mean()) - reading_us)
    # Stamps are of the wall clock: where bills exceed the CPU that was used, others had
    # it meanwhile, from every request in proportion to how long it was at work.
    used_us = cpu_s * 1e6
    billed_us *= min(1.0, used_us / float(billed_us.sum()))
    unbilled_us = max(0.0, used_us - float(billed_us.sum())) / len(rows)
    return Bills(
        billed_us={
            str(name): float(billed_us[entry == name].mean())
            for name in np.unique(entry)
        },
        reading_us=reading_us,
        waking_us=waking_us,
        writing_us=min(writing_us(rows), unbilled_us),
        unbilled_us=unbilled_us,
        travel_us=_travel_us(rows, billed_us + unbilled_us, alone),
    )


def by_bills(guess: Calibration, found: Sequence[Bills]) -> Calibration:
    """Return the calibration that runs find, at least one.

    ``guess`` stays for an entry of which none has a request. Intervals are Student's t
    over runs.
    """
    travels_us = [it.travel_us for it in found if it.travel_us is not None]
    return guess.model_copy(
        update={
            "costs": {
                name: cost(each_us) if each_us else guess.costs[name]
                for name, each_us in _costs_us(guess.costs, found).items()
            },
            "unbilled_us": rounded(float(np.mean([it.unbilled_us for it in found]))),
            "reading_us": rounded(float(np.mean([it.reading_us for it in found]))),
            "waking_us": rounded(float(np.mean([it.waking_us for it in found]))),
            "writing_us": rounded(float(np.mean([it.writing_us for it in found]))),
            "travel_us": rounded(float(np.median(travels_us)))
            if travels_us
            else guess.travel_us,
            "confidence": CONFIDENCE,
        }
    )


def _costs_us(names: Iterable[str], found: Sequence[Bills]) -> dict[str, list[float]]:
    return {
        name: [
            it.billed_us[name] + it.unbilled_us for it in found if name in it.billed_us
        ]
        for name in names
    }


def _pauses_ns(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how long the broker had been idle when each request was sent.

    Less than nothing if an earlier one was still unanswered.
    """
    sent_ns, done_ns = (rows[name].to_numpy() for name in ("sent_ns", "client_done_ns"))
    order = np.argsort(sent_ns)
    answered_ns = np.maximum.accumulate(done_ns[order])
    found = np.zeros(len(rows), np.int64)
    found[order[1:]] = sent_ns[order][1:] - answered_ns[:-1]
    return found


def _travel_us(
    rows: pa.Table,
    costs_us: np.ndarray[Any, np.dtype[np.float64]],
    alone: np.ndarray[Any, np.dtype[np.bool_]],
) -> float | None:
    """Return half of what requests that met an idle broker took beyond their cost."""
    if not alone.any():
        return None
    took_us = (rows["client_done_ns"].to_numpy() - rows["sent_ns"].to_numpy()) / 1000
    return max(0.0, float(np.median((took_us - costs_us)[alone])) / 2)
