"""The state of the cluster in its znodes, for a controller: brokers, topics, leaders.

Each read sets watches, which report later changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from logging import getLogger
from typing import TypeVar

from broker.config.listeners import SECURITY_PROTOCOLS
from broker.controller.assignment import TopicAssignment
from broker.controller.context import RegisteredBroker
from broker.controller.leadership import Leadership
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import read_broker
from broker.coordination.zookeeper.layout.json_text import MalformedZnode
from broker.coordination.zookeeper.layout.topic_records import (
    read_leadership,
    read_topic,
)
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataEndpoint
from broker.protocol.topic_partition import TopicPartition
from broker.zookeeper.znodes import Znode

logger = getLogger(__name__)
R = TypeVar("R")


async def read_each(
    znodes: RetryingZnodes,
    wanted: Iterable[str],
    read: Callable[[bytes], R],
    *,
    watch: bool = False,
) -> dict[str, R]:
    """Return the decoded content of existing znodes; malformed ones are logged."""
    found = await znodes.find_all(wanted, watch=watch)
    return dict(_understood(found, lambda _, znode: read(znode.data)))


def _understood(
    found: Mapping[str, Znode], read: Callable[[str, Znode], R]
) -> Iterator[tuple[str, R]]:
    for path, znode in found.items():
        try:
            yield path, read(path, znode)
        except MalformedZnode as fault:
            logger.error(
                "a znode that cannot be read counts as none",
                extra=fields(znode=path, fault=fault),
            )


async def read_brokers(znodes: RetryingZnodes) -> dict[int, RegisteredBroker]:
    """Return the brokers that are registered, by id."""
    names = await znodes.children(paths.BROKER_IDS, watch=True)
    # Skip other znodes, created by an operator, whose names are not numbers.
    wanted = [paths.broker(int(name)) for name in names if name.isdecimal()]
    found = await znodes.find_all(wanted, watch=True)
    return {broker.id: broker for _, broker in _understood(found, _registered)}


def _registered(path: str, znode: Znode) -> RegisteredBroker:
    data, stat = znode
    record = read_broker(data)
    return RegisteredBroker(
        id=int(path.rpartition("/")[2]),
        epoch=stat.czxid,
        endpoints=tuple(
            UpdateMetadataEndpoint(
                port=each.port,
                host=each.host,
                listener=each.name,
                security_protocol=SECURITY_PROTOCOLS.index(each.security_protocol),
            )
            for each in record.listeners
        ),
        rack=record.rack,
    )


async def read_topics(
    znodes: RetryingZnodes, names: Iterable[str]
) -> dict[str, TopicAssignment]:
    """Return the existing topics among these names."""
    by_path = {paths.topic(name): name for name in names}
    found = await read_each(znodes, by_path, read_topic, watch=True)
    return {by_path[path]: topic for path, topic in found.items()}


async def read_leaderships(
    znodes: RetryingZnodes, keys: Iterable[TopicPartition]
) -> dict[TopicPartition, Leadership]:
    """Return the leaderships of these partitions, as far as they have had a leader."""
    by_path = {paths.partition_state(key): key for key in keys}
    found = await znodes.find_all(by_path)

    def read(_: str, znode: Znode) -> Leadership:
        data, stat = znode
        return read_leadership(data, stat.version)

    return {by_path[path]: each for path, each in _understood(found, read)}
