"""All metrics of a broker as samples, read from their sources at each scrape.

The names are those of Kafka's MBeans in the form of the usual JMX exporter rules:
``kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce`` becomes
``kafka_network_requestmetrics_totaltimems{request="Produce"}``. Metrics that Kafka has
twice for its planes (``ControlPlaneRequestQueueSize``) also have both names here. The
names of other metrics begin with ``doorkeeper_``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.network.memory_pool import MemoryPool
from broker.network.processor import Processor
from broker.network.request_channel import RequestChannel
from broker.observation.metric import NO_LABELS, Metric, Samples, summary
from broker.observation.metrics.request_metrics import PHASES, RequestMetrics, Stats
from broker.protocol.errors import ErrorCode
from broker.requests.topology import CONTROL_PLANE
from planes import PlaneCore
from planes.clock import NowNs

_NS_PER_MS: Final = 1e6


MoreMetrics = Callable[[], Samples]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Sources of the metrics; ``more`` yields those of layers above the network."""

    requests: RequestMetrics
    channels: Sequence[RequestChannel]
    processors: Mapping[PlaneCore, Sequence[Processor]]
    pool: MemoryPool | None
    now_ns: NowNs
    more: Sequence[MoreMetrics] = ()


class Collector:
    """Reader of all metrics; idle ratios cover the time since the last reading."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._last_ns = sources.now_ns()
        self._last_occupied_ns: dict[PlaneCore, int] = {}
        self._last_idle_ns: dict[Processor, int] = {}

    def collect(self) -> Iterator[Metric | None]:
        """Iterate over every sample; None: other tasks may run."""
        sources = self._sources
        for name, stats in tuple(sources.requests.by_api().items()):
            yield from _of_requests(
                "kafka_network_requestmetrics", {"request": name}, stats
            )
            yield None
        for (name, plane), stats in tuple(sources.requests.by_class().items()):
            labels = {"class": name, "plane": plane}
            yield from _of_requests("doorkeeper_requestmetrics", labels, stats)
            yield Metric(
                name="doorkeeper_requestmetrics_preemptions",
                kind="counter",
                value=stats.preemptions,
                labels=labels,
                suffix="_total",
            )
            yield None
        now_ns = sources.now_ns()
        period_ns = max(now_ns - self._last_ns, 1)
        self._last_ns = now_ns
        for channel in sources.channels:
            yield from self._of_plane(channel, now_ns, period_ns)
        if sources.pool is not None:
            name = "kafka_network_socketserver_memorypool"
            yield _gauge(f"{name}available", max(sources.pool.available_bytes, 0))
            yield _gauge(f"{name}used", sources.pool.used_bytes)
        for more in sources.more:
            yield from more()
            yield None

    def _of_plane(
        self, channel: RequestChannel, now_ns: int, period_ns: int
    ) -> Iterator[Metric]:
        plane = channel.plane
        prefix = "controlplane" if plane.name == CONTROL_PLANE else ""
        labels = {"plane": plane.name}
        network = "kafka_network_requestchannel"
        yield _gauge(f"{network}_{prefix}requestqueuesize", plane.queued)
        yield _gauge("doorkeeper_plane_queued", plane.queued, labels)
        yield _gauge("doorkeeper_plane_waiting", len(plane.scheduler), labels)
        yield _gauge("doorkeeper_plane_seated", plane.seated, labels)
        yield _gauge("doorkeeper_plane_away", plane.away, labels)
        yield _gauge("doorkeeper_plane_refused", channel.refused, labels)
        yield from _of_admission(plane, labels)
        # As in Kafka's meter, a handler with a request counts as busy, even if it does
        # not have the CPU.
        occupied_ns = plane.occupied_ns(now_ns)
        taken_ns = occupied_ns - self._last_occupied_ns.get(plane, 0)
        self._last_occupied_ns[plane] = occupied_ns
        all_ns = period_ns * plane.seats
        handler = "kafka_server_kafkarequesthandlerpool"
        yield _gauge(
            f"{handler}_{prefix}requesthandleravgidle_percent",
            _ratio(all_ns - taken_ns, all_ns),
        )
        processors = self._sources.processors[plane]
        idle = [self._idle(each, now_ns, period_ns) for each in processors]
        server = "kafka_network_socketserver"
        yield _gauge(
            f"{server}_{prefix}networkprocessoravgidle_percent",
            sum(idle) / len(idle),
        )
        sizes = [processor.response_queue_size for processor in processors]
        yield _gauge(f"{network}_{prefix}responsequeuesize", sum(sizes))
        expired = sum(processor.expired_connections for processor in processors)
        yield _gauge(f"{server}_{prefix}expiredconnectionskilledcount", expired)
        for processor, ratio, size in zip(processors, idle, sizes, strict=True):
            yield from _of_processor(processor, ratio, size)

    def _idle(self, processor: Processor, now_ns: int, period_ns: int) -> float:
        idle_ns = processor.idle_ns(now_ns)
        waited_ns = idle_ns - self._last_idle_ns.get(processor, 0)
        self._last_idle_ns[processor] = idle_ns
        return _ratio(waited_ns, period_ns)


def _of_admission(plane: PlaneCore, labels: Mapping[str, str]) -> Iterator[Metric]:
    for (request_class, reason), count in plane.held_back.items():
        yield Metric(
            name="doorkeeper_admission_held_back",
            kind="counter",
            value=count,
            labels={**labels, "class": request_class, "verdict": reason},
            suffix="_total",
        )


def _of_processor(
    processor: Processor, idle: float, responses: int
) -> Iterator[Metric]:
    labels = {
        "listener": processor.listener,
        "networkprocessor": str(processor.processor_id),
    }
    yield _gauge("kafka_network_processor_idle_percent", idle, labels)
    yield _gauge("kafka_network_processor_responsequeuesize", responses, labels)
    yield _gauge(
        "kafka_server_socket_server_metrics_connection_count",
        processor.connections,
        labels,
    )


def _of_requests(
    prefix: str, labels: Mapping[str, str], stats: Stats
) -> Iterator[Metric]:
    for phase, histogram in zip(PHASES, stats.phases, strict=True):
        name = f"{prefix}_{phase.lower()}"
        yield from summary(name, labels, histogram, _NS_PER_MS)
    yield from summary(f"{prefix}_throttletimems", labels, stats.throttle, _NS_PER_MS)
    yield from summary(f"{prefix}_requestbytes", labels, stats.size, 1)
    for version, count in stats.versions.items():
        yield Metric(
            name=f"{prefix}_requests",
            kind="counter",
            value=count,
            labels={**labels, "version": str(version)},
            suffix="_total",
        )
    for error, count in stats.errors.items():
        yield Metric(
            name=f"{prefix}_errors",
            kind="counter",
            value=count,
            labels={**labels, "error": ErrorCode(error).name.upper()},
            suffix="_total",
        )


def _gauge(name: str, value: float, labels: Mapping[str, str] = NO_LABELS) -> Metric:
    return Metric(name=name, kind="gauge", value=value, labels=labels)


def _ratio(part: int, whole: int) -> float:
    return min(max(part / whole, 0.0), 1.0)
