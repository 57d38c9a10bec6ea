"""ListOffsets (2): find the first, the last, or a time stamp's offset of partitions.

Versions: 1-11 served, 0-11 advertised.

Behaviour:
- The result for a time stamp is the first record at or after it, or -1.
- Special values: -1 is the end for this reader (the high watermark or last stable
  offset, for a follower the log's end); -2 the start; -3 the record with the largest
  time stamp; -4 the local start; -5 the tiered end; -6 the first offset pending upload.
  The last two results are -1, since there is no tiered storage.
- While a leader's high watermark is below its epoch's start, offsets beyond it are
  OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before v5; KIP-207).
- Both rows of a duplicate partition are INVALID_REQUEST, and so are all rows of a
  request with an unknown isolation level.
- Only leaders serve this API, in the client's leader epoch; a debugging consumer
  (replica id -2) is also served by followers. A request can be preempted between
  partitions, and during a search by time.

Version notes: v2 adds the isolation level, v4 leader epochs (KIP-320), v6 is flexible,
v7 adds -3 (KIP-734), v8 -4 (KIP-405), v9 -5 (KIP-1005), v10 a time-out for tiered logs
(KIP-1075), v11 -6 (KIP-1023).

Left out: v0, which listed segment offsets.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker.apis.common.access import Check, allowed_on_topic, in_handler
from broker.apis.common.answer import ISOLATION_LEVELS, READ_COMMITTED
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.log_steps import preemptibly
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.partition import Partition
from broker.log.times import (
    TimestampOffset,
    offset_for_timestamp,
    offset_of_max_timestamp,
)
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire import replica_ids
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from planes.slices import Pace, preempt

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
# The first version of each special time stamp.
_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2

NOTHING: Final = TimestampOffset(-1, -1, -1)


async def handle(
    request: Request, body: ListOffsetsRequest, broker: Broker
) -> ListOffsetsResponse:
    """Look up the offsets, partition by partition."""
    topics = []
    pace = Pace()
    named: Counter[tuple[str, int]] = Counter()
    async for topic in pace.over(body.topics):
        async for wanted in pace.over(topic.partitions):
            named[topic.name, wanted.partition_index] += 1
    async for topic in pace.over(body.topics):
        rows = []
        if not allowed_on_topic(request, broker, AclOperation.DESCRIBE, topic.name):
            refusal = ErrorCode.topic_authorization_failed
            rows = [
                _refused(wanted, refusal)
                async for wanted in pace.over(topic.partitions)
            ]
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
            continue
        async for wanted in pace.over(topic.partitions):
            if named[topic.name, wanted.partition_index] > 1:
                rows.append(_refused(wanted, ErrorCode.invalid_request))
                continue
            row = await _row(request, body, topic.name, wanted, broker)
            rows.append(row)
            await preempt()
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


async def _row(
    request: Request,
    body: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    broker: Broker,
) -> ListOffsetsPartitionResponse:
    index, replica_id = wanted.partition_index, body.replica_id
    try:
        _check_special(wanted.timestamp, request.api_version)
        if replica_id == _CONSUMER:
            _check_isolation(body.isolation_level)
        if replica_id == _DEBUGGING_CONSUMER:
            partition = broker.replicas.get(TopicPartition(topic, index))
        else:
            partition = broker.replicas.leader(
                TopicPartition(topic, index), wanted.current_leader_epoch
            )
        found = await _find(
            broker,
            partition,
            wanted.timestamp,
            request.api_version,
            is_follower=replica_id >= 0,
            committed=body.isolation_level == READ_COMMITTED,
        )
    except KafkaError as error:
        return _refused(wanted, error.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _check_isolation(level: int) -> None:
    if level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.invalid_request, f"isolation level {level}")


def _refused(
    wanted: ListOffsetsPartition, error: ErrorCode
) -> ListOffsetsPartitionResponse:
    index = wanted.partition_index
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=error,
        timestamp=NOTHING.timestamp,
        offset=NOTHING.offset,
        leader_epoch=NOTHING.leader_epoch,
    )


def _check_special(timestamp: int, version: int) -> None:
    """Raise UNSUPPORTED_VERSION for a special time stamp of a later version."""
    since = _SINCE.get(timestamp, 1)
    if version < since or timestamp < EARLIEST_PENDING_UPLOAD:
        raise KafkaError(
            ErrorCode.unsupported_version, f"time stamp {timestamp} in v{version}"
        )


async def _find(
    broker: Broker,
    partition: Partition,
    timestamp: int,
    version: int,
    *,
    is_follower: bool,
    committed: bool,
) -> TimestampOffset:
    log = partition.log
    end = partition.read_end(is_follower=is_follower, committed=committed)
    if timestamp == LATEST:
        _check_end(partition, end, version, is_follower=is_follower)
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return TimestampOffset(-1, start, partition.epoch_of(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = await preemptibly(
        offset_of_max_timestamp(log)
        if timestamp == MAX_TIMESTAMP
        else offset_for_timestamp(log, timestamp),
        broker.replicas.large_windows,
    )
    if found is None or found.offset >= end:
        _check_end(partition, end, version, is_follower=is_follower)
        return NOTHING
    return found


def _check_end(
    partition: Partition, end: int, version: int, *, is_follower: bool
) -> None:
    """Raise if a new leader's end for consumers is below its epoch's start."""
    start = partition.epoch_start_offset
    if start is not None and end < start and not is_follower:
        raise KafkaError(
            ErrorCode.offset_not_available
            if version >= 5
            else ErrorCode.leader_not_available,
            f"{partition!r}: its epoch starts at {start}",
        )


API: Final = Api(
    key=ApiKey.LIST_OFFSETS,
    versions=(1, 11),
    advertised_from=0,
    request_class=METADATA,
    replica_id=replica_ids.of_list_offsets,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    error_answer=ErrorAnswer(
        rows={"topics": ("topics",), "partitions": ("partitions",)}
    ),
)
