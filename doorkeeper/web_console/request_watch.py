"""Requests of one broker: its scheduler, and figures between readings of its metrics.

The metrics are sums since the broker's start. Rates and means of an interval are
computed from two readings. Readings are made when a page is shown, so an unwatched
broker has no load from the console. Readings of the last `WINDOW_S` are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from broker.client.admin import KafkaAdmin
from broker.client.admin_changes import BROKER
from broker.client.network_client import Connect
from broker.protocol.messages.describe_configs import DescribeConfigsResourceResult
from doorkeeper.web_console.broker_metrics import (
    NoMetrics,
    Sample,
    Samples,
    read_metrics,
)
from doorkeeper.web_console.lag_history import Chart, chart
from doorkeeper.web_console.lag_history import Sample as Length

WINDOW_S: Final = 60.0
# Time span of the chart of the queue length.
_CHART_S: Final = 900.0
# Classes and planes of a broker that are shown.
_ROWS_MAX: Final = 100
_SCHEDULER: Final = "doorkeeper.scheduler"
_PORT: Final = "doorkeeper.metrics.port"
_OPTIONS: Final = frozenset(
    {
        _SCHEDULER,
        "doorkeeper.class.levels",
        "doorkeeper.data.scheduler",
        "doorkeeper.lock.inheritance",
        "doorkeeper.planes.lending",
        "doorkeeper.priority.ageing.ms",
        "doorkeeper.quantum.us",
        "doorkeeper.reader",
        "doorkeeper.scheduler.options",
        "doorkeeper.slice.ms",
        "doorkeeper.wfq.flow",
        "doorkeeper.wfq.weights",
        "num.io.threads",
        "num.network.threads",
        "queued.max.requests",
    }
)
_ADMISSION: Final = "doorkeeper.admission"
_OF_CLASSES: Final = "doorkeeper_requestmetrics_"
# Metrics by the fields of `Sums` and `PlaneRow`.
_SUMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": f"{_OF_CLASSES}totaltimems_count",
        "wait_ms": f"{_OF_CLASSES}requestqueuetimems_sum",
        "service_ms": f"{_OF_CLASSES}localtimems_sum",
        "suspended_ms": f"{_OF_CLASSES}suspendedtimems_sum",
        "total_ms": f"{_OF_CLASSES}totaltimems_sum",
        "throttle_ms": f"{_OF_CLASSES}throttletimems_sum",
        "preemptions": f"{_OF_CLASSES}preemptions_total",
    }
)
_GAUGES: Final[Mapping[str, str]] = MappingProxyType(
    {
        it: f"doorkeeper_plane_{it}"
        for it in ("queued", "waiting", "seated", "away", "refused")
    }
)
_WAIT_QUANTILES: Final = f"{_OF_CLASSES}requestqueuetimems"
_SERVICE_QUANTILES: Final = f"{_OF_CLASSES}localtimems"
_HELD_BACK: Final = "doorkeeper_admission_held_back_total"
_WANTED: Final = frozenset(
    {
        *(*_SUMS.values(), *_GAUGES.values()),
        *(_WAIT_QUANTILES, _SERVICE_QUANTILES, _HELD_BACK),
    }
)


class Sums(NamedTuple):
    """Number of requests of a class in a plane, and sums over them."""

    requests: float = 0
    wait_ms: float = 0
    service_ms: float = 0
    suspended_ms: float = 0
    total_ms: float = 0
    throttle_ms: float = 0
    preemptions: float = 0


class PlaneRow(NamedTuple):
    """Current requests of a plane, and the number refused by a full queue."""

    name: str
    queued: float = 0
    waiting: float = 0
    seated: float = 0
    away: float = 0
    refused: float = 0


class ClassRow(NamedTuple):
    """Requests of a class in a plane over an interval: rate, and means per request.

    Without a request there are no means, and without an earlier reading no rate. The
    number of requests and the quantiles count from the broker's start.
    """

    plane: str
    name: str
    requests: float
    per_s: float | None
    mean: Sums | None
    wait_p99_ms: float | None
    service_p99_ms: float | None


class HeldRow(NamedTuple):
    """Requests that admission has rejected or delayed since the broker's start."""

    plane: str
    name: str
    verdict: str
    requests: float


class BrokerRequests(NamedTuple):
    """One broker as the page shows it.

    ``scheduler`` is None for a broker of another kind. ``problem`` is the reason if
    there are no metrics. ``span_s`` is the length of the interval, None for the time
    since the broker's start.
    """

    scheduler: str | None
    options: Sequence[DescribeConfigsResourceResult] = ()
    problem: str = ""
    planes: Sequence[PlaneRow] = ()
    classes: Sequence[ClassRow] = ()
    held_back: Sequence[HeldRow] = ()
    span_s: float | None = None
    chart: Chart | None = None

    @property
    def waiting(self) -> float:
        """Return the waiting requests of all planes."""
        return sum(it.waiting for it in self.planes)


class Reading(NamedTuple):
    """Sums by plane and class at an instant of Trio's clock."""

    at_s: float
    sums: Mapping[tuple[str, str], Sums]


class RequestWatch:
    """Reads one broker, and keeps its readings."""

    def __init__(
        self,
        admin: KafkaAdmin,
        connect: Connect,
        cluster_id: str | None,
        broker_id: int,
    ) -> None:
        self._admin = admin
        self._connect = connect
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._readings: deque[Reading] = deque()
        self._lengths: deque[Length] = deque()

    async def read(self) -> BrokerRequests:
        """Read configs, then metrics; raises `KafkaError` for missing configs."""
        configs = await self._admin.describe_configs(BROKER, str(self._broker_id))
        values = {it.name: it.value for it in configs}
        scheduler = values.get(_SCHEDULER)
        if scheduler is None:
            return BrokerRequests(None)
        options = [
            it
            for it in configs
            if it.name in _OPTIONS or it.name.startswith(_ADMISSION)
        ]
        found = BrokerRequests(scheduler, sorted(options, key=lambda it: it.name))
        try:
            samples = await read_metrics(
                self._connect,
                _port(values.get(_PORT)),
                _WANTED,
                cluster_id=self._cluster_id,
                broker_id=self._broker_id,
            )
        except NoMetrics as error:
            return found._replace(problem=str(error))
        return self._shown(found, samples, trio.current_time())

    def _shown(
        self, found: BrokerRequests, samples: Samples, now_s: float
    ) -> BrokerRequests:
        newest = Reading(now_s, sums_of(samples))
        base = self._before(newest)
        found = found._replace(
            planes=_planes(samples),
            classes=class_rows(base, newest, samples),
            held_back=_held_back(samples.get(_HELD_BACK, ())),
            span_s=None if base is None else now_s - base.at_s,
        )
        while self._lengths and self._lengths[0].at_s < now_s - _CHART_S:
            self._lengths.popleft()
        self._lengths.append(Length(now_s, int(found.waiting)))
        return found._replace(chart=chart(self._lengths, now_s))

    def _before(self, newest: Reading) -> Reading | None:
        """Keep a reading; return the oldest in the window, None if there is no other.

        A restarted broker counts from zero, so earlier readings are dropped.
        """
        kept = self._readings
        while kept and kept[0].at_s < newest.at_s - WINDOW_S:
            kept.popleft()
        if kept and any(
            newest.sums.get(key, Sums()).requests < old.requests
            for key, old in kept[-1].sums.items()
        ):
            kept.clear()
        base = kept[0] if kept else None
        kept.append(newest)
        return base


def _port(written: str | None) -> int:
    """Return the port that a config names; raises `NoMetrics`."""
    if not written:
        raise NoMetrics(f"{_PORT} is not set")
    if not (written.isascii() and written.isdigit() and len(written) <= 5):
        raise NoMetrics(f"{_PORT} is not a port")
    if not int(written):
        raise NoMetrics(f"{_PORT} is 0, so that the console does not know the port")
    return int(written)


def sums_of(samples: Samples) -> dict[tuple[str, str], Sums]:
    """Return the sums by plane and class."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for field, name in _SUMS.items():
        for it in samples.get(name, ()):
            key = _key(it)
            if key in found or len(found) < _ROWS_MAX:
                found.setdefault(key, {})[field] = it.value
    return {key: Sums(**values) for key, values in sorted(found.items())}


def class_rows(
    base: Reading | None, newest: Reading, samples: Samples
) -> list[ClassRow]:
    """Return a row per class, for the time since ``base``, or since the start."""
    waits = _p99(samples.get(_WAIT_QUANTILES, ()))
    services = _p99(samples.get(_SERVICE_QUANTILES, ()))
    span_s = 0.0 if base is None else newest.at_s - base.at_s
    rows = []
    for (plane, name), sums in newest.sums.items():
        key = plane, name
        before = Sums() if base is None else base.sums.get(key, Sums())
        done = Sums(*(now - then for now, then in zip(sums, before, strict=True)))
        mean = None
        if done.requests > 0:
            mean = Sums(*(max(it, 0) / done.requests for it in done))
        rows.append(
            ClassRow(
                plane=plane,
                name=name,
                requests=sums.requests,
                per_s=done.requests / span_s if span_s > 0 else None,
                mean=mean,
                wait_p99_ms=waits.get(key),
                service_p99_ms=services.get(key),
            )
        )
    return rows


def _key(sample: Sample) -> tuple[str, str]:
    return sample.labels.get("plane", ""), sample.labels.get("class", "")


def _p99(samples: Iterable[Sample]) -> dict[tuple[str, str], float]:
    return {_key(it): it.value for it in samples if it.labels.get("quantile") == "0.99"}


def _planes(samples: Samples) -> list[PlaneRow]:
    found: dict[str, dict[str, float]] = {}
    for field, name in _GAUGES.items():
        for it in samples.get(name, ()):
            plane = it.labels.get("plane", "")
            if plane in found or len(found) < _ROWS_MAX:
                found.setdefault(plane, {})[field] = it.value
    return [PlaneRow(plane, **values) for plane, values in sorted(found.items())]


def _held_back(samples: Sequence[Sample]) -> list[HeldRow]:
    return [
        HeldRow(*_key(it), it.labels.get("verdict", ""), it.value)
        for it in samples[:_ROWS_MAX]
    ]
