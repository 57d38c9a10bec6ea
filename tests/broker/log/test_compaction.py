"""Compaction compared with a dictionary: kept records and their storage."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log import log_reading as reading
from broker.log.upkeep import cleaner
from broker.protocol.errors import KafkaError
from tests.broker.log.compacting import CONFIG, compacted, put, records
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    altered,
    batch,
    decoded,
    decoded_by_kafka_python,
    everything,
    open_log,
)


def kept(history, before, *, tombstones=True):
    """Return the (offset, key, value) that compaction up to ``before`` keeps."""
    last = {key: offset for offset, key, _ in history if offset < before}
    return [
        (offset, key, value)
        for offset, key, value in history
        if offset >= before
        or (last[key] == offset and (value is not None or tombstones))
    ]


def test_the_last_record_of_each_key_stays():
    log = open_log(**CONFIG)
    for number in range(40):
        put(log, (b"k%d" % (number % 3), b"v%d" % number))
    history = records(log)
    active = log.segments.active.base_offset
    compacted(log)
    assert records(log) == kept(history, active)
    assert log.log_end_offset == 40
    assert log.segments.active.base_offset == active
    assert sum(segment.size > 0 for segment in log.segments) == 2
    # A fetch at a removed offset returns the next record.
    assert records(log)[0][0] == 33
    piece = reading.read(log, 0, 1, 40)
    assert decoded(piece.read())[0][0] == 33


@given(
    rounds=st.lists(
        st.lists(
            st.tuples(
                st.lists(
                    st.tuples(
                        st.integers(0, 5), st.one_of(st.none(), st.binary(max_size=40))
                    ),
                    min_size=1,
                    max_size=5,
                ),
                st.integers(0, 4),
            ),
            max_size=12,
        ),
        min_size=1,
        max_size=3,
    )
)
def test_compaction_is_that_of_a_dictionary(rounds):
    log = open_log(**CONFIG)
    for sent in rounds:
        for pairs, codec in sent:
            put(log, *[(b"k%d" % key, value) for key, value in pairs], codec=codec)
        history = records(log)
        active = log.segments.active.base_offset
        compacted(log)
        assert records(log) == kept(history, active)
    assert decoded_by_kafka_python_works_on_plain(log)
    again = open_log(log.storage.disk.after_kill(), **CONFIG)
    assert records(again) == records(log)
    again.check()


def decoded_by_kafka_python_works_on_plain(log):
    content = everything(log)
    codecs, position = set(), 0
    while position < len(content):
        codecs.add(content[position + 22] & 7)
        position += int.from_bytes(content[position + 8 : position + 12]) + 12
    # kafka-python is installed without snappy, lz4 and zstd.
    return not codecs <= {0, 1} or decoded_by_kafka_python(content) == decoded(content)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_keeps_its_codec_times_and_offsets(codec):
    log = open_log(**CONFIG)
    times = [NOW_MS + number for number in range(4)]
    keys, values = [b"a", b"b", b"a", b"c"], [b"x" * 50] * 4
    headers = [("h", b"1"), ("n", None)]
    sent = batch(values, keys=keys, timestamps=times, codec=codec, headers=headers)
    log.append(sent, 5, NOW_MS)
    log.roll(NOW_MS)
    compacted(log)
    content = everything(log)
    assert decoded(content) == [
        (1, NOW_MS + 1, b"b", values[1]),
        (2, NOW_MS + 2, b"a", values[2]),
        (3, NOW_MS + 3, b"c", values[3]),
    ]
    base, _, epoch, attributes, delta = struct.unpack_from(">qii5xhi", content)
    assert (base, epoch, attributes, delta) == (0, 5, codec, 3)


def test_headers_of_records_stay():
    from aiokafka.record.memory_records import MemoryRecords

    log = open_log(**CONFIG)
    headers = [("h", b"1"), ("n", None)]
    sent = batch([b"x", b"y"], keys=[b"a", b"a"], headers=headers)
    log.append(sent, 0, NOW_MS)
    log.roll(NOW_MS)
    compacted(log)
    (record,) = MemoryRecords(everything(log)).next_batch()
    assert list(record.headers) == headers


def test_a_batch_that_loses_nothing_is_not_touched():
    log = open_log(**CONFIG)
    put(log, (b"a", b"1"), (b"b", b"2"))
    before = everything(log)
    log.roll(NOW_MS)
    compacted(log)
    assert everything(log) == before


def test_log_append_time_survives_a_rewrite():
    log = open_log(message_timestamp_type="LogAppendTime", **CONFIG)
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.roll(NOW_MS)
    compacted(log)
    assert decoded(everything(log)) == [(1, NOW_MS, b"a", b"2")]


# ---- tombstones ----


def test_a_tombstone_stays_for_delete_retention_after_it_was_first_met():
    log = open_log(**CONFIG)
    put(log, (b"a", b"1"))
    put(log, (b"a", None), (b"b", b"2"))
    log.roll(NOW_MS)
    compacted(log, NOW_MS + 50)
    assert records(log) == [(1, b"a", None), (2, b"b", b"2")]
    # The batch header carries the delete horizon: attribute bit 6 and base timestamp.
    content = everything(log)
    (attributes, base_timestamp) = struct.unpack_from(">h4xq", content, 21)
    assert (attributes, base_timestamp) == (0x40, NOW_MS + 50 + 1000)
    assert [record[1] for record in decoded(content)] == [NOW_MS, NOW_MS]
    for now_ms, tombstones in ((NOW_MS + 1049, True), (NOW_MS + 1050, False)):
        put(log, (b"c", b"%d" % now_ms))
        log.roll(NOW_MS)
        history = records(log)
        compacted(log, now_ms)
        end = log.log_end_offset
        assert records(log) == kept(history, end, tombstones=tombstones)


def test_a_later_value_outlives_the_tombstone():
    log = open_log(**CONFIG)
    put(log, (b"a", None))
    put(log, (b"a", b"again"))
    log.roll(NOW_MS)
    compacted(log)
    assert records(log) == [(1, b"a", b"again")]


# ---- producers ----


def test_sequence_numbers_survive_though_their_records_go():
    log = open_log(**CONFIG)
    for sequence in range(3):
        put(log, (b"a", b"%d" % sequence), producer_id=7, epoch=0, sequence=sequence)
    put(log, (b"a", b"other"))
    log.roll(NOW_MS)
    compacted(log)
    assert records(log) == [(3, b"a", b"other")]
    storage = log.storage.disk.after_kill()
    for name in storage.names(HOME):
        if name.endswith(".snapshot"):
            storage.remove(f"{HOME}/{name}")
    again = open_log(storage, **CONFIG)
    repeated = put(again, (b"a", b"2"), producer_id=7, epoch=0, sequence=2)
    assert repeated.base_offset == 2
    with pytest.raises(KafkaError):
        put(again, (b"a", b"5"), producer_id=7, epoch=0, sequence=5)
    # The empty batch survives the next compaction, until a newer batch exists.
    again.roll(NOW_MS)
    put(again, (b"b", b"3"), producer_id=7, epoch=0, sequence=3)
    again.roll(NOW_MS)
    size = again.size_bytes
    compacted(again)
    assert again.size_bytes == size - 61


def test_control_batches_stay():
    log = open_log(**CONFIG)
    marker = altered(
        batch([bytes(6)], keys=[bytes(4)], producer_id=7, epoch=0, sequence=0),
        {0: ("q", 0), 21: ("h", 0x30), 53: ("i", -1)},
    )
    log.append_as_follower(marker, NOW_MS)
    put(log, (bytes(4), b"same key"))
    log.roll(NOW_MS)
    compacted(log)
    assert everything(log).startswith(marker)
    assert reading.read(log, 0, 1 << 20, 2).size > len(marker)


def test_a_batch_that_cannot_be_read_stays():
    log = open_log(**CONFIG)
    broken = altered(batch([b"x"], keys=[b"a"]), {0: ("q", 0), 61: ("b", 127)})
    log.append_as_follower(broken, NOW_MS)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    compacted(log)
    assert everything(log).startswith(broken)
    assert decoded(everything(log)[len(broken) :]) == [(2, NOW_MS, b"a", b"2")]


def test_segments_beyond_the_end_are_not_copied():
    log = open_log(**CONFIG)
    for number in range(40):
        put(log, (b"k", b"%032d" % number))
    end = cleaner.cleanable_end(log, NOW_MS, 20)
    beyond = [segment for segment in log.segments if segment.base_offset >= end]
    compacted(log, up_to=20)
    assert len(beyond) == 5
    assert list(log.segments)[-len(beyond) :] == beyond
