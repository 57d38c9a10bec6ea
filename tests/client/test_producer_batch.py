"""Batches: bytes equal to those of kafka-python, splitting, and receipts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.consumer.consumer_record import FetchedBatches
from broker.client.producer.producer_batch import Identity, ProducerBatch, Receipt
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import HEADER_SIZE, parse_header
from broker.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 3)
LARGE = 1 << 30
maybe_bytes = st.none() | st.binary(max_size=300)
record = st.tuples(
    st.integers(0, 2**41),
    maybe_bytes,
    maybe_bytes,
    st.lists(st.tuples(st.text(max_size=9), maybe_bytes), max_size=3),
)
records = st.lists(record, min_size=1, max_size=30)


def batch_of(records: list[Any]) -> ProducerBatch:
    batch = ProducerBatch(PARTITION, 0.0, LARGE)
    for timestamp, key, value, headers in records:
        assert batch.append(timestamp, key, value, headers, LARGE)
    return batch


def contents(batch: bytes) -> list[Any]:
    fetched = FetchedBatches(PARTITION, batch, None)
    found = fetched.next_batch()
    assert found is not None
    return [
        (each.timestamp_ms, each.key, each.value, [*each.headers]) for each in found[0]
    ]


@pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning")
@given(records)
def test_a_batch_has_the_bytes_that_kafka_python_gives_it(records: list[Any]) -> None:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        2,
        compression_type=0,
        is_transactional=False,
        producer_id=77,
        producer_epoch=2,
        base_sequence=5,
        batch_size=LARGE,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        builder.append(offset, timestamp, key, value, headers)
    batch = batch_of(records)
    batch.identity = Identity(77, 2, 5)
    ours = batch.to_wire(0)
    assert len(ours) == batch.size
    # kafka-python writes a leader epoch of 0, Java -1; a producer does not know it.
    theirs = bytes(builder.build())
    assert (ours[:12], ours[16:]) == (theirs[:12], theirs[16:])


@given(records, st.integers(0, 4))
def test_records_come_back_from_a_batch_of_any_codec(
    records: list[Any], codec: int
) -> None:
    assert contents(batch_of(records).to_wire(codec)) == [
        (timestamp, key, value, [*headers])
        for timestamp, key, value, headers in records
    ]


@given(records.filter(lambda each: len(each) > 1))
def test_halves_hold_the_same_records_as_batches_of_their_own(
    records: list[Any],
) -> None:
    first, second = batch_of(records).halve()
    middle = len(records) // 2
    for half, expected in ((first, records[:middle]), (second, records[middle:])):
        assert half.to_wire(0) == batch_of(expected).to_wire(0)
        assert half.size == len(half.to_wire(0))


def test_a_batch_takes_its_first_record_whatever_its_size_and_no_more_than_fit() -> (
    None
):
    batch = ProducerBatch(PARTITION, 0.0, 100)
    assert batch.append(0, None, bytes(500), (), 100)
    assert not batch.append(0, None, b"", (), 100)
    small = ProducerBatch(PARTITION, 0.0, 100)
    taken = 0
    while small.append(0, None, b"abc", (), 100):
        taken += 1
    # Length, attributes, two deltas, no key, size of the value, value, no headers.
    assert taken == (100 - HEADER_SIZE) // 10


def test_a_repetition_may_have_another_number_and_nothing_else() -> None:
    batch = batch_of([(1, b"k", b"v" * 90, [])])
    batch.identity = Identity(1, 0, 8)
    before = batch.to_wire(4)
    batch.identity = Identity(1, 1, 0)
    after = batch.to_wire(4)
    assert (parse_header(after).producer_epoch, parse_header(after).base_sequence) == (
        1,
        0,
    )
    assert before[HEADER_SIZE:] == after[HEADER_SIZE:]
    assert contents(before) == contents(after)


async def test_receipts_find_their_records_in_halves_of_halves() -> None:
    batch = batch_of([(n, None, b"%d" % n, []) for n in range(21)])
    receipts = [Receipt(batch, n, n) for n in range(21)]
    pending, leaves = [batch], []
    while pending:
        each = pending.pop(0)
        if each.count > 3:
            pending += each.halve()
        else:
            leaves.append(each)
    assert len(leaves) == 8
    offset = 1_000
    for leaf in sorted(leaves, key=lambda each: each.base_timestamp):
        leaf.succeed(offset, -1)
        offset += leaf.count
    written = [await receipt.wait() for receipt in receipts]
    assert [each.offset for each in written] == list(range(1_000, 1_021))
    assert [each.timestamp_ms for each in written] == list(range(21))


async def test_a_receipt_reports_the_brokers_time_or_its_error() -> None:
    stamped = batch_of([(5, None, b"", [])])
    stamped.succeed(9, 777)
    assert await Receipt(stamped, 0, 5).wait() == ("t", 3, 9, 777)
    failed = batch_of([(5, None, b"", [])])
    failed.fail(KafkaError(ErrorCode.invalid_record, "no"))
    for _ in range(2):
        with pytest.raises(KafkaError, match="no"):
            await Receipt(failed, 0, 5).wait()
