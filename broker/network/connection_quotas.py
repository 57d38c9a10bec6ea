"""Limits on the number and rate of connections: in total, per listener, per address.

Follows Kafka's ``ConnectionQuotas`` (KIP-402 for ``max.connections``, KIP-612 for
``max.connection.creation.rate`` and ``connection_creation_rate``). A connection from an
address with too many connections is refused. A connection from an address above its
rate is refused after a delay, and not counted in the rates of listener and broker. The
acceptor of a listener above its limits takes no further connection until one is closed,
or until the rate has fallen.

The inter-broker listener is protected and never waits for the others. If it keeps the
broker above its bound, or the bound is lowered, processors of the other listeners close
their least recently used connections. (The control plane's listener is not protected,
as in Kafka.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import trio

from broker.quotas.accounts import AVERAGED
from broker.quotas.address_rates import AddressRates
from broker.requests.windowed_rate import WindowedAverage, WindowedRate, Windows
from planes.clock import NowNs

UNLIMITED: Final = 2**31 - 1
_EMPTY: Final[Mapping[str, int]] = MappingProxyType({})
_NS_PER_MS: Final = 1_000_000


class TooManyConnections(Exception):
    """Raised if an address has reached its bound on connections."""


class AddressThrottled(Exception):
    """Raised if an address is above its rate; close the connection after a delay."""

    def __init__(self, address: str, delay_ms: int) -> None:
        super().__init__(f"{address} opens connections too fast")
        self.delay_ms = delay_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The bounds; keys of ``per_address_overrides`` are numeric addresses.

    ``protected`` is the name of the inter-broker listener, if there are others. Rates
    are new connections per second.
    """

    total: int = UNLIMITED
    per_listener: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    rate: int = UNLIMITED
    rate_per_listener: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    per_address: int = UNLIMITED
    per_address_overrides: Mapping[str, int] = field(default_factory=lambda: _EMPTY)
    protected: str | None = None


class ConnectionQuotas:
    """Counts and rates of connections; acceptors wait here for a slot."""

    def __init__(
        self,
        limits: ConnectionLimits,
        now_ns: NowNs,
        windows: Windows | None = None,
        address_rates: AddressRates | None = None,
    ) -> None:
        self._limits = limits
        self._now_ns = now_ns
        self._windows = windows or Windows()
        self._by_listener: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._slots = trio.lowlevel.ParkingLot()
        self._on_excess: list[Callable[[], None]] = []
        self._rate = WindowedRate(self._windows)
        self._rates: dict[str, WindowedRate] = {}
        self._address_rates = address_rates or AddressRates()
        # Throttle times by listener, for its own rate and for rates of addresses.
        self._waits: dict[str, WindowedAverage] = {}
        self._address_waits: dict[str, WindowedAverage] = {}
        self._blocked_ns: Counter[str] = Counter()
        self._blocked_since_ns: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Return the number of connections of the broker."""
        return self._total

    def configure(self, limits: ConnectionLimits) -> None:
        """Apply other bounds; connections are closed only to meet ``total``."""
        self._limits = limits
        self._slots.unpark_all()
        self._report_excess()

    def on_excess(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the number of connections exceeds ``total``."""
        self._on_excess.append(listener)

    def _report_excess(self) -> None:
        if self._total > self._limits.total:
            for listener in self._on_excess:
                listener()

    async def wait_for_slot(self, listener: str) -> None:
        """Wait until the listener may have one more connection."""
        await trio.lowlevel.checkpoint()
        throttle_ms = self._throttle_ms(listener)
        if not throttle_ms and self._slot_available(listener):
            return
        since_ns = self._blocked_since_ns[listener] = self._now_ns()
        try:
            if throttle_ms:
                await trio.sleep(throttle_ms / 1e3)
            while not self._slot_available(listener):
                await self._slots.park()
        finally:
            del self._blocked_since_ns[listener]
            self._blocked_ns[listener] += self._now_ns() - since_ns

    def blocked_ns(self, listener: str, now_ns: int) -> int:
        """Return the time for which the listener's acceptor has waited for slots."""
        since_ns = self._blocked_since_ns.get(listener, now_ns)
        return self._blocked_ns[listener] + now_ns - since_ns

    def rate_per_s(self, listener: str | None, now_ns: int) -> float:
        """Return the rate of new connections of a listener (None: of all)."""
        rate = self._rate if listener is None else self._rate_of(listener)
        return rate.per_s(now_ns // _NS_PER_MS)

    def throttle_ms(self, listener: str, now_ns: int) -> tuple[float, float]:
        """Return the mean throttle times of a listener and of its addresses."""
        now_ms = now_ns // _NS_PER_MS
        waits, address_waits = (
            each[listener].mean(now_ms) if listener in each else None
            for each in (self._waits, self._address_waits)
        )
        return waits or 0.0, address_waits or 0.0

    def open(self, listener: str, address: str) -> None:
        """Count a new connection, unless it is refused.

        :raises AddressThrottled: if its address is above its rate.
        :raises TooManyConnections: if its address has too many connections.
        """
        limits, now_ms = self._limits, self._now_ns() // _NS_PER_MS
        delay_ms = self._address_rates.record(address, now_ms)
        if delay_ms:
            self._rate_of(listener).record(-1, now_ms)
            if not self._protects(listener):
                self._rate.record(-1, now_ms)
            _note(self._address_waits, listener, delay_ms, now_ms)
            raise AddressThrottled(address, delay_ms)
        bound = limits.per_address_overrides.get(address, limits.per_address)
        if self._by_address[address] >= bound:
            raise TooManyConnections(f"{address} has {bound} connections, the bound")
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self._total += 1
        self._report_excess()

    def close(self, listener: str, address: str) -> None:
        """Remove a connection from the counts."""
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
        self._by_listener[listener] -= 1
        self._total -= 1
        self.check()
        self._slots.unpark_all()

    def exceeded(self, listener: str) -> bool:
        """Return whether a connection must be closed for a protected one."""
        return self._total > self._limits.total and not self._protects(listener)

    def check(self) -> None:
        """Assert that the counts are consistent."""
        assert self._total == sum(self._by_listener.values()) >= 0

    def _throttle_ms(self, listener: str) -> int:
        """Add a connection to the rates, and return its throttle time."""
        limits, now_ms = self._limits, self._now_ns() // _NS_PER_MS
        bounds = [
            (self._rate_of(listener), limits.rate_per_listener.get(listener, UNLIMITED))
        ]
        if not self._protects(listener):
            bounds.append((self._rate, limits.rate))
        throttle_ms = 0
        for rate, bound in bounds:
            rate.record(1, now_ms)
            throttle_ms = max(throttle_ms, rate.delay_ms(bound, now_ms))
        throttle_ms = min(throttle_ms, self._windows.size_ms)
        if throttle_ms:
            _note(self._waits, listener, throttle_ms, now_ms)
        return throttle_ms

    def _rate_of(self, listener: str) -> WindowedRate:
        return self._rates.setdefault(listener, WindowedRate(self._windows))

    def _slot_available(self, listener: str) -> bool:
        limits = self._limits
        bound = limits.per_listener.get(listener, UNLIMITED)
        if self._by_listener[listener] >= bound:
            return False
        return self._protects(listener) or self._total < limits.total

    def _protects(self, listener: str) -> bool:
        return listener == self._limits.protected


def _note(
    waits: dict[str, WindowedAverage], listener: str, wait_ms: int, now_ms: int
) -> None:
    waits.setdefault(listener, WindowedAverage(AVERAGED)).record(wait_ms, now_ms)
