"""Durations and counts of requests, by API and by class (Kafka: ``RequestMetrics``).

Durations are derived from the stamps of each finished request, so the phases sum to the
total as in Kafka. Fetch is counted twice, as in Kafka: under its own name, and as
FetchConsumer or FetchFollower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.observation.histogram import Histogram
from broker.protocol.api_keys import ApiKey
from broker.requests.classifier import REPLICATION
from broker.requests.request import Request

# Kafka's names, in the order of `planes.task.Phases`; Kafka has no SuspendedTimeMs.
PHASES: Final = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "SuspendedTimeMs",
    "RemoteTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)
_FETCH: Final = int(ApiKey.FETCH)


class Stats:
    """The requests of one API, class and plane."""

    __slots__ = ("errors", "phases", "preemptions", "size", "throttle", "versions")

    def __init__(self) -> None:
        self.phases = tuple(Histogram() for _ in PHASES)
        self.size = Histogram()
        self.throttle = Histogram()
        self.preemptions = 0
        self.versions: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()

    def add(self, request: Request) -> None:
        """Count a finished request."""
        task = request.task
        for histogram, duration_ns in zip(self.phases, task.phases(), strict=True):
            histogram.add(duration_ns)
        self.size.add(task.size_bytes)
        self.throttle.add(max(task.throttled_until_ns - task.response_sent_ns, 0))
        self.preemptions += task.preemptions
        self.versions[request.api_version] += 1
        self.errors[request.error_code] += 1

    def merge(self, other: Stats) -> None:
        """Add all requests of other statistics."""
        for ours, theirs in zip(self.phases, other.phases, strict=True):
            ours.merge(theirs)
        self.size.merge(other.size)
        self.throttle.merge(other.throttle)
        self.preemptions += other.preemptions
        self.versions.update(other.versions)
        self.errors.update(other.errors)


class RequestMetrics:
    """Metrics of all requests, by API, class and plane."""

    def __init__(self) -> None:
        self._stats: dict[tuple[int, str, str], Stats] = {}

    def observe(self, request: Request) -> None:
        """Count a finished request."""
        task = request.task
        key = request.api_key, task.request_class, task.plane.name
        stats = self._stats.get(key)
        if stats is None:
            stats = self._stats[key] = Stats()
        stats.add(request)

    def by_api(self) -> dict[str, Stats]:
        """Return the sums by Kafka's name of the API."""
        sums: dict[str, Stats] = {}
        for (api_key, request_class, _), stats in self._stats.items():
            for name in _names(api_key, request_class):
                sums.setdefault(name, Stats()).merge(stats)
        return sums

    def by_class(self) -> dict[tuple[str, str], Stats]:
        """Return the sums by request class and plane."""
        sums: dict[tuple[str, str], Stats] = {}
        for (_, request_class, plane), stats in self._stats.items():
            sums.setdefault((request_class, plane), Stats()).merge(stats)
        return sums


def _names(api_key: int, request_class: str) -> Iterator[str]:
    yield ApiKey(api_key).api_name
    if api_key == _FETCH:
        follower = request_class == REPLICATION
        yield "FetchFollower" if follower else "FetchConsumer"
