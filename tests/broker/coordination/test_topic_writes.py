"""Concurrent creations, deletions and alterations of topics with one name."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
import trio
import trio.lowlevel

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.decisions import DeleteTopic
from broker.coordination.zookeeper.carrying_out import CarryingOut
from broker.coordination.zookeeper.channels import ControllerChannels
from broker.coordination.zookeeper.cluster_discovery import prepare_znodes
from broker.coordination.zookeeper.configs import ClusterConfigs
from broker.coordination.zookeeper.election import elect
from broker.coordination.zookeeper.handler_tasks import HandlerTasks
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import read_config
from broker.coordination.zookeeper.layout.topic_records import read_topic
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.coordination.zookeeper.topic_writes import (
    create_partitions,
    create_topic,
    request_deletion,
)
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ErrorCode, KafkaError
from broker.zookeeper.znodes import NoNode
from tests.broker.coordination.contract_coordinator import served
from tests.broker.zookeeper.zoo import Zoo, with_zoo
from tests.seeds import seeds

NEW = UUID(int=2)
CONFIGS = {"retention.ms": "7"}


def topic(topic_id: UUID) -> TopicAssignment:
    return TopicAssignment(topic_id, {0: ReplicaAssignment((0,))})


def silent_channels() -> ControllerChannels:
    async def connect(host: str, port: int) -> trio.abc.Stream:
        raise ConnectionRefusedError

    return ControllerChannels(
        0,
        connect,
        random.Random(1),
        timeout_ms=1000,
        answered=lambda *_: None,
        merges=False,
        supervisor=Supervisor(),
    )


async def at(zoo: Zoo) -> RetryingZnodes:
    znodes = RetryingZnodes(await zoo.opened("zoo:2181"))
    await prepare_znodes(znodes)
    return znodes


# A call takes at most half a millisecond, and a deletion a few milliseconds.
@pytest.mark.parametrize("seed", seeds(12, 30))
def test_a_topic_made_while_its_namesake_is_deleted_is_whole(seed: int) -> None:
    async def scenario(zoo: Zoo) -> None:
        controller, other = await at(zoo), await at(zoo)
        term = await elect(controller, 0, 0)
        assert term is not None
        carry_out = CarryingOut(controller, term, silent_channels(), lambda path: None)
        await create_topic(other, "t", topic(UUID(int=1)), {"retention.ms": "6"})
        await request_deletion(other, "t")
        refusals = 0

        async def delete() -> None:
            await trio.sleep(zoo.rng.uniform(0, 0.002))
            await carry_out(DeleteTopic("t"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            while True:
                await trio.sleep(zoo.rng.uniform(0, 0.0005))
                try:
                    await create_topic(other, "t", topic(NEW), CONFIGS)
                except KafkaError as refused:
                    if refused.code is not ErrorCode.topic_already_exists:
                        raise
                    refusals += 1
                else:
                    break
        tree = zoo.service.tree
        assert refusals > 0
        assert read_topic(tree.get(paths.topic("t"))[0]).topic_id == NEW
        assert read_config(tree.get(paths.topic_config("t"))[0]) == CONFIGS
        assert tree.stat(paths.topic_to_delete("t")) is None

    with_zoo(scenario, seed=seed)


def test_configs_that_a_topic_has_left_are_not_the_next_ones() -> None:
    async def scenario(zoo: Zoo) -> None:
        znodes = await at(zoo)
        await znodes.create(paths.topic_config("t"), b"left")
        await create_topic(znodes, "t", topic(NEW), CONFIGS)
        data, _ = zoo.service.tree.get(paths.topic_config("t"))
        assert read_config(data) == CONFIGS

    with_zoo(scenario)


@pytest.mark.parametrize("seed", seeds(12, 30))
def test_configs_that_several_brokers_alter_at_once_have_what_each_has_set(
    seed: int,
) -> None:
    """The brokers also write the first configs of a topic, which create the znode."""

    async def scenario(zoo: Zoo) -> None:
        async def alter(key: str) -> None:
            znodes, configs, done = await at(zoo), ClusterConfigs(), False
            await trio.sleep(zoo.rng.uniform(0, 0.002))
            while not done:
                before = configs.of_topic("t")
                after = {**before, key: "1"}
                done = await configs.write("topics/t", after, before, znodes)

        async with trio.open_nursery() as nursery:
            for key in "abc":
                nursery.start_soon(alter, key)
        data, stat = zoo.service.tree.get(paths.topic_config("t"))
        assert read_config(data) == dict.fromkeys("abc", "1")
        assert stat.version == 2
        assert len(zoo.service.tree.children(paths.CONFIG_CHANGES)) == 3

    with_zoo(scenario, seed=seed)


@pytest.mark.parametrize("seed", range(10))
def test_partitions_of_a_topic_that_goes_meanwhile_are_refused(seed: int) -> None:
    async def scenario(zoo: Zoo) -> None:
        one, other = await at(zoo), await at(zoo)
        await create_topic(one, "t", topic(NEW), {})

        async def delete() -> None:
            await trio.sleep(zoo.rng.uniform(0, 0.001))
            await other.delete(paths.topic("t"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            try:
                assert await create_partitions(one, "t", 1, ((0,),))
            except KafkaError as refused:
                if refused.code is not ErrorCode.unknown_topic_or_partition:
                    raise

    with_zoo(scenario, seed=seed)


def test_a_fault_of_a_handler_task_is_raised_in_its_handler() -> None:
    async def scenario(zoo: Zoo) -> None:
        tasks = HandlerTasks(Supervisor())
        zoo.nursery.start_soon(tasks.run)

        async def faulty() -> None:
            await trio.lowlevel.checkpoint()
            raise NoNode("/gone")

        async def sound() -> int:
            await trio.sleep(1)
            return 5

        with pytest.raises(NoNode):
            await served(tasks.run_for_handler(faulty))
        assert await served(tasks.run_for_handler(sound)) == 5

    with_zoo(scenario)
