"""Hand-written encoders produce kio's bytes, in every version and for any values."""

import io
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.wire import codec
from broker.protocol.wire.hot import (
    FetchPartition,
    ProducePartition,
    encode_fetch_response,
    encode_produce_response,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ERROR = st.sampled_from(ErrorCode).map(lambda code: code.value)
# Includes names over 127 bytes, whose compact length takes a second byte.
NAMES = st.text(max_size=20) | st.just("n" * 200)
THROTTLES = st.integers(0, 2**31 - 1)
PRODUCE_PARTITIONS = st.builds(
    ProducePartition,
    partition_index=INT32,
    error_code=ERROR,
    base_offset=INT64,
    log_append_time_ms=st.just(-1) | st.integers(0, 2**47),
    log_start_offset=INT64,
    error_message=st.none() | NAMES,
    record_errors=st.lists(st.tuples(INT32, st.none() | NAMES), max_size=2),
    current_leader=st.none() | st.tuples(INT32, INT32).filter(lambda t: t != (-1, -1)),
)
FETCH_PARTITIONS = st.builds(
    FetchPartition,
    partition_index=INT32,
    error_code=ERROR,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    records=st.none() | st.binary(max_size=300) | st.just(b"r" * 20_000),
    aborted_transactions=st.none() | st.lists(st.tuples(INT64, INT64), max_size=3),
    preferred_read_replica=INT32,
    diverging_epoch=st.none() | st.tuples(INT32, INT64).filter(lambda t: t != (-1, -1)),
    current_leader=st.none() | st.tuples(INT32, INT32).filter(lambda t: t != (-1, -1)),
)


def lists_of(partitions: st.SearchStrategy[Any], topic: st.SearchStrategy[Any]) -> Any:
    return st.lists(
        st.tuples(topic, st.lists(partitions, max_size=3)), max_size=3
    ) | st.just([("t", [])] * 130)


def leader(pair: tuple[int, int] | None, kind: type[Any]) -> Any:
    return kind() if pair is None else kind(leader_id=pair[0], leader_epoch=pair[1])


def time_of(milliseconds: int) -> datetime | None:
    if milliseconds == -1:
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def kio_frame(api_key: ApiKey, version: int, entity: Any) -> bytes:
    """Return the frame of kio's own writer."""
    buffer = io.BytesIO()
    buffer.write((77).to_bytes(4, "big"))
    if version >= FIRST_FLEXIBLE[api_key]:
        buffer.write(b"\0")
    entity_writer(codec.response_type(api_key, version))(buffer, entity)
    frame = buffer.getvalue()
    return len(frame).to_bytes(4, "big") + frame


def kio_produce(version: int, topics: Any, throttle_ms: int) -> bytes:
    """Return kio's frame; its writer accepts only the field names of the version."""
    module = __import__(f"kio.schema.produce.v{version}.response", fromlist=["*"])
    tagged = version >= 10

    def partition(each: ProducePartition) -> SimpleNamespace:
        return SimpleNamespace(
            index=each.partition_index,
            error_code=ErrorCode(each.error_code),
            base_offset=each.base_offset,
            log_append_time=time_of(each.log_append_time_ms),
            log_start_offset=each.log_start_offset,
            record_errors=[
                SimpleNamespace(batch_index=index, batch_index_error_message=message)
                for index, message in each.record_errors
            ],
            error_message=each.error_message,
            current_leader=leader(each.current_leader, module.LeaderIdAndEpoch)
            if tagged
            else None,
        )

    entity = SimpleNamespace(
        responses=[
            SimpleNamespace(
                name=name, topic_id=name, partition_responses=list(map(partition, each))
            )
            for name, each in topics
        ],
        throttle_time=timedelta(milliseconds=throttle_ms),
        node_endpoints=(),
    )
    return kio_frame(ApiKey.PRODUCE, version, entity)


@pytest.mark.parametrize("version", range(3, 14))
@settings(max_examples=20)
@given(data=st.data(), throttle_ms=THROTTLES)
def test_produce_frame_is_kios(
    version: int, data: st.DataObject, throttle_ms: int
) -> None:
    if version < 13:
        topics = data.draw(lists_of(PRODUCE_PARTITIONS, NAMES))
    else:
        rows = st.lists(PRODUCE_PARTITIONS, max_size=3)
        topics = data.draw(st.lists(st.tuples(st.uuids(), rows), max_size=3))
    frame = encode_produce_response(version, 77, topics, throttle_ms)
    assert frame == kio_produce(version, topics, throttle_ms)


def kio_fetch(version: int, topics: Any, throttle_ms: int, error: int) -> bytes:
    module = __import__(f"kio.schema.fetch.v{version}.response", fromlist=["*"])
    tagged = version >= 12

    def diverging(pair: tuple[int, int] | None) -> Any:
        kind = module.EpochEndOffset
        return kind() if pair is None else kind(epoch=pair[0], end_offset=pair[1])

    def partition(each: FetchPartition) -> SimpleNamespace:
        return SimpleNamespace(
            partition_index=each.partition_index,
            error_code=ErrorCode(each.error_code),
            high_watermark=each.high_watermark,
            last_stable_offset=each.last_stable_offset,
            log_start_offset=each.log_start_offset,
            diverging_epoch=diverging(each.diverging_epoch) if tagged else None,
            current_leader=leader(each.current_leader, module.LeaderIdAndEpoch)
            if tagged
            else None,
            snapshot_id=module.SnapshotId() if tagged else None,
            aborted_transactions=None
            if each.aborted_transactions is None
            else [
                SimpleNamespace(producer_id=producer, first_offset=first)
                for producer, first in each.aborted_transactions
            ],
            preferred_read_replica=each.preferred_read_replica,
            records=each.records,
        )

    entity = SimpleNamespace(
        throttle_time=timedelta(milliseconds=throttle_ms),
        error_code=ErrorCode(error),
        session_id=5,
        responses=[
            SimpleNamespace(
                topic=topic, topic_id=topic, partitions=list(map(partition, each))
            )
            for topic, each in topics
        ],
        node_endpoints=(),
    )
    return kio_frame(ApiKey.FETCH, version, entity)


@pytest.mark.parametrize("version", range(4, 18))
@settings(max_examples=20)
@given(data=st.data(), throttle_ms=THROTTLES, error=ERROR)
def test_fetch_frame_is_kios(
    version: int, data: st.DataObject, throttle_ms: int, error: int
) -> None:
    if version < 13:
        topics = data.draw(lists_of(FETCH_PARTITIONS, NAMES))
    else:
        topics = data.draw(
            st.lists(
                st.tuples(st.uuids(), st.lists(FETCH_PARTITIONS, max_size=3)),
                max_size=3,
            )
        )
    pieces = encode_fetch_response(
        version, 77, topics, throttle_ms=throttle_ms, error_code=error, session_id=5
    )
    assert b"".join(pieces) == kio_fetch(version, topics, throttle_ms, error)


class Region:
    """A file region without a file; only its size may be used."""

    def __init__(self, size: int) -> None:
        self.position = 0
        self.size = size

    def fileno(self) -> int:
        raise AssertionError("the encoder asked for the file")

    def read(self) -> bytes:
        raise AssertionError("the encoder read the file")


@pytest.mark.parametrize("version", [4, 12])
def test_records_in_files_are_sent_as_they_are_and_counted(version: int) -> None:
    first, second = Region(1000), Region(70_000)
    view = memoryview(b"v" * 10)
    partitions = [
        FetchPartition(index, 0, 1, 1, 0, records)
        for index, records in enumerate((first, view, second, Region(0), None))
    ]
    pieces = encode_fetch_response(version, 1, [("topic", partitions)])
    assert [piece for piece in pieces if not isinstance(piece, bytes)] == [
        first,
        view,
        second,
    ]
    assert all(piece is not view or piece.obj is view.obj for piece in pieces)
    same = encode_fetch_response(
        version,
        1,
        [
            (
                "topic",
                [
                    each._replace(records=records)
                    for each, records in zip(
                        partitions,
                        (b"1" * 1000, b"v" * 10, b"2" * 70_000, b"", None),
                        strict=True,
                    )
                ],
            )
        ],
    )
    joined = b"".join(same)
    first_piece = pieces[0]
    assert isinstance(first_piece, bytes)
    assert first_piece[:4] == joined[:4] == (len(joined) - 4).to_bytes(4, "big")


@pytest.mark.parametrize("version", [2, 14])
def test_produce_version_without_an_encoder_is_our_fault(version: int) -> None:
    with pytest.raises(AssertionError):
        encode_produce_response(version, 1, [])


def test_topic_ids_are_sixteen_bytes() -> None:
    topic_id = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10)
    (frame,) = encode_fetch_response(13, 1, [(topic_id, [])])
    assert frame == bytes.fromhex(
        "00000023 00000001 00"  # size, correlation id, no header tags
        "00000000 0000 00000000"  # throttle, error, session
        "02 0102030405060708090a0b0c0d0e0f10 01 00"  # one topic of no partitions
        "00"
    )
