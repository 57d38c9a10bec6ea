"""The network layer's part of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import trio

from broker.authorization.authorizer import Authorizer
from broker.config import (
    CONNECTIONS_MAX_IDLE_MS,
    DOORKEEPER_ADMISSION,
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_TLS_HANDSHAKE_THREADS,
    DOORKEEPER_TLS_HANDSHAKE_TIMEOUT_MS,
    DOORKEEPER_TLS_HANDSHAKES_MAX,
    DOORKEEPER_WFQ_FLOW,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    BrokerConfig,
    Key,
)
from broker.network.connection_quotas import ConnectionLimits
from broker.network.epoll import SocketOptions
from broker.network.handshakes import Compute, HandshakeLimits
from broker.network.intake import Deadline
from broker.network.memory_pool import MemoryPool
from broker.requests.classifier import Classifier
from broker.requests.deadlines import deadline_ns
from broker.requests.request import DeclaredApi


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return the settings of sockets."""
    return SocketOptions(
        send_buffer_bytes=config[SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=config[SOCKET_RECEIVE_BUFFER_BYTES],
        backlog=config[SOCKET_LISTEN_BACKLOG_SIZE],
    )


def connection_limits(
    config: BrokerConfig, addresses: Callable[[str], Iterable[str]]
) -> ConnectionLimits:
    """Return the bounds on connections; ``addresses`` resolves a host name."""
    names = [listener.name for listener in config.listeners]
    protected = config.inter_broker_listener_name
    overrides = config[MAX_CONNECTIONS_PER_IP_OVERRIDES]
    return ConnectionLimits(
        total=config[MAX_CONNECTIONS],
        per_listener=_own_bounds(config, MAX_CONNECTIONS),
        rate=config[MAX_CONNECTION_CREATION_RATE],
        rate_per_listener=_own_bounds(config, MAX_CONNECTION_CREATION_RATE),
        per_address=config[MAX_CONNECTIONS_PER_IP],
        per_address_overrides={
            address: bound
            for host, bound in overrides.items()
            for address in addresses(host)
        },
        protected=protected if len(names) > 1 else None,
    )


def handshake_limits(config: BrokerConfig, compute: Compute) -> HandshakeLimits:
    """Return the bounds of handshakes; ``compute`` runs their steps."""
    return HandshakeLimits(
        half_open_max=config[DOORKEEPER_TLS_HANDSHAKES_MAX],
        timeout_s=config[DOORKEEPER_TLS_HANDSHAKE_TIMEOUT_MS] / 1000,
        turns=trio.CapacityLimiter(config[DOORKEEPER_TLS_HANDSHAKE_THREADS]),
        compute=compute,
    )


def memory_pool(config: BrokerConfig) -> MemoryPool | None:
    """Return the pool of ``queued.max.request.bytes``; None if there is no bound."""
    size_bytes = config[QUEUED_MAX_REQUEST_BYTES]
    return MemoryPool(size_bytes) if size_bytes > 0 else None


def idle_ns_max(config: BrokerConfig) -> int | None:
    """Return ``connections.max.idle.ms`` in nanoseconds; None means no limit."""
    idle_ms = config[CONNECTIONS_MAX_IDLE_MS]
    return idle_ms * 1_000_000 if idle_ms >= 0 else None


def classifier(
    config: BrokerConfig,
    apis: Mapping[int, DeclaredApi],
    authorizer: Authorizer | None,
) -> Classifier:
    """Return a classifier with the configured levels and flows."""
    levels = config[DOORKEEPER_CLASS_LEVELS]
    return Classifier(
        apis, levels=levels, flow=config[DOORKEEPER_WFQ_FLOW], authorizer=authorizer
    )


def deadline(config: BrokerConfig) -> Deadline | None:
    """Return the function for a request's own time limit, if the limits are used."""
    return deadline_ns if config[DOORKEEPER_ADMISSION] == "deadline" else None


def _own_bounds(config: BrokerConfig, key: Key[int]) -> dict[str, int]:
    """Return the bounds by listener."""
    return {
        listener.name: config.on_listener(listener.name, key)
        for listener in config.listeners
        if (listener.name, key.name) in config.listener_values
    }
