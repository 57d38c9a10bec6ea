"""A handler that fails ends its own request, with an error or a closed connection.

Apache Kafka catches every Throwable of a handler and answers UNKNOWN_SERVER_ERROR in
the shape of the request (``KafkaApis.handle``, ``RequestHandlerHelper.handleError``).
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from broker.handling import kafka_apis
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from planes.task import BrokenRule
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import SECONDS_30, batch, new_topic, produce_fields
from tests.broker.apis.test_every_version import fields_of
from tests.broker.apis.test_refusals import CASES, SILENT

FAILED = ErrorCode.unknown_server_error
# The longest names for lengths of two bytes: one of ASCII, and one of three-byte
# characters, which must not be cut within a character.
LONGEST = ("n" * 32_760, "\u2603" * 10_920)


async def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a fault of ours")


def failing(
    monkeypatch: pytest.MonkeyPatch, key: ApiKey, handle: Any = fail, **fields: Any
) -> None:
    api = dataclasses.replace(APIS[key], handle=handle, handle_at_once=None, **fields)
    monkeypatch.setattr(kafka_apis, "APIS", {**APIS, key: api})


@pytest.mark.parametrize("key", sorted(APIS))
def test_any_failure_is_answered_in_the_shape_of_the_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, key: ApiKey
) -> None:
    failing(monkeypatch, key)
    for version in APIS[key].served:
        caplog.clear()
        world = World()
        fields = CASES[key][0](version) if key in CASES else fields_of(key, version)
        call = world.start(key, version, **{"timeout": SECONDS_30, **fields})
        assert call.done, version
        assert not call.closed, version
        assert call.request.error_code == FAILED, version
        if (key, version) not in SILENT:
            assert "unknown_server_error" in repr(call.answer), version
        assert world.apis.failures.counts == {key: 1}, version
        (event,) = [each for each in caplog.records if each.levelno == logging.ERROR]
        told = event.__dict__["fields"]
        assert (told["api"], told["correlation_id"]) == (key.api_name, 7), version
        assert event.exc_info is not None, version
        assert event.exc_info[0] is ZeroDivisionError, version


def test_each_thing_that_was_asked_about_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, ApiKey.PRODUCE)
    fields = produce_fields({("t", 0): batch(b"a"), ("u", 3): batch(b"b")})
    answer = World().send(ApiKey.PRODUCE, 9, **fields)
    assert [
        (topic.name, row.index, row.error_code)
        for topic in answer.responses
        for row in topic.partition_responses
    ] == [("t", 0, FAILED), ("u", 3, FAILED)]


def test_a_failed_produce_that_wants_no_answer_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, ApiKey.PRODUCE)
    world = World()
    assert world.start(ApiKey.PRODUCE, 9, **produce_fields({}, acks=0)).closed


def test_failures_before_the_coroutine_are_contained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail_at_once(*_: Any) -> Any:
        raise ZeroDivisionError

    api = dataclasses.replace(APIS[ApiKey.PRODUCE], handle_at_once=fail_at_once)
    monkeypatch.setattr(kafka_apis, "APIS", {**APIS, ApiKey.PRODUCE: api})
    answer = World().send(ApiKey.PRODUCE, 9, **produce_fields({("t", 0): batch(b"a")}))
    assert answer.responses[0].partition_responses[0].error_code == FAILED


def test_an_error_that_cannot_repeat_the_request_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cannot(*_: Any) -> None:
        raise OverflowError("an answer that does not encode")

    form = dataclasses.replace(APIS[ApiKey.METADATA].error_answer, complete=cannot)
    failing(monkeypatch, ApiKey.METADATA, error_answer=form)
    call = World().start(ApiKey.METADATA, 9, topics=[{"name": "t"}])
    assert not call.closed
    assert (call.answer.topics, call.answer.brokers) == ((), ())


def test_unanswerable_requests_close_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failing(monkeypatch, ApiKey.HEARTBEAT)
    monkeypatch.setattr(
        "broker.handling.error_answer.encode_in_steps", lambda *_: 1 / 0
    )
    assert World().start(ApiKey.HEARTBEAT, 3).closed


def test_a_broken_rule_of_the_planes_is_contained_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def breach(*_: Any) -> Any:
        raise BrokenRule

    failing(monkeypatch, ApiKey.HEARTBEAT, breach)
    with pytest.raises(BrokenRule):
        World().start(ApiKey.HEARTBEAT, 3)


def test_failures_are_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ApiKey.HEARTBEAT)
    world = World()
    world.start(ApiKey.HEARTBEAT, 3)
    world.start(ApiKey.HEARTBEAT, 4)
    (metric,) = world.apis.failures.metrics()
    assert (metric.value, metric.labels["request"]) == (2, "Heartbeat")


# ---- the longest names ----


@pytest.mark.parametrize("name", LONGEST, ids=["ascii", "three bytes a letter"])
@pytest.mark.parametrize("version", [3, 8])
def test_produce_to_the_longest_name_is_refused_under_that_name(
    name: str, version: int
) -> None:
    call = World().start(
        ApiKey.PRODUCE, version, **produce_fields({(name, 0): batch(b"a")})
    )
    (topic,) = call.answer.responses
    assert topic.name == name
    (row,) = topic.partition_responses
    assert row.error_code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", LONGEST, ids=["ascii", "three bytes a letter"])
@pytest.mark.parametrize("version", APIS[ApiKey.CREATE_TOPICS].served)
def test_a_topic_of_the_longest_name_is_not_created(name: str, version: int) -> None:
    call = World().start(
        ApiKey.CREATE_TOPICS, version, topics=[new_topic(name)], timeout=SECONDS_30
    )
    (topic,) = call.answer.topics
    assert (topic.name, topic.error_code) == (name, ErrorCode.invalid_topic_exception)
    assert topic.error_message is None or len(topic.error_message.encode()) <= 32_767


@pytest.mark.parametrize("name", LONGEST, ids=["ascii", "three bytes a letter"])
@pytest.mark.parametrize("kind", [2, 4], ids=["topic", "broker"])
@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (ApiKey.DESCRIBE_CONFIGS, "results"),
        (ApiKey.ALTER_CONFIGS, "responses"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, "responses"),
    ],
)
def test_configs_of_the_longest_name_are_refused_under_that_name(
    key: ApiKey, rows: str, kind: int, name: str
) -> None:
    resource = {"resource_type": kind, "resource_name": name}
    for version in APIS[key].served:
        fields = {"resources": [{**resource, "configuration_keys": None}]}
        call = World().start(key, version, **fields)
        (row,) = getattr(call.answer, rows)
        assert row.resource_name == name
        assert row.error_code not in (ErrorCode.none, FAILED)


def test_a_string_of_more_bytes_than_kafka_reads_closes_the_connection() -> None:
    """Flexible versions have varint lengths; Kafka reads at most 32,767 bytes."""
    world = World()
    for size, closed in ((32_767, False), (32_768, True)):
        frame = _metadata_frame(size)
        assert world.start_frame(frame).closed == closed


def _metadata_frame(size: int) -> bytes:
    name = bytes((size + 1 & 0x7F | 0x80, size + 1 >> 7 & 0x7F | 0x80, size + 1 >> 14))
    header = b"\0\3\0\x09" + b"\0\0\0\7" + b"\xff\xff" + b"\0"
    return header + b"\2" + name + b"n" * size + b"\0" + bytes(3) + b"\0"


def test_a_member_id_that_no_answer_can_carry_fails_the_request_alone() -> None:
    """The id of a new member is its client id with a UUID appended."""
    world = World()
    for version in (3, 5, 6):
        call = world.start(
            ApiKey.JOIN_GROUP,
            version,
            client_id="c" * 32_740,
            group_id="g",
            member_id="",
            session_timeout=SECONDS_30,
            rebalance_timeout=SECONDS_30,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        )
        world.pass_ms(60_000)
        assert call.done
        assert call.closed or call.answer.error_code is not ErrorCode.none
