"""Number and duration of flushes of logs (Kafka: ``LogFlushStats``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.observation.histogram import Histogram
from broker.observation.metric import NO_LABELS, Metric, summary

_NAME: Final = "kafka_log_logflushstats_logflushrateandtimems"
_NS_PER_MS: Final = 1e6


class FlushTimes:
    """Statistics of the successful flushes of all logs of a broker.

    A flush may run in a thread and call ``now_ns`` there, but not `add`.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._durations_ns = Histogram()

    def add(self, duration_ns: int) -> None:
        """Count a flush."""
        self._durations_ns.add(duration_ns)

    def metrics(self) -> Iterator[Metric]:
        """Iterate over the quantiles, the number and the sum."""
        yield from summary(_NAME, NO_LABELS, self._durations_ns, _NS_PER_MS)
