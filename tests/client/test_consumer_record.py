"""Records that a consumer decodes: transactions, positions and damaged bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.client.consumer.consumer_record import (
    AbortedTransaction,
    FetchedBatches,
)
from broker.client.consumer.subscription_state import SubscriptionState
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    parse_header,
    seal,
    with_log_append_time,
)
from broker.protocol.records.batch_records import build_batch, record_body
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.requests import START_MS, batch

PARTITION = TopicPartition("t", 0)


def at(offset: int, data: bytes) -> bytes:
    """Return a batch with an offset, as in a log."""
    return struct.pack(">q", offset) + data[8:]


def of_transaction(offset: int, producer_id: int, *values: bytes) -> bytes:
    data = batch(*values, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL)
    return at(offset, data)


def marker(offset: int, producer_id: int, *, commits: bool) -> bytes:
    key = struct.pack(">hh", 0, commits)
    header = parse_header(
        batch(b"", producer=(producer_id, 0, -1), attributes=TRANSACTIONAL | CONTROL)
    )
    body = record_body(key, bytes(6))
    return at(offset, build_batch(header, [(0, START_MS, body)]))


def values(
    records: bytes, aborted: list[AbortedTransaction] | None = None
) -> list[tuple[int, bytes | None]]:
    fetched = FetchedBatches(PARTITION, records, aborted)
    found = []
    while (each := fetched.next_batch()) is not None:
        found += [(record.offset, record.value) for record in each[0]]
    return found


# Producers 1 and 2 interleave; 1 aborts and then commits, 2 commits.
TRANSACTIONS = b"".join(
    (
        of_transaction(0, 1, b"a1", b"a2"),
        of_transaction(2, 2, b"b1"),
        at(3, batch(b"plain")),
        of_transaction(4, 1, b"a3"),
        marker(5, 1, commits=False),
        of_transaction(6, 1, b"c1"),
        marker(7, 2, commits=True),
        marker(8, 1, commits=True),
    )
)


def test_markers_are_nobodys_records_and_uncommitted_ones_everybodys() -> None:
    assert values(TRANSACTIONS) == [
        (0, b"a1"),
        (1, b"a2"),
        (2, b"b1"),
        (3, b"plain"),
        (4, b"a3"),
        (6, b"c1"),
    ]


def test_read_committed_leaves_out_what_was_aborted() -> None:
    aborted = [AbortedTransaction(first_offset=0, producer_id=1)]
    shown = [(2, b"b1"), (3, b"plain"), (6, b"c1")]
    assert values(TRANSACTIONS, aborted) == shown


def test_a_stamped_batch_gives_all_records_the_brokers_time() -> None:
    stamped = with_log_append_time(batch(b"x", b"y"), START_MS + 99)
    assert parse_header(stamped).attributes & LOG_APPEND_TIME
    found = FetchedBatches(PARTITION, stamped, None).next_batch()
    assert found is not None
    assert [each.timestamp_ms for each in found[0]] == [START_MS + 99] * 2


def test_offsets_without_records_are_passed_over() -> None:
    """A compacted batch has offset gaps, possibly at its last offset."""
    header = parse_header(batch(*[b""] * 10))._replace(base_offset=20)
    body = record_body(None, b"left")
    data = build_batch(header, [(23, START_MS, body)])
    subscriptions = SubscriptionState()
    subscriptions.assign([PARTITION])
    state = subscriptions.state(PARTITION)
    state.seek(21)
    state.store(FetchedBatches(PARTITION, data, None))
    assert state.fetch_from == 30
    (record,) = subscriptions.take(5)
    assert (record.offset, record.value) == (23, b"left")
    assert subscriptions.take(5) == []
    assert state.position == 30
    assert state.prefetched_bytes == 0


def test_an_answer_may_begin_with_the_marker_of_an_aborted_transaction() -> None:
    """Seed 1 of transaction days: later records belong to the next transaction."""
    answer = marker(5, 7, commits=False) + of_transaction(6, 7, b"good")
    aborted = [AbortedTransaction(first_offset=3, producer_id=7)]
    assert values(answer, aborted) == [(6, b"good")]


def test_the_part_of_a_batch_at_the_end_is_left_out() -> None:
    whole = at(0, batch(b"x"))
    assert values(whole + at(1, batch(b"y"))[:-1]) == [(0, b"x")]


@given(st.data())
def test_damage_is_an_error_and_nothing_else(data: st.DataObject) -> None:
    good = bytearray(at(0, batch(b"abc", b"defg")))
    place = data.draw(st.integers(61, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(KafkaError) as damaged:
        values(bytes(good))
    assert damaged.value.code is ErrorCode.corrupt_message
    # With a valid checksum the records may be readable or not.
    codes = set()
    try:
        values(bytes(seal(good)))
    except KafkaError as error:
        codes.add(error.code)
    assert codes <= {ErrorCode.invalid_record, ErrorCode.corrupt_message}


def test_records_before_damage_are_returned_before_the_error() -> None:
    bad = bytearray(at(1, batch(b"abc")))
    # The last byte is the number of headers.
    bad[-1] = 0x7F
    subscriptions = SubscriptionState()
    subscriptions.assign([PARTITION])
    state = subscriptions.state(PARTITION)
    state.seek(0)
    both = at(0, batch(b"good")) + bytes(seal(bad))
    state.store(FetchedBatches(PARTITION, both, None))
    assert [each.value for each in subscriptions.take(9)] == [b"good"]
    for _ in range(2):
        with pytest.raises(KafkaError) as failed:
            subscriptions.take(9)
        assert failed.value.code is ErrorCode.invalid_record
    assert state.position == 1
    state.seek(2)
    assert subscriptions.take(9) == []
