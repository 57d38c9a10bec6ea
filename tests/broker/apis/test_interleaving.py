"""Requests that interleave at preemption points: creations, deletions, readers.

Other handlers run while a handler is preempted. Each test stops a handler at a
preemption point, runs another handler to its end, and resumes the first.
"""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, Call, World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    leader_and_isr,
    new_topic,
    produce_fields,
    values_of,
)

CREATE = {"topics": [new_topic("t", 4)], "timeout": SECONDS_30}
DELETE = {"topics": [{"name": "t"}], "timeout": SECONDS_30}


def pause(world: World, points: int, key: ApiKey, version: int, **fields: Any) -> Call:
    """Start a request and stop it at a preemption point."""
    call = world.start(key, version, stop_at=points, **fields)
    assert not call.done
    return call


def outcome(call: Call) -> ErrorCode:
    rows = getattr(call.answer, "topics", None) or call.answer.responses
    error: ErrorCode = rows[0].error_code
    return error


@pytest.mark.parametrize("points", [1, 2, 4])
def test_a_topic_that_is_being_created_is_not_created_twice(points: int) -> None:
    world = World()
    first = pause(world, points, ApiKey.CREATE_TOPICS, 7, **CREATE)
    second = world.start(ApiKey.CREATE_TOPICS, 7, **CREATE)
    assert outcome(second) is ErrorCode.topic_already_exists
    first.go_on()
    assert outcome(first) is NONE
    assert world.produce("t", b"x", partition=3).error_code is NONE


@pytest.mark.parametrize("points", [1, 2, 4])
def test_clients_learn_of_a_topic_once_it_is_whole(points: int) -> None:
    world = World()
    creation = pause(world, points, ApiKey.CREATE_TOPICS, 7, **CREATE)
    wanted = {"topics": [{"name": "t"}], "allow_auto_topic_creation": True}
    (early,) = world.send(ApiKey.METADATA, 12, **wanted).topics
    assert early.error_code is ErrorCode.leader_not_available
    assert world.send(ApiKey.METADATA, 12, topics=None).topics == ()
    creation.go_on()
    (late,) = world.send(ApiKey.METADATA, 12, **wanted).topics
    assert (late.error_code, len(late.partitions)) == (NONE, 4)


@pytest.mark.parametrize("points", [1, 2, 4])
def test_a_topic_that_is_deleted_while_it_is_created_is_gone(points: int) -> None:
    world = World()
    creation = pause(world, points, ApiKey.CREATE_TOPICS, 7, **CREATE)
    assert outcome(world.start(ApiKey.DELETE_TOPICS, 6, **DELETE)) is NONE
    creation.go_on()
    assert outcome(creation) is ErrorCode.unknown_topic_or_partition
    assert world.broker.coordinator.admin.topics == {}
    assert world.broker.logs.logs == {}
    assert world.send(ApiKey.METADATA, 12, topics=None).topics == ()
    world.check()


@pytest.mark.parametrize("points", [1, 2, 4])
def test_a_name_is_free_again_once_its_topic_is_wholly_deleted(points: int) -> None:
    world = World()
    world.create("t", 4)
    deletion = pause(world, points, ApiKey.DELETE_TOPICS, 6, **DELETE)
    early = world.start(ApiKey.CREATE_TOPICS, 7, **CREATE)
    assert outcome(early) is ErrorCode.topic_already_exists
    again = world.start(ApiKey.DELETE_TOPICS, 6, **DELETE)
    assert outcome(again) is ErrorCode.unknown_topic_or_partition
    deletion.go_on()
    assert outcome(deletion) is NONE
    assert outcome(world.start(ApiKey.CREATE_TOPICS, 7, **CREATE)) is NONE
    assert world.produce("t", b"x", partition=3).base_offset == 0
    world.check()


def test_a_produce_meets_a_deletion_between_its_partitions() -> None:
    world = World()
    world.create("t", 4)
    batches: dict[tuple[str, int], bytes | None] = {
        ("t", index): batch(b"x") for index in range(4)
    }
    produce = pause(world, 2, ApiKey.PRODUCE, 9, **produce_fields(batches, -1))
    world.send(ApiKey.DELETE_TOPICS, 6, **DELETE)
    produce.go_on()
    rows = produce.answer.responses[0].partition_responses
    unknown = ErrorCode.unknown_topic_or_partition
    assert [row.error_code for row in rows[2:]] == [unknown] * 2
    world.check()


def test_a_config_may_change_while_a_topic_is_created() -> None:
    world = World()
    creation = pause(world, 2, ApiKey.CREATE_TOPICS, 7, **CREATE)
    entry = {"name": "retention.ms", "value": "77", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [entry]}
    world.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    creation.go_on()
    assert outcome(creation) is NONE
    retention = {log.config.retention_ms for log in world.broker.logs.logs.values()}
    assert retention == {77}


@pytest.mark.parametrize("version", [13, 16, 17])
@pytest.mark.parametrize("min_bytes", [1, 1 << 20], ids=["enough", "too little"])
def test_a_fetch_meets_a_deletion_between_its_partitions(
    version: int, min_bytes: int
) -> None:
    """The deleted partition is unknown, the other is answered, and nothing waits."""
    world = World()
    gone, kept = world.create("t"), world.create("u")
    world.produce("t", b"x")
    world.produce("u", b"y")
    wanted = fetch_fields({(gone, 0): 0, (kept, 0): 0}, max_wait_ms=500)
    fetch = pause(world, 1, ApiKey.FETCH, version, **wanted | {"min_bytes": min_bytes})
    world.send(ApiKey.DELETE_TOPICS, 6, **DELETE)
    fetch.go_on()
    assert fetch.done
    first, second = (topic.partitions[0] for topic in fetch.answer.responses)
    if min_bytes > 1:
        assert first.error_code is ErrorCode.unknown_topic_id
    assert values_of(second.records) == [(0, b"y")]


@pytest.mark.parametrize("version", [13, 16])
def test_a_followers_fetch_meets_a_deletion_between_its_partitions(
    version: int,
) -> None:
    """The answer has the records read before the deletion, and no error."""
    world = World()
    ids = {name: world.create(name) for name in ("t", "u")}
    for name, topic_id in ids.items():
        word = leader_and_isr(
            (name, 0), leader=0, leader_epoch=1, isr=(0, 2), topic_id=topic_id
        )
        world.command(ApiKey.LEADER_AND_ISR, word)
        world.produce(name, name.encode())
    wanted = fetch_fields({(topic_id, 0): 0 for topic_id in ids.values()})
    wanted |= {"replica_id": 2, "replica_state": {"replica_id": 2, "replica_epoch": -1}}
    fetch = pause(world, 1, ApiKey.FETCH, version, **wanted)
    world.send(ApiKey.DELETE_TOPICS, 6, **DELETE)
    fetch.go_on()
    assert fetch.request.error_code == 0
    _, kept = (topic.partitions[0] for topic in fetch.answer.responses)
    assert values_of(kept.records) == [(0, b"u")]
    assert world.broker.quotas.leader.moved_bytes == len(kept.records)
    world.check()
