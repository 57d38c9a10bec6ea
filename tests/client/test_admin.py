"""The admin client with three brokers in virtual time, one of which dies."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import pytest
import trio

from broker.client.admin import (
    EARLIEST,
    LATEST,
    KafkaAdmin,
    by_leader,
    open_admin,
)
from broker.client.admin_changes import BROKER, TOPIC
from broker.client.consumer.consumer_commits import OffsetAndMetadata
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.topic_partition import TopicPartition
from tests.virtual.members import Members, in_sync, numbers, send, with_members
from tests.web_console.fake_kafka import FakeKafka

T = TypeVar("T")
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
Ask = Callable[[Members, KafkaAdmin], Awaitable[T]]


def opened(members: Members) -> AbstractAsyncContextManager[KafkaAdmin]:
    return open_admin(members.bootstrap, connect=members.connect, rng=random.Random(3))


def beside_three(ask: Ask[T]) -> T:
    """Run ``ask`` with three brokers and ten records in two partitions."""

    async def scenario(members: Members) -> T:
        await members.create("t", 2, configs=[("retention.ms", "77")])
        await in_sync(members)
        await in_sync(members, index=1)
        async with members.producer() as producer:
            await send(producer, numbers(0, 10))
        async with opened(members) as admin:
            return await ask(members, admin)

    return with_members(scenario)


async def offsets(admin: KafkaAdmin, timestamp: int) -> Mapping[TopicPartition, int]:
    topics = await admin.describe_topics(["t"])
    found = {}
    for leader, partitions in by_leader(topics, [ONE, TWO]).items():
        found |= await admin.list_offsets(leader, partitions, timestamp)
    return {partition: row.offset for partition, row in found.items()}


def test_a_cluster_is_described_as_its_brokers_are() -> None:
    async def ask(members: Members, admin: KafkaAdmin) -> None:
        found = await admin.describe_cluster()
        assert sorted((it.id, it.host, it.port) for it in found.brokers) == [
            (number, "127.0.0.1", 9092 + number) for number in range(3)
        ]
        assert found.controller_id == members.controller
        assert not found.has_quorum
        assert found.cluster_id == members.broker(0).cluster_id

    beside_three(ask)


def test_metadata_serves_where_describe_cluster_is_not_served() -> None:
    async def ask(members: Members, admin: KafkaAdmin) -> None:
        whole = await admin.describe_cluster()
        async with opened(members) as older:
            spoken = dict(older.client.spoken)
            del spoken[ApiKey.DESCRIBE_CLUSTER]
            older.client.spoken = spoken
            found = await older.describe_cluster()
        assert sorted(found.brokers) == sorted(whole.brokers)
        assert found._replace(brokers=()) == whole._replace(brokers=())

    beside_three(ask)


def test_a_broker_that_dies_is_not_asked_and_its_replicas_are_missing() -> None:
    async def ask(members: Members, admin: KafkaAdmin) -> None:
        await admin.describe_cluster()
        victim = members.leader("t")
        await members.kill(victim)
        await members.until(lambda: members.leader("t") not in (-1, victim))
        await members.until(lambda: victim not in members.isr("t"))
        found = await admin.describe_cluster()
        assert victim not in {it.id for it in found.brokers}
        (topic,) = await admin.describe_topics(["t"])
        first = next(it for it in topic.partitions if it.partition_index == 0)
        assert first.leader_id == members.leader("t")
        assert set(first.replica_nodes) == {0, 1, 2}
        assert set(first.isr_nodes) == {0, 1, 2} - {victim}
        with pytest.raises(KafkaError, match=f"broker {victim} is not alive"):
            await admin.describe_log_dirs(victim)

    beside_three(ask)


def test_offsets_and_sizes_are_those_of_the_logs() -> None:
    async def ask(members: Members, admin: KafkaAdmin) -> None:
        ends = await offsets(admin, LATEST)
        assert sum(ends.values()) == 10
        assert await offsets(admin, EARLIEST) == {ONE: 0, TWO: 0}
        for number in range(3):
            (directory,) = await admin.describe_log_dirs(number)
            assert directory.log_dir == "/data"
            (topic,) = (it for it in directory.topics if it.name == "t")
            sizes = {it.partition_index: it.partition_size for it in topic.partitions}
            assert sizes == {
                index: members.partition(number, "t", index).log.size_bytes
                for index in (0, 1)
            }

    beside_three(ask)


def test_configs_come_with_their_source() -> None:
    """Sources are those of Kafka's ``DescribeConfigsResponse.ConfigSource``."""

    async def ask(members: Members, admin: KafkaAdmin) -> None:
        rows = await admin.describe_configs(TOPIC, "t")
        found = {it.name: (it.value, it.config_source) for it in rows}
        assert found["retention.ms"] == ("77", 1)
        assert found["segment.ms"] == ("604800000", 5)
        rows = await admin.describe_configs(BROKER, "1")
        found = {it.name: (it.value, it.config_source) for it in rows}
        assert found["broker.id"] == ("1", 4)
        with pytest.raises(KafkaError) as raised:
            await admin.describe_configs(TOPIC, "none")
        assert raised.value.code is ErrorCode.unknown_topic_or_partition

    beside_three(ask)


def test_groups_are_listed_by_coordinator_with_what_they_committed() -> None:
    async def ask(members: Members, admin: KafkaAdmin) -> None:
        async with members.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            read = 0
            while read < 10:
                read += len(await consumer.poll())
            await consumer.commit({ONE: OffsetAndMetadata(3, "note")})
            listed = {
                number: [it.group_id for it in await admin.list_groups(number)]
                for number in range(3)
            }
            (coordinator,) = (number for number, it in listed.items() if it == ["g"])
            (group,) = await admin.describe_groups(coordinator, ["g"])
            assert (group.group_state, group.protocol_type) == ("Stable", "consumer")
            assert len(group.members) == 1
            found = await admin.committed(coordinator, "g")
            offsets = {it: row.committed_offset for it, row in found.items()}
            assert (offsets, found[ONE].metadata) == ({ONE: 3}, "note")
            several = await admin.committed_by_group(coordinator, ["none", "g"])
            assert several["g"] == found
            assert not several.get("none")

    beside_three(ask)


def test_reading_creates_nothing() -> None:
    async def scenario(members: Members) -> None:
        async with opened(members) as admin:
            (topic,) = await admin.describe_topics(["absent"])
            assert topic.error_code is ErrorCode.unknown_topic_or_partition
            for number in range(3):
                assert not await admin.list_groups(number)
                with pytest.raises(KafkaError) as raised:
                    await admin.committed(number, "absent")
                assert raised.value.code is ErrorCode.not_coordinator
            assert await admin.describe_topics() == ()

    with_members(scenario)


def test_partitions_without_a_leader_have_nobody_to_be_asked_of() -> None:
    topic = MetadataResponseTopic(error_code=ErrorCode.none, name="t", partitions=[])
    assert by_leader([topic], [ONE]) == {}


def test_a_cluster_that_is_away_is_an_error() -> None:
    async def scenario(members: Members) -> None:
        for number in range(3):
            await members.kill(number)
        async with opened(members) as admin:
            with pytest.raises(KafkaError) as raised:
                await admin.describe_cluster()
            assert raised.value.code is ErrorCode.network_exception

    with_members(scenario)


@pytest.mark.parametrize(("moves", "asked"), [(0, 1), (3, 4), (9, 4)])
async def test_a_change_goes_to_the_next_controller_three_times(
    moves: int, asked: int, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = [ErrorCode.not_controller] * moves + [ErrorCode.none]
    received: list[str] = []

    def delete(request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        received.extend(request.topic_names)
        code = codes[len(received) - 1]
        row = DeletableTopicResult(name="t", error_code=code)
        return DeleteTopicsResponse(responses=[row])

    async with trio.open_nursery() as nursery:
        kafka = FakeKafka(nursery, lambda name: name)
        monkeypatch.setattr(kafka, "_delete_topics", delete)
        async with open_admin("fake:1", connect=kafka.connect) as admin:
            if moves < asked:
                await admin.delete_topic("t")
            else:
                with pytest.raises(KafkaError) as raised:
                    await admin.delete_topic("t")
                assert raised.value.code is ErrorCode.not_controller
        nursery.cancel_scope.cancel()
    assert received == ["t"] * asked
    # The client looks up the controller before each attempt.
    assert kafka.calls.count(ApiKey.METADATA) >= asked
