"""Produced batches are appended only if every consumer can read them completely."""

import random
import struct
import zlib
from contextlib import suppress

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.steps import run
from broker.protocol.errors import ErrorCode, InvalidRecords, KafkaError
from broker.protocol.records.batch import HEADER_SIZE, parse_header, seal
from broker.protocol.records.batch_records import new_batch, write_varint
from broker.protocol.records.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from broker.protocol.records.compiled_walk import walk_piece
from broker.protocol.records.uniform_runs import RUN_MAX
from broker.protocol.records.validation import contents_of, is_one_record
from tests.broker.log import naive_validator
from tests.broker.log.crafted import batch_of, record
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    decoded,
    decoded_by_kafka_python,
    everything,
    found_at,
    open_log,
)

CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]


def outcome(log, sent):
    """Return the error code of an append, None if it is accepted."""
    before = (log.log_end_offset, log.size_bytes)
    try:
        log.append(sent, 0, NOW_MS)
    except KafkaError as error:
        assert (log.log_end_offset, log.size_bytes) == before
        log.check()
        return error.code.name
    return None


TWO = [record(0), record(1)]
# Bytes of the records, and record count of the header; tried with each codec.
REFUSED = {
    "a count of two, one record": (TWO[:1], 2),
    "a count of one, two records": (TWO, 1),
    "no records": ([], 1),
    "garbage": ([b"\xff" * 40], 1),
    "zeros": ([bytes(40)], 1),
    "a record longer than the batch": ([record(extra=1)], 1),
    "a record much longer than the batch": ([record(length=2**31 - 1)], 1),
    "a record shorter than its fields": ([record(extra=-1)], 1),
    "a record longer than its fields": ([record(extra=1), record(1)], 2),
    "a negative length": ([record(length=-1)], 1),
    "a length of more than 32 bits": ([record(length=2**40)], 1),
    "a key longer than its record": ([record(body=b"\x40k\x02v\0")], 1),
    "a key that reaches into the next": ([record(body=b"\x10k\x02v\0"), record(1)], 2),
    "a value longer than its record": ([record(body=b"\x02k\x40v\0")], 1),
    "no header count": ([record(body=b"\x02k\x02v")], 1),
    "fewer than no headers": ([record(body=b"\x02k\x02v\x01")], 1),
    "a header too many": ([record(body=b"\x02k\x02v\x02")], 1),
    "two thousand million headers": ([record(body=b"\1\1\xfe\xff\xff\xff\x0f")], 1),
    "a header without a key": ([record(body=b"\x02k\x02v\x02\x01\x01")], 1),
    "a header longer than its record": ([record(body=b"\x02k\x02v\x02\x40h\1")], 1),
    "offsets from one": ([record(1)], 1),
    "offsets that go back": ([record(0), record(0)], 2),
    "offsets with a gap": ([record(0), record(2)], 2),
    "a negative offset": ([record(-1)], 1),
    "an offset of more than 32 bits": ([record(2**32)], 1),
    "bytes behind the last record": ([*TWO, b"\0"], 2),
    "a varint without an end": ([b"\x20" + b"\0" + b"\xff" * 11 + bytes(4)], 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_records_that_consumers_cannot_read_are_refused(name):
    records, count = REFUSED[name]
    for codec in CODECS:
        sent = batch_of(records, codec=codec, count=count)
        assert outcome(open_log(), sent) == "invalid_record", codec


@pytest.mark.parametrize(
    "records",
    [
        TWO,
        [record(attributes=255)],
        [record(key=None), record(1, value=None)],
        [record(key=b"", value=b"")],
        [record(headers=[("", None), ("h", b"v")]), record(1)],
        [record(headers=[("h", b"v")] * 1000), record(1, headers=[("h", None)] * 70)],
        [record(value=b"x" * 200_000, headers=[("h", b"v")]), record(1)],
        [record(body=b"\x03\x05\0")],
        [record(time=-5), record(1, time=2**40), record(2, time=-(2**40))],
    ],
    ids=range(9),
)
def test_records_that_consumers_can_read_are_taken(records):
    for codec in CODECS:
        log = open_log(message_timestamp_after_max_ms=2**62)
        assert outcome(log, batch_of(records, codec=codec)) is None, codec
        stored = everything(log)
        assert decoded(stored) == decoded_by_kafka_python(stored), codec


# ---- the codec's stream ----


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("size", [1, 2000, 300_000])
def test_a_stream_that_is_cut_anywhere_is_refused(codec, size):
    dice = random.Random(size)
    packed = compress(codec, record(value=dice.randbytes(size)))
    cuts = {*range(1, 20), *dice.sample(range(len(packed)), 5), len(packed)}
    for cut in cuts & set(range(1, len(packed) + 1)):
        sent = batch_of([b"."], codec=codec, packed=packed[:-cut])
        assert outcome(open_log(), sent) == "invalid_record", cut


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("behind", [b"\0", bytes(20), b"garbage that is long enough"])
def test_bytes_behind_a_stream_are_refused(codec, behind):
    packed = compress(codec, record()) + behind
    assert outcome(open_log(), batch_of([b"."], codec=codec, packed=packed)) == (
        "invalid_record"
    )


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_stream_of_another_codec_is_refused(codec):
    for other in set(CODECS) - {codec}:
        packed = compress(other, record(value=bytes(range(256))))
        sent = batch_of([b"."], codec=codec, packed=packed)
        assert outcome(open_log(), sent) == "invalid_record"


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"block_linked": False}, True),
        ({"block_linked": True}, False),
        ({"block_linked": False, "block_checksum": True}, True),
        ({"block_linked": False, "content_checksum": True}, True),
        ({"block_linked": False, "store_size": False}, True),
        ({"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB}, True),
    ],
)
def test_an_lz4_frame_must_be_one_that_java_reads(settings, taken):
    """``Lz4BlockInputStream``: independent blocks only, with or without checksums."""
    plain = record(value=random.Random(1).randbytes(150_000) + bytes(150_000))
    packed = lz4.frame.compress(plain, **settings)
    code = outcome(open_log(), batch_of([b"."], codec=LZ4, packed=packed))
    assert code == (None if taken else "invalid_record")


def test_an_lz4_stream_must_be_a_single_frame():
    """Java stops reading at the first frame's end."""
    one = compress(LZ4, record())
    two = compress(LZ4, record(1))
    assert outcome(open_log(), batch_of([b".."] * 2, codec=LZ4, packed=one + two))
    empty = compress(LZ4, b"")
    assert outcome(open_log(), batch_of([b"."], codec=LZ4, packed=one + empty))


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_a_stream_may_have_several_parts(codec):
    """The tools of each codec concatenate streams, and Java reads all of them."""
    packed = compress(codec, record()) + compress(codec, record(1))
    assert outcome(open_log(), batch_of([b"."] * 2, codec=codec, packed=packed)) is None


def test_many_empty_parts_are_read_in_steps():
    empty = zlib.compressobj(wbits=31).flush()
    packed = empty * 20_000 + compress(GZIP, record())
    work = open_log().prepare(batch_of([b"."], codec=GZIP, packed=packed), NOW_MS)
    assert len(list(work)) > 20


# ---- timestamps ----


@pytest.mark.parametrize("codec", CODECS)
def test_the_largest_timestamp_is_computed(codec):
    times = [NOW_MS - 50, NOW_MS, NOW_MS - 7]
    for said in (-1, 0, NOW_MS - 50, NOW_MS + 99, 2**63 - 1, -(2**63)):
        log = open_log()
        sent = batch([b"v"] * 3, timestamps=times, codec=codec)
        log.append(altered(sent, {35: ("q", said)}), 0, NOW_MS)
        header = parse_header(everything(log))
        assert header.max_timestamp == NOW_MS, said
        assert [each[1] for each in decoded(everything(log))] == times, said
        assert found_at(log, NOW_MS - 20)[:2] == (NOW_MS, 1), said


def test_a_right_header_is_stored_as_it_came():
    log = open_log()
    sent = altered(batch([b"v"]), {21: ("h", 0x0180)})
    log.append(sent, 0, NOW_MS)
    assert everything(log)[16:] == sent[16:]


def test_a_header_that_is_rewritten_loses_attributes_without_a_meaning():
    """As by Kafka's ``DefaultRecordBatch.computeAttributes``."""
    log = open_log()
    sent = altered(batch([b"v"], codec=GZIP), {21: ("h", 0x0181), 35: ("q", 5)})
    log.append(sent, 0, NOW_MS)
    assert parse_header(everything(log)).attributes == GZIP


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_out_of_time_is_named_whatever_the_header_says(codec):
    log = open_log(message_timestamp_after_max_ms=3_600_000)
    times = [NOW_MS, NOW_MS + 7_200_000, NOW_MS, NOW_MS + 3_600_001]
    sent = batch([b"v"] * 4, timestamps=times, codec=codec)
    with pytest.raises(InvalidRecords) as refused:
        log.append(altered(sent, {35: ("q", NOW_MS)}), 0, NOW_MS)
    assert refused.value.code is ErrorCode.invalid_timestamp
    assert [index for index, _ in refused.value.records] == [1, 3]
    assert "within [" in refused.value.records[0][1]


@pytest.mark.parametrize(
    ("time", "taken"),
    [(-1, True), (-2, True), (0, True), (2**63 - 1, False), (-(2**63), False)],
)
def test_timestamps_are_bounded_in_64_bits_that_wrap(time, taken):
    log = open_log(message_timestamp_after_max_ms=3_600_000)
    sent = altered(batch([b"v"]), {27: ("q", time)})
    assert outcome(log, sent) == (None if taken else "invalid_timestamp")


def test_records_before_a_fault_in_structure_are_not_named():
    log = open_log(cleanup_policy=frozenset({"compact"}))
    sent = batch_of([record(key=None), record(1, extra=1)])
    with pytest.raises(KafkaError) as refused:
        log.append(sent, 0, NOW_MS)
    assert not isinstance(refused.value, InvalidRecords)


def test_invalid_records_come_before_a_sequence_out_of_order():
    log = open_log()
    log.append(batch([b"v"], producer_id=7, epoch=0, sequence=0), 0, NOW_MS)
    sent = batch([b"v"], producer_id=7, epoch=0, sequence=5)
    broken = bytes(seal(bytearray(sent[:-1] + b"\1")))
    assert outcome(log, sent) == "out_of_order_sequence_number"
    assert outcome(log, broken) == "invalid_record"


# ---- followers ----


def test_a_follower_takes_what_its_leader_has():
    """Kafka's followers check CRC and order of offsets, but no records."""
    log = open_log()
    log.append_as_follower(batch_of([b"garbage"], count=3), NOW_MS)
    assert log.log_end_offset == 3


# ---- comparison with the naive validator ----


def told(plain, count, codec=NONE):
    """Return (ours, naive validator's) contents of the records; None if refused."""
    sent = batch_of([plain], count=count, codec=codec)
    ours: tuple[int, int, bool] | None = None
    with suppress(KafkaError):
        ours = tuple(run(contents_of(codec, count, sent)))
    try:
        theirs = naive_validator.contents(plain, count)
    except naive_validator.Refused:
        theirs = None
    if is_one_record(sent) and count == 1:
        assert theirs is not None
        assert theirs[:2] == (0, 0)
    return ours, theirs


SMALL = st.integers(-70, 70) | st.sampled_from([2**31 - 1, -(2**31), 2**63 - 1])
TEXTS = st.none() | st.binary(max_size=5) | st.sampled_from([b"x" * 64, b"y" * 9000])


@st.composite
def runs_of_records(draw):
    """Return records that mostly resemble their predecessor, as producers send them."""
    plain = []
    for _ in range(draw(st.integers(1, 4))):
        key, value = draw(TEXTS), draw(TEXTS)
        headers = draw(st.lists(st.tuples(st.just("h"), TEXTS), max_size=2))
        times = draw(st.lists(SMALL, min_size=1, max_size=5))
        for _ in range(draw(st.integers(1, 150))):
            number = len(plain)
            time = times[number % len(times)]
            plain.append(
                record(number, time=time, key=key, value=value, headers=headers)
            )
    return plain


@settings(deadline=None)
@given(
    records=runs_of_records(),
    codec=st.sampled_from(CODECS),
    off=st.sampled_from([0, 0, 1, -1]),
    flips=st.lists(
        st.tuples(st.integers(0), st.integers(0, 40), st.integers(0, 255)), max_size=2
    ),
)
def test_the_walk_and_its_witness_agree(records, codec, off, flips):
    count = max(len(records) + off, 1)
    for at, place, byte in flips:
        broken = bytearray(records[at % len(records)])
        broken[place % len(broken)] = byte
        records[at % len(records)] = bytes(broken)
    ours, theirs = told(b"".join(records), count, codec)
    assert ours == theirs


@given(plain=st.binary(max_size=60), count=st.integers(1, 3))
def test_the_walk_and_its_witness_agree_on_any_bytes(plain, count):
    ours, theirs = told(plain, count)
    assert ours == theirs


@pytest.mark.parametrize("value", [b"", b"v" * 100, b"v" * 1000])
@pytest.mark.parametrize("rate", [0, 1, 100])
def test_long_runs_are_walked_right(value, rate):
    """Cover all widths of offset and timestamp deltas, up to three bytes."""
    count = 10_000 + RUN_MAX
    plain = b"".join(
        record(number, time=number * rate // 3 - 5 * bool(rate), key=None, value=value)
        for number in range(count)
    )
    ours, theirs = told(plain, count)
    assert ours == theirs is not None


@settings(max_examples=300)
@given(data=st.data())
def test_a_fault_within_a_run_is_found(data):
    count = data.draw(st.sampled_from([20, 80, 300]))
    plain = bytearray()
    for number in range(count):
        plain += record(number, time=number // 7, value=b"v" * 30)
    at = data.draw(st.integers(0, len(plain) - 1))
    plain[at] = data.draw(st.integers(0, 255))
    ours, theirs = told(bytes(plain), count)
    assert ours == theirs


# ---- records of unequal sizes: compiled code ----


def records_of_all_sizes(dice, count):
    """Return records whose neighbours rarely have the same size."""
    return [
        record(
            number,
            time=dice.choice([number, -1, -number, 2**40]),
            key=dice.choice([None, dice.randbytes(dice.randrange(80))]),
            value=dice.choice([None, dice.randbytes(dice.randrange(300))]),
            headers=dice.choice([[], [], [("h", None), ("\u00e9", b"v" * 70)]]),
        )
        for number in range(count)
    ]


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.sampled_from([5, 70, 400]),
    off=st.sampled_from([0, 0, 0, 1, -1]),
    flip=st.none() | st.tuples(st.integers(0), st.integers(0, 40), st.integers(0, 255)),
    codec=st.sampled_from(CODECS),
)
def test_records_of_unequal_sizes_and_the_witness_agree(seed, count, off, flip, codec):
    records = records_of_all_sizes(random.Random(seed), count)
    if flip is not None:
        at, place, byte = flip
        broken = bytearray(records[at % count])
        broken[place % len(broken)] = byte
        records[at % count] = bytes(broken)
    ours, theirs = told(b"".join(records), count + off, codec)
    assert ours == theirs


def test_records_of_unequal_sizes_are_walked_by_compiled_code():
    plain = b"".join(records_of_all_sizes(random.Random(1), 200))
    at = number = 0
    lacks_key = False
    extremes = []
    while at < len(plain):
        piece = walk_piece(plain, at, number, 200 - number)
        assert piece.records
        number += piece.records
        at += piece.size
        lacks_key |= piece.lacks_key
        extremes += [piece.smallest, piece.largest]
    assert (min(extremes), max(extremes), lacks_key) == naive_validator.contents(
        plain, 200
    )


def stretched(number, size=0):
    """Return a varint of ``size`` bytes, always longer than its shortest form."""
    short = write_varint(number)
    zeros = max(size - len(short), 1) - 1
    return short[:-1] + bytes([short[-1] | 0x80]) + b"\x80" * zeros + b"\0"


FIELDS = ["time", "offset", "key", "value", "headers", "header key", "header value"]


@pytest.mark.parametrize("size", [2, 5, 6, 10, 11])
@pytest.mark.parametrize("field", ["length", *FIELDS])
def test_varints_that_are_too_long_are_left_to_the_walk_in_python(field, size):
    """aiokafka reads lengths as 64 bits, in up to ten bytes."""
    records = records_of_all_sizes(random.Random(2), 150)
    numbers = dict(zip(FIELDS, [7, 100, 1, 1, 1, 1, 1], strict=True))
    texts = {"key": b"k", "value": b"v", "header key": b"h", "header value": b"v"}
    content = b"\0"
    for name, value in numbers.items():
        content += stretched(value, size) if name == field else write_varint(value)
        content += texts.get(name, b"")
    length = len(content)
    records[100] = content
    lead = stretched(length, size) if field == "length" else write_varint(length)
    records[100] = lead + content
    piece = walk_piece(records[100] + bytes(20), 0, 100, 1)
    assert piece is None or not piece.records
    ours, theirs = told(b"".join(records), 150)
    assert ours == theirs


@pytest.mark.parametrize(
    "time", [2**63 - 1, 2**63 - 2**40, -(2**63), -(2**40), -(2**40) - 1, 2**62]
)
def test_deltas_that_wrap_around_are_left_to_the_walk_in_python(time):
    records = records_of_all_sizes(random.Random(3), 100)
    records[50] = record(50, time=time)
    ours, theirs = told(b"".join(records), 100)
    assert ours == theirs is not None


def test_records_that_are_cut_anywhere_are_refused():
    """Also within headers, where aiokafka reads past the end."""
    records = records_of_all_sizes(random.Random(4), 30)
    records.append(record(30, key=None, headers=[("", None), ("", b"")] * 3))
    plain = b"".join(records)
    for cut in range(1, 60):
        ours, theirs = told(plain[:-cut], 31)
        assert ours is theirs is None
        ours, theirs = told(plain[:-cut] + bytes(cut), 31)
        assert ours == theirs


def test_a_piece_full_of_headers_is_walked_in_steps():
    records = records_of_all_sizes(random.Random(5), 10)
    records.append(record(10, headers=[("", None)] * 15_000))
    records.append(record(11, headers=[("h", None)] * 5_000))
    sent = batch_of(records)
    assert len(list(contents_of(NONE, 12, sent))) > 20
    ours, theirs = told(b"".join(records), 12)
    assert ours == theirs is not None


@given(
    size=st.integers(0, 20_000),
    key=st.none() | st.binary(max_size=70),
    changed=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 255)), max_size=1),
)
def test_one_record_is_known_at_a_glance(size, key, changed):
    plain = bytearray(record(key=key, value=bytes(size)))
    for at, byte in changed:
        plain[at % len(plain)] = byte
    sent = batch_of([bytes(plain)])
    known = is_one_record(sent)
    ours, theirs = told(bytes(plain), 1)
    assert ours == theirs
    if not changed and (key is None or len(key) < 64) and len(sent) > HEADER_SIZE + 9:
        assert known


def test_every_field_of_an_own_batch_is_valid():
    sent = new_batch([(NOW_MS, None, b"v")] * 3, codec=ZSTD)
    assert tuple(run(contents_of(ZSTD, 3, sent))) == (0, 0, True)
    assert len(sent) > HEADER_SIZE
    assert struct.unpack_from(">i", sent, 57) == (3,)
