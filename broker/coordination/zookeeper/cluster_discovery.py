"""State of the cluster that a broker reads before it opens its logs and sockets.

The state is read in a session of its own, which ends afterwards. Values that have
changed by the time of the registration are read again then. This module also generates
the id of a broker without one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID

import trio

from broker.client.background_tasks import background
from broker.cluster.cluster_topics import INTERNAL_TOPICS
from broker.config import (
    RESERVED_BROKER_MAX_ID,
    ZOOKEEPER_CONNECT,
    ZOOKEEPER_CONNECTION_TIMEOUT_MS,
    ZOOKEEPER_SESSION_TIMEOUT_MS,
    BrokerConfig,
)
from broker.coordination.zookeeper.cluster_acls import ClusterAcls
from broker.coordination.zookeeper.configs import ClusterConfigs
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    read_cluster_id,
    write_cluster_id,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes, again
from broker.coordination.zookeeper.topic_writes import partition_count
from broker.disk.identity import kafka_uuid
from broker.protocol.errors import ConfigError
from broker.zookeeper.zookeeper_session import ZooKeeperSession

T = TypeVar("T")


class Cluster(NamedTuple):
    """The cluster's id, and the partition counts of internal topics."""

    cluster_id: str
    # Partition counts by internal topic; None if the topic does not exist.
    internal_partitions: Mapping[str, int | None]


async def join(
    open_session: Callable[[], ZooKeeperSession],
    configs: ClusterConfigs,
    acls: ClusterAcls | None,
    config: BrokerConfig,
    new_id: Callable[[], UUID],
) -> Cluster:
    """Read the cluster, ``configs`` and ``acls``; create the id of a new cluster.

    :raises ConfigError: if ZooKeeper does not respond in time.
    """
    return await _in_session(
        open_session, config, lambda znodes: _read(znodes, configs, acls, new_id)
    )


async def generated_broker_id(
    open_session: Callable[[], ZooKeeperSession], config: BrokerConfig
) -> int:
    """Generate a unique broker id, above the reserved ids.

    Kafka's ``getBrokerSequenceId``: the number of writes of ``/brokers/seqid``.

    :raises ConfigError: if ZooKeeper does not respond in time.
    """

    async def draw(znodes: RetryingZnodes) -> int:
        await prepare_znodes(znodes)
        written = await znodes.set(paths.BROKER_SEQUENCE, b"")
        return config[RESERVED_BROKER_MAX_ID] + written.version

    return await _in_session(open_session, config, draw)


async def _in_session(
    open_session: Callable[[], ZooKeeperSession],
    config: BrokerConfig,
    work: Callable[[RetryingZnodes], Awaitable[T]],
) -> T:
    timeout_ms = (
        config[ZOOKEEPER_CONNECTION_TIMEOUT_MS] or config[ZOOKEEPER_SESSION_TIMEOUT_MS]
    )
    session = open_session()
    async with background() as nursery:
        with trio.move_on_after(timeout_ms / 1000):
            await nursery.start(session.run)
            await again(session.make_chroot)
            found = await work(RetryingZnodes(session))
            await session.close()
            return found
    raise ConfigError(
        ZOOKEEPER_CONNECT.name,
        config[ZOOKEEPER_CONNECT],
        f"a ZooKeeper that serves within {timeout_ms} ms",
    )


async def _read(
    znodes: RetryingZnodes,
    configs: ClusterConfigs,
    acls: ClusterAcls | None,
    new_id: Callable[[], UUID],
) -> Cluster:
    await prepare_znodes(znodes)
    await znodes.ensure(paths.CLUSTER_ID, write_cluster_id(kafka_uuid(new_id())))
    data, _ = await znodes.get(paths.CLUSTER_ID)
    await configs.read_all(znodes)
    if acls is not None:
        await acls.read_all(znodes)
    counts = {
        topic: await partition_count(znodes, topic) for topic in sorted(INTERNAL_TOPICS)
    }
    return Cluster(read_cluster_id(data), counts)


async def prepare_znodes(znodes: RetryingZnodes) -> None:
    """Create the permanent znodes of a cluster, as far as they are missing."""
    for path in paths.PERSISTENT:
        await znodes.ensure(path)
