"""AlterReplicaLogDirs (34): move replicas between log directories (KIP-113).

Versions: 1-2.

Behaviour:
- The response means that the move has begun; DescribeLogDirs reports its progress. A
  copy in the other directory replaces the log once it is complete.
- A duplicate partition moves to the last directory. A move in progress is replaced, or
  cancelled if the request has the current directory.
- LOG_DIR_NOT_FOUND is returned for a directory that is not in ``log.dirs``, and
  KAFKA_STORAGE_ERROR for an offline directory, and for all moves while one is offline.
  INVALID_TOPIC_EXCEPTION is returned if the name of the copy would be too long.
- REPLICA_NOT_AVAILABLE is returned for a partition of other brokers: the directory is
  kept in memory until this broker gets a replica. UNKNOWN_TOPIC_OR_PARTITION, for a
  partition that does not exist, has the same effect, as in Kafka.

Version notes: v2 is flexible.

Left out: v0, which Kafka 4 has removed.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation
from broker.cluster.log_dir_moves import move_replica
from broker.disk.identity import draw_uuid
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace, in_steps, preempt


async def handle(
    request: Request, body: AlterReplicaLogDirsRequest, broker: Broker
) -> AlterReplicaLogDirsResponse:
    """Begin, replace and cancel moves."""
    pace = Pace()
    wanted: dict[TopicPartition, str] = {}
    async for each in pace.over(body.dirs):
        async for topic in pace.over(each.topics):
            async for index in pace.over(topic.partitions):
                wanted[TopicPartition(topic.name, index)] = each.path
    # A cancelled move leaves offsets that a new move must not use.
    await broker.checkpoint_deletions()
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    async with broker.state_change_lock:
        async for key, directory in in_steps(wanted.items()):
            topics.setdefault(key.topic, []).append(
                AlterReplicaLogDirPartitionResult(
                    partition_index=key.partition,
                    error_code=_outcome(key, directory, broker),
                )
            )
            await preempt()
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows)
            for name, rows in topics.items()
        ]
    )


def _outcome(key: TopicPartition, directory: str, broker: Broker) -> ErrorCode:
    number = draw_uuid(broker.rng)
    try:
        move_replica(key, directory, number, broker.replicas, broker.logs)
    except OSError:
        return ErrorCode.kafka_storage_error
    except KafkaError as error:
        if error.code is ErrorCode.not_leader_or_follower:
            return ErrorCode.replica_not_available
        return error.code
    return ErrorCode.none


API: Final = Api(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=(1, 2),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.ALTER),
    error_answer=ErrorAnswer(
        rows={"results": ("dirs.topics",), "partitions": ("partitions",)}
    ),
)
