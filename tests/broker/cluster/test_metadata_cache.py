"""What the controller says of topics, also where it contradicts itself."""

from __future__ import annotations

from uuid import UUID

import pytest

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


def test_who_asks_for_a_partition_that_others_have_is_to_look_for_them() -> None:
    """Kafka's ``getPartitionOrError``: only what nobody told of does not exist."""
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
