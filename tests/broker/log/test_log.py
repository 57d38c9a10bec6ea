"""Appending and reading: bytes come back unchanged, at the offsets of Kafka."""

import random
import struct

import pytest

from broker.disk.files import RealStorage
from broker.disk.memory import MemoryStorage
from broker.disk.storage import read_whole
from broker.log import flushing, trimming
from broker.log import log_reading as reading
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import recovery
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    altered,
    batch,
    decoded,
    decoded_by_kafka_python,
    everything,
    found_newest,
    open_log,
    truncate_to,
)


def test_an_appended_batch_differs_only_in_offset_and_epoch():
    log = open_log()
    log.append(batch([b"first"]), 4, NOW_MS)
    sent = batch([b"a", b"b"])
    assert log.append(sent, 4, NOW_MS) == (1, 2, -1, 0)
    stored = reading.read(log, 1, 1 << 20, 3).read()
    assert stored == altered(sent, {0: ("q", 1), 12: ("i", 4)}, new_crc=False)


@pytest.mark.parametrize("reader", [decoded, decoded_by_kafka_python])
def test_two_clients_read_what_was_written(reader):
    log = open_log(segment_bytes=400, index_interval_bytes=100)
    expected = []
    for number in range(40):
        key, value = b"k%d" % number, b"v" * number
        log.append(batch([value], keys=[key], timestamps=[NOW_MS + number]), 0, NOW_MS)
        expected.append((number, NOW_MS + number, key, value))
    assert len(log.segments) > 5
    assert reader(everything(log)) == expected
    log.check()


def test_real_files_have_kafkas_names(tmp_path):
    home = str(tmp_path / "topic-0")
    config = LogConfig(segment_bytes=200, index_interval_bytes=0)
    log = recovery.open_log(home, config, RealStorage(), NOW_MS)
    for _ in range(3):
        log.append(batch([bytes(50)]), 0, NOW_MS)
    flushing.settle(log)
    names = sorted(path.name for path in (tmp_path / "topic-0").iterdir())
    assert names == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.index",
        "00000000000000000001.log",
        "00000000000000000001.snapshot",
        "00000000000000000001.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
    ]
    content = (tmp_path / "topic-0" / "00000000000000000001.log").read_bytes()
    assert decoded(content) == [(1, NOW_MS, None, bytes(50))]


def test_a_slice_of_a_real_file_can_be_sent(tmp_path):
    import os
    import socket

    log = recovery.open_log(str(tmp_path / "t-0"), LogConfig(), RealStorage(), NOW_MS)
    for number in range(3):
        log.append(batch([b"%d" % number]), 0, NOW_MS)
    piece = reading.read(log, 1, 1 << 20, 2)
    left, right = socket.socketpair()
    with left, right:
        assert os.sendfile(left.fileno(), piece.fileno(), piece.position, piece.size)
        assert decoded(right.recv(1000)) == [(1, NOW_MS, None, b"1")]


# ---- reading ----


@pytest.fixture
def log():
    """Return a log of ten batches (100 bytes, two records), three per segment."""
    log = open_log(segment_bytes=300, index_interval_bytes=100)
    for number in range(10):
        log.append(batch([b"x" * 10, b"%015d" % number]), 0, NOW_MS)
    assert log.size_bytes == 1000
    return log


def test_a_read_begins_with_the_batch_that_holds_the_offset(log):
    for offset in range(20):
        piece = reading.read(log, offset, 1, 20)
        assert (piece.position, piece.size) == (offset // 2 % 3 * 100, 100)
        assert decoded(piece.read())[0][0] == offset // 2 * 2


def test_a_read_stays_within_a_segment_and_its_bounds(log):
    assert reading.read(log, 0, 1 << 20, 20).size == 300
    assert reading.read(log, 2, 150, 20).size == 150
    assert reading.read(log, 2, 99, 20).size == 100
    assert reading.read(log, 2, 99, 20, min_one=False) is None
    assert reading.read(log, 18, 1 << 20, 20).size == 100


def test_a_read_ends_before_the_bound(log):
    assert reading.read(log, 0, 1 << 20, 4).size == 200
    # Half of a batch is below the bound: the batch is left out.
    assert reading.read(log, 0, 1 << 20, 5).size == 200
    assert reading.read(log, 4, 1 << 20, 5) is None
    assert reading.read(log, 4, 1 << 20, 4) is None
    assert reading.read(log, 6, 1 << 20, 12).size == 300
    assert reading.read(log, 6, 1 << 20, 10).size == 200


def test_a_read_outside_of_the_log_is_out_of_range(log):
    trimming.delete_records_before(log, 7)
    assert reading.read(log, 20, 100, 20) is None
    for offset in (-1, 6, 21):
        with pytest.raises(KafkaError) as refused:
            reading.read(log, offset, 100, 20)
        assert refused.value.code is ErrorCode.offset_out_of_range
    assert decoded(reading.read(log, 7, 1, 20).read())[0][0] == 6


# ---- rolling ----


def test_segments_roll_by_bytes_and_never_exceed_them(log):
    assert [segment.size for segment in log.segments] == [300, 300, 300, 100]
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12, 18]


def test_a_batch_larger_than_a_segment_is_refused():
    log = open_log(segment_bytes=300)
    with pytest.raises(KafkaError) as refused:
        log.append(batch([bytes(300)]), 0, NOW_MS)
    assert refused.value.code is ErrorCode.record_list_too_large


def test_segments_roll_by_the_batches_time():
    log = open_log(segment_ms=1000)
    for time in (0, 1000, 1001, 500, 2001, 2002):
        log.append(batch([b"v"], timestamps=[NOW_MS + time]), 0, NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 5]


def test_segments_without_timestamps_roll_by_the_clock():
    log = open_log(segment_ms=1000)
    for now_ms in (0, 1000, 1001, 2001, 2002):
        log.append(batch([b"v"], timestamps=[-1]), 0, NOW_MS + now_ms)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]


def test_segments_roll_when_an_index_is_full():
    log = open_log(index_interval_bytes=0, segment_index_bytes=36)
    for number in range(9):
        log.append(batch([b"v"], timestamps=[NOW_MS + number]), 0, NOW_MS)
    # Each batch except the first of a segment has an entry; the third fills 36 bytes.
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    log.check()


def test_a_truncated_segment_has_room_in_its_indexes_again():
    log = open_log(index_interval_bytes=0, segment_index_bytes=36)
    for number in range(3):
        log.append(batch([b"v"], timestamps=[NOW_MS + number]), 0, NOW_MS)
    truncate_to(log, 1, NOW_MS)
    log.append(batch([b"w"]), 0, NOW_MS)
    assert len(log.segments) == 1


def test_the_time_index_has_the_first_batch_of_a_timestamp():
    log = open_log()
    for time in (1, 2, 2, 2):
        log.append(batch([b"v"], timestamps=[time]), 0, NOW_MS)
    flushing.settle(log)
    content = read_whole(log.storage.disk, f"{HOME}/00000000000000000000.timeindex")
    assert content == struct.pack(">qi", 2, 1)


def test_offsets_may_be_far_apart_on_a_follower():
    """A segment covers 31 bits of relative offsets, however sparse its records are."""
    log = open_log(index_interval_bytes=0, cleanup_policy={"compact"})
    for offset in (2**40, 2**40 + 2**31, 2**40 + 2**31 + 1, 2**41):
        sent = altered(batch([b"v"]), {0: ("q", offset)}, new_crc=False)
        assert log.append_as_follower(sent, NOW_MS).base_offset == offset
        assert decoded(reading.read(log, offset, 1, offset + 1).read())[0][0] == offset
    log.check()
    flushing.settle(log)
    again = open_log(
        log.storage.disk, index_interval_bytes=0, cleanup_policy={"compact"}
    )
    assert (again.log_end_offset, len(everything(again))) == (2**41 + 1, 4 * 69)
    again.check()


# ---- followers ----


def test_a_follower_keeps_offsets_and_epochs(log):
    follower = open_log(MemoryStorage(), segment_bytes=250)
    content = everything(log)
    # A fetch response may end within a batch.
    first = follower.append_as_follower(content[:430], NOW_MS)
    assert first == (0, 7, -1, 0)
    assert follower.append_as_follower(content[400:499], NOW_MS) is None
    follower.append_as_follower(content[400:], NOW_MS)
    assert everything(follower) == content
    follower.check()


def test_a_follower_refuses_what_it_has(log):
    follower = open_log(MemoryStorage())
    follower.append_as_follower(everything(log)[:200], NOW_MS)
    with pytest.raises(KafkaError, match="ends at 4"):
        follower.append_as_follower(everything(log)[100:], NOW_MS)
    assert follower.log_end_offset == 4


def test_a_follower_keeps_whole_batches_before_a_corrupt_one(log):
    follower = open_log(MemoryStorage())
    content = bytearray(everything(log))
    content[299] ^= 1
    with pytest.raises(KafkaError, match="CRC"):
        follower.append_as_follower(bytes(content), NOW_MS)
    assert everything(follower) == bytes(content[:200])


@pytest.mark.parametrize("length", [0, -12, -(2**31)])
def test_bytes_that_are_no_batch_are_not_passed_over(length):
    log = open_log()
    for number in range(3):
        log.append(batch([b"%032d" % number]), 0, NOW_MS)
    segment = log.segments.active
    segment.remember_nothing()
    position, size = segment.locate(1)
    assert (position, size) == (100, 100)
    segment.file.write(position + 8, (struct.pack(">i", length),), 4)
    with pytest.raises(KafkaError, match="has no batch at 100") as refused:
        segment.locate(2)
    assert refused.value.code is ErrorCode.corrupt_message


# ---- flushing ----


def test_flush_is_due_by_messages_and_by_time():
    log = open_log(flush_messages=3, flush_ms=1000)
    assert not flushing.flush_due(log, NOW_MS + 5000)
    log.append(batch([b"a", b"b"]), 0, NOW_MS)
    assert not flushing.flush_due(log, NOW_MS + 999)
    assert flushing.flush_due(log, NOW_MS + 1000)
    log.append(batch([b"c"]), 0, NOW_MS)
    assert flushing.flush_due(log, NOW_MS)
    flushing.flush(log, NOW_MS + 2000)
    assert log.recovery_point == 3
    assert not flushing.flush_due(log, NOW_MS + 2000)


def test_syncs_done_elsewhere_count_only_what_they_synced():
    log = open_log(segment_bytes=200)
    log.append(batch([bytes(50)]), 0, NOW_MS)
    syncs = flushing.due_syncs(log)
    log.append(batch([bytes(50)]), 0, NOW_MS)
    syncs.run()
    log.durability.done(syncs)
    assert log.recovery_point == 1
    flushing.flush(log)
    assert log.recovery_point == 2
    assert flushing.due_syncs(log) is None


def test_syncs_begun_before_a_truncation_prove_nothing():
    log = open_log()
    for _ in range(5):
        log.append(batch([b"v"]), 0, NOW_MS)
    syncs = flushing.due_syncs(log)
    truncate_to(log, 2, NOW_MS)
    for _ in range(5):
        log.append(batch([b"w"]), 0, NOW_MS)
    syncs.run()
    log.durability.done(syncs)
    assert log.recovery_point == 0


def test_deleted_segments_stay_readable_for_a_fetch_in_flight(log):
    piece = reading.read(log, 0, 1 << 20, 20)
    content = piece.read()
    trimming.delete_records_before(log, 20)
    assert "00000000000000000000.log" not in log.storage.disk.names(HOME)
    assert piece.read() == content


def test_segments_are_flushed_some_time_after_they_ended():
    """Without a flush policy, a crash leaves at most the last minute to recover."""
    log = open_log(segment_bytes=200)
    for number in range(4):
        log.append(batch([bytes(100)]), 0, NOW_MS + 1000 * number)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2, 3]
    for now_ms, recovery_point in ((60_999, 0), (61_000, 1), (62_500, 2), (99_000, 3)):
        syncs = flushing.syncs_of_ended(log, NOW_MS + now_ms)
        run(flushing.flush_in_steps(log, syncs))
        assert log.recovery_point == recovery_point
    left = log.storage.disk.after_power_loss(random.Random(3))
    again = open_log(left, opening={"recovery_point": 3}, segment_bytes=200)
    assert again.log_end_offset >= 3
    again.check()


def test_of_equal_time_stamps_the_first_is_the_newest():
    """As with Kafka's ``maxBy``, within one segment and across several."""
    log = open_log(segment_bytes=200)
    for later_ms in (0, 5, 5, 4, 5, 5, 1):
        log.append(batch([b"%032d" % 0], timestamps=[NOW_MS + later_ms]), 0, NOW_MS)
    assert len(log.segments) > 2
    assert found_newest(log)[:2] == (NOW_MS + 5, 1)
