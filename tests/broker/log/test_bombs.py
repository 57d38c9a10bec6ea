"""Batches of a few kilobytes with millions of records: bounded memory and steps."""

import gzip
import struct
import tracemalloc
from itertools import islice

import pytest

from broker.log import times
from broker.log.steps import STEP_RECORDS
from broker.log.upkeep import cleaner
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import BatchHeader, parse_header
from broker.protocol.records.batch_records import BatchBuilder, iter_records, new_batch
from broker.protocol.records.codecs import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    Packer,
    compress,
)
from broker.protocol.records.validation import STEP_UNITS
from tests.broker.log.crafted import batch_of, record
from tests.broker.log.witness import NOW_MS, altered, batch, found_at, open_log

COUNT = 1_000_000
# Length, attributes, timestamp, offset, no key, no value, no headers.
RECORD = bytes.fromhex("0c000000010100")
MEMORY_BYTES = 2 << 20
LARGE_RECORDS, LARGE_BYTES = 8, 1 << 20


def bomb(codec, count=COUNT, claimed=None, record=RECORD):
    """Return a batch of ``count`` records that are all alike."""
    claimed = count if claimed is None else claimed
    header = BatchHeader(
        0, 0, -1, 2, 0, codec, claimed - 1, NOW_MS, NOW_MS + 1, -1, -1, -1, claimed
    )
    packer = Packer(codec)
    page = record * 1000
    packed = b"".join([packer.add(page) for _ in range(count // 1000)] + [packer.end()])
    head = BatchBuilder(header).build()[:61]
    whole = altered(head + packed, {8: ("i", 49 + len(packed)), 57: ("i", claimed)})
    return altered(whole, {})


def large(codec):
    """Return a valid batch of a few records that are large when unpacked."""
    return new_batch([(NOW_MS, None, bytes(LARGE_BYTES))] * LARGE_RECORDS, codec=codec)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_records_are_unpacked_as_they_are_looked_at(codec):
    sent = bomb(codec, 100_000)
    tracemalloc.start()
    found = list(islice(iter_records(parse_header(sent), sent), 5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [each.key for each in found] == [None] * 5
    assert peak < 700_000


def test_a_bomb_is_small():
    assert len(bomb(ZSTD)) < 1200


def test_a_search_by_time_goes_through_it_in_steps():
    log = open_log()
    times_ms = [NOW_MS] * 29_999 + [NOW_MS + 1]
    sent = new_batch([(each, None, None) for each in times_ms], codec=ZSTD)
    log.append(sent, 0, NOW_MS)
    tracemalloc.start()
    steps = sum(1 for _ in times.offset_for_timestamp(log, NOW_MS + 1))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps >= 30_000 // STEP_RECORDS
    assert peak < MEMORY_BYTES


@pytest.mark.parametrize(
    "settings",
    [{}, {"cleanup_policy": {"compact"}}, {"message_timestamp_before_max_ms": 9}],
    ids=["plain", "compacted", "bounded times"],
)
def test_a_produced_batch_is_looked_at_in_steps(settings):
    log = open_log(**settings)
    # Neighbours differ in size; records of one size are validated as a run.
    records = [(NOW_MS, b"k", b"v" * (number % 2)) for number in range(5000)]
    work = log.prepare(new_batch(records, codec=ZSTD), NOW_MS)
    # The compiled code validates two records per unit.
    assert len(list(work)) >= 5000 // (2 * STEP_UNITS)
    assert log.log_end_offset == 0


def test_packing_a_bomb_anew_is_done_in_steps():
    log = open_log(compression_type="gzip")
    sent = large(ZSTD)
    tracemalloc.start()
    work = log.prepare(sent, NOW_MS)
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            prepared = done.value
            break
        steps += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps >= LARGE_RECORDS * LARGE_BYTES // 65_536
    assert peak < MEMORY_BYTES
    log.append(sent, 0, NOW_MS, prepared)
    assert log.size_bytes == len(prepared) < 20_000


def test_batches_that_unpack_to_too_much_are_refused():
    log = open_log(compression_type="uncompressed")
    with pytest.raises(KafkaError) as refused:
        log.append(large(ZSTD), 0, NOW_MS)
    assert refused.value.code is ErrorCode.message_too_large


def test_more_records_than_announced_end_the_work():
    sent = bomb(ZSTD, 100_000, claimed=10)
    records = iter_records(parse_header(sent), sent)
    assert len(list(islice(records, 10))) == 10
    with pytest.raises(KafkaError, match="more records than the 10"):
        next(records)


def test_a_record_that_claims_to_be_endless_is_refused():
    endless = bytes.fromhex("fefffffffffffffff701") + bytes(10)
    sent = bomb(NONE, 1000, claimed=1, record=endless)
    with pytest.raises(KafkaError) as refused:
        list(iter_records(parse_header(sent), sent))
    assert refused.value.code is ErrorCode.invalid_record


# ---- timestamps at the limits of 64 bits ----


def test_times_wrap_as_in_java():
    """Base 2^63-1 and a delta of 1: Kafka's long addition gives -2^63."""
    sent = batch([b"a", b"b"], timestamps=[0, 1])
    sent = altered(sent, {27: ("q", 2**63 - 1), 35: ("q", 2**63 - 1)})
    found = [each.timestamp for each in iter_records(parse_header(sent), sent)]
    assert found == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize("base", [2**63 - 1, -(2**63)])
def test_a_search_finds_what_fits_into_an_answer(base):
    log = open_log(message_timestamp_after_max_ms=2**63 - 1)
    delta = 1 if base > 0 else -1
    sent = batch([b"a", b"b"], timestamps=[NOW_MS, NOW_MS + delta])
    log.append(altered(sent, {27: ("q", base), 35: ("q", 2**63 - 1)}), 0, NOW_MS)
    for wanted in (-(2**63), 0, 2**63 - 1):
        found = found_at(log, wanted)
        assert found is None or -(2**63) <= found.timestamp < 2**63


@pytest.mark.parametrize("delta", [2**31, -(2**31) - 1, 2**62])
def test_an_offset_delta_is_of_32_bits(delta):
    header = parse_header(batch([b"v"]))
    built = BatchBuilder(header)
    built.add(header.base_offset + delta, NOW_MS, bytes.fromhex("010100"))
    sent = built.build()
    with pytest.raises(KafkaError, match="an offset delta"):
        list(iter_records(parse_header(sent), sent))


def large_before_small(codec, size):
    """Return a batch of a large record and a later, small one."""
    records = [(NOW_MS - 1, None, bytes(size)), (NOW_MS, None, b"v")]
    return new_batch(records, codec=codec)


def gzip_members(count):
    """Return a batch of one record behind ``count`` empty gzip streams."""
    packed = gzip.compress(b"") * count + gzip.compress(record())
    return batch_of([b"."], codec=GZIP, packed=packed)


def snappy_blocks(count):
    """Return a batch of one record behind ``count`` empty snappy blocks."""
    block = struct.pack(">i", 1) + bytes(1)
    head, last = compress(SNAPPY, b""), compress(SNAPPY, record())[16:]
    return batch_of([b"."], codec=SNAPPY, packed=head + block * count + last)


def skippable_frames(count):
    """Return a batch of one record behind ``count`` zstd frames without content."""
    frame = struct.pack("<II", 0x184D2A50, 0)
    packed = frame * count + compress(ZSTD, record())
    return batch_of([b"."], codec=ZSTD, packed=packed)


@pytest.mark.parametrize(
    ("sent", "least"),
    [
        (gzip_members(10_000), 10_000),
        (snappy_blocks(10_000), 10_000),
        (large_before_small(ZSTD, 20 << 20), 320),
        (large_before_small(SNAPPY, 5 << 20), 80),
    ],
    ids=["gzip", "snappy", "large zstd", "large snappy"],
)
def test_what_unpacks_to_no_record_or_a_large_one_is_searched_in_steps(sent, least):
    log = open_log(max_message_bytes=1 << 30)
    log.append(sent, 0, NOW_MS)
    tracemalloc.start()
    steps = sum(1 for _ in times.offset_for_timestamp(log, NOW_MS))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert steps >= least
    assert peak < MEMORY_BYTES


@pytest.mark.parametrize("codec", [GZIP, SNAPPY])
def test_what_unpacks_to_no_record_is_compacted_in_steps(codec):
    log = open_log(cleanup_policy={"compact"}, max_message_bytes=1 << 30)
    sent = gzip_members(5000) if codec == GZIP else snappy_blocks(5000)
    for _ in range(2):
        log.append(sent, 0, NOW_MS)
        log.roll(NOW_MS)
    steps = len(list(cleaner.compaction(log, NOW_MS, log.log_end_offset)))
    # Compaction reads the keys once and the records twice.
    assert steps >= 4 * 5000
    assert [at.base_offset for _, at in log.segments[0].headers(0)] == [1]


def test_a_large_record_without_a_key_is_refused_in_steps():
    log = open_log(cleanup_policy={"compact"})
    work = log.prepare(new_batch([(NOW_MS, None, bytes(20 << 20))], codec=ZSTD), NOW_MS)
    tracemalloc.start()
    with pytest.raises(KafkaError, match="without key"):
        list(work)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MEMORY_BYTES


def test_frames_without_content_are_counted_in_steps():
    work = open_log().prepare(skippable_frames(100_000), NOW_MS)
    assert sum(1 for _ in work) >= 100_000 // 2048
