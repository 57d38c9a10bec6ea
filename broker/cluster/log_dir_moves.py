"""Requests for moves of replicas between directories: ``alterReplicaLogDirs``.

A replica has at most one move. A request for a third directory replaces the move, and a
request for the current directory cancels it. For a partition without a replica here,
the directory is stored until its creation.
"""

from __future__ import annotations

from uuid import UUID

from broker.cluster.replica_manager import ReplicaManager
from broker.disk.disk_failures import LogUnavailable
from broker.log.upkeep.directory_names import NAME_MAX, future_name
from broker.log.upkeep.manager import LogManager
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition


def move_replica(
    key: TopicPartition,
    directory: str,
    number: UUID,
    replicas: ReplicaManager,
    logs: LogManager,
) -> None:
    """Begin, replace or cancel the move of a replica; ``number`` is unique to it.

    Raises `KafkaError` or ``OSError``.
    """
    if len(future_name(key, number)) > NAME_MAX:
        raise KafkaError(ErrorCode.invalid_topic_exception, "the name is too long")
    if directory not in logs.log_dirs.all:
        raise KafkaError(ErrorCode.log_dir_not_found, f"not in log.dirs: {directory}")
    if directory in logs.log_dirs.offline:
        raise LogUnavailable(f"{directory} is offline")
    future, log = logs.futures.get(key), logs.logs.get(key)
    held = replicas.partitions.get(key)
    if key in replicas.offline or (held is not None and held.is_offline):
        raise LogUnavailable("its log directory is offline")
    if held is not None and future is not None and future.home != directory:
        logs.remove_future(key)
        future = None
    if directory not in {each.home for each in (log, future) if each is not None}:
        logs.preferred[key] = directory
    if replicas.get(key).log.home != directory and future is None:
        logs.begin_future(key, directory, number)
