"""Answers to throttled clients (KIP-219) and their throttle times."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.requests.request import Throttled
from planes.admission import OVER_QUOTA
from tests.broker.apis.broker_world import MS, World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)

THROTTLED_MS = 250
# The throttle time is rounded up, so that no client sends too early.
NOTED = {"throttled_until_ns": THROTTLED_MS * MS - 1}
# The first version of each answer with a throttle time.
TOLD_SINCE = {
    ApiKey.PRODUCE: 1,
    ApiKey.FETCH: 1,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 3,
    ApiKey.CREATE_TOPICS: 2,
}


@pytest.mark.parametrize(
    ("key", "version"),
    [(key, version) for key in TOLD_SINCE for version in APIS[key].served],
)
def test_a_throttled_answer_is_whole_and_says_for_how_long(
    key: ApiKey, version: int
) -> None:
    world = World()
    topic_id = world.create("t")
    world.produce("t", b"x")
    topic = topic_id if version >= 13 else "t"
    fields = {
        ApiKey.PRODUCE: produce_fields({(topic, 0): batch(b"y")}),
        ApiKey.FETCH: fetch_fields({(topic, 0): 0}),
        ApiKey.METADATA: {"topics": [{"name": "t"}]},
        ApiKey.CREATE_TOPICS: {"topics": [new_topic("n")], "timeout": SECONDS_30},
    }.get(key, {})
    call = world.start(key, version, noted=NOTED, **fields)
    assert isinstance(call.response, Throttled)
    assert call.response.throttle_ns == NOTED["throttled_until_ns"]
    assert call.request.error_code == 0
    if version >= TOLD_SINCE[key]:
        assert call.answer.throttle_time == timedelta(milliseconds=THROTTLED_MS)
    if key is ApiKey.FETCH:
        assert call.answer.responses[0].partitions[0].records


def test_a_debt_that_is_paid_by_the_time_of_the_answer_throttles_no_client() -> None:
    world = World()
    world.pass_ms(THROTTLED_MS)
    call = world.start(ApiKey.METADATA, 12, noted=NOTED)
    assert not isinstance(call.response, Throttled)
    assert call.answer.throttle_time == timedelta(0)


def test_a_client_that_wants_no_answer_is_throttled() -> None:
    world = World()
    world.create("t")
    fields = produce_fields({("t", 0): batch(b"y")}) | {"acks": 0}
    call = world.start(ApiKey.PRODUCE, 11, noted=NOTED, **fields)
    assert isinstance(call.response, Throttled)
    assert not call.response.pieces


def test_a_client_over_its_quota_receives_its_throttle_time() -> None:
    world = World()
    noted = {**NOTED, "refusal": OVER_QUOTA}
    call = world.start(
        ApiKey.CREATE_TOPICS,
        7,
        noted=noted,
        topics=[new_topic("n")],
        timeout=SECONDS_30,
    )
    assert isinstance(call.response, Throttled)
    assert call.answer.throttle_time == timedelta(milliseconds=THROTTLED_MS)
    (topic,) = call.answer.topics
    assert topic.error_code is ErrorCode.throttling_quota_exceeded
    assert not world.send(ApiKey.METADATA, 12, topics=None).topics
