"""Three brokers under one ZooKeeper: what fails is taken over, and nothing is lost.

Whole brokers in virtual time: the controller is one of them, and may be what fails.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.apis.common.answer import Row
from broker.client.producer.producer import KafkaProducer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import SESSION_S, Members, with_members

NONE = ErrorCode.none
EVERYBODY = {0, 1, 2}
METADATA_OF_T = {
    "topics": [Row(topic_id=None, name="t")],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


async def send(producer: KafkaProducer, values: list[bytes], topic: str = "t") -> None:
    receipts = [await producer.send(topic, value) for value in values]
    for receipt in receipts:
        await receipt.wait()


async def consumed(members: Members, count: int, topic: str = "t") -> list[bytes]:
    async with members.consumer() as consumer:
        consumer.assign(await consumer.partitions_for(topic))
        values: list[bytes] = []
        while len(values) < count:
            values += [each.value or b"" for each in await consumer.poll(timeout_s=5)]
        values += [each.value or b"" for each in await consumer.poll(timeout_s=1)]
        return values


async def in_sync(members: Members, topic: str = "t", index: int = 0) -> None:
    await members.until(lambda: members.isr(topic, index) == set(members.alive))


def leaders(members: Members, topic: str, count: int) -> list[int]:
    return [members.leader(topic, index) for index in range(count)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_a_topic_with_three_replicas_is_led_and_followed_by_all() -> None:
    async def scenario(members: Members) -> None:
        assert (await members.create("t", 6)).error_code is NONE
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 200))
        # Each leads two of the six, and follows the rest.
        assert sorted(leaders(members, "t", 6)) == [0, 0, 1, 1, 2, 2]
        assert sorted(await consumed(members, 200)) == sorted(numbers(0, 200))
        for number in members.alive:
            members.broker(number).check()

    with_members(scenario)


@pytest.mark.parametrize("seed", range(1, 4))
def test_another_leads_when_the_leader_is_killed(seed: int) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        async with members.producer(
            acks="all", delivery_timeout_ms=120_000
        ) as producer:
            await send(producer, numbers(0, 50))
            victim = members.leader("t")
            await members.kill(victim)
            await send(producer, numbers(50, 100))
            assert members.leader("t") != victim
            await members.start(victim)
            await in_sync(members)
            await send(producer, numbers(100, 150))
        assert await consumed(members, 150) == numbers(0, 150)

    with_members(scenario, seed=seed)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_another_governs_when_the_controller_is_gone(how: str) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        first = members.controller
        assert first is not None
        await (members.kill if how == "killed" else members.stop)(first)
        began_s = trio.current_time()
        await members.until(lambda: members.controller is not None)
        if how == "stopped":
            # The session was ended, not left to expire.
            assert trio.current_time() - began_s < 1
        assert members.controller != first
        row = await members.create("later", replication_factor=2)
        assert row.error_code is NONE
        epochs = {members.broker(it).controller_epoch for it in members.alive}
        assert epochs == {2}

    with_members(scenario)


def test_a_stopping_broker_hands_over_what_it_leads() -> None:
    """No produce fails, and none waits for a session to expire."""

    async def scenario(members: Members) -> None:
        await members.create("t", 3)
        async with members.producer(acks="all") as producer:
            for victim in range(3):
                await in_sync(members)
                began_s = trio.current_time()
                await members.stop(victim)
                assert victim not in leaders(members, "t", 3)
                assert trio.current_time() - began_s < SESSION_S / 2
                await send(producer, numbers(0, 60))
                await members.start(victim)
                for index in range(3):
                    await in_sync(members, index=index)

    with_members(scenario)


def test_who_has_not_heard_of_the_cluster_names_no_topic_as_gone() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")

        async def told(number: int) -> tuple[list[int], list[ErrorCode]]:
            found = await members.ask(number, ApiKey.METADATA, 8, **METADATA_OF_T)
            brokers = [each.node_id for each in found.brokers]
            return brokers, [each.error_code for each in found.topics]

        assert await told(1) == ([0, 1, 2], [NONE])
        for number in range(3):
            await members.kill(number)
        # Nobody governs until the sessions of all three have expired.
        await members.start(1)
        assert await told(1) == ([], [])
        await members.until(lambda: members.broker(1).metadata_cache.controller_id >= 0)
        assert await told(1) == ([1], [NONE])

    with_members(scenario)


def test_a_session_that_expires_is_followed_by_another() -> None:
    """The broker goes on, under a new epoch; what it led, others lead by then."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        victim = members.leader("t")
        before = members.broker(victim).coordinator.broker_epoch
        members.cut_off(victim)
        await members.until(lambda: members.leader_of_others("t", victim) != victim)
        members.let_in(victim)
        await members.until(
            lambda: members.broker(victim).coordinator.broker_epoch > before
        )
        await in_sync(members)
        assert members.isr("t") == EVERYBODY
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 20))
        assert await consumed(members, 20) == numbers(0, 20)

    with_members(scenario)


def test_a_deleted_topic_is_gone_everywhere_and_may_come_again() -> None:
    async def scenario(members: Members) -> None:
        first = await members.create("t", 2)
        controller = members.controller
        assert controller is not None
        answered = await members.ask(
            controller,
            ApiKey.DELETE_TOPICS,
            6,
            topics=[{"name": "t", "topic_id": None}],
            timeout=SECONDS_30,
        )
        assert answered.responses[0].error_code is NONE
        await members.until(
            lambda: not any(members.broker(it).logs.logs for it in members.alive)
        )
        again = await members.create("t", 2)
        assert again.error_code is NONE
        assert again.topic_id != first.topic_id

    with_members(scenario)


def test_a_topic_is_deleted_from_a_broker_that_was_away() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        away = next(it for it in members.alive if it != members.controller)
        await members.kill(away)
        await members.until(lambda: members.leader("t") not in (away, -1))
        controller = members.controller
        assert controller is not None
        await members.ask(
            controller,
            ApiKey.DELETE_TOPICS,
            6,
            topics=[{"name": "t", "topic_id": None}],
            timeout=SECONDS_30,
        )
        await members.start(away)
        await members.until(
            lambda: not any(members.broker(it).logs.logs for it in members.alive)
        )
        # Wholly: the name is free.
        assert (await members.create("t")).error_code is NONE

    with_members(scenario)


def test_a_preferred_leader_is_elected_on_demand() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        preferred = members.leader("t")
        await members.stop(preferred)
        await members.start(preferred)
        await in_sync(members)
        assert members.leader("t") != preferred
        await members.until(lambda: members.controller is not None)
        assert members.controller is not None
        fields: dict[str, Any] = {
            "election_type": 0,
            "topic_partitions": [{"topic": "t", "partitions": [0]}],
            "timeout": SECONDS_30,
        }
        others = [it for it in members.alive if it != members.controller]
        refused = await members.ask(others[0], ApiKey.ELECT_LEADERS, 2, **fields)
        assert refused.error_code is ErrorCode.not_controller
        answered = await members.ask(
            members.controller, ApiKey.ELECT_LEADERS, 2, **fields
        )
        (row,) = answered.replica_election_results[0].partition_result
        assert row.error_code is NONE
        await members.until(lambda: members.leader("t") == preferred)

    with_members(scenario, auto_leader_rebalance_enable="false")


def test_leaders_go_back_to_preferred_replicas_by_themselves() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", 3)
        before = leaders(members, "t", 3)
        await members.stop(0)
        await members.until(lambda: 0 not in leaders(members, "t", 3))
        await members.start(0)
        await members.until(lambda: leaders(members, "t", 3) == before)

    with_members(scenario, leader_imbalance_check_interval_seconds="10")


def test_a_partition_moves_to_another_broker_with_its_records() -> None:
    async def scenario(members: Members) -> None:
        placed = {"partition_index": 0, "broker_ids": [0, 1]}
        row = await members.create("t", -1, replication_factor=-1, assignments=[placed])
        assert row.error_code is NONE
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 100))
            controller = members.controller
            assert controller is not None
            moved = {"partition_index": 0, "replicas": [2, 1]}
            answered = await members.ask(
                controller,
                ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                0,
                topics=[{"name": "t", "partitions": [moved]}],
                timeout=SECONDS_30,
            )
            (row,) = answered.responses[0].partitions
            assert row.error_code is NONE
            await send(producer, numbers(100, 200))
        await members.until(lambda: members.isr("t") == {1, 2})
        await members.until(lambda: ("t", 0) not in members.broker(0).logs.logs)
        listed = await members.ask(
            controller, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None
        )
        assert not listed.topics
        assert await consumed(members, 200) == numbers(0, 200)

    with_members(scenario)


def test_configs_that_one_broker_is_told_are_in_force_at_all() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t", configs=[("retention.ms", "111111")])
        kept = [members.partition(it, "t").log.config for it in members.alive]
        assert {each.retention_ms for each in kept} == {111_111}
        change = {"name": "retention.ms", "config_operation": 0, "value": "222222"}
        answered = await members.ask(
            1,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {"resource_type": 2, "resource_name": "t", "configs": [change]},
                {
                    "resource_type": 4,
                    "resource_name": "",
                    "configs": [{**change, "name": "log.retention.ms"}],
                },
            ],
            validate_only=False,
        )
        assert {each.error_code for each in answered.responses} == {NONE}
        await members.create("u")
        await members.until(
            lambda: all(
                members.partition(it, name).log.config.retention_ms == 222_222
                for it in members.alive
                for name in ("t", "u")
            )
        )

    with_members(scenario)


def test_no_producer_id_is_given_by_two_brokers() -> None:
    async def scenario(members: Members) -> None:
        ids = []
        for number in (0, 1, 2, 0):
            answered = await members.ask(
                number,
                ApiKey.INIT_PRODUCER_ID,
                4,
                transactional_id=None,
                transaction_timeout=SECONDS_30,
                producer_id=-1,
                producer_epoch=-1,
            )
            assert answered.error_code is NONE
            ids.append(answered.producer_id)
        assert ids == [0, 1000, 2000, 1]

    with_members(scenario)


def test_an_old_controller_is_fenced_by_the_next() -> None:
    """Cut off, it goes on to believe; nobody obeys it, and ZooKeeper refuses it."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        old = members.controller
        assert old is not None
        members.cut_off(old)
        others = [it for it in members.alive if it != old]
        await members.until(
            lambda: any(members.members[it].is_controller for it in others)
        )
        # It has not heard of it: it would take an election for its own to decide.
        await members.until(
            lambda: {members.broker(it).controller_epoch for it in others} == {2}
        )
        members.let_in(old)
        await members.until(lambda: members.controller in others)
        await in_sync(members)
        assert members.isr("t") == EVERYBODY

    with_members(scenario)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_group_and_its_offsets_survive_their_coordinator(how: str) -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        async with (
            members.producer(acks="all") as producer,
            members.consumer(group_id="g", enable_auto_commit=False) as consumer,
        ):
            consumer.subscribe(["t"])
            await send(producer, numbers(0, 50))
            seen: list[bytes] = []
            while len(seen) < 50:
                seen += [each.value or b"" for each in await consumer.poll()]
            await consumer.commit()
            index = members.broker(0).groups.partition_for("g")
            victim = members.leader("__consumer_offsets", index)
            await (members.kill if how == "killed" else members.stop)(victim)
            await send(producer, numbers(50, 100))
            while len(seen) < 100:
                seen += [each.value or b"" for each in await consumer.poll()]
            await consumer.commit()
        assert seen == numbers(0, 100)
        assert members.leader("__consumer_offsets", index) != victim
        # Another member of the group goes on where that one was.
        async with members.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            assert await consumer.poll(timeout_s=10) == []
            async with members.producer(acks="all") as producer:
                await send(producer, [b"last"])
            (record,) = await consumer.poll()
            assert record.value == b"last"

    with_members(scenario)
