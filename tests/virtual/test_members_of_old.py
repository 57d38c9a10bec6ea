"""Clusters left by older tools and brokers: topics without ids, offline topics."""

from __future__ import annotations

from broker.coordination.zookeeper.layout.json_text import write_json
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.virtual.members import Members, in_sync, numbers, send, with_members

OLD_TOPIC = write_json({"version": 2, "partitions": {"0": [0, 1, 2]}})


async def changes_its_isr(members: Members, name: str) -> None:
    """Stop and restart a broker, which leaves the ISR and rejoins it."""
    await members.until(lambda: members.leader(name) >= 0)
    await in_sync(members, name)
    follower = next(it for it in members.alive if it != members.leader(name))
    members.cut_off(follower)
    await members.until(lambda: len(members.isr(name)) == 2)
    async with members.producer(acks="all") as producer:
        await send(producer, numbers(0, 3), name)
    members.let_in(follower)
    await in_sync(members, name)


def test_a_topic_that_an_old_tool_makes_is_given_an_id() -> None:
    async def scenario(members: Members) -> None:
        operator = await members.session()
        await operator.create("/brokers/topics/old", OLD_TOPIC)
        await changes_its_isr(members, "old")
        given = {members.partition(number, "old").topic_id for number in members.alive}
        assert len(given) == 1
        assert None not in given

    with_members(scenario)


def test_a_controller_gives_ids_to_the_topics_that_it_finds() -> None:
    async def scenario(members: Members) -> None:
        operator = await members.session()
        for number in range(3):
            await members.stop(number)
        await operator.create("/brokers/topics/old", OLD_TOPIC)
        for number in range(3):
            await members.start(number)
        await changes_its_isr(members, "old")
        controller = members.controller
        assert controller is not None
        first = members.partition(0, "old").topic_id
        # The next controller reads the same id.
        await members.stop(controller)
        await members.start(controller)
        await in_sync(members, "old")
        assert members.partition(controller, "old").topic_id == first

    with_members(scenario)


def test_all_brokers_default_of_unclean_elections_brings_partitions_online() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await members.until(lambda: members.leader("t") >= 0)
        await in_sync(members)
        leader = members.leader("t")
        others = [it for it in members.alive if it != leader]
        for number in others:
            members.cut_off(number)
        await members.until(lambda: members.isr("t") == {leader})
        for number in others:
            members.let_in(number)
        await members.kill(leader)
        await members.until(lambda: members.leader("t") == -1)
        await members.until(lambda: members.controller is not None)
        answered = await members.ask(
            others[0],
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": 4,
                    "resource_name": "",
                    "configs": [
                        {
                            "name": "unclean.leader.election.enable",
                            "config_operation": 0,
                            "value": "true",
                        }
                    ],
                }
            ],
        )
        assert answered.responses[0].error_code is ErrorCode.none
        await members.until(lambda: members.leader("t") in others, 10)

    with_members(scenario)
