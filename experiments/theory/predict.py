"""Predictions for an arm: numbers where a closed form applies, else the reason.

Below saturation these are mean waits (and a high quantile if waits are exponential),
the utilisation, and conserved quantities. Above saturation they are throughputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from experiments.design.config import Arm, Experiment
from experiments.theory.mmc import MMc
from experiments.theory.services import Moments
from experiments.theory.shares import (
    share_by_connections,
    share_by_weight,
    share_of_priority,
)
from experiments.theory.system import NoClosedForm, Plane, Stream, system
from experiments.theory.waits import by_level, common_mean, waits
from schedulers import NEVER

MEAN_WAIT: Final = "mean wait"
MEAN_LATENCY: Final = "mean latency"
P99_WAIT: Final = "p99 wait"
WORK_X_WAIT: Final = "work x wait"
BUSY_SERVERS: Final = "busy servers"
THROUGHPUT: Final = "throughput"
_FAIR = frozenset({"wfq", "wfq-exact", "wf2q+", "scfq", "drr", "eevdf"})
# Largest share of arrivals that may wait for their own connection, outside the queue.
_OWN_CONNECTION = 0.02
# Factor over the mean up to which a wait or a queue must be able to grow.
_ROOM = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A theoretical value; times in seconds. ``reported`` is "" for the whole arm.

    Errors are relative to ``scale``: for a wait, the time in system, because a wait may
    be nearly zero.
    """

    quantity: str
    reported: str
    value: float
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """Predictions for an arm, and the reasons for missing ones."""

    predictions: Sequence[Prediction]
    silences: Sequence[str]


def theory(
    experiment: Experiment,
    arm: Arm,
    world: str,
    measured: Mapping[str, Moments] | None = None,
) -> Theory:
    """Return the predictions for an arm in a world."""
    try:
        planes = [
            it for it in system(experiment, arm, world, measured or {}) if it.streams
        ]
    except NoClosedForm as reason:
        return Theory(predictions=(), silences=(str(reason),))
    predictions: list[Prediction] = []
    silences = []
    if all(plane.load < plane.servers for plane in planes):
        busy = sum(plane.load for plane in planes)
        predictions.append(_plain(BUSY_SERVERS, "", busy))
        if len(planes) == 1:
            predictions += _conserved(planes[0])
    for plane in planes:
        try:
            below = plane.load < plane.servers
            predictions += _waits(plane) if below else _throughputs(plane)
            if below and None in waits(plane):
                raise NoClosedForm("only the first level's wait is known")
        except NoClosedForm as reason:
            name = f"{plane.name} plane: " if len(planes) > 1 else ""
            silences.append(f"{name}{reason}")
    return Theory(predictions=predictions, silences=silences)


class _Known(NamedTuple):
    """A stream with known means: per second, and in seconds."""

    rate: float
    wait: float
    sojourn: float


def _waits(plane: Plane) -> list[Prediction]:
    of_class: dict[str, list[_Known]] = {}
    unknown = set()
    for stream, wait in zip(plane.streams, waits(plane), strict=True):
        if wait is None:
            unknown.add(stream.reported)
            continue
        _check_room(plane, wait)
        _check_connections(stream, wait)
        known = _Known(stream.rate, wait, wait + stream.moments.mean)
        of_class.setdefault(stream.reported, []).append(known)
    found = []
    for name, streams in of_class.items():
        if name not in unknown:
            rate = sum(each.rate for each in streams)
            found.append(
                Prediction(
                    quantity=MEAN_WAIT,
                    reported=name,
                    value=sum(each.rate * each.wait for each in streams) / rate,
                    scale=sum(each.rate * each.sojourn for each in streams) / rate,
                )
            )
    mean = common_mean(plane)
    if plane.policy == "fifo" and mean is not None and not plane.takes_turns:
        total = sum(stream.rate for stream in plane.streams)
        queue = MMc(servers=plane.servers, rates=(total,), mean=mean)
        p99 = queue.fifo_quantile(0.99)
        found += [_plain(P99_WAIT, name, p99) for name in of_class]
    return found


def _check_connections(stream: Stream, wait: float) -> None:
    """Check that few requests wait for their own connection, outside the queue."""
    if stream.connection_rate * (wait + stream.moments.mean) > _OWN_CONNECTION:
        raise NoClosedForm(
            f"too few connections: {stream.reported} waits for its own, each of which "
            "has one request in the broker at a time"
        )


def _check_room(plane: Plane, wait: float) -> None:
    """Check that neither the queue's bound nor the starvation limit has an effect."""
    queued = wait * sum(stream.rate for stream in plane.streams)
    if queued * _ROOM > plane.capacity:
        raise NoClosedForm("the queue may fill: raise queued.max.requests")
    relieved = plane.policy in ("priority", "np-priority") and plane.ageing_s
    if relieved and wait * _ROOM > relieved:
        raise NoClosedForm(
            "the bound on starvation comes to bear: raise doorkeeper.priority.ageing.ms"
        )


def _conserved(plane: Plane) -> list[Prediction]:
    """Return quantities that no order of one server without preemption changes."""
    scheduler = plane.scheduler
    if plane.servers > 1 or scheduler.preempts != NEVER:
        return []
    if not scheduler.work_conserving:
        return []
    value = by_level(plane).queue.conserved()
    return [_plain(WORK_X_WAIT, "", value)]


def _throughputs(plane: Plane) -> list[Prediction]:
    """Return the throughput of each class of an overloaded plane."""
    if plane.takes_turns:
        raise NoClosedForm("overload, and threads take turns")
    if plane.capacity < float("inf"):
        raise NoClosedForm(
            "overload, and readers decide which requests enter a full queue"
        )
    classes = list(dict.fromkeys(stream.request_class for stream in plane.streams))
    if len(classes) < len({stream.reported for stream in plane.streams}):
        raise NoClosedForm("overload, and classes that the broker cannot distinguish")
    streams = [
        [it for it in plane.streams if it.request_class == name] for name in classes
    ]
    if any(len(each) > 1 for each in streams):
        raise NoClosedForm("overload, and several entries of one class")
    each = [alone[0] for alone in streams]
    rates = [stream.rate for stream in each]
    means = [stream.moments.mean / plane.servers for stream in each]
    if plane.policy == "fifo":
        connections = [round(it.rate / it.connection_rate) for it in each]
        shares = share_by_connections(rates, means, connections)
    elif plane.policy in ("priority", "np-priority") and not plane.ageing_s:
        order = sorted(range(len(each)), key=lambda k: each[k].level)
        if len({it.level for it in each}) < len(each):
            raise NoClosedForm("overload, and classes of one level")
        given = share_of_priority([rates[k] for k in order], [means[k] for k in order])
        shares = [given[order.index(k)] for k in range(len(each))]
    elif plane.policy in _FAIR and plane.flow == "class":
        demands = [rate * mean for rate, mean in zip(rates, means, strict=True)]
        weights = [plane.weights.get(name, 1.0) for name in classes]
        served = share_by_weight(demands, weights)
        shares = [work / mean for work, mean in zip(served, means, strict=True)]
    else:
        raise NoClosedForm(f"overload, and the shares of {plane.policy} are not known")
    return [
        _plain(THROUGHPUT, stream.reported, share)
        for stream, share in zip(each, shares, strict=True)
    ]


def _plain(quantity: str, reported: str, value: float) -> Prediction:
    """Return a prediction whose errors are relative to itself."""
    return Prediction(quantity=quantity, reported=reported, value=value, scale=value)
