"""Comparison of the bytes of each partition's replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.log.log import Log
from broker.protocol.topic_partition import TopicPartition
from simulation.cluster import SimulatedBroker


def differences(
    brokers: Sequence[SimulatedBroker], partitions: Sequence[TopicPartition]
) -> Iterator[str]:
    """Yield the differences between replicas of a partition.

    Only for partitions without deletion and compaction.
    """
    for key in partitions:
        held = [
            (each.id, each.broker.replicas.partitions[key])
            for each in brokers
            if key in each.broker.replicas.partitions
        ]
        contents = {content(replica.log) for _, replica in held}
        if len(contents) > 1:
            ends = {number: replica.log.log_end_offset for number, replica in held}
            yield f"{key.topic}-{key.partition}: logs end at {ends} by broker"


def content(log: Log) -> bytes:
    """Return all bytes of a log's segments."""
    return b"".join(
        log.segments[number].file.read(0, log.segments[number].size)
        for number in range(len(log.segments))
    )
