"""What the network layer needs to know of the configuration."""

from __future__ import annotations

import socket

from broker.classifier import Classifier
from broker.config import (
    CONNECTIONS_MAX_IDLE_MS,
    DOORKEEPER_ADMISSION,
    DOORKEEPER_CLASS_LEVELS,
    DOORKEEPER_WFQ_FLOW,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    QUEUED_MAX_REQUEST_BYTES,
    SOCKET_LISTEN_BACKLOG_SIZE,
    SOCKET_RECEIVE_BUFFER_BYTES,
    SOCKET_SEND_BUFFER_BYTES,
    BrokerConfig,
)
from broker.deadlines import deadline_ns
from broker.errors import ConfigError
from broker.network.connection_quotas import ConnectionLimits
from broker.network.epoll import SocketOptions
from broker.network.intake import Deadline
from broker.network.memory_pool import MemoryPool


def socket_options(config: BrokerConfig) -> SocketOptions:
    """Return the settings of sockets."""
    return SocketOptions(
        send_buffer_bytes=config[SOCKET_SEND_BUFFER_BYTES],
        receive_buffer_bytes=config[SOCKET_RECEIVE_BUFFER_BYTES],
        backlog=config[SOCKET_LISTEN_BACKLOG_SIZE],
    )


def connection_limits(config: BrokerConfig) -> ConnectionLimits:
    """Return the bounds on connections; hosts of overrides are resolved here.

    :raises ConfigError: if such a host is unknown.
    """
    names = [listener.name for listener in config.listeners]
    protected = config.inter_broker_listener_name
    own_bounds = {
        name: config.on_listener(name, MAX_CONNECTIONS)
        for name in names
        if (name, MAX_CONNECTIONS.name) in config.listener_values
    }
    overrides = config[MAX_CONNECTIONS_PER_IP_OVERRIDES]
    return ConnectionLimits(
        total=config[MAX_CONNECTIONS],
        per_listener=own_bounds,
        per_address=config[MAX_CONNECTIONS_PER_IP],
        per_address_overrides={
            address: bound
            for host, bound in overrides.items()
            for address in _addresses(host)
        },
        protected=protected if len(names) > 1 else None,
    )


def memory_pool(config: BrokerConfig) -> MemoryPool | None:
    """Return the pool that ``queued.max.request.bytes`` asks for, if it asks."""
    size_bytes = config[QUEUED_MAX_REQUEST_BYTES]
    return MemoryPool(size_bytes) if size_bytes > 0 else None


def idle_ns_max(config: BrokerConfig) -> int | None:
    """Return ``connections.max.idle.ms`` in nanoseconds; None means for ever."""
    idle_ms = config[CONNECTIONS_MAX_IDLE_MS]
    return idle_ms * 1_000_000 if idle_ms >= 0 else None


def classifier(config: BrokerConfig) -> Classifier:
    """Return a classifier with the configured levels and flows."""
    levels = config[DOORKEEPER_CLASS_LEVELS]
    return Classifier(levels=levels, flow=config[DOORKEEPER_WFQ_FLOW])


def deadline(config: BrokerConfig) -> Deadline | None:
    """Return what finds a request's own time limit, if anybody asks for it."""
    return deadline_ns if config[DOORKEEPER_ADMISSION] == "deadline" else None


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        key = MAX_CONNECTIONS_PER_IP_OVERRIDES.name
        raise ConfigError(key, host, "a host that can be resolved") from error
    return {str(address[0]) for _, _, _, _, address in found}
