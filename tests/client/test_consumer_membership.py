"""Members of KIP-848 groups with the real coordinator, in virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import Cluster, in_cluster
from tests.client.group_members import (
    KIP_848,
    QUICK,
    Listener,
)

T0 = TopicPartition("t", 0)
GROUP = {"group_id": "g", "enable_auto_commit": False, **KIP_848}


def test_a_change_of_the_subscription_keeps_the_rest() -> None:
    async def scenario(cluster: Cluster) -> list[tuple[str, set[str]]]:
        for topic in ("t", "u", "v"):
            await cluster.create(topic, 1)
        async with cluster.consumer(**GROUP) as consumer:
            listener = Listener(consumer)
            for topics in (["t", "u"], ["u", "v"]):
                consumer.subscribe(topics, listener)
                while {each.topic for each in consumer.assignment} != {*topics}:
                    await consumer.poll(timeout_s=0.05)
        return [(what, {it.topic for it in which}) for what, which in listener.events]

    events = in_cluster(scenario)
    assert [each for each in events if each[1]] == [
        ("assigned", {"t", "u"}),
        ("revoked", {"t"}),
        ("assigned", {"v"}),
        ("revoked", {"u", "v"}),
    ]


def test_an_instance_id_in_use_is_refused() -> None:
    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", 1)
        async with (
            cluster.consumer(group_instance_id="one", **GROUP) as first,
            cluster.consumer(group_instance_id="one", **GROUP) as second,
        ):
            first.subscribe(["t"])
            while not first.assignment:
                await first.poll(timeout_s=0.05)
            second.subscribe(["t"])
            with pytest.raises(KafkaError) as refused:
                await second.poll(timeout_s=5)
        return refused.value.code

    assert in_cluster(scenario) is ErrorCode.unreleased_instance_id


def test_positions_move_with_commits() -> None:
    async def scenario(cluster: Cluster) -> tuple[int, int]:
        await cluster.create("t", 1)
        async with cluster.producer() as producer:
            for number in range(10):
                await producer.send("t", b"%d" % number)
        async with cluster.consumer(**GROUP) as consumer:
            consumer.subscribe(["t"])
            assert len(await consumer.poll(4, timeout_s=5)) == 4
            await consumer.commit()
            found = await consumer.committed([T0])
        async with cluster.consumer(**GROUP) as consumer:
            consumer.subscribe(["t"])
            (record,) = await consumer.poll(1, timeout_s=5)
        return found[T0].offset, record.offset

    assert in_cluster(scenario) == (4, 4)


@pytest.mark.parametrize("own", [QUICK, KIP_848], ids=["classic", "KIP-848"])
def test_a_forgotten_member_commits_no_offsets_in_a_transaction(
    own: dict[str, object],
) -> None:
    """Java's consumer keeps its metadata, too: without a member id all may commit."""

    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", 1)
        options = {"group_id": "g", "enable_auto_commit": False, **own}
        async with (
            cluster.producer(transactional_id="tx") as producer,
            cluster.consumer(**options) as consumer,
        ):
            await producer.init_transactions()
            consumer.subscribe(["t"])
            while not consumer.assignment:
                await consumer.poll(timeout_s=0.05)
            before = consumer.group_metadata()
            cluster.reachable = False
            cluster.cut_all()
            # The session has expired; another member could own the partition.
            await trio.sleep(3)
            cluster.reachable = True
            await trio.sleep(3)
            assert consumer.group_metadata() == before
            await producer.begin_transaction()
            with pytest.raises(KafkaError) as fenced:
                await producer.send_offsets_to_transaction(
                    {T0: 1}, consumer.group_metadata()
                )
            await producer.abort_transaction()
        return fenced.value.code

    assert in_cluster(scenario) is ErrorCode.unknown_member_id


def test_a_cluster_without_consumer_groups_refuses_members() -> None:
    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", 1)
        await cluster.ask(
            ApiKey.UPDATE_FEATURES,
            1,
            timeout=timedelta(seconds=5),
            feature_updates=[
                {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
            ],
            validate_only=False,
        )
        async with cluster.consumer(**GROUP) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KafkaError) as refused:
                await consumer.poll(timeout_s=5)
        return refused.value.code

    assert in_cluster(scenario) is ErrorCode.unsupported_version


@pytest.mark.parametrize(
    "settings",
    [
        {"group_protocol": "consumer", "session_timeout_ms": 10_000},
        {"group_protocol": "consumer", "heartbeat_interval_ms": 10},
        {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
        {"group_remote_assignor": "uniform"},
    ],
)
def test_settings_of_the_other_protocol_are_refused(
    settings: dict[str, object],
) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ConfigError, match=r"group\.protocol"):
            async with cluster.consumer(group_id="g", **settings):
                pass

    in_cluster(scenario)
