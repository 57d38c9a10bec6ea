"""Loss of ZooKeeper, for all members or for one: requests and caches meanwhile."""

from __future__ import annotations

from functools import partial

import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30, new_topic
from tests.virtual.members import SESSION_S, Members, with_members


def knows(members: Members, number: int, name: str) -> bool:
    return members.broker(number).metadata_cache.topic(name) is not None


async def asked(members: Members, name: str) -> tuple[float, ErrorCode]:
    """Return the latency of a Metadata of one topic, and its error."""
    began_s = trio.current_time()
    answered = await members.ask(
        0,
        ApiKey.METADATA,
        9,
        topics=[{"name": name}],
        allow_auto_topic_creation=True,
    )
    return trio.current_time() - began_s, answered.topics[0].error_code


def test_no_request_waits_for_a_zookeeper_that_is_away_beyond_its_time() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.until(lambda: members.controller is not None)
        for number in range(3):
            members.cut_off(number)
        took_s, _ = await asked(members, "t")
        assert took_s < 0.1
        for _ in range(3):
            took_s, error = await asked(members, "unknown")
            assert took_s < 1.1
            assert error is not ErrorCode.none
        began_s = trio.current_time()
        answered = await members.ask(
            members.controller or 0,
            ApiKey.CREATE_TOPICS,
            5,
            topics=[new_topic("u", replication_factor=3)],
            timeout=SECONDS_30 / 10,
        )
        assert answered.topics[0].error_code is not ErrorCode.none
        assert trio.current_time() - began_s < 3.1
        for number in range(3):
            members.let_in(number)
        await members.until(lambda: members.controller is not None)

        async def is_there() -> bool:
            return (await asked(members, "later"))[1] is ErrorCode.none

        with trio.fail_after(60):
            # No event signals that a topic has a leader.
            while not await is_there():  # noqa: ASYNC110 see above
                await trio.sleep(0.1)

    with_members(scenario)


def test_a_member_that_was_away_forgets_what_was_deleted_meanwhile() -> None:
    async def scenario(members: Members) -> None:
        await members.until(lambda: members.controller is not None)
        controller = members.controller
        assert controller is not None
        away = next(it for it in members.alive if it != controller)
        placed = [{"partition_index": 0, "broker_ids": [controller]}]
        fields = {"num_partitions": -1, "replication_factor": -1}
        await members.create("t", assignments=placed, **fields)
        cache = members.broker(away).metadata_cache
        await members.until(lambda: cache.topic("t") is not None)
        members.cut_off(away)
        await trio.sleep(SESSION_S * 2)
        deleted = await members.ask(
            controller, ApiKey.DELETE_TOPICS, 5, topic_names=("t",), timeout=SECONDS_30
        )
        assert deleted.responses[0].error_code is ErrorCode.none
        await trio.sleep(1)
        assert cache.topic("t") is not None
        members.let_in(away)
        await members.until(members.know_each_other)
        assert cache.topic("t") is None
        # Only this broker can be elected controller.
        for number in range(3):
            if number != away:
                await members.stop(number)
        await members.until(lambda: members.controller == away)
        # Earlier, the topic might be placed on a broker that has gone.
        await members.until(members.know_each_other)
        created = await members.create("t", replication_factor=1)
        assert created.error_code is ErrorCode.none

    with_members(scenario)


def test_metadata_begins_a_creation_and_waits_for_no_broker() -> None:
    """The controller answers as Kafka's under ZooKeeper, other brokers as under KRaft.

    `AutoTopicCreationManager` of Kafka 3.9 returns LEADER_NOT_AVAILABLE if it writes
    the znodes itself, and UNKNOWN_TOPIC_OR_PARTITION if it forwards the request.
    """

    async def scenario(members: Members) -> None:
        await members.until(lambda: members.controller is not None)
        controller = members.controller
        assert controller is not None
        for number in members.alive:
            name = f"by-{number}"
            topics = [{"name": name}]
            began_s = trio.current_time()
            first = await members.ask(number, ApiKey.METADATA, 9, topics=topics)
            assert trio.current_time() - began_s < 0.01
            (row,) = first.topics
            assert list(row.partitions) == []
            assert row.error_code is (
                ErrorCode.leader_not_available
                if number == controller
                else ErrorCode.unknown_topic_or_partition
            )
            await members.until(partial(knows, members, number, name), 5)
        for number in members.alive:
            members.cut_off(number)
        began_s = trio.current_time()
        for _ in range(3):
            _, error = await asked(members, "away")
            assert error is not ErrorCode.none
        assert trio.current_time() - began_s < 0.1
        for number in members.alive:
            members.let_in(number)
        await members.until(partial(knows, members, 0, "away"))

    with_members(scenario)
