"""Three brokers under one ZooKeeper: what fails is taken over, and nothing is lost.

Whole brokers in virtual time: the controller is one of them, and may be what fails.
"""

from __future__ import annotations

import pytest
import trio

from broker.apis.common.answer import Row
from broker.client.producer.producer import KafkaProducer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
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


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_a_topic_with_three_replicas_is_led_and_followed_by_all() -> None:
    async def scenario(members: Members) -> None:
        assert (await members.create("t", 6)).error_code is NONE
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 200))
        # Each leads two of the six, and follows the rest.
        leaders = [members.leader("t", index) for index in range(6)]
        assert sorted(leaders) == [0, 0, 1, 1, 2, 2]
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
                leaders = {members.leader("t", index) for index in range(3)}
                assert leaders <= EVERYBODY - {victim}
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
