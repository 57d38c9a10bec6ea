"""Messages of all versions: encoded as by kio, and decoded to the same values."""

import dataclasses
import io
import sys
import uuid
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from functools import cache
from types import SimpleNamespace as Row
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta, i64Timedelta

from broker.handling.api_registry import APIS
from broker.log.steps import run
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire import codec
from broker.protocol.wire.frame_bounds import Walk, bounds_check_in_steps
from broker.protocol.wire.header import parse_request_header
from broker.protocol.wire.introspect import FieldKind, kind_of
from broker.protocol.wire.stepping import Pace, stepping_reader
from broker.protocol.wire.writer import compile_writer
from tests.broker.protocol.frames import GOLDEN

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGES = [
    (int(key), version, direction)
    for key, version in sorted(
        {(key, version) for key, api in APIS.items() for version in api.served}
        | {(row.api_key, row.version) for row in GOLDEN}
    )
    for direction in ("request", "response")
]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def milliseconds(kind: Any, bits: int) -> st.SearchStrategy[Any]:
    # A timedelta holds 54 bits of milliseconds, and kio converts seconds to a float.
    return integers(min(bits, 44)).map(
        lambda ms: kind.parse(timedelta(milliseconds=ms))
    )


TEXT = st.text(max_size=5) | st.integers(126, 129).map(lambda size: "n" * size)
BYTES = st.binary(max_size=5) | st.integers(126, 129).map(bytes)
PRIMITIVES = {
    "bool": st.booleans(),
    "int8": integers(8),
    "int16": integers(16),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": integers(32),
    "int64": integers(64),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.none() | st.uuids().filter(lambda each: each.int != 0),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": milliseconds(i32Timedelta, 32),
    "timedelta_i64": milliseconds(i64Timedelta, 64),
    "datetime_i64": st.integers(0, 2**42).map(
        lambda ms: EPOCH + timedelta(milliseconds=ms)
    ),
    "string": TEXT,
    "bytes": BYTES,
    "records": BYTES,
}


@cache
def entities(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        cls, **{field.name: values(field) for field in dataclasses.fields(cls)}
    )


def values(field: dataclasses.Field[Any]) -> st.SearchStrategy[Any]:
    kind: FieldKind = kind_of(field)
    item = (
        entities(kind.struct)
        if kind.struct is not None
        else PRIMITIVES[kind.wire_type or ""]
    )
    if kind.is_array:
        item = st.lists(item, max_size=2).map(tuple)
    # A null tagged field is encoded as an absent one.
    if kind.nullable and kind.wire_type != "uuid":
        item = st.none() | item
    return item


def of_kind(key: int, version: int, direction: str) -> type[Any]:
    kind = codec.request_type if direction == "request" else codec.response_type
    return kind(key, version)


@st.composite
def messages(draw: st.DrawFn) -> tuple[int, int, str, Any]:
    key, version, direction = draw(st.sampled_from(MESSAGES))
    return key, version, direction, draw(entities(of_kind(key, version, direction)))


@settings(max_examples=150)
@given(messages())
def test_message_is_written_as_kio_writes_it(
    message: tuple[int, int, str, Any],
) -> None:
    _, _, _, entity = message
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    pieces: list[bytes] = []
    compile_writer(type(entity))(entity, pieces.append)
    assert b"".join(pieces) == buffer.getvalue()


@settings(max_examples=150)
@given(messages(), st.none() | TEXT, integers(32))
def test_message_comes_back_as_it_was(
    message: tuple[int, int, str, Any], client_id: str | None, correlation_id: int
) -> None:
    key, version, direction, entity = message
    if direction == "response":
        frame = codec.encode(key, version, correlation_id, entity)
        read = codec.decode_response(key, version, frame[4:])
        assert read == (correlation_id, entity)
        in_steps = codec.decode_response_in_steps(key, version, frame[4:])
        assert run(in_steps) == (correlation_id, entity)
    else:
        frame = codec.encode_request(key, version, correlation_id, client_id, entity)
        body = run(codec.encode_body_in_steps(key, version, entity))
        head = key, version, correlation_id, client_id
        assert codec.request_frame(*head, [body]) == frame
        header = parse_request_header(frame[4:])
        assert header[:3] == (key, version, correlation_id)
        if (key, version) != (7, 0):
            assert header.client_id == (client_id or "")
        assert codec.decode(key, version, frame[4:], header.body_offset) == entity
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


@settings(max_examples=150)
@given(messages())
def test_message_is_decoded_in_steps_as_by_kio(
    message: tuple[int, int, str, Any],
) -> None:
    _, _, _, entity = message
    pieces: list[bytes] = []
    compile_writer(type(entity))(entity, pieces.append)
    frame = b"".join(pieces)
    reader = stepping_reader(type(entity))
    assert run(reader(frame, 0, Pace(0))) == (entity, len(frame))
    walk = Walk(sys.maxsize)
    check = bounds_check_in_steps(type(entity))
    assert run(check(frame, 0, len(frame), walk)) == len(frame)


def counted(steps: Generator[None, None, Any]) -> tuple[int, Any]:
    """Return the number of steps, and the result."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return count, done.value
        count += 1


@pytest.mark.parametrize("version", [1, 7, 8])
def test_a_large_request_is_decoded_in_steps_of_a_few_kilobytes(version: int) -> None:
    """Many topics of two partitions and one of 20,000 partitions."""
    offset_fetch = of_kind(ApiKey.OFFSET_FETCH, version, "request")
    sizes = [2] * 3_000 + [20_000]
    topics = tuple(
        Row(name=f"topic-{at}", partition_indexes=tuple(range(size)))
        for at, size in enumerate(sizes)
    )
    group = Row(group_id="g", topics=topics, require_stable=False)
    group.groups = (Row(group_id="g", topics=topics),)
    frame = codec.encode_request(ApiKey.OFFSET_FETCH, version, 1, "", group)[4:]
    at = parse_request_header(frame).body_offset
    steps = codec.decode_in_steps(ApiKey.OFFSET_FETCH, version, frame, at, 50_000, 1)
    count, entity = counted(steps)
    assert isinstance(entity, offset_fetch)
    assert entity == codec.decode(ApiKey.OFFSET_FETCH, version, frame, at)
    # A step decodes 4 KiB, or 16 KiB of an array of numbers.
    numbers_bytes = 4 * 20_000
    assert count >= (len(frame) - numbers_bytes) / 4096 + numbers_bytes / 16_384


def test_zero_topic_id_reads_as_none() -> None:
    entity = of_kind(3, 12, "request")
    topic = dataclasses.fields(entity)[0].type.__args__[0].__args__[0]
    request = entity(
        topics=(topic(topic_id=uuid.UUID(int=0), name=None),),
        allow_auto_topic_creation=True,
        include_topic_authorized_operations=False,
    )
    frame = codec.encode_request(3, 12, 1, None, request)[4:]
    offset = parse_request_header(frame).body_offset
    assert codec.decode(3, 12, frame, offset).topics[0].topic_id is None
