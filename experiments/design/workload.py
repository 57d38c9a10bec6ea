"""The workload of an experiment: its traffic, as data.

A workload is a list of *traffic* entries. Each has an arrival process (an open loop:
arrivals never wait for answers), the kind of its requests, and the number of their
connections. Alternatives are tagged (``kind``, ``api``), so a key that belongs to
another alternative is refused instead of ignored.

A connection has one request in a Kafka broker at a time, so the request queue fills
only if a workload has more connections than ``queued.max.requests``.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from experiments.design.arrival_processes import Arrivals, Recorded
from experiments.design.published_mixes import MIXES
from experiments.design.requests import AnyRequest
from experiments.design.values import (
    CostUs,
    Count,
    Mean,
    MeanUs,
    Name,
    Rate,
    Seconds,
    Section,
)

# ---- service times in the model world ----


def _refuse_mean(mean_us: float) -> None:
    """Refuse costs whose mean is lost by rounding each cost to nanoseconds."""
    if mean_us < 1:
        raise ValueError(f"the mean is {mean_us:.3g} us, expected at least 1")


class ConstantService(Section):
    """A constant cost."""

    kind: Literal["constant"]
    mean_us: MeanUs

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        return self.mean_us


class ExponentialService(Section):
    """Exponential costs: squared coefficient of variation 1."""

    kind: Literal["exponential"]
    mean_us: MeanUs

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        return self.mean_us


class ChoiceService(Section):
    """One of a few costs, by weight: bimodal mixes."""

    kind: Literal["choice"]
    values_us: Annotated[tuple[CostUs, ...], Field(min_length=1)]
    weights: Annotated[tuple[Mean, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.values_us) != len(self.weights):
            raise ValueError("values_us and weights need the same number of entries")
        _refuse_mean(self.mean())
        return self

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        pairs = zip(self.values_us, self.weights, strict=True)
        return sum(value * weight for value, weight in pairs) / sum(self.weights)


class LognormalService(Section):
    """Lognormal costs of a given mean and coefficient of variation."""

    kind: Literal["lognormal"]
    mean_us: MeanUs
    cv: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        return self.mean_us


class ParetoService(Section):
    """Bounded Pareto costs between ``low_us`` and ``high_us`` with tail ``alpha``."""

    kind: Literal["pareto"]
    alpha: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
    low_us: CostUs
    high_us: CostUs

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.low_us >= self.high_us:
            raise ValueError(f"low_us = {self.low_us} is not below high_us")
        _refuse_mean(self.mean())
        return self

    @property
    def span(self) -> float:
        """The logarithm of ``high_us`` over ``low_us``, exact if they are equal."""
        return math.log1p((self.high_us - self.low_us) / self.low_us)

    def mean(self) -> float:
        """Return the mean cost in microseconds.

        With the span L it is ``low f((alpha - 1) L) / f(alpha L)``, where ``f(z)`` is
        ``(1 - exp(-z)) / z``: the closed form without its pole at ``alpha`` = 1, and
        without differences of nearly equal numbers.
        """
        above, whole = (self.alpha - 1) * self.span, self.alpha * self.span
        return self.low_us * _decline(above) / _decline(whole)


def _decline(z: float) -> float:
    """Return ``(1 - exp(-z)) / z``, 1 at 0."""
    return -math.expm1(-z) / z if z else 1.0


class PublishedService(Section):
    """A mix measured in a paper, by name (`published_mixes`), times ``scale``."""

    kind: Literal["published"]
    mix: Literal["high-bimodal", "extreme-bimodal", "tpc-c", "rocksdb"]
    scale: Annotated[float, Field(ge=1e-3, le=1e5, allow_inf_nan=False)] = 1000.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_mean(self.mean())
        return self

    def choice(self) -> ChoiceService:
        """Return the same mix with its figures."""
        rows = MIXES[self.mix]
        return ChoiceService(
            kind="choice",
            values_us=tuple(cost_us * self.scale for _, cost_us in rows),
            weights=tuple(share for share, _ in rows),
        )

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        return self.choice().mean()


class RecordedService(Section):
    """The service times of ``workload.trace``; the mean is computed from the file."""

    kind: Literal["trace"]
    mean_us: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def mean(self) -> float:
        """Return the mean cost in microseconds."""
        return self.mean_us


Service: TypeAlias = Annotated[
    ConstantService
    | ExponentialService
    | ChoiceService
    | LognormalService
    | ParetoService
    | PublishedService
    | RecordedService,
    Field(discriminator="kind"),
]


# ---- clients ----


class Client(Section):
    """A closed loop: one request in flight on each connection of the entry.

    Arrivals are the application's. They wait in the client while a request is in
    flight. The next request carries up to ``batch`` of them, after waiting
    ``linger_ms`` for more. Its cost is that of its first arrival, plus ``further``
    times the cost of each other one. A request without an answer after
    ``request_timeout_ms`` is given up with its connection. It is sent again after
    ``retry_backoff_ms``, as is a refused one, until ``limits.timeout_ms`` after the
    arrival.
    """

    batch: Count = 1
    further: Annotated[float, Field(ge=0, le=1)] = 1.0
    linger_ms: Rate = 0.0
    request_timeout_ms: Mean = 30_000.0
    retry_backoff_ms: Mean = 100.0


# ---- the whole workload ----


class Traffic(Section):
    """One kind of requests: their arrivals, their API, their connections.

    ``class`` names the row of the results; by default it is the class that the broker
    assigns to the API. ``clients`` is the number of ``client.id``s, hence flows, over
    which the connections are distributed. ``start_s`` and ``stop_s`` bound the arrivals
    within the run. ``service`` is the cost of a request in the model world; the live
    world measures it. ``read_ms`` makes the clients slow: a received answer stays in
    the socket for that time. (In the model the answer fills the socket: until the
    client reads it, the broker has not finished sending and does not read on.)

    Without ``arrivals`` an entry replays the requests of its class in
    ``workload.trace``, with their arrivals, flows and service times.

    Without ``client`` requests are sent when they are due. ``shares`` is an entry whose
    connections this one uses: a controller sends all its requests on one connection.
    """

    name: Name
    request_class: Annotated[Name | None, Field(alias="class")] = None
    arrivals: Arrivals = Recorded(kind="trace")
    request: AnyRequest
    connections: Count = 1
    clients: Count = 1
    start_s: Rate = 0.0
    stop_s: Seconds | None = None
    slo_ms: Mean | None = None
    read_ms: Rate = 0.0
    client: Client | None = None
    shares: Name | None = None
    service: Service | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.clients > self.connections:
            raise ValueError(f"clients = {self.clients} exceeds connections")
        if self.stop_s is not None and self.stop_s <= self.start_s:
            raise ValueError(f"stop_s = {self.stop_s} is not after start_s")
        self._check_client()
        recorded = isinstance(self.service, RecordedService)
        if self.is_recorded:
            if self.service is not None and not recorded:
                raise ValueError("service: a trace has its own service times")
            if self.start_s or self.stop_s is not None:
                raise ValueError("start_s and stop_s do not apply to a trace")
        elif recorded:
            raise ValueError("service: only arrivals of a trace have its service times")
        return self

    def _check_client(self) -> None:
        """Refuse incompatible settings of an entry's connections."""
        if self.shares is not None:
            own = (self.client, self.connections, self.clients, self.read_ms)
            if own != (None, 1, 1, 0.0):
                raise ValueError(
                    "shares: connections, clients, read_ms and client are those of "
                    f"{self.shares!r}"
                )
        if self.client is not None and self.read_ms:
            raise ValueError("client: in a closed loop answers are read at once")
        shape = self.request.shape()
        if self.client is not None and not shape.is_answered:
            raise ValueError("client: a closed loop needs answers, acks = 0 has none")
        if self.client is not None and shape.every_request_differs:
            raise ValueError("client: a controller's requests are not merged")

    @property
    def is_recorded(self) -> bool:
        """Whether arrivals and service times are those of ``workload.trace``."""
        return isinstance(self.arrivals, Recorded)

    @property
    def reported_class(self) -> str:
        """Return the class under which the results report these requests."""
        return self.request_class or self.request.sent_class


class Workload(Section):
    """All traffic of a run, for ``duration_s``; analysed from ``warmup_s`` on.

    ``trace`` is a file of requests (`experiments.design.trace_file`), relative to the
    config; block n replays its n-th window of ``duration_s``. ``trace_speed`` divides
    its instants, not its service times. ``trace_sha256`` is computed if it is not
    given.
    """

    duration_s: Seconds
    warmup_s: Rate = 0.0
    trace: Annotated[str, Field(min_length=1)] | None = None
    trace_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    trace_speed: Annotated[float, Field(ge=1e-3, le=1e3, allow_inf_nan=False)] = 1.0
    traffic: Annotated[tuple[Traffic, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [entry.name for entry in self.traffic]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two traffic entries are called {twice[0]!r}")
        if self.warmup_s >= self.duration_s:
            raise ValueError(f"warmup_s = {self.warmup_s} leaves nothing to analyse")
        for entry in self.traffic:
            if max(entry.start_s, entry.stop_s or 0) > self.duration_s:
                raise ValueError(f"{entry.name!r} starts or stops after the run's end")
        self._check_shared()
        self._check_recorded()
        by_way = {entry.arrivals.in_shares: entry.name for entry in self.traffic}
        if len(by_way) > 1:
            raise ValueError(
                f"{by_way[True]!r} states a load and {by_way[False]!r} a rate; all "
                "traffic is stretched to the machine together, or none is"
            )
        return self

    def _check_shared(self) -> None:
        """Refuse shared connections that do not exist or are of another kind."""
        owners = {it.name: it for it in self.traffic if it.shares is None}
        for entry in self.traffic:
            if entry.shares is None:
                continue
            owner = owners.get(entry.shares)
            if owner is None:
                raise ValueError(
                    f"{entry.name!r}: no entry {entry.shares!r} has connections"
                )
            kinds = {owner.request.is_controllers, entry.request.is_controllers}
            if len(kinds) > 1 or owner.client is not None or entry.is_recorded:
                raise ValueError(
                    f"{entry.name!r} cannot share the connections of {owner.name!r}: "
                    "both are sent by a controller, or by clients, in an open loop"
                )

    def connections_of(self, entry: Traffic) -> range:
        """Return the numbers of the connections on which an entry is sent."""
        first = 0
        for each in self.traffic:
            if each.name == (entry.shares or entry.name):
                return range(first, first + each.connections)
            first += each.connections if each.shares is None else 0
        raise ValueError(f"no traffic is called {entry.shares!r}")

    def _check_recorded(self) -> None:
        """Refuse a lack of arrivals, traces without entries, and shared classes."""
        entries = [entry for entry in self.traffic if entry.is_recorded]
        if entries and self.trace is None:
            raise ValueError(
                f"{entries[0].name!r} has no arrivals, and there is no trace"
            )
        if self.trace is not None and not entries:
            raise ValueError("trace: all traffic has arrivals of its own")
        if self.trace is None and self.trace_sha256 is not None:
            raise ValueError("trace_sha256: there is no trace")
        classes = [entry.reported_class for entry in entries]
        twice = sorted({name for name in classes if classes.count(name) > 1})
        if twice:
            raise ValueError(f"two traffic entries replay the class {twice[0]!r}")

    @property
    def in_shares(self) -> bool:
        """Whether the traffic is stated in shares of capacity."""
        return self.traffic[0].arrivals.in_shares

    def stop_of(self, entry: Traffic) -> float:
        """Return the end of an entry's arrivals, in seconds of the run."""
        return self.duration_s if entry.stop_s is None else entry.stop_s

    def mean_rate_per_s(self, entry: Traffic) -> float:
        """Return the long-run arrival rate of an entry in this workload."""
        speed = self.trace_speed if entry.is_recorded else 1.0
        return entry.arrivals.mean_rate_per_s() * speed
