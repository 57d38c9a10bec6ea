"""Our Trio client with Apache Kafka: every codec, groups, transactions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.client.consumer.consumer import open_consumer
from broker.client.consumer.consumer_commits import GroupMetadata
from broker.client.producer.producer import open_producer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.client.interoperation import (
    CODECS,
    PARTITIONS,
    keyed_records,
    read_with_ours,
    write_with_ours,
)
from tests.kafka.apache_kafka import ApacheKafka
from tests.kafka.java_tools import KafkaPrograms

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def bootstrap(
    programs: KafkaPrograms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    kafka = ApacheKafka(programs, tmp_path_factory.mktemp("kafka"))
    yield kafka.bootstrap
    kafka.kill()


def create(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(topic, PARTITIONS) for topic in topics]
    for created in admin.create_topics(wanted).values():
        created.result(30)


@pytest.mark.parametrize("codec", CODECS)
def test_apache_kafka_takes_our_batches_and_gives_them_back(
    bootstrap: str, codec: str
) -> None:
    create(bootstrap, codec)
    records = keyed_records(random.Random(3))
    trio.run(write_with_ours, bootstrap, codec, codec, records)
    found = trio.run(read_with_ours, bootstrap, codec, len(records))
    assert sorted(each[1:] for each in found) == sorted(records)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_two_members_share_a_topic_and_go_on_where_they_committed(
    bootstrap: str, strategy: str
) -> None:
    topic = f"shared-{strategy}"
    create(bootstrap, topic)
    share(
        bootstrap,
        topic,
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
        partition_assignment_strategy=strategy,
    )


def test_two_members_have_the_broker_divide_a_topic(
    bootstrap: str, programs: KafkaPrograms
) -> None:
    """KIP-848: Kafka 4 finalizes group.version when it formats its disk."""
    create(bootstrap, "divided")
    if programs.version < "4":
        with pytest.raises(KafkaError) as refused:
            share(bootstrap, "divided", group_protocol="consumer")
        assert refused.value.code is ErrorCode.unsupported_version
    else:
        share(bootstrap, "divided", group_protocol="consumer")


def share(bootstrap: str, topic: str, **settings: Any) -> None:
    """Read a topic with two members; the second joins later."""
    settings = {"group_id": topic, "auto_offset_reset": "earliest", **settings}

    async def main() -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        async with open_producer(bootstrap) as producer:
            for number in range(100):
                await producer.send(topic, b"x", partition=number % PARTITIONS)
        async with open_consumer(bootstrap, **settings) as first:
            first.subscribe([topic])
            while len(seen) < 40:
                seen += [(r.partition, r.offset) for r in await first.poll(10)]
            async with open_consumer(bootstrap, **settings) as second:
                second.subscribe([topic])
                shares = (first.assignment, second.assignment)
                while len(seen) < 100 or {*map(len, shares)} != {2, 3}:
                    for each in (first, second):
                        records = await each.poll(timeout_s=0.05)
                        seen += [(r.partition, r.offset) for r in records]
                    shares = (first.assignment, second.assignment)
        return seen

    async def bounded() -> list[tuple[int, int]]:
        with trio.fail_after(60):
            return await main()

    seen = trio.run(bounded)
    expected = [(p, o) for p in range(PARTITIONS) for o in range(100 // PARTITIONS)]
    assert sorted(seen) == expected


def test_read_committed_leaves_out_what_a_transaction_took_back(bootstrap: str) -> None:
    create(bootstrap, "transactions")
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce("transactions", b"%d" % number, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    async def read(isolation: str, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        with trio.fail_after(60):
            async with open_consumer(
                bootstrap, auto_offset_reset="earliest", isolation_level=isolation
            ) as consumer:
                consumer.assign([TopicPartition("transactions", 0)])
                while len(found) < count:
                    found += [each.value for each in await consumer.poll()]
        return found

    every = [b"%d" % number for number in range(6) for _ in range(3)]
    assert trio.run(read, "read_uncommitted", 18) == every
    committed = [value for value in every if int(value) % 2 == 0]
    assert trio.run(read, "read_committed", 9) == committed


def test_apache_kafka_takes_our_transactions(
    bootstrap: str, programs: KafkaPrograms
) -> None:
    """Commits, aborts, offsets and fencing, as with our own broker.

    Kafka 4 finalizes transaction.version 2: the leader fences a batch, since no
    partition is added before it.
    """
    create(bootstrap, "ours")
    target = TopicPartition("ours", 0)

    async def main() -> tuple[list[bytes | None], int, ErrorCode]:
        async with (
            open_producer(bootstrap, transactional_id="ours") as producer,
            open_producer(bootstrap, transactional_id="ours") as second,
            open_consumer(bootstrap, group_id="ours") as reader,
        ):
            await producer.init_transactions()
            for number in range(6):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    value = b"%d" % number
                    await producer.send("ours", value, partition=partition)
                await producer.send_offsets_to_transaction(
                    {target: number}, GroupMetadata("ours")
                )
                if number % 2:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            await second.init_transactions()
            with pytest.raises(KafkaError) as fenced:
                async with producer.transaction():
                    await producer.send("ours", b"zombie", partition=0)
            found = await reader.committed([target])
        values: list[bytes | None] = []
        async with open_consumer(
            bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            consumer.assign([target])
            while len(values) < 3:
                values += [each.value for each in await consumer.poll()]
        return values, found[target].offset, fenced.value.code

    async def bounded() -> tuple[list[bytes | None], int, ErrorCode]:
        with trio.fail_after(60):
            return await main()

    values, offset, code = trio.run(bounded)
    assert values == [b"0", b"2", b"4"]
    assert offset == 4
    first_protocol = programs.version < "4"
    assert code is (
        ErrorCode.producer_fenced
        if first_protocol
        else ErrorCode.invalid_producer_epoch
    )
