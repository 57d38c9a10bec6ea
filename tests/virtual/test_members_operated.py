"""Operations on three brokers under ZooKeeper: topics, elections, moves, configs."""

from __future__ import annotations

from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import (
    Members,
    consumed,
    in_sync,
    leaders,
    numbers,
    send,
    with_members,
)

NONE = ErrorCode.none


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


def test_there_is_no_quorum_under_zookeeper() -> None:
    async def scenario(members: Members) -> None:
        for broker in members.alive:
            answered = await members.ask(broker, ApiKey.DESCRIBE_QUORUM, 2, topics=[])
            assert answered.error_code is ErrorCode.unsupported_version

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
        # The deletion is complete: the name is free.
        assert (await members.create("t")).error_code is NONE

    with_members(scenario)


def test_a_preferred_leader_is_elected_on_demand() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await in_sync(members)
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
        await members.until(lambda: members.leader("t") >= 0)
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
