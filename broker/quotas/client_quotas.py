"""Client quotas: bytes, time of request handlers, and partitions created and deleted.

Kafka's ``ClientQuotaManager`` (KIP-13, KIP-55, KIP-124, KIP-219). A rate O over a span
W exceeds its bound T. After a delay of W * (O - T) / T it is T again. Request delays
are at most one window; delays for bytes are unbounded. The response is sent at once and
contains the delay; the connection is not read until the delay has passed
(`broker.requests.throttling`). Handler time is CPU here, in percent of one CPU. CPU
used after the start of the response's encoding counts for the next request. A throttled
consumer gets an empty response, whose records are not counted. A batch larger than T
times all windows but one can therefore never be fetched, as in Kafka.

A rate that was not used for the length of its windows equals a new rate. Clients
without a bound are not counted; Kafka counts them once any quota is set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from broker.config import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    DOORKEEPER_CLIENT_QUOTAS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    BrokerConfig,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.quotas.accounts import RateAccount
from broker.quotas.client_bounds import ClientBounds
from broker.quotas.mutation_quota import MutationQuota
from broker.requests.classifier import CONTROL, REPLICATION
from broker.requests.request import Request
from broker.requests.windowed_rate import Windows
from planes.clock import NowNs

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"

_NS_PER_MS: Final = 1_000_000
_MS_PER_S: Final = 1000
_NS_PER_PERCENT: Final = 10_000_000
# Callables that receive each request whose response has been sent.
Observers: TypeAlias = list[Callable[[Request], None]]
# Classes without quotas (Kafka: sendResponseExemptThrottle).
_EXEMPT: Final = frozenset({CONTROL, REPLICATION})


class ClientQuota(ClientBounds[RateAccount]):
    """A kind of quota: its bounds by entity, and its rates by client."""

    def __init__(self, windows: Windows) -> None:
        super().__init__(partial(RateAccount, windows), keep_ms=windows.reach_ms)
        self._burst_s = (windows.count - 1) * windows.size_ms / _MS_PER_S

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count ``value`` for a client; return the throttle time in milliseconds."""
        key, bound = self.applies(user, client_id)
        if bound == math.inf:
            return 0
        rate = self.account(key, now_ms).rate
        rate.record(value, now_ms)
        return rate.delay_ms(bound, now_ms)

    def allowance(self, user: str, client_id: str) -> float:
        """Return the largest use of a client at once after a long pause."""
        _, bound = self.applies(user, client_id)
        return bound * self._burst_s


class ClientQuotas:
    """All quotas of a broker's clients; nothing is counted before one is set."""

    def __init__(self, config: BrokerConfig, now_ns: NowNs) -> None:
        self.is_active = False
        self._now_ns = now_ns
        self._initial = config[DOORKEEPER_CLIENT_QUOTAS]
        self._windows = client_windows(config)
        self._mutation_windows = Windows(
            count=config[CONTROLLER_QUOTA_WINDOW_NUM],
            size_ms=config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS] * _MS_PER_S,
        )
        self.rates: dict[str, ClientQuota] = {}
        self._observers: Observers = []
        self.replace_all({})

    def observe(self, observers: Observers) -> None:
        """Register with the observers of finished requests while a quota is set."""
        self._observers = observers
        self._activate(self.is_active)

    def replace_all(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the configs of all entities."""
        kinds = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
        self.rates = {kind: ClientQuota(self._windows) for kind in kinds}
        self.mutations = MutationQuota(self._mutation_windows)
        self._activate(False)
        for entity in {**self._initial, **configs}:
            self.put(entity, configs.get(entity, {}))

    def put(self, entity: str, configs: Mapping[str, str]) -> None:
        """Apply the configs of one entity; unreadable values set no bound."""
        bounds = {**self._initial.get(entity, {}), **configs}
        for kind, quota in self.rates.items():
            quota.put(entity, read_bound(bounds.get(kind)))
        self.mutations.put(entity, read_bound(bounds.get(CONTROLLER_MUTATION_RATE)))
        self._activate(any(quota.is_set for quota in self.rates.values()))

    def count_request(self, request: Request) -> None:
        """Count the handler time of a request so far; throttle its client if needed."""
        self._throttle(request, {REQUEST_PERCENTAGE: self._count_handler(request)})

    def count_produce(self, request: Request, *, is_answered: bool) -> None:
        """Count a produce request's bytes, and its time if it has a response."""
        size_bytes = request.task.size_bytes
        throttled_ms = {
            PRODUCER_BYTE_RATE: self._record(PRODUCER_BYTE_RATE, request, size_bytes)
        }
        if is_answered:
            throttled_ms[REQUEST_PERCENTAGE] = self._count_handler(request)
        self._throttle(request, throttled_ms)

    def count_fetch(self, request: Request, size_bytes: int) -> bool:
        """Count a consumer's response and its time; return False if it is throttled.

        The response must then be empty, and its bytes are not counted.
        """
        throttled_ms = {
            REQUEST_PERCENTAGE: self._count_handler(request),
            CONSUMER_BYTE_RATE: self._record(CONSUMER_BYTE_RATE, request, size_bytes),
        }
        is_throttled = any(throttled_ms.values())
        if is_throttled:
            self._record(CONSUMER_BYTE_RATE, request, -size_bytes)
        self._throttle(request, throttled_ms)
        return not is_throttled

    def count_mutations(
        self, request: Request, partitions: int, *, strict_since: int
    ) -> None:
        """Count partitions that a request is about to create or delete.

        Requests of versions before ``strict_since`` are served, and their clients are
        throttled. Raises THROTTLING_QUOTA_EXCEEDED for later versions.
        """
        is_strict = request.api_version >= strict_since
        throttled_ms = self._record_mutations(request, partitions, is_strict=is_strict)
        if throttled_ms is None:
            return
        self._throttle(request, {CONTROLLER_MUTATION_RATE: throttled_ms})
        if is_strict:
            raise KafkaError(
                ErrorCode.throttling_quota_exceeded,
                "The throttling quota has been exceeded.",
            )

    def count_auto_creation(self, request: Request, partitions: int) -> None:
        """Count the partitions of a topic that is created automatically.

        As in Kafka, the request is neither delayed nor rejected.
        """
        self._record_mutations(request, partitions, is_strict=False)

    def fetch_bytes_max(self, request: Request) -> float:
        """Return the largest response that is not throttled after a long pause."""
        user, client_id = request.peer.principal.name, request.client_id
        return self.rates[CONSUMER_BYTE_RATE].allowance(user, client_id)

    def _activate(self, is_active: bool) -> None:
        self.is_active = is_active
        is_observing = self._finish in self._observers
        if is_active and not is_observing:
            self._observers.append(self._finish)
        elif is_observing and not is_active:
            self._observers.remove(self._finish)

    def _finish(self, request: Request) -> None:
        """Count the rest of a finished request's time, for the next request."""
        task = request.task
        total_ns = task.service_ns + task.prior_ns
        self._count_ns(request, total_ns - request.counted_ns)

    def _count_handler(self, request: Request) -> int:
        """Count the CPU of a handler: of its first turn, or of all turns before."""
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
        return min(throttled_ms, self._windows.size_ms)

    def _record(self, kind: str, request: Request, value: float) -> int:
        quota = self.rates[kind]
        if not quota.is_set:
            return 0
        user, client_id = request.peer.principal.name, request.client_id
        return quota.record(user, client_id, value, self._now_ns() // _NS_PER_MS)

    def _record_mutations(
        self, request: Request, partitions: int, *, is_strict: bool
    ) -> int | None:
        if not self.mutations.is_set:
            return None
        return self.mutations.record(
            request.peer.principal.name,
            request.client_id,
            partitions,
            self._now_ns() // _NS_PER_MS,
            is_strict=is_strict,
        )

    def _throttle(self, request: Request, throttled_ms: Mapping[str, int]) -> None:
        """Throttle a client for the longest of the times, if any is positive."""
        kind, longest_ms = max(throttled_ms.items(), key=itemgetter(1))
        if not longest_ms:
            return
        task, now_ns = request.task, self._now_ns()
        until_ns = now_ns + longest_ms * _NS_PER_MS
        task.throttled_until_ns = max(task.throttled_until_ns, until_ns)
        quota = self.rates.get(kind, self.mutations)
        user, client_id = request.peer.principal.name, request.client_id
        quota.note_throttle(user, client_id, longest_ms, now_ns // _NS_PER_MS)


def read_bound(written: str | None) -> float | None:
    """Return a bound; None if it is missing or no number."""
    if written is None:
        return None
    try:
        bound = float(written)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def client_windows(config: BrokerConfig) -> Windows:
    """Return the windows of the rates of clients and connections."""
    return Windows(
        count=config[QUOTA_WINDOW_NUM],
        size_ms=config[QUOTA_WINDOW_SIZE_SECONDS] * _MS_PER_S,
    )
