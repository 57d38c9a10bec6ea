"""Creation, extension and deletion of topics by znodes, which the controller watches.

Kafka's ``AdminZkClient``. Any broker may write these znodes. A znode can be created
only once, so only one of two concurrent creations of a topic succeeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    ProducerIdBlock,
    read_producer_ids,
    write_config,
    write_producer_ids,
)
from broker.coordination.zookeeper.layout.topic_records import read_topic, write_topic
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.protocol.errors import ErrorCode, KafkaError
from broker.zookeeper.znodes import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SetData,
)

# Kafka's ``ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE``.
PRODUCER_ID_BLOCK = 1000
_PRODUCER_ID_MAX = 2**63 - 1


async def create_topic(
    znodes: RetryingZnodes,
    name: str,
    topic: TopicAssignment,
    configs: Mapping[str, str],
) -> None:
    """Create a topic with its configs; raise TOPIC_ALREADY_EXISTS.

    The name is not available until the deletion of an earlier topic is complete,
    including its configs. Otherwise the rest of that deletion would affect the new
    topic.
    """
    data, config = write_topic(topic), write_config(configs)
    asks_for_deletion = paths.topic_to_delete(name)
    creation: list[Op] = [
        # Fails if a deletion is requested at the time of the creation.
        Create(asks_for_deletion),
        Delete(asks_for_deletion),
        Create(paths.topic(name), data),
    ]
    config_path = paths.topic_config(name)
    configured: Op = Create(config_path, config)
    while True:
        try:
            await znodes.multi([*creation, configured])
        except NodeExists as there:
            if there.op == 0:
                raise KafkaError(
                    ErrorCode.topic_already_exists,
                    f"Topic '{name}' is marked for deletion.",
                ) from None
            if there.op != len(creation):
                break
            # Overwrite leftover configs of a deleted topic.
            configured = SetData(config_path, config)
        except NoNode:
            # The leftover configs were deleted meanwhile.
            configured = Create(config_path, config)
        else:
            return
    found = await znodes.find(paths.topic(name))
    # Equal data means that this creation succeeded and its response was lost.
    if found is None or found.data != data:
        raise _exists(name)


async def request_deletion(znodes: RetryingZnodes, name: str) -> None:
    """Ask the controller to delete a topic; raise UNKNOWN_TOPIC_OR_PARTITION."""
    if await znodes.exists(paths.topic(name)) is None:
        raise unknown(name)
    await znodes.ensure(paths.topic_to_delete(name))


async def create_partitions(
    znodes: RetryingZnodes,
    name: str,
    first: int,
    assignment: tuple[tuple[int, ...], ...],
) -> bool:
    """Add partitions; False if the topic has changed or has not ``first`` partitions.

    Raises UNKNOWN_TOPIC_OR_PARTITION and REASSIGNMENT_IN_PROGRESS.
    """
    found = await znodes.find(paths.topic(name))
    if found is None:
        raise unknown(name)
    data, stat = found
    topic = read_topic(data)
    if len(topic.partitions) != first:
        return False
    if any(each.is_being_reassigned for each in topic.partitions.values()):
        raise KafkaError(
            ErrorCode.reassignment_in_progress,
            f"A partition reassignment is in progress for the topic '{name}'.",
        )
    added = {
        first + offset: ReplicaAssignment(replicas)
        for offset, replicas in enumerate(assignment)
    }
    wanted = replace(topic, partitions={**topic.partitions, **added})
    try:
        await znodes.set(paths.topic(name), write_topic(wanted), version=stat.version)
    except BadVersion:
        return False
    except NoNode:
        raise unknown(name) from None
    return True


async def partition_count(znodes: RetryingZnodes, name: str) -> int | None:
    """Return a topic's partition count; None if there is no such topic."""
    found = await znodes.find(paths.topic(name))
    return None if found is None else len(read_topic(found.data).partitions)


async def reserve_producer_ids(znodes: RetryingZnodes, broker_id: int) -> range:
    """Reserve the next block of producer ids for this broker."""
    while True:
        data, stat = await znodes.get(paths.PRODUCER_IDS)
        first = read_producer_ids(data).last + 1 if data else 0
        last = first + PRODUCER_ID_BLOCK - 1
        if last > _PRODUCER_ID_MAX:
            raise KafkaError(ErrorCode.unknown_server_error, "producer ids exhausted")
        block = write_producer_ids(ProducerIdBlock(broker_id, first, last))
        try:
            await znodes.set(paths.PRODUCER_IDS, block, version=stat.version)
        except BadVersion:
            continue
        return range(first, last + 1)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")


def unknown(name: str) -> KafkaError:
    """Return the error for a topic that does not exist."""
    return KafkaError(
        ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}"
    )
