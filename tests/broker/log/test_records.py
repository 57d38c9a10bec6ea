"""Codecs and records compared with aiokafka, pyarrow, zlib and hand-written bytes."""

import random
import zlib

import cramjam
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.steps import STEP_RECORDS, run
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import HEADER_SIZE, parse_header
from broker.protocol.records.batch_records import (
    Record,
    build_batch,
    heads_in_steps,
    iter_records,
    largest_timestamp,
    new_batch,
    plain_records,
    read_records,
    read_varint,
    record_body,
    write_varint,
)
from broker.protocol.records.codecs import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    compress,
    decompress,
)
from tests.broker.log.witness import NOW_MS, altered, batch, decoded

ALL = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
SIZES = [0, 1, 1000, 32 << 10, (64 << 10) + 1, 300_000]


def outcome(function, *arguments):
    """Return the name of the Kafka error that a call raises, None if it succeeds."""
    try:
        function(*arguments)
    except KafkaError as error:
        return error.code.name
    return None


def sample(size):
    """Return bytes of which one half is random and the other repeats."""
    dice = random.Random(size)
    return dice.randbytes(size // 2) + b"again " * (size // 6 + 1)


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("size", SIZES)
def test_packed_records_are_unpacked(codec, size):
    data = sample(size)[:size]
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data)))) == data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_corrupt(codec):
    with pytest.raises(KafkaError) as raised:
        decompress(codec, b"anything")
    assert raised.value.code is ErrorCode.corrupt_message


@pytest.mark.parametrize("size", SIZES)
def test_others_unpack_what_we_pack(size):
    data = sample(size)[:size]
    assert zlib.decompress(compress(GZIP, data), wbits=31) == data
    assert bytes(cramjam.lz4.decompress(compress(LZ4, data))) == data
    if size:
        for codec, name in ((LZ4, "lz4"), (ZSTD, "zstd")):
            packed = compress(codec, data)
            assert pyarrow.decompress(packed, size, name, asbytes=True) == data


@pytest.mark.parametrize("size", SIZES[1:])
def test_we_unpack_what_others_pack(size):
    data = sample(size)[:size]
    names = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
    for codec, name in names.items():
        packed = pyarrow.compress(data, name, asbytes=True)
        assert decompress(codec, packed) == data, name


def test_lz4_blocks_are_independent_as_java_wants_them():
    """KafkaLZ4BlockInputStream refuses a frame whose flags have bit 5 unset."""
    packed = compress(LZ4, sample(200_000))
    assert packed[:4] == bytes.fromhex("04224d18")
    assert packed[4] & 0b1110_0000 == 0b0110_0000
    assert packed[-4:] == bytes(4)


def test_snappy_is_in_xerials_frame():
    packed = compress(SNAPPY, b"v" * 40_000)
    assert packed[:16] == b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
    first = int.from_bytes(packed[16:20])
    block = bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first]))
    assert block == b"v" * 32768


@pytest.mark.parametrize("codec", ALL[1:])
def test_a_bomb_is_refused_before_it_fills_the_memory(codec):
    packed = compress(codec, bytes(3_000_000))
    assert len(packed) < 200_000
    assert len(decompress(codec, packed, 3_000_000)) == 3_000_000
    with pytest.raises(KafkaError) as refused:
        decompress(codec, packed, 2_999_999)
    assert refused.value.code is ErrorCode.corrupt_message


@given(codec=st.sampled_from(ALL), data=st.binary(max_size=200))
def test_nonsense_is_unpacked_or_corrupt(codec, data):
    assert outcome(decompress, codec, data, 10_000) in (None, "corrupt_message")


@given(
    codec=st.sampled_from(ALL),
    at=st.integers(0, 10**6),
    byte=st.integers(0, 255),
    cut=st.integers(0, 30),
)
def test_damaged_data_is_unpacked_or_corrupt(codec, at, byte, cut):
    packed = bytearray(compress(codec, sample(2000)))
    packed[at % len(packed)] = byte
    damaged = bytes(packed[: len(packed) - cut])
    assert outcome(decompress, codec, damaged, 100_000) in (None, "corrupt_message")


# ---- varints ----


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_protobufs_zigzag(value, content):
    assert write_varint(value).hex() == content
    encoded = bytes.fromhex(content)
    assert read_varint(encoded, 0) == (value, len(encoded))


def test_endless_varints_are_invalid():
    with pytest.raises(KafkaError):
        read_varint(b"\xff" * 20, 0)
    with pytest.raises(IndexError):
        read_varint(b"\xff", 0)


# ---- records ----

texts = st.one_of(st.none(), st.binary(max_size=50))
triples = st.lists(
    st.tuples(st.integers(0, 2**45), texts, texts), min_size=1, max_size=6
)


@given(records=triples, codec=st.sampled_from(ALL))
def test_aiokafka_reads_what_we_build(records, codec):
    built = new_batch(records, codec=codec)
    assert decoded(built) == [
        (number, *record) for number, record in enumerate(records)
    ]


@given(records=triples, codec=st.sampled_from(ALL))
def test_we_read_what_aiokafka_builds(records, codec):
    times, keys, values = (list(column) for column in zip(*records, strict=True))
    headers = [("h", b"x"), ("", None)]
    built = batch(values, keys=keys, timestamps=times, codec=codec, headers=headers)
    header = parse_header(built)
    assert read_records(header, built) == [
        Record(number, time, key, value, record_body(key, value, headers))
        for number, (time, key, value) in enumerate(records)
    ]


def test_producer_fields_are_the_callers():
    built = new_batch(
        [(5, None, b"v")], producer_id=9, producer_epoch=2, base_sequence=77
    )
    header = parse_header(built)
    assert header[9:] == (9, 2, 77, 1)


def test_a_golden_record_with_headers():
    built = new_batch([(NOW_MS, b"k", None)])
    assert built[HEADER_SIZE:].hex(" ") == "0e 00 00 00 02 6b 01 00"
    body = record_body(None, b"v", [("n", None), ("h", b"x")])
    assert body.hex(" ") == "01 02 76 04 02 6e 01 02 68 02 78"


@given(st.binary(max_size=80), st.integers(0, 4))
def test_any_payload_is_read_or_refused(payload, count):
    built = altered(batch([b"v"])[:HEADER_SIZE] + payload, {57: ("i", count)})
    allowed = (None, "invalid_record", "corrupt_message")
    assert outcome(read_records, parse_header(built), built) in allowed


@given(st.integers(0, 60), st.integers(0, 255))
def test_any_byte_changed_is_read_or_refused(at, byte):
    whole = bytearray(batch([b"value"] * 3, keys=[b"key"] * 3, headers=[("h", b"x")]))
    whole[HEADER_SIZE + at % (len(whole) - HEADER_SIZE)] = byte
    allowed = (None, "invalid_record", "corrupt_message")
    assert outcome(read_records, parse_header(whole), whole) in allowed


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("times", [[5, 9, 9, 7], [-1, -1], [-5, -3], [3, 2, 1]])
def test_the_largest_timestamp_is_the_first_records_that_has_it(codec, times):
    sent = altered(
        batch([b"v"] * len(times), timestamps=times, codec=codec),
        {0: ("q", 40), 35: ("q", 77)},
    )
    read = [(time, -offset) for offset, time, _, _ in decoded(sent)]
    time, offset = max([*read, (-1, -40)])
    assert run(largest_timestamp(parse_header(sent), sent)) == (time, -offset)


def test_the_largest_timestamp_is_found_in_steps():
    sent = batch([b"v"] * 1000, timestamps=list(range(1000)))
    # The last piece of the batch ends with one more step.
    steps = list(largest_timestamp(parse_header(sent), sent))
    assert len(steps) == 1000 // STEP_RECORDS + 1


@given(
    st.lists(
        st.tuples(
            st.integers(-(1 << 20), 1 << 20),
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200) | st.just(b"v" * 20_000),
            st.sampled_from([(), (), (("h", b"x"),)]),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([NONE, NONE, NONE, GZIP]),
    st.none() | st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)),
)
def test_plain_records_are_those_that_the_slow_reader_finds(records, codec, damage):
    sent = bytearray(
        build_batch(
            parse_header(batch([b"v"], codec=codec)),
            [
                (number, NOW_MS + later, record_body(key, value, headers))
                for number, (later, key, value, headers) in enumerate(records)
            ],
        )
    )
    if damage is not None:
        at, byte = damage
        sent[HEADER_SIZE + at % (len(sent) - HEADER_SIZE)] = byte
    header = parse_header(sent)
    found = plain_records(header, sent)
    if found is not None:
        expected = [(each.key, each.value) for each in read_records(header, sent)]
        assert found == expected


def test_small_records_are_plain():
    sent = new_batch([(5, b"k" * 100, b"v"), (5, b"k", b"v" * 300), (5, b"", None)])
    found = plain_records(parse_header(sent), sent)
    assert found == [(b"k" * 100, b"v"), (b"k", b"v" * 300), (b"", None)]


@pytest.mark.parametrize("codec", range(5))
def test_heads_are_those_of_the_records(codec):
    rng = random.Random(codec)
    sizes = [rng.choice((0, 1, 60, 8_000, 65_530, 70_000, 300_000)) for _ in range(90)]
    records = [
        (
            1000 + rng.randrange(-9, 9),
            rng.choice((None, b"", b"k")),
            rng.randbytes(size),
        )
        for size in sizes
    ]
    sent = new_batch(records, codec=codec)
    header = parse_header(sent)
    heads = [head for head in heads_in_steps(header, sent) if head is not None]
    assert heads == [
        (record.offset, record.timestamp, record.key is None)
        for record in iter_records(header, sent)
    ]


@pytest.mark.parametrize("change", [-1, 1])
def test_heads_of_a_batch_that_is_not_whole_are_refused(change):
    sent = batch([b"v"] * 3)
    header = parse_header(sent)
    with pytest.raises(KafkaError):
        list(heads_in_steps(header._replace(record_count=3 + change), sent))
    for cut in range(1, 9):
        with pytest.raises(KafkaError):
            list(heads_in_steps(header, sent[:-cut]))
