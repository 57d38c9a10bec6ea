"""Answers with very many rows are built, checked and encoded a page at a time."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.log.steps import run
from broker.process import NEW_OBJECTS_MAX
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.protocol.wire.codec import encode, encode_in_steps
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import update_metadata

PARTITIONS = 5_000


@pytest.fixture(scope="module")
def world() -> World:
    """A broker whose metadata has one topic with very many partitions."""
    world = World()
    command = update_metadata(("huge", 0), leader=0, replicas=(0,))
    (topic,) = command.topic_states
    (state,) = topic.partition_states
    states = tuple(
        dataclasses.replace(state, partition_index=index) for index in range(PARTITIONS)
    )
    topic = dataclasses.replace(topic, partition_states=states)
    world.command(
        ApiKey.UPDATE_METADATA, dataclasses.replace(command, topic_states=(topic,))
    )
    return world


@pytest.mark.parametrize("version", [1, 9, 12])
def test_metadata_of_one_huge_topic_has_preemption_points(
    world: World, version: int
) -> None:
    """Pages have 100 rows when described, 512 when checked, 128 when encoded."""
    call = world.start(ApiKey.METADATA, version, topics=[{"name": "huge"}])
    (topic,) = call.answer.topics
    assert [each.partition_index for each in topic.partitions] == list(
        range(PARTITIONS)
    )
    assert (
        call.preemption_points
        >= PARTITIONS / 100 + PARTITIONS // 512 + PARTITIONS // 128
    )


def test_configs_of_a_broker_have_preemption_points(world: World) -> None:
    """Pages have 64 rows when described, and 128 with synonyms when encoded."""
    asked = {"resource_type": 4, "resource_name": "0", "configuration_keys": None}
    call = world.start(
        ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=True
    )
    (result,) = call.answer.results
    encoded = sum(1 + len(each.synonyms) for each in result.configs)
    assert len(result.configs) > 3 * 64
    assert call.preemption_points > len(result.configs) // 64 + encoded // 128


@contextmanager
def collected(new_objects_max: int) -> Iterator[list[int]]:
    """Yield the generations that are garbage-collected in the block."""
    before, generations = gc.get_threshold(), list[int]()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(new_objects_max, *before[1:])
    try:
        yield generations
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)


@pytest.mark.parametrize(
    ("new_objects_max", "oldest"), [(NEW_OBJECTS_MAX, 0), (700, 1)]
)
def test_rows_of_large_answers_outlive_no_older_collection(
    world: World, new_objects_max: int, oldest: int
) -> None:
    """20,000 rows exist at once; 700 is CPython's default threshold."""
    with collected(new_objects_max) as generations:
        calls = [
            world.start(ApiKey.METADATA, 9, topics=[{"name": "huge"}]) for _ in range(4)
        ]
    assert all(call.done for call in calls)
    assert max(generations) == oldest


def rows(count: int) -> MetadataResponse:
    """Return a Metadata answer with one topic of ``count`` partitions."""
    partitions = [
        MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=index,
            leader_id=0,
            leader_epoch=0,
            replica_nodes=(0,),
            isr_nodes=(0,),
            offline_replicas=(),
        )
        for index in range(count)
    ]
    topic = MetadataResponseTopic(
        error_code=ErrorCode.none,
        name="t",
        topic_id=None,
        is_internal=False,
        partitions=partitions,
        topic_authorized_operations=0,
    )
    return MetadataResponse(
        topics=[topic],
        brokers=[],
        cluster_id="c",
        controller_id=0,
        cluster_authorized_operations=0,
    )


def test_an_answer_that_changes_while_it_is_encoded_is_as_it_was() -> None:
    changing = rows(1_000)
    whole = encode(ApiKey.METADATA, 9, 1, changing)
    steps = encode_in_steps(ApiKey.METADATA, 9, 1, changing)
    next(steps)
    changing.topics[0].partitions.clear()
    assert b"".join(run(steps)) == whole


def test_a_large_answer_is_never_joined() -> None:
    """A join would be one long step; the network sends the pieces as they are."""
    pieces = run(encode_in_steps(ApiKey.METADATA, 9, 1, rows(20_000)))
    assert b"".join(pieces) == encode(ApiKey.METADATA, 9, 1, rows(20_000))
    assert max(map(len, pieces)) < 16_384
    (piece,) = run(encode_in_steps(ApiKey.METADATA, 9, 1, rows(1_000)))
    assert piece == encode(ApiKey.METADATA, 9, 1, rows(1_000))
