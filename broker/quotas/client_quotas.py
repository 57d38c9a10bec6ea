"""Client quotas: bytes produced, bytes fetched, and time of request handlers.

Kafka's ``ClientQuotaManager`` (KIP-13, KIP-55, KIP-124, KIP-219). The most specific
entity with a bound applies to a client: user and client id, user and default client,
user, default user and client id, both defaults, default user, client id, default
client. Clients with the same entity and the same names share one rate, over all their
connections: a new connection brings no new allowance.

A rate O over a span W above its bound T is at T again after a delay of W * (O - T) / T.
Delays for requests are at most one window, delays for bytes have no bound. The response
is sent at once, with the delay in it, and the connection is not read until the delay is
over (`broker.requests.throttling`). Time of handlers is CPU here, in percent of one
CPU; the part that is used after the answer's encoding began counts for the next
request. A throttled consumer gets an empty response, whose records are not counted; a
batch larger than T times all windows but one therefore never reaches it, as in Kafka.

A rate that was not used for as long as its windows reach equals a new one, and is
forgotten: clients with ever new ids cost memory for that time only. Clients without a
bound are not counted, where Kafka counts them once any quota is set.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from broker.config import (
    DOORKEEPER_CLIENT_QUOTAS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    BrokerConfig,
)
from broker.quotas.entity import DEFAULT, sanitized
from broker.requests.byte_rate import WindowedRate
from broker.requests.classifier import CONTROL, REPLICATION
from broker.requests.request import Request
from planes.clock import NowNs

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"

_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1000
_NS_PER_PERCENT: Final = 10_000_000
_INT_MAX: Final = 2**31 - 1
# Callables that receive each request whose response has been sent.
Observers: TypeAlias = list[Callable[[Request], None]]
# Requests that count for no client (Kafka: sendResponseExemptThrottle).
_EXEMPT: Final = frozenset({CONTROL, REPLICATION})


def delay_ms(rate: float, bound: float, span_ms: int) -> int:
    """Return the delay after which a rate over ``span_ms`` is back at its bound.

    No delay is enough for a bound of 0 or less: then it is ``span_ms``.
    """
    if rate <= bound:
        return 0
    if bound <= 0:
        return span_ms
    return math.floor(min((rate - bound) / bound * span_ms + 0.5, _INT_MAX))


class ClientQuota:
    """The quota of one kind: its bounds by entity, and its rates by client."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._bounds: dict[str, float] = {}
        # By user and client id, of which one may be "". Least recently used first.
        self._rates: OrderedDict[tuple[str, str], tuple[WindowedRate, int]] = (
            OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._rates)

    @property
    def is_set(self) -> bool:
        """Return whether any entity has a bound."""
        return bool(self._bounds)

    def put(self, entity: str, bound: float | None) -> None:
        """Set the bound of an entity, or remove it."""
        if bound is None:
            self._bounds.pop(entity, None)
        else:
            self._bounds[entity] = bound

    def applies(self, user: str, client_id: str) -> tuple[tuple[str, str], float]:
        """Return the key of a client's rate, and its bound, perhaps infinite."""
        for entity, key in _levels(user, client_id):
            bound = self._bounds.get(entity)
            if bound is not None:
                return key, bound
        return ("", client_id), math.inf

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count ``value`` for a client; return the throttle time in milliseconds."""
        key, bound = self.applies(user, client_id)
        if bound == math.inf:
            return 0
        rate = self._rate(key, now_ms)
        rate.record(value, now_ms)
        total, span_ms = rate.measure(now_ms)
        return delay_ms(total / (span_ms / _MS_PER_S), bound, span_ms)

    def allowance(self, user: str, client_id: str) -> float:
        """Return the most that a client may use at once after a long pause."""
        _, bound = self.applies(user, client_id)
        return bound * (self._windows - 1) * self._window_ms / _MS_PER_S

    def _rate(self, key: tuple[str, str], now_ms: int) -> WindowedRate:
        """Return a client's rate, and forget some that are empty."""
        rates = self._rates
        found = rates.pop(key, None)
        rate = found[0] if found else WindowedRate(self._windows, self._window_ms)
        rates[key] = rate, now_ms
        expired_ms = now_ms - self._windows * self._window_ms
        for _ in range(2):
            oldest = next(iter(rates))
            if rates[oldest][1] > expired_ms:
                break
            del rates[oldest]
        return rate


def _levels(user: str, client_id: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Iterate over the entities of a client, the most specific first, and its keys.

    As in Kafka, a client without an id has the quotas of its user only.
    """
    user = sanitized(user)
    client = sanitized(client_id)
    for name in (user, DEFAULT):
        if client_id:
            yield f"users/{name}/clients/{client}", (user, client)
            yield f"users/{name}/clients/{DEFAULT}", (user, client)
        yield f"users/{name}", (user, "")
    if client_id:
        yield f"clients/{client}", ("", client)
        yield f"clients/{DEFAULT}", ("", client)


class ClientQuotas:
    """All quotas of a broker's clients; none counts anything before one is set."""

    def __init__(self, config: BrokerConfig, now_ns: NowNs) -> None:
        self.is_active = False
        self._now_ns = now_ns
        self._initial = config[DOORKEEPER_CLIENT_QUOTAS]
        self._windows = config[QUOTA_WINDOW_NUM]
        self._window_ms = config[QUOTA_WINDOW_SIZE_SECONDS] * _MS_PER_S
        self._quotas: dict[str, ClientQuota] = {}
        self._observers: Observers = []
        self.replace_all({})

    def observe(self, observers: Observers) -> None:
        """Join the observers of finished requests for as long as a quota is set."""
        self._observers = observers
        self._activate(self.is_active)

    def replace_all(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Put the configs of all entities into force."""
        kinds = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        self._quotas = {k: ClientQuota(self._windows, self._window_ms) for k in kinds}
        self._activate(False)
        for entity in {**self._initial, **configs}:
            self.put(entity, configs.get(entity, {}))

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Put the configs of one entity into force; unreadable ones bound nothing."""
        bounds = {**self._initial.get(entity, {}), **configs}
        for kind, quota in self._quotas.items():
            quota.put(entity, read_bound(bounds.get(kind)))
        self._activate(any(quota.is_set for quota in self._quotas.values()))

    def count_request(self, request: Request) -> None:
        """Count the time of a request's handler so far; perhaps throttle its client."""
        self._throttle(request, self._count_handler(request))

    def count_produce(self, request: Request, *, is_answered: bool) -> None:
        """Count a produce request's bytes, and its time if it has an answer."""
        throttled_ms = self._record(
            PRODUCER_BYTE_RATE, request, request.task.size_bytes
        )
        if is_answered:
            throttled_ms = max(throttled_ms, self._count_handler(request))
        self._throttle(request, throttled_ms)

    def count_fetch(self, request: Request, size_bytes: int) -> bool:
        """Count a consumer's answer and its time; return False if it is throttled.

        The answer is then to be an empty one, and its bytes are not counted.
        """
        request_ms = self._count_handler(request)
        fetch_ms = self._record(CONSUMER_BYTE_RATE, request, size_bytes)
        throttled_ms = max(request_ms, fetch_ms)
        if throttled_ms:
            self._record(CONSUMER_BYTE_RATE, request, -size_bytes)
        self._throttle(request, throttled_ms)
        return not throttled_ms

    def fetch_bytes_max(self, request: Request) -> float:
        """Return the largest answer that passes after a long pause."""
        user, client_id = request.peer.principal.name, request.client_id
        return self._quotas[CONSUMER_BYTE_RATE].allowance(user, client_id)

    def _activate(self, is_active: bool) -> None:
        self.is_active = is_active
        is_observing = self._finish in self._observers
        if is_active and not is_observing:
            self._observers.append(self._finish)
        elif is_observing and not is_active:
            self._observers.remove(self._finish)

    def _finish(self, request: Request) -> None:
        """Count the rest of a finished request's time; it throttles the next one."""
        task = request.task
        total_ns = task.service_ns + task.prior_ns
        self._count_ns(request, total_ns - request.counted_ns)

    def _count_handler(self, request: Request) -> int:
        """Count the CPU of a handler: of its first turn, or of all before this one."""
        task = request.task
        spent_ns = task.own_cpu_ns()
        if not spent_ns and task.dequeued_ns >= 0:
            spent_ns = self._now_ns() - task.dequeued_ns
        spent_ns = max(spent_ns - request.counted_ns, 0)
        request.counted_ns += spent_ns
        return self._count_ns(request, spent_ns)

    def _count_ns(self, request: Request, spent_ns: int) -> int:
        if request.task.request_class in _EXEMPT:
            return 0
        percent = spent_ns / _NS_PER_PERCENT
        throttled_ms = self._record(REQUEST_PERCENTAGE, request, percent)
        return min(throttled_ms, self._window_ms)

    def _record(self, kind: str, request: Request, value: float) -> int:
        quota = self._quotas[kind]
        if not quota.is_set:
            return 0
        user, client_id = request.peer.principal.name, request.client_id
        return quota.record(user, client_id, value, self._now_ns() // _NS_PER_MS)

    def _throttle(self, request: Request, throttled_ms: int) -> None:
        if throttled_ms:
            task, until_ns = request.task, self._now_ns() + throttled_ms * _NS_PER_MS
            task.throttled_until_ns = max(task.throttled_until_ns, until_ns)


def read_bound(written: str | None) -> float | None:
    """Return a bound; None where there is none, or no number."""
    if written is None:
        return None
    try:
        bound = float(written)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound
