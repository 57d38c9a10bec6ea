"""A broker that is its own cluster: the node, and the embedded coordinator with it.

A composition root for every world: sockets and clocks are not its affair.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.client.network_client import Connect
from broker.config import BrokerConfig
from broker.coordination.embedded import EmbeddedCoordinator
from broker.coordination.registry import Registry
from broker.disk.identity import draw_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage
from broker.log.upkeep.chore import Calls
from broker.node.blocking import Blocking, call_here
from broker.node.broker import Broker
from broker.node.hosts import LookUp, look_up_here
from broker.node.replication_shell import connect_nowhere


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
    """Return a broker that can be opened; ``connect`` reaches leaders to follow."""
    log_dirs = LogDirs(config.log_dirs)
    coordinator = EmbeddedCoordinator(
        Registry(storage, log_dirs),
        broker_id=config.node_id,
        new_id=lambda: draw_uuid(rng),
    )
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
