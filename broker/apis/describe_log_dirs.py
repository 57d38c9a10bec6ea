"""DescribeLogDirs (35): list the replicas in each log directory, with their sizes.

Versions: 1-5.

Behaviour: the response lists every directory of ``log.dirs``, with the requested
partitions (null: all). Directories without any of them have no topics. An offline
directory has KAFKA_STORAGE_ERROR (KIP-112), and -1 for the sizes of its volume. A
replica that moves to another directory is also listed there as a future replica, with
the number of offsets still to be copied.

Version notes: v2 is flexible, v3 adds a top-level error, v4 sizes of volumes (KIP-827),
v5 cordoned directories (KIP-1066).

Left out: ``cordoned.log.dirs``, so no directory is cordoned.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.apis.common.collecting import in_order
from broker.authorization.acls import AclOperation
from broker.disk.storage import Volume
from broker.log.log import Log
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt

_UNKNOWN: Final = Volume(-1, -1)


async def handle(
    request: Request, body: DescribeLogDirsRequest, broker: Broker
) -> DescribeLogDirsResponse:
    """Describe the directories."""
    wanted: set[TopicPartition] | None = None
    if body.topics is not None:
        pace = Pace()
        wanted = {
            TopicPartition(each.topic, index)
            async for each in pace.over(body.topics)
            async for index in pace.over(each.partitions)
        }
    found = await _found(wanted, broker)
    rows = []
    for directory in broker.config.log_dirs:
        rows.append(await _row(directory, found.get(directory, {}), broker))
        await preempt()
    return DescribeLogDirsResponse(error_code=ErrorCode.none, results=rows)


async def _found(
    wanted: set[TopicPartition] | None, broker: Broker
) -> dict[str, dict[str, list[DescribeLogDirsPartition]]]:
    """Return the replicas by directory and topic, in order."""
    logs, futures = broker.logs.logs, broker.logs.futures
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    keys = tuple(logs) if wanted is None else tuple(wanted)
    async for key in in_steps(await in_order(keys)):
        for log, is_future in ((logs.get(key), False), (futures.get(key), True)):
            if log is not None:
                topics = found.setdefault(log.home, {})
                topics.setdefault(key.topic, []).append(
                    DescribeLogDirsPartition(
                        partition_index=key.partition,
                        partition_size=log.size_bytes,
                        offset_lag=_lag(key, log, broker) if is_future else 0,
                        is_future_key=is_future,
                    )
                )
    return found


async def _row(
    directory: str, topics: dict[str, list[DescribeLogDirsPartition]], broker: Broker
) -> DescribeLogDirsResult:
    is_offline = directory in broker.log_dirs.offline
    volume = _UNKNOWN if is_offline else _volume(directory, broker)
    return DescribeLogDirsResult(
        error_code=ErrorCode.kafka_storage_error if is_offline else ErrorCode.none,
        log_dir=directory,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=found)
            async for name, found in in_steps(topics.items())
        ],
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
    )


def _lag(key: TopicPartition, future: Log, broker: Broker) -> int:
    """Return the lag of a copy in offsets; -1 while its partition is not served."""
    partition = broker.replicas.partitions.get(key)
    if partition is None or partition.is_offline:
        return -1
    return partition.log.log_end_offset - future.log_end_offset


def _volume(directory: str, broker: Broker) -> Volume:
    try:
        return broker.storage.volume(directory)
    except OSError:
        # The next access to a file decides whether the directory is offline.
        return _UNKNOWN


API: Final = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(1, 5),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE),
)
