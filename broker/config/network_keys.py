"""Keys of the socket server and the request path.

Names, defaults and ranges are those of Kafka's ``SocketServerConfigs`` and
``ServerConfigs``.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.config_key import (
    INT_MAX,
    boolean,
    integer,
    long,
    optional_text,
    pairs,
    text,
    words,
)

LISTENERS: Final = text(
    "listeners",
    "PLAINTEXT://:9092",
    "Addresses to bind, as NAME://host:port; an empty host binds every interface.",
)
ADVERTISED_LISTENERS: Final = optional_text(
    "advertised.listeners",
    "Addresses published to clients; when absent, those of listeners.",
)
LISTENER_SECURITY_PROTOCOL_MAP: Final = text(
    "listener.security.protocol.map",
    "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "Listener names and the security protocol of each.",
)
INTER_BROKER_LISTENER_NAME: Final = optional_text(
    "inter.broker.listener.name",
    "The listener that brokers use among themselves; when absent, the one named by "
    "security.inter.broker.protocol.",
)
SECURITY_INTER_BROKER_PROTOCOL: Final = text(
    "security.inter.broker.protocol",
    "PLAINTEXT",
    "The security protocol between brokers.",
    choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
)
CONTROL_PLANE_LISTENER_NAME: Final = optional_text(
    "control.plane.listener.name",
    "The listener of the control plane (KIP-291); when absent, control requests "
    "share the data plane.",
)
CONTROLLER_LISTENER_NAMES: Final = words(
    "controller.listener.names",
    (),
    "Listeners of a KRaft controller; this broker has none and does not open them.",
)
NUM_NETWORK_THREADS: Final = integer(
    "num.network.threads",
    3,
    "Processors per listener of the data plane; an altered number counts from the next "
    "start.",
    low=1,
)
NUM_IO_THREADS: Final = integer(
    "num.io.threads",
    8,
    "Request handler seats of the data plane.",
    low=1,
)
BACKGROUND_THREADS: Final = integer(
    "background.threads",
    10,
    "Size of the pool for background work.",
    low=1,
    inert=True,
)
QUEUED_MAX_REQUESTS: Final = integer(
    "queued.max.requests",
    500,
    "Requests that the data plane queues before its processors block.",
    low=1,
)
QUEUED_MAX_REQUEST_BYTES: Final = long(
    "queued.max.request.bytes",
    -1,
    "Bytes of queued requests before no more is read; not positive means no bound.",
)
SOCKET_SEND_BUFFER_BYTES: Final = integer(
    "socket.send.buffer.bytes",
    102_400,
    "SO_SNDBUF of accepted sockets; -1 leaves the system's default.",
    low=-1,
)
SOCKET_RECEIVE_BUFFER_BYTES: Final = integer(
    "socket.receive.buffer.bytes",
    102_400,
    "SO_RCVBUF of accepted sockets; -1 leaves the system's default.",
    low=-1,
)
SOCKET_REQUEST_MAX_BYTES: Final = integer(
    "socket.request.max.bytes",
    104_857_600,
    "The largest request; a larger one closes its connection.",
    low=1,
)
SOCKET_LISTEN_BACKLOG_SIZE: Final = integer(
    "socket.listen.backlog.size",
    50,
    "Pending connections of a listening socket.",
    low=1,
)
CONNECTIONS_MAX_IDLE_MS: Final = long(
    "connections.max.idle.ms",
    600_000,
    "A connection idle for longer is closed; negative means never.",
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS: Final = integer(
    "connection.failed.authentication.delay.ms",
    100,
    "Delay of the answer to failed authentication; the connection is closed then.",
    low=0,
)
MAX_CONNECTIONS: Final = integer(
    "max.connections",
    INT_MAX,
    "Connections to the broker; with the prefix listener.name.NAME., to a listener.",
    low=0,
)
MAX_CONNECTIONS_PER_IP: Final = integer(
    "max.connections.per.ip",
    INT_MAX,
    "Connections from one address; 0 only where an override allows some.",
    low=0,
)
MAX_CONNECTIONS_PER_IP_OVERRIDES: Final = pairs(
    "max.connections.per.ip.overrides",
    {},
    "Hosts with a bound of their own, as host:count.",
)
MAX_CONNECTION_CREATION_RATE: Final = integer(
    "max.connection.creation.rate",
    INT_MAX,
    "New connections per second; with the prefix listener.name.NAME., of a listener.",
    low=0,
)
QUOTA_WINDOW_NUM: Final = integer(
    "quota.window.num",
    11,
    "Windows over which a rate is taken.",
    low=1,
)
QUOTA_WINDOW_SIZE_SECONDS: Final = integer(
    "quota.window.size.seconds",
    1,
    "The length of such a window.",
    low=1,
)
CONTROLLER_QUOTA_WINDOW_NUM: Final = integer(
    "controller.quota.window.num",
    11,
    "Windows that quotas on mutations allow at once after a pause.",
    low=1,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS: Final = integer(
    "controller.quota.window.size.seconds",
    1,
    "The length of such a window.",
    low=1,
)
REQUEST_TIMEOUT_MS: Final = integer(
    "request.timeout.ms",
    30_000,
    "Time-out of this broker's requests to others.",
    low=0,
)
MAX_INCREMENTAL_FETCH_SESSION_CACHE_SLOTS: Final = integer(
    "max.incremental.fetch.session.cache.slots",
    1000,
    "Fetch sessions kept (KIP-227).",
    low=0,
)
FETCH_MAX_BYTES: Final = integer(
    "fetch.max.bytes",
    57_671_680,
    "The largest Fetch response, beyond its first batch.",
    low=1024,
)
MAX_REQUEST_PARTITION_SIZE_LIMIT: Final = integer(
    "max.request.partition.size.limit",
    2000,
    "Partitions in one DescribeTopicPartitions response.",
    low=1,
)
DELETE_TOPIC_ENABLE: Final = boolean(
    "delete.topic.enable", True, "Whether topics may be deleted."
)
