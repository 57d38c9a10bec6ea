"""Writers and readers of an exchange, whichever the other client is."""

from __future__ import annotations

import random

import trio

from broker.client.consumer.consumer import open_consumer
from broker.client.producer.producer import open_producer
from broker.protocol.topic_partition import TopicPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 5
Headers = list[tuple[str, bytes | None]]
Keyed = tuple[bytes, bytes, Headers]


def keyed_records(rng: random.Random) -> list[Keyed]:
    """Return records of many sizes with keys; some compress and some do not."""
    records: list[Keyed] = []
    for number in range(60):
        key = rng.randbytes(rng.randrange(1, 20))
        value = rng.randbytes(rng.randrange(300)) + b"%d " % number * rng.randrange(500)
        headers: Headers = [("number", b"%d" % number), ("none", None)]
        records.append((key, value, headers if number % 3 == 0 else []))
    return records


async def write_with_ours(
    bootstrap: str, topic: str, codec: str, records: list[Keyed]
) -> None:
    """Produce the records, waiting for every one of them."""
    with trio.fail_after(60):
        async with open_producer(bootstrap, compression_type=codec) as producer:
            receipts = [
                await producer.send(topic, value, key=key, headers=headers)
                for key, value, headers in records
            ]
            for receipt in receipts:
                assert (await receipt.wait()).offset >= 0


async def read_with_ours(
    bootstrap: str, topic: str, count: int
) -> list[tuple[int, bytes | None, bytes | None, Headers]]:
    """Return (partition, key, value, headers) of ``count`` records, by partition."""
    found = []
    with trio.fail_after(60):
        async with open_consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
            while len(found) < count:
                found += await consumer.poll()
    found.sort(key=lambda each: (each.partition, each.offset))
    return [(each.partition, each.key, each.value, [*each.headers]) for each in found]
