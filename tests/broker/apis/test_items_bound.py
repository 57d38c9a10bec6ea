"""The number of items of a request is bounded by API and class, before decoding."""

from __future__ import annotations

import dataclasses

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import CLIENT_ITEMS_MAX
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import fetch_fields, update_metadata

MANY = CLIENT_ITEMS_MAX


@pytest.mark.parametrize("version", [4, 12])
def test_a_client_names_as_many_topics_as_the_bound_and_no_more(version: int) -> None:
    world = World()
    names = [{"name": f"t{index}"} for index in range(MANY + 1)]
    fields = {"allow_auto_topic_creation": False}
    assert world.start(ApiKey.METADATA, version, topics=names, **fields).closed
    answer = world.send(ApiKey.METADATA, version, topics=names[:MANY], **fields)
    assert len(answer.topics) == MANY


def test_a_consumer_fetches_ten_thousand_topics_of_one_partition() -> None:
    wanted = dict.fromkeys(((f"t{index}", 0) for index in range(MANY // 2)), 0)
    answer = World().send(ApiKey.FETCH, 11, **fetch_fields(wanted))
    assert len(answer.responses) == MANY // 2


def test_a_controller_tells_of_more_than_a_client_may() -> None:
    command = update_metadata(("huge", 0), leader=0, replicas=(0,))
    (topic,) = command.topic_states
    (state,) = topic.partition_states
    states = tuple(
        dataclasses.replace(state, partition_index=index) for index in range(MANY + 1)
    )
    topic = dataclasses.replace(topic, partition_states=states)
    world = World()
    world.command(
        ApiKey.UPDATE_METADATA, dataclasses.replace(command, topic_states=(topic,))
    )
    known = world.broker.metadata_cache.topic("huge")
    assert known is not None
    assert len(known.partitions) == MANY + 1
