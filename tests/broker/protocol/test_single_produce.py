"""Fast path for Produce requests of one batch, compared with kio; and its response.

The fast reader returns the same values as kio, or None and leaves the frame to kio. A
test of the common shape shows that it reads requests of real clients.
"""

from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.primitive import i32Timedelta

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header
from broker.protocol.wire.hot import ProducePartition, encode_produce_response
from broker.protocol.wire.single import decode_single_produce, encode_single_produce
from tests.broker.protocol.frames import GOLDEN, mutated

VERSIONS = APIS[ApiKey.PRODUCE].served
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
# Includes names over 126 bytes, whose compact length takes a second byte.
NAMES = st.text(max_size=20) | st.sampled_from(("n" * 126, "n" * 127, "é" * 100))
RECORDS = st.none() | st.binary(max_size=150) | st.just(b"r" * 20_000)


def id_of(name: str) -> UUID:
    """Return the id that replaces a topic name from version 13 on."""
    return uuid5(NAMESPACE_URL, name)


def frame_of(
    version: int,
    topics: list[tuple[str, list[tuple[int, bytes | None]]]],
    *,
    acks: int = 1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    module = import_module(f"kio.schema.produce.v{version}.request")
    entity = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        topic_data=tuple(
            module.TopicProduceData(
                **({"topic_id": id_of(name)} if version >= 13 else {"name": name}),
                partition_data=tuple(
                    module.PartitionProduceData(index=index, records=records)
                    for index, records in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    return codec.encode_request(ApiKey.PRODUCE, version, 7, "client", entity)[4:]


def kio_reads(version: int, frame: bytes) -> Any:
    offset = parse_request_header(frame).body_offset
    return codec.decode(ApiKey.PRODUCE, version, frame, offset)


def single(version: int, frame: bytes) -> Any:
    offset = parse_request_header(frame).body_offset
    return decode_single_produce(version, frame, offset)


def assert_kio_agrees(version: int, frame: bytes) -> None:
    """Check that the fast reader returns None or the same values as kio."""
    quick = single(version, frame)
    if quick is None:
        return
    acks, timeout_ms, name, index, records = quick
    entity = kio_reads(version, frame)
    assert entity.transactional_id is None
    assert entity.acks == acks
    assert entity.timeout == timedelta(milliseconds=timeout_ms)
    [topic] = entity.topic_data
    [partition] = topic.partition_data
    named = (topic.topic_id or UUID(int=0)) if version >= 13 else topic.name
    assert (named, partition.index) == (name, index)
    assert partition.records == bytes(records)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(
    name=NAMES,
    index=INT32,
    records=RECORDS,
    acks=st.integers(-2, 2),
    timeout_ms=st.integers(0, 2**31 - 1),
    behind=st.binary(max_size=3),
)
def test_one_batch_is_read_as_kio_reads_it(
    version: int,
    name: str,
    index: int,
    records: bytes | None,
    acks: int,
    timeout_ms: int,
    behind: bytes,
) -> None:
    topics = [(name, [(index, records)])]
    frame = frame_of(version, topics, acks=acks, timeout_ms=timeout_ms) + behind
    assert_kio_agrees(version, frame)
    long_name = 9 <= version < 13 and len(name.encode()) > 126
    assert (single(version, frame) is None) == (not records or long_name)


@pytest.mark.parametrize("version", VERSIONS)
def test_other_shapes_are_left_to_kio(version: int) -> None:
    one = ("t", [(0, b"r" * 70)])
    for frame in (
        frame_of(version, []),
        frame_of(version, [one, one]),
        frame_of(version, [("t", [])]),
        frame_of(version, [("t", [(0, b"r"), (1, b"r")])]),
        frame_of(version, [one], transactional_id="id"),
        frame_of(version, [one], transactional_id=""),
    ):
        assert single(version, frame) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_every_shorter_frame_is_left_to_kio(version: int) -> None:
    frame = frame_of(version, [("topic", [(3, b"r" * 200)])])
    assert single(version, frame) is not None
    start = parse_request_header(frame).body_offset
    for end in range(start, len(frame)):
        assert single(version, frame[:end]) is None, end


PRODUCED = [
    row
    for row in GOLDEN
    if row.api_key == ApiKey.PRODUCE
    and row.direction == "request"
    and row.version in VERSIONS
]


@st.composite
def mutated_produce(draw: st.DrawFn) -> tuple[int, bytes]:
    version = draw(st.sampled_from(VERSIONS))
    golden = [row.frame for row in PRODUCED if row.version == version]
    ours = frame_of(version, [("topic", [(3, b"rrr")])])
    frame = draw(st.sampled_from([*golden, ours]))
    return version, mutated(draw, frame, parse_request_header(frame).body_offset)


@settings(max_examples=300)
@given(mutated_produce())
def test_no_mutation_is_read_otherwise_than_by_kio(case: tuple[int, bytes]) -> None:
    assert_kio_agrees(*case)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(
    correlation_id=INT32,
    topic=NAMES,
    index=INT32,
    base_offset=INT64,
    time_ms=INT64,
    start=INT64,
)
def test_the_answer_is_that_of_the_slow_encoder(
    version: int,
    correlation_id: int,
    topic: str,
    index: int,
    base_offset: int,
    time_ms: int,
    start: int,
) -> None:
    row = ProducePartition(index, 0, base_offset, time_ms, start)
    named = id_of(topic) if version >= 13 else topic
    slow = encode_produce_response(version, correlation_id, [(named, [row])])
    quick = encode_single_produce(
        version, correlation_id, named, index, base_offset, time_ms, start
    )
    assert quick == slow
