"""Produced batches are accepted, refused and stamped as by Kafka."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    check_produced,
    parse_header,
    split_batches,
    with_log_append_time,
)
from tests.broker.log.witness import NOW_MS, altered, batch, decoded, open_log

# One record, key b"k", value b"v", no headers, written out by hand from the format:
# the length 8 (zig-zag 0x10), attributes, two deltas of 0, key, value, header count.
GOLDEN_RECORD = bytes.fromhex("10 00 00 00 02 6b 02 76 00")
GOLDEN = (
    bytes(8)
    + struct.pack(">iib", 49 + len(GOLDEN_RECORD), -1, 2)
    + bytes.fromhex("00000000")
    + struct.pack(">hiqqqhii", 0, 0, 1000, 1000, -1, -1, -1, 1)
    + GOLDEN_RECORD
)


def test_aiokafka_builds_the_bytes_written_out_by_hand():
    built = batch([b"v"], keys=[b"k"], timestamps=[1000])
    assert built == altered(GOLDEN, {})


def test_header_fields_are_where_the_format_has_them():
    header = parse_header(
        batch([b"a", b"bc"], timestamps=[7, 5], producer_id=9, epoch=3, sequence=44)
    )
    crc = header.crc
    assert header == BatchHeader(
        base_offset=0,
        batch_length=49 + 8 + 9,
        partition_leader_epoch=-1,
        magic=2,
        crc=crc,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=7,
        max_timestamp=7,
        producer_id=9,
        producer_epoch=3,
        base_sequence=44,
        record_count=2,
    )
    assert (header.size, header.last_offset, header.last_sequence) == (78, 1, 45)


def test_sequence_numbers_wrap():
    header = parse_header(
        batch([b"a", b"b", b"c"], producer_id=1, epoch=0, sequence=2**31 - 2)
    )
    assert header.last_sequence == 0


GOOD = batch([b"one", b"two"])
REFUSED = {
    "nothing": (b"", "invalid_record"),
    "sixteen bytes": (GOOD[:16], "invalid_record"),
    "half a header": (GOOD[:40], "invalid_record"),
    "one byte missing": (GOOD[:-1], "invalid_record"),
    "one byte more": (GOOD + b"\0", "invalid_record"),
    "two batches": (GOOD + GOOD, "invalid_record"),
    "magic 1": (altered(GOOD, {16: ("b", 1)}), "invalid_record"),
    "magic 3": (altered(GOOD, {16: ("b", 3)}), "corrupt_message"),
    "length below the header": (altered(GOOD, {8: ("i", 48)}), "corrupt_message"),
    "negative length": (altered(GOOD, {8: ("i", -12)}), "corrupt_message"),
    "wrong crc": (altered(GOOD, {17: ("I", 1)}, new_crc=False), "corrupt_message"),
    "a flipped bit": (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "corrupt_message"),
    "base offset 1": (altered(GOOD, {0: ("q", 1)}), "invalid_record"),
    "no record": (altered(GOOD, {57: ("i", 0)}), "invalid_record"),
    "count and delta disagree": (altered(GOOD, {57: ("i", 3)}), "invalid_record"),
    "negative delta": (altered(GOOD, {23: ("i", -1)}), "invalid_record"),
    "a control batch": (altered(GOOD, {21: ("h", 0x20)}), "invalid_record"),
    "LogAppendTime": (altered(GOOD, {21: ("h", 0x08)}), "invalid_timestamp"),
    "a delete horizon": (altered(GOOD, {21: ("h", 0x40)}), "invalid_record"),
    "codec 5": (altered(GOOD, {21: ("h", 5)}), "unsupported_compression_type"),
    "producer without sequence": (altered(GOOD, {43: ("q", 8)}), "invalid_record"),
    "larger than allowed": (batch([bytes(1000)]), "message_too_large"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_is_refused_and_leaves_no_trace(name):
    records, code = REFUSED[name]
    log = open_log(max_message_bytes=1000)
    log.append(GOOD, 0, NOW_MS)
    before = log.size_bytes
    with pytest.raises(KafkaError) as refused:
        log.append(records, 0, NOW_MS)
    assert refused.value.code is ErrorCode[code]
    assert (log.log_end_offset, log.size_bytes) == (2, before)
    assert log.append(GOOD, 0, NOW_MS).base_offset == 2
    log.check()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(kind):
    assert check_produced(kind(GOOD), 1000)[-1] == 2


def test_log_append_time_changes_the_header_and_its_crc():
    stamped = with_log_append_time(GOOD, 12345)
    assert len(stamped) == len(GOOD)
    assert parse_header(stamped).attributes == 0x08
    assert {record[1] for record in decoded(stamped)} == {12345}


def test_split_leaves_out_what_is_not_wholly_there():
    two = GOOD + altered(GOOD, {0: ("q", 2)})
    for size in range(len(two) + 1):
        expected = [] if size < len(GOOD) else [0] if size < len(two) else [0, 2]
        found = [header.base_offset for header, _ in split_batches(two[:size])]
        assert found == expected


def test_split_checks_every_crc():
    bad = GOOD + altered(GOOD, {0: ("q", 2), 17: ("I", 7)}, new_crc=False)
    batches = split_batches(bad)
    assert next(batches)[1] == GOOD
    with pytest.raises(KafkaError, match="CRC"):
        next(batches)


@given(
    records=st.one_of(
        st.binary(max_size=200),
        st.builds(
            lambda good, at, byte: good[:at] + bytes([byte]) + good[at + 1 :],
            st.sampled_from([GOOD, batch([b"x" * 50], codec=1)]),
            st.integers(0, HEADER_SIZE + 10),
            st.integers(0, 255),
        ),
        st.builds(
            lambda fields: altered(GOOD, fields),
            st.dictionaries(
                st.sampled_from([0, 8, 12, 21, 23, 35, 43, 51, 53, 57]),
                st.tuples(st.just("h"), st.integers(-(2**15), 2**15 - 1)),
            ),
        ),
    ),
    config=st.sampled_from(
        [
            {},
            {"cleanup_policy": frozenset({"compact"})},
            {"compression_type": "lz4"},
            {"message_timestamp_type": "LogAppendTime"},
            {"message_timestamp_before_max_ms": 1000},
        ]
    ),
)
def test_any_bytes_are_accepted_or_a_kafka_error(records, config):
    log = open_log(**config)
    try:
        log.append(records, 3, NOW_MS)
    except KafkaError:
        assert (log.log_end_offset, log.size_bytes) == (0, 0)
    else:
        assert log.log_end_offset > 0
    log.check()
    with suppress(KafkaError):
        log.append_as_follower(records, NOW_MS)
    log.check()
