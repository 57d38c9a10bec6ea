"""What the rows of a run under the experiment's own load say that its requests cost.

An entry's cost is what its rows were billed on average, and its part of what nobody was
billed: the broker's CPU beyond all bills, over all requests. That part is smaller where
requests come behind each other, and there it is seen: in the time that many of them
took together, beyond their bills. What is left is of those that found the broker idle.
Where one did, what it took beyond its bill, its answer's, and the ways of both, is what
passed until a broker that slept had begun.

A warm-up's requests are not asked: the first of an episode find caches that others have
used, and cost half as much again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.calibration import Calibration, Cost
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    cost,
    rounded,
    writing_us,
)

# What a broker stamps, in the order of a request's way.
_STAMPS: Final = (
    "received_ns",
    "enqueued_ns",
    "dequeued_ns",
    "local_done_ns",
    "response_dequeued_ns",
    "response_sent_ns",
)
# Of a run's rows, what is asked for.
COLUMNS: Final = (
    "request_id",
    "outcome",
    "intended_ns",
    "sent_ns",
    *_STAMPS,
    "client_done_ns",
    "service_ns",
    "prior_ns",
)
# Since the last answer, for a request to find the broker asleep.
_PAUSE_NS: Final = 300_000
# So many requests behind each other show what the broker does beside them.
_TOGETHER: Final = 10
# What is so many times the median of its like holds a wait for the CPU that others had.
_DISTURBED: Final = 10
# In so many parts a spread is told.
_PARTS: Final = 50
_EACH: Final = (
    "turning_us",
    "turning_share",
    "waking_us",
    "writing_us",
    "unbilled_us",
    "settling_us",
)

_WAYS: Final = ("travel_us", "rousing_us", "returning_us")

_Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bills:
    """What requests of a run cost, each of them by its entry, and its parts.

    ``costs_us`` are bills and what nobody was billed, ``idle`` says which found the
    broker idle. Of all requests ``unbilled_us`` is nobody's and of those that found it
    idle ``settling_us`` more. And what writing an answer took, the way there, and, if
    any met a broker that was asleep, until it had begun, and the way back.
    """

    costs_us: dict[str, _Numbers]
    idle: dict[str, _Numbers]
    reading_us: float
    turning_us: float
    turning_share: float
    waking_us: float
    writing_us: float
    unbilled_us: float
    settling_us: float
    travel_us: float
    rousing_us: float | None
    returning_us: float | None

    def undisturbed_us(self, name: str) -> _Numbers:
        """Return what an entry's requests cost, without long waits for the CPU."""
        return _capped(self.costs_us[name])


def bills(
    rows: pa.Table, traffic: Sequence[str], cpu_s: float | None, from_s: float
) -> Bills | None:
    """Return what a run's requests were billed, if its broker's CPU is known.

    ``traffic`` are the entries of the trace's requests, by number; only those are asked
    that were due at ``from_s`` or later.
    """
    rows = rows.filter(pc.equal(rows["outcome"], "ok")).sort_by("sent_ns")
    asked = rows["intended_ns"].to_numpy() >= from_s * 1e9
    if cpu_s is None or not asked.any():
        return None
    prior_us = rows["prior_ns"].to_numpy() / 1000
    costs_us = rows["service_ns"].to_numpy() / 1000 + prior_us
    entry = np.array([traffic[number] for number in rows["request_id"].to_pylist()])
    pauses_ns = _pauses_ns(rows)
    idle = pauses_ns >= 0
    busy_asked, idle_asked = asked & ~idle, asked & idle
    before_us = float(prior_us[busy_asked if busy_asked.any() else asked].mean())
    together_us = _read_together_us(rows.filter(pa.array(asked)))
    reading_us = before_us if together_us is None else min(together_us, before_us)
    idle_us = float(prior_us[idle_asked].mean()) if idle_asked.any() else 0.0
    waking_us = max(0.0, idle_us - reading_us)
    # Stamps are of the wall clock: where bills exceed the CPU that was used, others had
    # it meanwhile, from every request in proportion to how long it was at work.
    used_us = cpu_s * 1e6
    costs_us *= min(1.0, used_us / float(costs_us.sum()))
    average_us = max(0.0, used_us - float(costs_us.sum())) / len(rows)
    writing = min(writing_us(rows), average_us)
    alone = asked & (pauses_ns >= _PAUSE_NS)
    travel_us, rousing_us, returning_us = _ways_us(
        rows, costs_us + writing, asked, alone
    )
    unbilled_us = average_us
    # A turn costs as much there, and comes when a request has been read.
    first_read_us = reading_us + max(0.0, idle_us - before_us)
    beyond_us = _beyond_bills_us(rows, costs_us, idle, first_read_us)
    if beyond_us is not None:
        unbilled_us = max(writing, min(beyond_us, average_us))
    settling_us = (average_us - unbilled_us) / float(idle.mean())
    costs_us += unbilled_us + settling_us * idle
    names = [str(name) for name in np.unique(entry[asked])]
    return Bills(
        costs_us={name: costs_us[asked & (entry == name)] for name in names},
        idle={name: idle[asked & (entry == name)] for name in names},
        reading_us=reading_us,
        turning_us=before_us - reading_us,
        turning_share=_first_read(rows, busy_asked, _DISTURBED * reading_us),
        waking_us=waking_us,
        writing_us=writing,
        unbilled_us=unbilled_us,
        settling_us=settling_us,
        travel_us=travel_us,
        rousing_us=rousing_us,
        returning_us=returning_us,
    )


def by_bills(guess: Calibration, found: Sequence[Bills]) -> Calibration:
    """Return the calibration that runs find, at least one.

    ``guess`` stays for an entry of which none has a request. Intervals are Student's t
    over runs.
    """
    return guess.model_copy(
        update={
            "costs": {
                name: _cost(
                    [it.costs_us[name] for it in found if name in it.costs_us],
                    [it.idle[name] for it in found if name in it.idle],
                )
                or guess.costs[name]
                for name in guess.costs
            },
            **{
                part: rounded(float(np.mean([getattr(it, part) for it in found])))
                for part in _EACH
            },
            **{
                part: rounded(float(np.median(each_us)))
                for part in ("reading_us", *_WAYS)
                if (each_us := _told(found, part))
            },
            "confidence": CONFIDENCE,
        }
    )


def _cost(runs_us: Sequence[_Numbers], runs_idle: Sequence[_Numbers]) -> Cost | None:
    """Return what an entry's requests cost in these runs; None if there are none.

    Means in either state and the spread are of the requests of all runs together.
    """
    if not runs_us:
        return None
    found = cost([float(each.mean()) for each in runs_us])
    each_us, idle = np.concatenate(runs_us), np.concatenate(runs_idle)
    each_us = _capped(each_us)
    if idle.all() or not idle.any():
        expected_us = np.full(len(each_us), each_us.mean())
    else:
        busy_us, idle_us = each_us[~idle].mean(), each_us[idle].mean()
        expected_us = np.where(idle, idle_us, busy_us)
        unit = found.mean_us / each_us.mean()
        in_state = {"busy_us": busy_us * unit, "idle_us": idle_us * unit}
        found = found.model_copy(
            update={name: rounded(float(us)) for name, us in in_state.items()}
        )
    return found.model_copy(update={"spread": _spread(each_us / expected_us)})


def _told(found: Sequence[Bills], part: str) -> list[float]:
    """Return how long a part took in those runs that tell."""
    return [us for each in found if (us := getattr(each, part)) is not None]


def _capped(each_us: _Numbers) -> _Numbers:
    """Return costs of which none holds a long wait for the CPU that others had."""
    return each_us.clip(max=_DISTURBED * np.median(each_us))


def _spread(shares: _Numbers) -> tuple[float, ...]:
    """Return the means of equal parts of the shares, in order; of few nothing."""
    if len(shares) < _PARTS:
        return ()
    means = np.array([part.mean() for part in np.array_split(np.sort(shares), _PARTS)])
    return tuple(round(float(mean), 4) for mean in means / means.mean())


def _pauses_ns(rows: pa.Table) -> _Numbers:
    """Return how long the broker had been idle when each request was sent.

    Less than nothing if an earlier one was still unanswered. Rows are as sent.
    """
    sent_ns, done_ns = (rows[name].to_numpy() for name in ("sent_ns", "client_done_ns"))
    found = np.zeros(len(rows), np.int64)
    found[1:] = sent_ns[1:] - np.maximum.accumulate(done_ns)[:-1]
    return found


def _read_together_us(rows: pa.Table) -> float | None:
    """Return what reading and admitting one of several requests takes, the median.

    They are read one after the other, and so admitted, by one processor after the
    other: where a broker did nothing else from the first of several to the last, that
    is what all but the first took, and the admission of that. What else is billed
    before a handler's first turn is spent when that has come. None if none were read
    together.
    """
    at_us, kinds, _ = _in_order(rows)
    received, admitted = kinds == 0, kinds == 1
    taken_in = received | admitted
    first = np.flatnonzero(np.diff(taken_in, prepend=False) & taken_in)
    last = np.flatnonzero(np.diff(taken_in, append=False) & taken_in)
    behind = np.cumsum(received)[last] - np.cumsum(received)[first]
    whole = (behind > 0) & received[first] & admitted[last]
    if not whole.any():
        return None
    in_turn = admitted[1:] & admitted[:-1]
    admitting_us = float(np.median(np.diff(at_us)[in_turn])) if in_turn.any() else 0.0
    took_us = (at_us[last] - at_us[first])[whole] - admitting_us
    return _median(took_us / behind[whole], behind[whole])


def _first_read(rows: pa.Table, asked: _Numbers, pause_us: float) -> float:
    """Return what share of those asked were the first that were read after a pause.

    Or after something else than reading and admitting; 0 if none is asked.
    """
    at_us, kinds, row = _in_order(rows)
    reading = kinds <= 1
    behind = np.append(False, reading[:-1] & (np.diff(at_us) < pause_us))
    first = np.zeros(len(rows), bool)
    first[row[(kinds == 0) & ~behind]] = True
    return float(first[asked].mean()) if asked.any() else 0.0


def _in_order(rows: pa.Table) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the stamps of rows in their order: when, which of `_STAMPS`, whose."""
    stamps_ns = np.concatenate([rows[name].to_numpy() for name in _STAMPS])
    kinds, row = np.divmod(np.arange(len(stamps_ns)), len(rows))
    order = np.argsort(stamps_ns, kind="stable")
    return stamps_ns[order] / 1000, kinds[order], row[order]


def _median(values: _Numbers, weights: _Numbers) -> float:
    order = np.argsort(values)
    half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return float(values[order][half])


def _beyond_bills_us(
    rows: pa.Table, bills_us: _Numbers, idle: _Numbers, first_read_us: float
) -> float | None:
    """Return what many requests behind each other took beyond their bills, each.

    The median over the times when the broker was busy for so many; None if it never
    was. ``first_read_us`` is for how long the first of them has been read.
    """
    received_us, ended_us = (
        rows[name].to_numpy() / 1000 for name in ("received_ns", "response_sent_ns")
    )
    first = np.flatnonzero(idle)
    began_us = received_us[first] - first_read_us
    took_us = np.maximum.reduceat(ended_us, first) - began_us
    requests = np.diff(first, append=len(rows))
    beyond_us = (took_us - np.add.reduceat(bills_us, first)) / requests
    many = requests >= _TOGETHER
    return float(np.median(beyond_us[many])) if many.any() else None


def _ways_us(
    rows: pa.Table, known_us: _Numbers, asked: _Numbers, alone: _Numbers
) -> tuple[float, float | None, float | None]:
    """Return what sending, rousing a broker that sleeps, and the way back take.

    Medians. The first is of all that are ``asked``, the others of those that met it
    asleep: None without. Rousing is what such a request took beyond all that is known.
    """
    due_us, sent_us, answered_us, done_us = (
        rows[name].to_numpy() / 1000
        for name in ("intended_ns", "sent_ns", "response_sent_ns", "client_done_ns")
    )
    travel_us = max(0.0, float(np.median((sent_us - due_us)[asked])))
    if not alone.any():
        return travel_us, None, None
    all_us = float(np.median((done_us - due_us - known_us)[alone]))
    back_us = max(0.0, float(np.median((done_us - answered_us)[alone])))
    return travel_us, max(0.0, all_us - travel_us - back_us), back_us
