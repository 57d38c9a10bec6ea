"""What the controller says of topics, also where it contradicts itself."""

from __future__ import annotations

from uuid import UUID

from broker.protocol.api_keys import ApiKey
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
