"""The laws of every plane of a broker, as one observer of finished requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from broker.config import (
    DOORKEEPER_QUANTUM_US,
    DOORKEEPER_STARVATION_MS,
    DOORKEEPER_WFQ_WEIGHTS,
    BrokerConfig,
)
from broker.observation.metric import Metric
from broker.requests.request import Request
from planes import PlaneCore
from planes.clock import NowNs
from planes.laws import Laws, Tolerance, total
from planes.task import TaskPlane
from schedulers import Job


class LawBook:
    """Counts of violated laws by plane."""

    def __init__(
        self, planes: Sequence[PlaneCore], config: BrokerConfig, now_ns: NowNs
    ) -> None:
        self._now_ns = now_ns
        self.by_plane: dict[TaskPlane, Laws] = {
            plane: Laws(plane, _tolerance(config)) for plane in planes
        }

    def reconfigure(self, config: BrokerConfig) -> None:
        """Replace the weights."""
        for laws in self.by_plane.values():
            laws.reconfigure(_tolerance(config))

    def observe(self, request: Request) -> None:
        """Check a request whose response has been sent."""
        task = request.task
        self.by_plane[task.plane].finished(
            task, request.peer.connection_id, task.response_sent_ns
        )

    def totals(self) -> Mapping[str, int]:
        """Return the counters, summed over all planes."""
        return total(self.by_plane.values(), self._now_ns())

    def metrics(self) -> Iterable[Metric]:
        """Return a counter for each law and plane."""
        return list(self._metrics())

    def _metrics(self) -> Iterator[Metric]:
        for laws in self.by_plane.values():
            for law, count in laws.totals(self._now_ns()).items():
                yield Metric(
                    name="doorkeeper_law_violations",
                    kind="counter",
                    value=count,
                    labels={"plane": laws.plane.name, "law": law},
                    suffix="_total",
                )


def _tolerance(config: BrokerConfig) -> Tolerance:
    weights = config[DOORKEEPER_WFQ_WEIGHTS]

    def weight(job: Job) -> float:
        return float(weights.get(job.request_class, 1))

    return Tolerance(
        patience_ns=config[DOORKEEPER_STARVATION_MS] * 1_000_000,
        quantum_ns=config[DOORKEEPER_QUANTUM_US] * 1000,
        weight=weight,
    )
