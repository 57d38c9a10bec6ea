"""``controller_mutation_rate`` over the wire: rejected and throttled requests."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import Call, World
from tests.broker.apis.requests import SECONDS_30, new_topic

NONE, EXCEEDED = ErrorCode.none, ErrorCode.throttling_quota_exceeded
CREATE, DELETE, EXTEND = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
)


def world_with(rate: float, settings: dict[str, str] | None = None) -> World:
    """Return a broker whose clients have a quota, with a burst of 11 times ``rate``."""
    world = World(settings)
    answer = world.send(
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": None}],
                "ops": [{"key": "controller_mutation_rate", "value": rate}],
            }
        ],
    )
    assert answer.entries[0].error_code is NONE
    return world


def create(world: World, version: int, *topics: Any, **fields: Any) -> Call:
    asked = {"topics": list(topics), "timeout": SECONDS_30, **fields}
    return world.start(CREATE, version, **asked)


def codes(rows: Any) -> list[ErrorCode]:
    return [row.error_code for row in rows]


def told_s(call: Call) -> float:
    seconds: float = call.answer.throttle_time.total_seconds()
    return seconds


def test_topics_are_refused_once_the_bucket_is_below_zero() -> None:
    world = world_with(1.0)
    call = create(world, 6, *(new_topic(f"t{n}", 6) for n in range(4)))
    # Of 11 tokens, 5 are left and then -1, which takes a second to refill.
    body = call.answer
    assert codes(body.topics) == [NONE, NONE, EXCEEDED, EXCEEDED]
    assert body.topics[2].error_message
    assert told_s(call) == pytest.approx(1, abs=0.01)
    assert call.request.task.throttled_until_ns
    assert sorted(world.broker.coordinator.admin.topics) == ["t0", "t1"]
    world.pass_ms(1000)
    call = create(world, 7, new_topic("t2", 1))
    assert (codes(call.answer.topics), told_s(call)) == ([NONE], 0)


@pytest.mark.parametrize("version", [2, 5])
def test_older_versions_are_served_and_throttled(version: int) -> None:
    world = world_with(1.0)
    call = create(world, version, *(new_topic(f"t{n}", 6) for n in range(3)))
    assert codes(call.answer.topics) == [NONE] * 3
    assert told_s(call) == pytest.approx(7, abs=0.01)
    assert call.request.task.throttled_until_ns


def test_a_validation_and_a_refused_topic_count_nothing() -> None:
    world = world_with(0.1)
    for _ in range(5):
        call = create(world, 6, new_topic("t", 3), validate_only=True)
        assert (codes(call.answer.topics), told_s(call)) == ([NONE], 0)
        call = create(world, 6, new_topic("a/b", 3))
        assert codes(call.answer.topics) == [ErrorCode.invalid_topic_exception]
    assert codes(create(world, 6, new_topic("t", 3)).answer.topics) == [NONE]
    # The name is checked before the quota.
    call = create(world, 6, new_topic("t", 3), new_topic("u", 1))
    assert codes(call.answer.topics) == [ErrorCode.topic_already_exists, EXCEEDED]


def test_partitions_that_are_added_or_deleted_count_too() -> None:
    world = world_with(1.0)
    assert codes(create(world, 6, new_topic("t", 4)).answer.topics) == [NONE]

    def extend(version: int, count: int) -> Call:
        topics = [{"name": "t", "count": count, "assignments": None}]
        return world.start(EXTEND, version, topics=topics, timeout=SECONDS_30)

    # Of 11 tokens, 7 are left, then 1, then -5.
    assert codes(extend(3, 10).answer.results) == [NONE]
    assert codes(extend(3, 16).answer.results) == [NONE]
    call = extend(3, 17)
    assert codes(call.answer.results) == [EXCEEDED]
    assert told_s(call) == pytest.approx(5, abs=0.01)
    call = extend(2, 17)
    assert codes(call.answer.results) == [NONE]
    assert told_s(call) == pytest.approx(6, abs=0.01)

    def delete(version: int, *names: str) -> Call:
        return world.start(DELETE, version, topic_names=names, timeout=SECONDS_30)

    call = delete(5, "t", "none")
    assert codes(call.answer.responses) == [
        EXCEEDED,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert "t" in world.broker.coordinator.admin.topics
    call = delete(4, "t")
    assert codes(call.answer.responses) == [NONE]
    # The deletion takes 17 tokens from -6.
    assert told_s(call) == pytest.approx(23, abs=0.01)


def test_a_topic_that_metadata_creates_is_counted_and_not_refused() -> None:
    world = world_with(1.0, {"num.partitions": "20"})
    wanted = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}
    call = world.start(ApiKey.METADATA, 9, **wanted)
    assert told_s(call) == 0
    assert "auto" in world.broker.coordinator.admin.topics
    call = create(world, 6, new_topic("t", 1))
    assert codes(call.answer.topics) == [EXCEEDED]
    assert told_s(call) == pytest.approx(9, abs=0.01)


def test_without_a_quota_nothing_is_counted() -> None:
    world = World()
    call = create(world, 6, *(new_topic(f"t{n}", 50) for n in range(3)))
    assert (codes(call.answer.topics), told_s(call)) == ([NONE] * 3, 0)
    assert len(world.broker.client_quotas.mutations) == 0
