"""Three brokers under one ZooKeeper: failover without loss of records.

Whole brokers in virtual time. One of them is the controller, and may be the one that
fails.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from broker.coordination.zookeeper import session_loop
from broker.disk.storage import read_whole
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.metadata import MetadataRequestTopic
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.virtual.members import (
    SESSION_S,
    Members,
    consumed,
    in_sync,
    leaders,
    numbers,
    send,
    with_members,
)

NONE = ErrorCode.none
EVERYBODY = {0, 1, 2}
METADATA_OF_T = {
    "topics": [MetadataRequestTopic(name="t")],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def test_a_topic_with_three_replicas_is_led_and_followed_by_all() -> None:
    async def scenario(members: Members) -> None:
        assert (await members.create("t", 6)).error_code is NONE
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 200))
        # Each broker leads two of the six partitions, and follows the rest.
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
            # The session was closed; it did not expire.
            assert trio.current_time() - began_s < 1
        assert members.controller != first
        row = await members.create("later", replication_factor=2)
        assert row.error_code is NONE
        epochs = {members.broker(it).controller_epoch for it in members.alive}
        assert epochs == {2}

    with_members(scenario)


@pytest.mark.parametrize("seed", range(1, 6))
def test_whom_brokers_name_as_controller_does_not_deny_it(
    seed: int,
) -> None:
    """Brokers name the new controller early; its requests then wait for the brokers."""

    async def scenario(members: Members) -> None:
        await members.create("t", 6)
        first = members.controller
        assert first is not None
        await members.kill(first)
        named = trio.Event()

        def look() -> None:
            if controllers() != {first}:
                named.set()

        def controllers() -> set[int]:
            caches = [members.broker(it).metadata_cache for it in members.alive]
            return {each.controller_id for each in caches}

        for number in members.alive:
            members.broker(number).metadata_cache.listeners.append(look)
        await named.wait()
        (other,) = controllers() - {first}
        answered = await members.ask(
            other,
            ApiKey.CREATE_TOPICS,
            7,
            topics=[new_topic("later", replication_factor=2)],
            timeout=SECONDS_30,
        )
        assert answered.topics[0].error_code is NONE

    with_members(scenario, seed=seed)


def moved(members: Members, victim: int) -> bool:
    return victim not in leaders(members, "t", 3)


def test_a_stopping_broker_hands_over_what_it_leads() -> None:
    """No produce fails, and none waits for a session to expire."""

    async def scenario(members: Members) -> None:
        await members.create("t", 3)
        async with members.producer(acks="all") as producer:
            for victim in range(3):
                await in_sync(members)
                began_s = trio.current_time()
                await members.stop(victim)
                # The other brokers may receive the change after the victim has its
                # response.
                await members.until(partial(moved, members, victim))
                assert trio.current_time() - began_s < SESSION_S / 2
                await send(producer, numbers(0, 60))
                await members.start(victim)
                for index in range(3):
                    await in_sync(members, index=index)

    with_members(scenario)


def test_a_broker_without_metadata_names_no_topic_as_deleted() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.until(lambda: members.leader("t") >= 0)

        async def told(number: int) -> tuple[list[int], list[ErrorCode]]:
            found = await members.ask(number, ApiKey.METADATA, 8, **METADATA_OF_T)
            brokers = [each.node_id for each in found.brokers]
            return brokers, [each.error_code for each in found.topics]

        assert await told(1) == ([0, 1, 2], [NONE])
        for number in range(3):
            await members.kill(number)
        # There is no controller until all three sessions have expired.
        await members.start(1)
        assert await told(1) == ([], [])
        await members.until(lambda: members.broker(1).metadata_cache.controller_id >= 0)
        assert await told(1) == ([1], [NONE])

    with_members(scenario)


def test_a_session_that_expires_is_followed_by_another() -> None:
    """The broker continues with a new epoch, and others lead its partitions by then."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        await in_sync(members)
        victim = members.leader("t")
        before = members.broker(victim).coordinator.membership.broker_epoch
        members.cut_off(victim)
        await members.until(lambda: members.leader_of_others("t", victim) != victim)
        members.let_in(victim)
        await members.until(
            lambda: members.broker(victim).coordinator.membership.broker_epoch > before
        )
        await in_sync(members)
        assert members.isr("t") == EVERYBODY
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 20))
        assert await consumed(members, 20) == numbers(0, 20)

    with_members(scenario)


def test_a_broker_obeys_who_knew_of_its_registration_before_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A controller does not retry a command refused as stale, as seen with Kafka's."""
    whole = session_loop.register

    async def answered_late(*arguments: Any, **named: Any) -> int:
        epoch = await whole(*arguments, **named)
        await trio.sleep(0.5)
        return epoch

    async def scenario(members: Members) -> None:
        await members.create("t")
        await in_sync(members)
        follower = next(it for it in members.alive if it != members.controller)
        await members.stop(follower)
        monkeypatch.setattr(session_loop, "register", answered_late)
        await members.start(follower)
        await members.until(lambda: members.isr("t") == EVERYBODY, within_s=20)

    with_members(scenario)


def test_an_old_controller_is_fenced_by_the_next() -> None:
    """The isolated controller goes on, but brokers and ZooKeeper refuse it."""

    async def scenario(members: Members) -> None:
        await members.create("t")
        old = members.controller
        assert old is not None
        members.cut_off(old)
        others = [it for it in members.alive if it != old]
        await members.until(
            lambda: any(members.members[it].is_controller for it in others)
        )
        # The old controller has not noticed: it would still hold an election.
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
        # Another member of the group continues at the committed offset.
        async with members.consumer(group_id="g") as consumer:
            consumer.subscribe(["t"])
            assert await consumer.poll(timeout_s=10) == []
            async with members.producer(acks="all") as producer:
                await send(producer, [b"last"])
            (record,) = await consumer.poll()
            assert record.value == b"last"

    with_members(scenario)


def test_brokers_without_numbers_are_given_some_and_keep_them() -> None:
    async def scenario(members: Members) -> None:
        def ids() -> list[int]:
            return [members.broker(it).replicas.local_id for it in members.alive]

        # As in Kafka: the version of /brokers/seqid plus reserved.broker.max.id.
        assert ids() == [101, 102]
        await members.stop(0)
        await members.start(0)
        assert ids() == [101, 102]
        kept = read_whole(members.members[1].storage, "/data/meta.properties")
        assert b"broker.id=102" in kept

    with_members(scenario, count=2, broker_id="", reserved_broker_max_id="100")
