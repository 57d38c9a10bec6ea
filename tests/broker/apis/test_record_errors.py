"""Produce names the records for which a batch is rejected (KIP-467)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import START_MS, World
from tests.broker.apis.requests import produce_fields
from tests.broker.log.witness import batch

T = ("t", 0)


def refused(world: World, records: bytes, version: int = 9) -> Any:
    answer = world.send(ApiKey.PRODUCE, version, **produce_fields({T: records}))
    return answer.responses[0].partition_responses[0]


def test_each_record_without_a_key_is_named_to_a_compacted_topic() -> None:
    world = World()
    world.create("t", cleanup_policy="compact")
    keys = [None if number % 10 == 3 else b"k" for number in range(100)]
    row = refused(world, batch([b"v"] * 100, keys=keys))
    assert row.error_code is ErrorCode.invalid_record
    assert [each.batch_index for each in row.record_errors] == list(range(3, 100, 10))
    text = "Compacted topic cannot accept message without key in topic partition t-0"
    assert {each.batch_index_error_message for each in row.record_errors} == {text}
    # The text of LogValidator and ProduceResponse.RecordError in Kafka 3.9.
    first = ", ".join(
        f"RecordError(batchIndex={number}, message='{text}')" for number in (3, 13, 23)
    )
    assert row.error_message == (
        "One or more records have been rejected due to 10 record errors in total, and "
        f"only showing the first three errors at most: [{first}]"
    )
    assert world.fetch("t").high_watermark == 0


@pytest.mark.parametrize("before", [True, False], ids=["too old", "too new"])
def test_each_record_out_of_time_is_named(before: bool) -> None:
    world = World()
    side = "before" if before else "after"
    world.create("t", **{f"message_timestamp_{side}_max_ms": "1000"})
    off = -1001 if before else 1001
    times = [START_MS, START_MS + off, START_MS, START_MS + off]
    row = refused(world, batch([b"v"] * 4, timestamps=times))
    assert row.error_code is ErrorCode.invalid_timestamp
    assert [each.batch_index for each in row.record_errors] == [1, 3]
    message = row.record_errors[0].batch_index_error_message
    assert message.startswith(f"Timestamp {times[1]} of message with offset 1 is out")


@pytest.mark.parametrize("version", [3, 7])
def test_before_version_8_only_the_code_is_reported(version: int) -> None:
    world = World()
    world.create("t", cleanup_policy="compact")
    row = refused(world, batch([b"v"]), version)
    assert row.error_code is ErrorCode.invalid_record
    assert row.record_errors == ()


def test_of_very_many_bad_records_a_thousand_are_named() -> None:
    world = World()
    world.create("t", cleanup_policy="compact")
    row = refused(world, batch([b""] * 1_500))
    assert len(row.record_errors) == 1_000
