"""Operators' requests to a cluster, while clients produce and brokers fail.

Whole brokers under one ZooKeeper in virtual time. Each test reads all acknowledged
records at its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from broker.client.producer.producer import KafkaProducer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.requests import SECONDS_30
from tests.virtual.members import Members, with_members

NONE = ErrorCode.none
PREFERRED, UNCLEAN = 0, 1


# ---- requests of operators --------------------------------------------------------


async def of_controller(
    members: Members, key: ApiKey, version: int, **fields: Any
) -> Any:
    await members.until(lambda: members.controller is not None)
    assert members.controller is not None
    return await members.ask(members.controller, key, version, **fields)


async def create(members: Members, *assignments: list[int], **fields: Any) -> None:
    row = await members.create(
        "t",
        -1,
        replication_factor=-1,
        assignments=[
            {"partition_index": index, "broker_ids": replicas}
            for index, replicas in enumerate(assignments)
        ],
        **fields,
    )
    assert row.error_code is NONE
    await led(members, len(assignments))


async def led(members: Members, partitions: int) -> None:
    await members.until(
        lambda: all(members.leader("t", index) >= 0 for index in range(partitions))
    )


async def reassign(
    members: Members, targets: dict[int, list[int] | None], topic: str = "t"
) -> set[ErrorCode]:
    answer = await of_controller(
        members,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "replicas": replicas}
                    for index, replicas in targets.items()
                ],
            }
        ],
    )
    return {row.error_code for row in answer.responses[0].partitions}


async def reassigned(members: Members) -> None:
    """Wait until no reassignment is in progress."""
    with trio.fail_after(120):
        while True:
            answer = await of_controller(
                members, ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None
            )
            if answer.error_code is NONE and not answer.topics:
                return
            await trio.sleep(0.2)


async def elect(
    members: Members, kind: int, index: int = 0, topic: str = "t"
) -> ErrorCode:
    answer = await of_controller(
        members,
        ApiKey.ELECT_LEADERS,
        2,
        election_type=kind,
        topic_partitions=[{"topic": topic, "partitions": [index]}],
        timeout=SECONDS_30,
    )
    code: ErrorCode = answer.replica_election_results[0].partition_result[0].error_code
    return code


# ---- clients ----------------------------------------------------------------------


@asynccontextmanager
async def producing(members: Members) -> AsyncIterator[list[bytes]]:
    """Produce until the body ends; yield the list of acknowledged values."""
    acknowledged: list[bytes] = []

    async def produce(producer: KafkaProducer) -> None:
        for number in range(1_000_000):
            value = b"%d" % number
            await (await producer.send("t", value)).wait()
            acknowledged.append(value)
            await trio.sleep(0.01)

    async with (
        members.producer(acks="all", delivery_timeout_ms=120_000) as producer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(produce, producer)
        yield acknowledged
        # Producing continues after the body's faults.
        count = len(acknowledged)
        await members.until(lambda: len(acknowledged) > count + 10)
        nursery.cancel_scope.cancel()


async def check_nothing_lost(members: Members, acknowledged: list[bytes]) -> None:
    async with members.consumer() as consumer:
        consumer.assign(await consumer.partitions_for("t"))
        values: list[bytes] = []
        while batch := await consumer.poll(timeout_s=3):
            values += [each.value or b"" for each in batch]
    assert len(values) == len(set(values)), "a record stands twice"
    assert set(acknowledged) <= set(values), "an acknowledged record is lost"


def has_log(members: Members, number: int, index: int = 0) -> bool:
    held = members.broker(number).replicas.partitions
    return TopicPartition("t", index) in held


def told_replicas(members: Members, index: int = 0) -> set[tuple[int, ...]]:
    """Return a partition's replicas in the metadata of live brokers."""
    found = set()
    for number in members.alive:
        topic = members.broker(number).metadata_cache.topic("t")
        found.add(() if topic is None else topic.partitions[index].replicas)
    return found


# ---- elections --------------------------------------------------------------------


def test_a_preferred_leader_leads_again_when_it_is_asked_for() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1, 2])
        async with producing(members) as acknowledged:
            await members.kill(0)
            await members.until(lambda: members.leader("t") == 1)
            assert await elect(members, PREFERRED) is (
                ErrorCode.preferred_leader_not_available
            )
            await members.start(0)
            await members.until(lambda: members.isr("t") == {0, 1, 2})
            assert await elect(members, PREFERRED) is NONE
            await members.until(lambda: members.leader("t") == 0)
            assert await elect(members, PREFERRED) is ErrorCode.election_not_needed
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, auto_leader_rebalance_enable="false")


def test_a_preferred_leader_leads_again_by_itself() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1, 2])
        async with producing(members) as acknowledged:
            await members.kill(0)
            await members.until(lambda: members.leader("t") == 1)
            await members.start(0)
            await members.until(lambda: members.leader("t") == 0)
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, leader_imbalance_check_interval_seconds="10")


def test_a_replica_that_missed_records_leads_only_by_an_unclean_election() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1])
        await members.kill(1)
        await members.until(lambda: members.isr("t") == {0})
        await members.kill(0)
        await members.start(1)
        await trio.sleep(20)
        assert members.leader("t") == -1
        assert await elect(members, PREFERRED) is (
            ErrorCode.preferred_leader_not_available
        )
        assert await elect(members, UNCLEAN) is NONE
        await members.until(lambda: members.leader("t") == 1)
        await members.start(0)
        await members.until(lambda: members.isr("t") == {0, 1})

    with_members(scenario)


# ---- reassignments ----------------------------------------------------------------


def test_a_partition_moves_to_other_brokers_under_load() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1])
        async with producing(members) as acknowledged:
            await members.until(lambda: len(acknowledged) > 50)
            assert await reassign(members, {0: [2, 3]}) == {NONE}
            await reassigned(members)
            await members.until(lambda: told_replicas(members) == {(2, 3)})
            await members.until(lambda: members.leader("t") == 2)
            await members.until(
                lambda: (
                    [has_log(members, it) for it in range(4)]
                    == [False, False, True, True]
                )
            )
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, count=4)


@pytest.mark.parametrize("seed", range(1, 4))
def test_partitions_move_though_the_controller_is_killed(seed: int) -> None:
    async def scenario(members: Members) -> None:
        await create(members, *([[0, 1, 2]] * 4))
        async with producing(members) as acknowledged:
            controller = members.controller
            assert controller is not None
            target = [3, *(it for it in range(3) if it != controller)]
            moved = await reassign(members, dict.fromkeys(range(4), target))
            assert moved == {NONE}
            await members.kill(controller)
            await reassigned(members)
            for index in range(4):
                assert told_replicas(members, index) == {tuple(target)}
            await members.start(controller)
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, count=4, seed=seed)


def test_a_reassignment_that_does_not_come_to_its_end_is_cancelled() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1])
        controller = members.controller
        # This broker is up but reaches no other: it is added and never in sync.
        added = next(it for it in (2, 3) if it != controller)
        async with producing(members) as acknowledged:
            members.cut_off(added)
            assert await reassign(members, {0: [0, added]}) == {NONE}
            await trio.sleep(2)
            assert await reassign(members, {0: None}) == {NONE}
            members.let_in(added)
            await reassigned(members)
            await members.until(lambda: told_replicas(members) == {(0, 1)})
            assert await reassign(members, {0: None}) == {
                ErrorCode.no_reassignment_in_progress
            }
            assert await reassign(members, {0: [0, 9]}) == {
                ErrorCode.invalid_replica_assignment
            }
        await check_nothing_lost(members, acknowledged)

    with_members(scenario, count=4)


# ---- state of the controller ------------------------------------------------------


def test_one_broker_says_that_it_is_controller_and_what_is_wrong() -> None:
    def told(members: Members, name: str) -> list[float]:
        return [
            metric.value
            for number in members.alive
            for metric in members.broker(number).coordinator.membership.metrics()
            if metric is not None
            and metric.name == f"kafka_controller_kafkacontroller_{name}"
        ]

    async def scenario(members: Members) -> None:
        await create(members, [0, 1], [1, 0])
        assert sorted(told(members, "activecontrollercount")) == [0, 0, 1]
        assert sum(told(members, "activebrokercount")) == 3
        assert sum(told(members, "globalpartitioncount")) == 2
        await members.kill(0)
        await members.until(lambda: members.leader("t") == 1)
        await members.until(lambda: sum(told(members, "activebrokercount")) == 2)
        assert sum(told(members, "preferredreplicaimbalancecount")) == 1
        assert told(members, "controllerstate") == [0, 0]
        assert sum(told(members, "offlinepartitionscount")) == 0
        await members.kill(1)
        await members.until(lambda: sum(told(members, "offlinepartitionscount")) == 2)

    with_members(scenario)


# ---- topics -----------------------------------------------------------------------


def test_a_topic_goes_when_its_last_replica_is_back() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1, 2])
        controller = members.controller
        dead = next(it for it in range(3) if it != controller)
        await members.kill(dead)
        await of_controller(members, ApiKey.DELETE_TOPICS, 3, topic_names=["t"])
        alive = members.alive
        await members.until(lambda: not any(has_log(members, it) for it in alive))
        session = await members.session()
        await trio.sleep(10)
        assert "t" in await session.children("/brokers/topics")
        await members.start(dead)
        with trio.fail_after(60):
            # No event signals deletions in ZooKeeper; polling is free in virtual time.
            while "t" in await session.children("/brokers/topics"):  # noqa: ASYNC110
                await trio.sleep(0.1)
        assert not has_log(members, dead)
        # The topic's name is free again.
        await create(members, [0, 1, 2])
        async with producing(members) as acknowledged:
            pass
        await check_nothing_lost(members, acknowledged)

    with_members(scenario)


def test_a_topic_gets_partitions_while_it_moves() -> None:
    async def scenario(members: Members) -> None:
        await create(members, [0, 1])
        answer = await of_controller(
            members,
            ApiKey.CREATE_PARTITIONS,
            3,
            topics=[{"name": "t", "count": 3, "assignments": None}],
            timeout=SECONDS_30,
        )
        assert answer.results[0].error_code is NONE
        assert await reassign(members, {0: [2, 1]}) == {NONE}
        await reassigned(members)
        await led(members, 3)
        async with producing(members) as acknowledged:
            pass
        await check_nothing_lost(members, acknowledged)

    with_members(scenario)
