"""The transactional producer with the real broker, in virtual time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio

from broker.client.producer.producer import KafkaProducer
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import Cluster, in_cluster
from tests.seeds import seeds

T0 = TopicPartition("t", 0)


async def committed(cluster: Cluster, count: int, topic: str = "t") -> list[bytes]:
    """Return the first committed values of a topic, in order of offsets."""
    values: list[bytes] = []
    async with cluster.consumer(isolation_level="read_committed") as consumer:
        consumer.assign(await consumer.partitions_for(topic))
        while len(values) < count:
            values += [each.value for each in await consumer.poll()]
    return values


async def positions(cluster: Cluster, group: str) -> Mapping[TopicPartition, int]:
    async with cluster.consumer(group_id=group) as consumer:
        found = await consumer.committed([T0])
    return {partition: each.offset for partition, each in found.items()}


async def fail_within_a_transaction(producer: KafkaProducer) -> None:
    async with producer.transaction():
        await (await producer.send("t", b"bad")).wait()
        raise ZeroDivisionError


def test_only_committed_records_are_read() -> None:
    async def scenario(cluster: Cluster) -> list[bytes]:
        await cluster.create("t", 1)
        async with cluster.producer(transactional_id="tx") as producer:
            await producer.init_transactions()
            for number in range(6):
                await producer.begin_transaction()
                receipt = await producer.send("t", b"%d" % number)
                if number % 2:
                    await receipt.wait()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            # An abort discards unsent records.
            await producer.begin_transaction()
            receipt = await producer.send("t", b"given up")
            await producer.abort_transaction()
            with pytest.raises(KafkaError):
                await receipt.wait()
            # A transaction without records leaves no trace.
            async with producer.transaction():
                pass
            async with producer.transaction():
                await producer.send("t", b"last")
        return await committed(cluster, 4)

    assert in_cluster(scenario) == [b"0", b"2", b"4", b"last"]


def test_a_block_that_fails_aborts() -> None:
    async def scenario(cluster: Cluster) -> list[bytes]:
        await cluster.create("t", 1)
        async with cluster.producer(transactional_id="tx") as producer:
            await producer.init_transactions()
            with pytest.raises(ZeroDivisionError):
                await fail_within_a_transaction(producer)
            async with producer.transaction():
                await producer.send("t", b"good")
        return await committed(cluster, 1)

    assert in_cluster(scenario) == [b"good"]


def test_offsets_move_with_their_transaction() -> None:
    async def scenario(cluster: Cluster) -> list[Mapping[TopicPartition, int]]:
        await cluster.create("t", 1)
        found = []
        async with (
            cluster.producer(transactional_id="tx") as producer,
            cluster.consumer(group_id="g", enable_auto_commit=False) as consumer,
        ):
            await producer.init_transactions()
            consumer.subscribe(["t"])
            await consumer.poll(timeout_s=5)
            for offset in (3, 4):
                await producer.begin_transaction()
                group = consumer.group_metadata()
                await producer.send_offsets_to_transaction({T0: offset}, group)
                if offset == 3:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
                found.append(await positions(cluster, "g"))
            # Offsets of a former generation are fenced, which fails the transaction.
            stale = group._replace(generation=group.generation - 1)
            await producer.begin_transaction()
            with pytest.raises(KafkaError) as fenced:
                await producer.send_offsets_to_transaction({T0: 9}, stale)
            assert fenced.value.code is ErrorCode.illegal_generation
            with pytest.raises(KafkaError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            found.append(await positions(cluster, "g"))
        return found

    assert in_cluster(scenario) == [{T0: 3}] * 3


def test_a_second_producer_of_the_name_fences_the_first() -> None:
    async def scenario(cluster: Cluster) -> tuple[list[bytes], list[ErrorCode]]:
        await cluster.create("t", 1)
        codes = []
        async with (
            cluster.producer(transactional_id="tx") as first,
            cluster.producer(transactional_id="tx") as second,
        ):
            await first.init_transactions()
            await first.begin_transaction()
            await (await first.send("t", b"zombie")).wait()
            await second.init_transactions()
            with pytest.raises(KafkaError) as fenced:
                await first.commit_transaction()
            codes.append(fenced.value.code)
            with pytest.raises(KafkaError) as fenced:
                await first.begin_transaction()
            codes.append(fenced.value.code)
            async with second.transaction():
                await second.send("t", b"mine")
        return await committed(cluster, 1), codes

    values, codes = in_cluster(scenario)
    assert values == [b"mine"]
    assert codes == [ErrorCode.producer_fenced] * 2


def test_records_belong_to_a_transaction() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("t", 1)
        async with cluster.producer(transactional_id="tx") as producer:
            for forbidden in (
                producer.begin_transaction,
                producer.commit_transaction,
                lambda: producer.send("t", b"x"),
            ):
                with pytest.raises(KafkaError) as refused:
                    await forbidden()
                assert refused.value.code is ErrorCode.invalid_txn_state
        async with cluster.producer() as plain:
            with pytest.raises(ConfigError, match=r"transactional\.id"):
                await plain.init_transactions()

    in_cluster(scenario)


@pytest.mark.parametrize("seed", seeds(4, 8))
def test_connections_cut_at_any_byte_keep_transactions_whole(seed: int) -> None:
    count = 25

    async def scenario(cluster: Cluster) -> tuple[list[bytes], list[bytes], int]:
        await cluster.create("t", 2)
        cluster.draw_budget = lambda: cluster.rng.randrange(700, 3_000)
        expected = []
        async with cluster.producer(
            transactional_id="tx", retry_backoff_ms=5, reconnect_backoff_ms=5
        ) as producer:
            await producer.init_transactions()
            for number in range(count):
                await producer.begin_transaction()
                for partition in range(2):
                    value = b"%d %d" % (number, partition)
                    await producer.send("t", value, partition=partition)
                await trio.sleep(cluster.rng.random() * 2e-3)
                if number % 3 == 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
                    expected += [b"%d 0" % number, b"%d 1" % number]
        cluster.draw_budget = lambda: None
        found = await committed(cluster, len(expected))
        return sorted(found), sorted(expected), cluster.cuts

    found, expected, cuts = in_cluster(scenario, seed=seed)
    assert cuts > 1
    assert found == expected
