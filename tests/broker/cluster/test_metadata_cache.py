"""The metadata cache under contradictory requests of the controller."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from broker.cluster.metadata_cache import MetadataCache
from broker.log.steps import run
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import update_metadata

ONE = UUID(int=1)
DELETED = -2


def test_an_id_that_is_given_to_two_names_belongs_to_the_later_one() -> None:
    world = World()
    cache = world.broker.metadata_cache
    for name in ("a", "b"):
        command = update_metadata((name, 0), leader=0, replicas=(0,), topic_id=ONE)
        world.command(ApiKey.UPDATE_METADATA, command)
        assert cache.name(ONE) == name
        cache.check()
    for name in ("a", "b"):
        command = update_metadata((name, 0), leader=DELETED, topic_id=ONE)
        world.command(ApiKey.UPDATE_METADATA, command)
        cache.check()
    assert cache.name(ONE) is None
    assert cache.topic("a") is cache.topic("b") is None


def test_a_client_of_a_partition_held_elsewhere_refreshes_its_metadata() -> None:
    """Kafka's ``getPartitionOrError``: a partition in no metadata does not exist."""
    world = World()
    elsewhere = update_metadata(("t", 3), leader=1, replicas=(1, 2), topic_id=ONE)
    world.command(ApiKey.UPDATE_METADATA, elsewhere)
    codes = {}
    for index in (2, 3):
        with pytest.raises(KafkaError) as refused:
            world.broker.replicas.leader(TopicPartition("t", index))
        codes[index] = refused.value.code
    assert codes == {
        2: ErrorCode.unknown_topic_or_partition,
        3: ErrorCode.not_leader_or_follower,
    }


def test_an_update_at_once_amid_one_in_steps_is_in_both() -> None:
    """A log directory that fails amid a controller's request causes such an update."""
    broker = World().broker
    cache = broker.metadata_cache
    two = UUID(int=2)
    for name, topic_id in (("t", ONE), ("u", two)):
        broker.update_metadata(
            update_metadata((name, 0), leader=0, replicas=(0,), topic_id=topic_id)
        )
    command = update_metadata(
        ("t", 0), leader=0, leader_epoch=5, replicas=(0,), topic_id=ONE
    )
    (topic,) = command.topic_states
    (state,) = topic.partition_states
    many = tuple(replace(state, partition_index=index) for index in range(200))
    steps = broker.updating_metadata(
        replace(command, topic_states=(replace(topic, partition_states=many),))
    )
    next(steps)
    # Partitions that the request has updated or has yet to update, and other topics.
    for key in (("t", 0), ("t", 199), ("u", 0), ("v", 0)):
        topic_id = {"t": ONE, "u": two}.get(key[0])
        broker.update_metadata(
            update_metadata(
                key, leader=-1, leader_epoch=9, replicas=(0,), topic_id=topic_id
            )
        )
        assert leader_epoch(cache, *key) == 9
        cache.check()
    run(steps)
    cache.check()
    # The later update holds.
    assert leader_epoch(cache, "t", 0) == leader_epoch(cache, "u", 0) == 9
    assert leader_epoch(cache, "t", 199) == 5
    assert leader_epoch(cache, "v", 0) == 9
    assert cache.name(two) == "u"


def leader_epoch(cache: MetadataCache, name: str, index: int) -> int:
    """Return the leader epoch that clients receive for a partition."""
    topic = cache.topic(name)
    assert topic is not None
    return topic.partitions[index].leader_epoch
