"""Copy a partition in transactions with aiokafka; see `tests.exactly_once.clients`.

aiokafka commits offsets without the member's generation, so a member of a group might
commit after it has lost a partition. Each instance therefore has its own partition, and
its transactional id fences its predecessor, as before KIP-447.

aiokafka also ignores an error of a whole OffsetFetch answer, so it finds no offset
while a coordinator loads. Each instance therefore commits offset 0 at its first start,
and ends if it finds no offset later.

Usage: aiokafka_copier.py BOOTSTRAP NAME DIRECTORY SEED
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import ConsumerRecord

GROUP = "copiers"


async def copy(bootstrap: str, name: str, directory: Path, seed: str) -> None:
    """Copy until an error, which is raised."""
    rng = random.Random(seed)
    partition = TopicPartition("source", ord(name) - ord("a"))
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=name,
        transaction_timeout_ms=10_000,
    )
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        isolation_level="read_committed",
        auto_offset_reset="none",
        enable_auto_commit=False,
    )
    # `start` ends the predecessor's transaction before its offsets are read.
    await producer.start()
    await consumer.start()
    consumer.assign([partition])
    began = directory / f"{name}.began"
    if not began.exists():
        await consumer.commit({partition: 0})
        began.touch()
    while True:
        records = await consumer.getmany(timeout_ms=200, max_records=20)
        if records:
            first = records[partition][0].offset
            if not await transact(producer, records[partition], partition, rng):
                consumer.seek(partition, first)


async def transact(
    producer: AIOKafkaProducer,
    records: list[ConsumerRecord],
    partition: TopicPartition,
    rng: random.Random,
) -> bool:
    """Copy records in a transaction; return whether it was committed."""
    is_aborted = rng.random() < 0.1
    await producer.begin_transaction()
    for each in records:
        place = b"%d %d %s" % (each.partition, each.offset, each.value)
        value = b"aborted " + place if is_aborted else place
        await producer.send("target", value, partition=each.partition)
    behind = {partition: records[-1].offset + 1}
    await producer.send_offsets_to_transaction(behind, GROUP)
    await producer.flush()
    if is_aborted:
        await producer.abort_transaction()
    else:
        await producer.commit_transaction()
    return not is_aborted


if __name__ == "__main__":
    _, given_bootstrap, given_name, given_directory, given_seed = sys.argv
    asyncio.run(copy(given_bootstrap, given_name, Path(given_directory), given_seed))
