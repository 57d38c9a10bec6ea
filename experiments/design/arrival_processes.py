"""Arrival times of requests: open-loop processes, in rates or in shares of capacity.

``rate_per_s`` counts requests. ``load`` is a share of the broker's capacity: the work
that arrives per second, in seconds of the broker's time. A load of 0.4 keeps a broker
busy for 0.4 of the time on any machine; a burst may have a load of 4. With the cost of
a request a share becomes a rate (``in_rates``).

All times are those of the nominal machine. ``slowed`` is the same process on a machine
that takes ``stretch`` times as long for all work.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from experiments.design.values import Rate, Seconds, Section


class _OneRate(Section):
    """A process with one rate, or one load."""

    rate_per_s: Rate | None = None
    load: Rate | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        _refuse_both(self, "rate_per_s", "load")
        return self

    @property
    def per_s(self) -> float:
        """The rate.

        :raises ValueError: if only the load is known.
        """
        if self.rate_per_s is None:
            raise ValueError("a load is no rate before the cost of a request is known")
        return self.rate_per_s

    @property
    def in_shares(self) -> bool:
        """Whether only the load is stated."""
        return self.load is not None

    def in_rates(self, cost_us: float) -> Self:
        """Return the same process with a rate, for requests that cost ``cost_us``."""
        if self.load is None:
            return self
        rate_per_s = _rate_of(self.load, cost_us)
        return self.changed(rate_per_s=rate_per_s, load=None)

    def slowed(self, stretch: float) -> Self:
        """Return the same process with all times multiplied by ``stretch``."""
        return self.changed(rate_per_s=self.per_s / stretch)


class Poisson(_OneRate):
    """Independent exponential gaps."""

    kind: Literal["poisson"]

    def mean_rate_per_s(self) -> float:
        """Return the long-run arrival rate."""
        return self.per_s


class Constant(_OneRate):
    """Equal gaps, with a random phase."""

    kind: Literal["constant"]

    def mean_rate_per_s(self) -> float:
        """Return the long-run arrival rate."""
        return self.per_s


class Bursts(_OneRate):
    """Arrivals at ``rate_per_s`` in the first ``on_s`` of every ``every_s``.

    ``gaps`` is ``poisson``, or ``even``, which gives all bursts equal sizes. Between
    bursts arrivals are Poisson at ``idle_rate_per_s``, or ``idle_load``. Bursts have
    fixed instants, so that every block has the same number of them.
    """

    kind: Literal["bursts"]
    every_s: Seconds
    on_s: Seconds
    gaps: Literal["poisson", "even"] = "poisson"
    idle_rate_per_s: Rate = 0.0
    idle_load: Rate = 0.0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.on_s > self.every_s:
            raise ValueError(f"on_s = {self.on_s} is longer than every_s")
        if self.load is None and self.idle_load:
            raise ValueError(
                "idle_load goes with load; idle_rate_per_s with rate_per_s"
            )
        if self.load is not None and self.idle_rate_per_s:
            raise ValueError(
                "idle_rate_per_s goes with rate_per_s; idle_load with load"
            )
        return self

    def mean_rate_per_s(self) -> float:
        """Return the long-run arrival rate."""
        share = self.on_s / self.every_s
        return self.per_s * share + self.idle_rate_per_s * (1 - share)

    def in_rates(self, cost_us: float) -> Self:
        """Return the same process with rates, for requests that cost ``cost_us``."""
        if self.load is None:
            return self
        return self.changed(
            rate_per_s=_rate_of(self.load, cost_us),
            load=None,
            idle_rate_per_s=_rate_of(self.idle_load, cost_us),
            idle_load=0.0,
        )

    def slowed(self, stretch: float) -> Self:
        """Return the same process with all times multiplied by ``stretch``."""
        return self.changed(
            rate_per_s=self.per_s / stretch,
            every_s=self.every_s * stretch,
            on_s=self.on_s * stretch,
            idle_rate_per_s=self.idle_rate_per_s / stretch,
        )


class Mmpp(Section):
    """Markov-modulated Poisson: states in a cycle, with exponential dwell times."""

    kind: Literal["mmpp"]
    rates_per_s: Annotated[tuple[Rate, ...], Field(min_length=2)] | None = None
    loads: Annotated[tuple[Rate, ...], Field(min_length=2)] | None = None
    dwell_s: Annotated[tuple[Seconds, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _refuse_both(self, "rates_per_s", "loads")
        states = self.rates_per_s or self.loads or ()
        if len(states) != len(self.dwell_s):
            name = "rates_per_s" if self.loads is None else "loads"
            raise ValueError(f"{name} and dwell_s need one entry per state each")
        return self

    @property
    def each_per_s(self) -> tuple[float, ...]:
        """The rate of each state.

        :raises ValueError: if only the loads are known.
        """
        if self.rates_per_s is None:
            raise ValueError("a load is no rate before the cost of a request is known")
        return self.rates_per_s

    @property
    def in_shares(self) -> bool:
        """Whether only the loads are stated."""
        return self.loads is not None

    def mean_rate_per_s(self) -> float:
        """Return the long-run arrival rate: rates weighted by dwell times."""
        pairs = zip(self.each_per_s, self.dwell_s, strict=True)
        return sum(rate * dwell for rate, dwell in pairs) / sum(self.dwell_s)

    def in_rates(self, cost_us: float) -> Self:
        """Return the same process with rates, for requests that cost ``cost_us``."""
        if self.loads is None:
            return self
        rates = tuple(_rate_of(load, cost_us) for load in self.loads)
        return self.changed(rates_per_s=rates, loads=None)

    def slowed(self, stretch: float) -> Self:
        """Return the same process with all times multiplied by ``stretch``."""
        return self.changed(
            rates_per_s=tuple(rate / stretch for rate in self.each_per_s),
            dwell_s=tuple(dwell * stretch for dwell in self.dwell_s),
        )


class OnOff(_OneRate):
    """``sources`` that are independently on and off for exponential times.

    A source that is on sends ``rate_per_s`` requests (or has ``load``), Poisson; a
    source that is off sends none.
    """

    kind: Literal["on-off"]
    on_s: Seconds
    off_s: Seconds
    sources: Annotated[int, Field(ge=1, le=1000)] = 1

    def mean_rate_per_s(self) -> float:
        """Return the long-run arrival rate."""
        return self.sources * self.per_s * self.on_s / (self.on_s + self.off_s)

    def slowed(self, stretch: float) -> Self:
        """Return the same process with all times multiplied by ``stretch``."""
        return self.changed(
            rate_per_s=self.per_s / stretch,
            on_s=self.on_s * stretch,
            off_s=self.off_s * stretch,
        )


class Recorded(Section):
    """The arrivals of the entry's class in ``workload.trace``.

    ``rate_per_s`` is their mean rate there; it is computed from the file.
    """

    kind: Literal["trace"]
    rate_per_s: Rate = 0.0

    @property
    def in_shares(self) -> bool:
        """Return False: a recorded load is never a share of capacity."""
        return False

    def mean_rate_per_s(self) -> float:
        """Return the mean rate in the file."""
        return self.rate_per_s

    def in_rates(self, cost_us: float) -> Self:
        """Return the same arrivals."""
        return self

    def slowed(self, stretch: float) -> Self:
        """Return the same arrivals: a trace is never stretched."""
        return self


Arrivals: TypeAlias = Annotated[
    Poisson | Constant | Bursts | Mmpp | OnOff | Recorded, Field(discriminator="kind")
]


def _rate_of(load: float, cost_us: float) -> float:
    return load * 1e6 / cost_us


def _refuse_both(section: Section, rate: str, load: str) -> None:
    """Check that a process states either a rate or a load."""
    given = [name for name in (rate, load) if getattr(section, name) is not None]
    if len(given) != 1:
        found = "both are given" if given else "neither is given"
        raise ValueError(f"needs either {rate} or {load}; {found}")
