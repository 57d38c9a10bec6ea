"""Metrics of acceptors: connections per second, and blocked time.

Kafka's ``AcceptorBlockedPercent`` is a meter that decays over a minute. Here the value
is the share of time since the last reading, as for all idle ratios.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from broker.network.connection_quotas import ConnectionQuotas
from broker.observation.metric import Metric
from broker.requests.topology import CONTROL_PLANE
from planes.clock import NowNs

_METRICS = "kafka_server_socket_server_metrics_"
_RATE = _METRICS + "{}connection_accept_rate"


class AcceptorMetrics:
    """Metrics from the quotas; ``planes`` is the plane of each listener by name."""

    def __init__(
        self, quotas: ConnectionQuotas, planes: Mapping[str, str], now_ns: NowNs
    ) -> None:
        self._quotas = quotas
        self._planes = planes
        self._now_ns = now_ns
        self._last_ns = now_ns()
        self._last_blocked_ns = dict.fromkeys(planes, 0)

    def collect(self) -> Iterator[Metric]:
        """Iterate over every sample."""
        now_ns = self._now_ns()
        period_ns = max(now_ns - self._last_ns, 1)
        self._last_ns = now_ns
        for listener, plane in self._planes.items():
            blocked_ns = self._quotas.blocked_ns(listener, now_ns)
            held_ns = blocked_ns - self._last_blocked_ns[listener]
            self._last_blocked_ns[listener] = blocked_ns
            prefix = "controlplane" if plane == CONTROL_PLANE else ""
            labels = {"listener": listener}
            yield Metric(
                name=f"kafka_network_acceptor_{prefix}acceptorblockedpercent",
                kind="gauge",
                value=min(held_ns / period_ns, 1.0),
                labels=labels,
            )
            yield Metric(
                name=_RATE.format(""),
                kind="gauge",
                value=self._quotas.rate_per_s(listener, now_ns),
                labels=labels,
            )
            throttles_ms = self._quotas.throttle_ms(listener, now_ns)
            for kind, throttle_ms in zip(("", "ip_"), throttles_ms, strict=True):
                yield Metric(
                    name=f"{_METRICS}{kind}connection_accept_throttle_time",
                    kind="gauge",
                    value=throttle_ms,
                    labels=labels,
                )
        yield Metric(
            name=_RATE.format("broker_"),
            kind="gauge",
            value=self._quotas.rate_per_s(None, now_ns),
        )
