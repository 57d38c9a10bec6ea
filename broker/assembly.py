"""A broker without its sockets, made whole: the node, and the coordinator it obeys.

With ``zookeeper.connect`` it is a member of a cluster under ZooKeeper, without a
cluster of its own. A composition root for every world: sockets, disks and clocks are
handed in.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.client.network_client import Connect
from broker.config import (
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    BrokerConfig,
)
from broker.coordination.coordinator import Coordinator
from broker.coordination.embedded import EmbeddedCoordinator
from broker.coordination.registry import Registry
from broker.coordination.zookeeper.coordinator import ZooKeeperCoordinator
from broker.disk.identity import draw_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage
from broker.log.upkeep.chore import Calls
from broker.node.blocking import Blocking, call_here
from broker.node.broker import Broker
from broker.node.hosts import LookUp, look_up_here
from broker.node.replication_shell import connect_nowhere
from broker.protocol.errors import ConfigError
from broker.zookeeper.session import ZooKeeperSession


def assemble(
    config: BrokerConfig,
    *,
    storage: Storage,
    now_ns: Callable[[], int],
    now_ms: Callable[[], int],
    rng: random.Random,
    blocking: Blocking = call_here,
    look_up: LookUp = look_up_here,
    threads: Calls | None = None,
    connect: Connect = connect_nowhere,
) -> Broker:
    """Return a broker that can be prepared and opened.

    ``connect`` reaches other brokers, and ZooKeeper. Raises `ConfigError`.
    """
    log_dirs = LogDirs(config.log_dirs)
    coordinator: Coordinator
    if config[ZOOKEEPER_CONNECT] is None:
        coordinator = EmbeddedCoordinator(
            Registry(storage, log_dirs),
            broker_id=config.node_id,
            new_id=lambda: draw_uuid(rng),
        )
    else:
        coordinator = _member(config, now_ms, rng, connect)
    return Broker(
        config,
        coordinator=coordinator,
        log_dirs=log_dirs,
        storage=storage,
        now_ns=now_ns,
        now_ms=now_ms,
        rng=rng,
        blocking=blocking,
        look_up=look_up,
        threads=threads,
        connect=connect,
    )


def _member(
    config: BrokerConfig,
    now_ms: Callable[[], int],
    rng: random.Random,
    connect: Connect,
) -> ZooKeeperCoordinator:
    written = config[ZOOKEEPER_CONNECT]
    assert written is not None

    def open_session() -> ZooKeeperSession:
        return ZooKeeperSession(
            written,
            timeout_ms=config[ZOOKEEPER_SESSION_TIMEOUT_MS],
            connect=connect,
            rng=rng,
        )

    try:
        open_session()
    except ValueError as fault:
        expected = f"host:port, several with commas, and perhaps a chroot: {fault}"
        raise ConfigError(ZOOKEEPER_CONNECT.name, written, expected) from fault
    return ZooKeeperCoordinator(
        config,
        open_session=open_session,
        connect=connect,
        new_id=lambda: draw_uuid(rng),
        now_ms=now_ms,
        rng=rng,
    )
