"""Assembly of a broker without its sockets: the node and its cluster coordinator.

With ``zookeeper.connect`` the broker is a member of a cluster under ZooKeeper;
otherwise it is a cluster of its own. Modules for ZooKeeper are a tenth of all, and are
imported only where they are needed. Sockets, disks and clocks are arguments, so real
and simulated brokers are assembled alike.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.client.network_client import Connect
from broker.cluster.blocking import Blocking, call_here
from broker.config import (
    BROKER_ID,
    BROKER_ID_GENERATION_ENABLE,
    NODE_ID,
    RESERVED_BROKER_MAX_ID,
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    BrokerConfig,
    Listener,
)
from broker.coordination.coordinator_roles import Coordinator
from broker.coordination.embedded import embedded_coordinator
from broker.coordination.embedded_registry import Registry
from broker.disk.identity import draw_uuid, known_broker_id
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage
from broker.log.upkeep.periodic_task import Calls
from broker.node.broker import Broker
from broker.node.hosts import LookUp, look_up_here
from broker.node.outgoing_sasl import logged_in_by
from broker.node.outgoing_tls import OutgoingTls
from broker.node.replication_shell import connect_nowhere
from broker.protocol.errors import ConfigError

if TYPE_CHECKING:
    from broker.zookeeper.zookeeper_session import ZooKeeperSession


async def numbered(
    config: BrokerConfig, storage: Storage, rng: random.Random, connect: Connect
) -> BrokerConfig:
    """Return ``config`` with a broker ID.

    Under ZooKeeper, a broker without a configured ID takes the ID stored in its log
    directories, or a generated one. Raises `ConfigError`.
    """
    if config[ZOOKEEPER_CONNECT] is None:
        return config
    given = max(config[BROKER_ID], config[NODE_ID])
    generates, reserved = (
        config[BROKER_ID_GENERATION_ENABLE],
        config[RESERVED_BROKER_MAX_ID],
    )
    if given > reserved and generates:
        # IDs above the reserved range could be generated for another broker.
        raise ConfigError(
            BROKER_ID.name, given, f"at most {reserved}, {RESERVED_BROKER_MAX_ID.name}"
        )
    if given >= 0:
        return config
    if not generates:
        raise ConfigError(BROKER_ID.name, given, "a number, as none is generated")
    number = known_broker_id(storage, config.log_dirs)
    if number is None:
        from broker.coordination.zookeeper.cluster_discovery import generated_broker_id

        sessions = _sessions(config, rng, connect)
        number = await generated_broker_id(sessions, config)
    return config.updated({BROKER_ID.name: str(number)})


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
    between = config.inter_broker_listener
    control = config.control_plane_listener or between
    tls = {
        each.name: OutgoingTls(each, config)
        for each in {between, control}
        if each.uses_tls and config[ZOOKEEPER_CONNECT] is not None
    }

    def connect_by(listener: Listener) -> Connect:
        over = tls[listener.name].over(connect) if listener.name in tls else connect
        return logged_in_by(listener, over, config)

    if config[ZOOKEEPER_CONNECT] is None:
        coordinator = embedded_coordinator(
            Registry(storage, log_dirs),
            broker_id=config.node_id,
            new_id=lambda: draw_uuid(rng),
            blocking=blocking,
        )
    else:
        from broker.coordination.zookeeper.zookeeper_coordinator import (
            zookeeper_coordinator,
        )

        coordinator = zookeeper_coordinator(
            config,
            open_session=_sessions(config, rng, connect),
            connect=connect_by(between),
            connect_controlled=connect_by(control),
            new_id=lambda: draw_uuid(rng),
            now_ns=now_ns,
            now_ms=now_ms,
            rng=rng,
        )
    broker = Broker(
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
        connect=connect_by(between),
    )
    broker.config_listeners.extend(each.reconfigure for each in tls.values())
    return broker


def _sessions(
    config: BrokerConfig, rng: random.Random, connect: Connect
) -> Callable[[], ZooKeeperSession]:
    """Return a factory of sessions; raise `ConfigError` if the address is invalid."""
    from broker.zookeeper.zookeeper_session import ZooKeeperSession

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
    return open_session
