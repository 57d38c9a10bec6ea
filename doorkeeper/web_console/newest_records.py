"""The newest records of a topic, read from its leaders; bounded in number and bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.client.admin import EARLIEST, LATEST
from broker.client.consumer.consumer_record import ConsumerRecord, FetchedBatches
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.web_console.cluster_view import ClusterView, each_of

# Partitions that are read concurrently, and requests per partition.
PARTITIONS_MAX: Final = 16
_ROUNDS_MAX: Final = 8
_FETCH_BYTES: Final = 1 << 20


class Newest(NamedTuple):
    """Records, newest first, and the partitions that were not read to their end."""

    records: list[ConsumerRecord]
    failed: dict[int, str]


async def newest_records(
    view: ClusterView, topic: MetadataResponseTopic, numbers: Sequence[int], count: int
) -> Newest:
    """Return the newest of the last ``count`` offsets of each partition.

    Raises `KafkaError` if the topics cannot be read at all.
    """
    name = topic.name or ""
    partitions = [TopicPartition(name, it) for it in numbers[:PARTITIONS_MAX]]
    begins = await view.offsets(partitions, EARLIEST, [topic])
    ends = await view.offsets(partitions, LATEST, [topic])
    leaders = {it.partition_index: it.leader_id for it in topic.partitions}
    is_known = {it.partition: it in begins and it in ends for it in partitions}
    failed = {
        it: "no answer of a leader" for it, known in is_known.items() if not known
    }

    async def read(number: int) -> list[ConsumerRecord]:
        partition = TopicPartition(name, number)
        end = ends[partition]
        start = max(begins[partition], end - count)
        records: deque[ConsumerRecord] = deque(maxlen=count)
        for _ in range(_ROUNDS_MAX):
            if start >= end:
                break
            found = await view.admin.fetch(
                leaders[number], partition, start, _FETCH_BYTES
            )
            batches = FetchedBatches(partition, found.records or b"", None)
            while (batch := batches.next_batch()) is not None:
                records += [it for it in batch[0] if start <= it.offset < end]
            if batches.next_offset is None:
                break
            start = batches.next_offset
        else:
            failed[number] = "the newest records are too large to be read here"
        return [*records]

    answers, errors = await each_of(
        [number for number, known in is_known.items() if known], read
    )
    failed |= {number: str(error) for number, error in errors.items()}
    merged = [it for records in answers.values() for it in records]
    merged.sort(key=lambda it: (it.timestamp_ms, it.offset), reverse=True)
    return Newest(merged[:count], failed)
