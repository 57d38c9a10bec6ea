"""Content of the final log: the attempts' records, by number."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from broker.protocol.records.batch import split_batches
from broker.protocol.records.batch_records import iter_records
from experiments.cluster.broker_connection import BrokerConnection
from experiments.cluster.cluster_under_test import Address, ClusterUnderTest
from experiments.load import load_requests as requests

_CLIENT_ID = "reader"
# Correlation id of requests that no record refers to: set-up and reading.
_NUMBER = -1
_FETCH_BYTES = 1 << 20
_CONSUMER = -1


class LogUnreadable(Exception):
    """The last leader does not return its log."""


async def records_of(
    under_test: ClusterUnderTest, leader: Address, topic: str, partition: int
) -> Counter[int]:
    """Read a partition up to its high watermark; count records by their key.

    :raises LogUnreadable: if the broker answers with an error.
    """
    wire = await under_test.wire(leader)
    try:
        return await _read(wire, topic, partition)
    finally:
        await wire.close()


async def _read(wire: BrokerConnection, topic: str, partition: int) -> Counter[int]:
    found: Counter[int] = Counter()
    offset, end = 0, 1
    while offset < end:
        row = await _fetched(wire, topic, partition, offset)
        if row.error_code is not ErrorCode.none:
            raise LogUnreadable(f"{topic}-{partition}: {row.error_code!r}")
        for header, batch in split_batches(row.records or b""):
            for record in iter_records(header, batch):
                if record.key is not None:
                    found[int.from_bytes(record.key)] += 1
            offset = header.last_offset + 1
        end = int(row.high_watermark)
    return found


async def _fetched(
    wire: BrokerConnection, topic: str, partition: int, offset: int
) -> PartitionData:
    wanted = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=_FETCH_BYTES,
    )
    body = FetchRequest(
        max_wait=timedelta(0),
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    frame = requests.encode(ApiKey.FETCH, _NUMBER, _CLIENT_ID, body)
    answer: FetchResponse = requests.decoded(ApiKey.FETCH, await wire.exchange(frame))
    return answer.responses[0].partitions[0]
