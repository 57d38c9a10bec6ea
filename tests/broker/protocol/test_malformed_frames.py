"""Wrong lengths, cut frames and unknown fields: an entity or `MalformedFrame`.

The mutations start from Kafka's own frames (golden/), so that they are valid deep into
every schema before the first error.
"""

import contextlib
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.fetch.v15.request import FetchRequest, ReplicaState
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.static.primitive import i32Timedelta

from broker.handling.api_registry import APIS
from broker.log.steps import run
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire import codec
from broker.protocol.wire import frame_bounds as bounds
from broker.protocol.wire.varint import encode_varint
from tests.broker.protocol.frames import GOLDEN, GOLDEN_OF, HUGE, Golden, mutated


@st.composite
def mutated_golden(draw: st.DrawFn) -> tuple[Golden, bytes]:
    row = draw(st.sampled_from(GOLDEN))
    return row, mutated(draw, row.frame, row.body_offset)


@settings(max_examples=300)
@given(mutated_golden())
def test_mutated_frame_is_an_entity_or_malformed(case: tuple[Golden, bytes]) -> None:
    row, frame = case
    with contextlib.suppress(MalformedFrame):
        decoded(row, frame)


@settings(max_examples=300)
@given(mutated_golden())
def test_check_and_native_reader_agree_where_a_frame_ends(
    case: tuple[Golden, bytes],
) -> None:
    """Otherwise a crafted frame could pass the check and give kio other arrays."""
    row, frame = case
    kind = codec.request_type if row.direction == "request" else codec.response_type
    entity = kind(row.api_key, row.version)
    check = bounds.bounds_check(entity)
    offset = row.body_offset
    if check is None:
        return
    try:
        walk = bounds.Walk(sys.maxsize)
        end = check(frame, offset, len(frame), walk)
    except (MalformedFrame, IndexError, struct.error):
        return
    if walk.edits:
        # kio reads the frame without its unknown tagged fields.
        shorter = walk.edited(frame)
        end -= len(frame) - len(shorter)
        frame = shorter
        again = bounds.Walk(sys.maxsize)
        assert check(frame, offset, len(frame), again) == end
        assert not again.edits
    try:
        _, size = codec.entity_reader(entity)(frame, offset)
    except (codec.SerialError, ValueError, OverflowError):
        return
    assert offset + size == end


def decoded(row: Golden, frame: bytes) -> object:
    if row.direction == "request":
        return codec.decode(row.api_key, row.version, frame, row.body_offset)
    return codec.decode_response(row.api_key, row.version, frame)[1]


@pytest.mark.parametrize("api", GOLDEN_OF)
def test_every_shorter_frame_is_malformed(api: str) -> None:
    for row in GOLDEN_OF[api]:
        for end in range(row.body_offset, len(row.frame)):
            with pytest.raises(MalformedFrame):
                decoded(row, row.frame[:end])


def test_native_reader_alone_would_abort_the_process() -> None:
    """Reason for the bounds check; it can go when kio fixes this."""
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from kio.serial import entity_reader\n"
        "from kio.schema.metadata.v0.request import MetadataRequest\n"
        "entity_reader(MetadataRequest)(bytes.fromhex('7fffffff'), 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert ended.returncode < 0, ended


@pytest.mark.parametrize("huge", HUGE, ids=bytes.hex)
def test_array_longer_than_its_frame_is_malformed(huge: bytes) -> None:
    version = 0 if huge == HUGE[0] else 9
    with pytest.raises(MalformedFrame, match="items in"):
        codec.decode(ApiKey.METADATA, version, huge + b"\0" * 8, 0)


def test_array_of_fixed_items_is_measured_in_their_size() -> None:
    # LeaderAndIsr v0: an ISR of three brokers in 11 bytes.
    isr = struct.pack(">iiih1siiiii", 1, 1, 1, 1, b"t", 0, 1, 1, 1, 3) + b"\0" * 11
    with pytest.raises(MalformedFrame, match="array of 3 items in 11 bytes"):
        codec.decode(ApiKey.LEADER_AND_ISR, 0, isr, 0)


def heartbeat_body() -> bytes:
    entity = HeartbeatRequest(
        group_id="g", generation_id=1, member_id="m", group_instance_id=None
    )
    return codec.encode_request(ApiKey.HEARTBEAT, 4, 1, "", entity)[4 + 11 :]


def test_unknown_tagged_fields_are_skipped() -> None:
    body = heartbeat_body()
    known = codec.decode(ApiKey.HEARTBEAT, 4, body, 0)
    # Two unknown fields: 5 of two bytes, 300 of none.
    tagged = body[:-1] + bytes.fromhex("02 05 02 aabb ac02 00")
    assert codec.decode(ApiKey.HEARTBEAT, 4, tagged, 0) == known
    many = body[:-1] + bytes((40,)) + bytes((9, 0)) * 40
    assert codec.decode(ApiKey.HEARTBEAT, 4, many, 0) == known


def test_unknown_tagged_fields_are_cut_out_in_one_go() -> None:
    """Cutting them one by one copied the rest each time: a minute for a megabyte."""
    count = 100_000
    topic, tagged = b"\2t\0", b"\2t" + bytes((1, 9, 0))
    array, rest = encode_varint(count + 1), bytes((0, 0, 0, 0))
    many = array + tagged * count + rest
    entity = codec.request_type(ApiKey.METADATA, 9)
    check = bounds.bounds_check(entity)
    assert check is not None
    walk = bounds.Walk(2 * count)
    assert check(many, 0, len(many), walk) == len(many)
    assert walk.edited(many) == array + topic * count + rest


def test_a_struct_has_512_tagged_fields_at_most() -> None:
    """All are skipped in one step; Kafka's own structs have at most three."""
    body = heartbeat_body()[:-1]
    known = codec.decode(ApiKey.HEARTBEAT, 4, body + b"\0", 0)
    most = body + encode_varint(512) + bytes((9, 0)) * 512
    assert codec.decode(ApiKey.HEARTBEAT, 4, most, 0) == known
    more = body + encode_varint(513) + bytes((9, 0)) * 513
    with pytest.raises(MalformedFrame, match="513 tagged fields"):
        codec.decode(ApiKey.HEARTBEAT, 4, more, 0)


def metadata_body(topics: int) -> bytes:
    """Return a version 8 request with ``topics`` topic names of two letters."""
    return struct.pack(">i", topics) + b"\0\2tt" * topics + bytes(3)


def leader_and_isr_numbers(count: int) -> bytes:
    """Return LeaderAndIsr version 0 with a partition of ``count`` replicas."""
    numbers = struct.pack(">i", count) + bytes(4 * count)
    state = struct.pack(">h", 1) + b"t" + bytes(4 * 4) + numbers + bytes(4) + numbers
    return bytes(8) + struct.pack(">i", 1) + state + bytes(4)


@pytest.mark.parametrize(
    ("key", "version", "body", "cost"),
    [
        (ApiKey.METADATA, 8, metadata_body(100), 100),
        (ApiKey.LEADER_AND_ISR, 0, leader_and_isr_numbers(1600), 201),
    ],
    ids=["structs", "numbers"],
)
def test_a_frame_has_so_many_items_and_no_more(
    key: ApiKey, version: int, body: bytes, cost: int
) -> None:
    for decode in (codec.decode, in_steps):
        decode(key, version, body, 0, cost)
        with pytest.raises(MalformedFrame, match="more items than a frame may have"):
            decode(key, version, body, 0, cost - 1)


def in_steps(key: ApiKey, version: int, body: bytes, at: int, items_max: int) -> Any:
    return run(codec.decode_in_steps(key, version, body, at, items_max, 16))


def test_an_unknown_tagged_field_is_an_item() -> None:
    body = heartbeat_body()[:-1]
    codec.decode(ApiKey.HEARTBEAT, 4, body + b"\3" + bytes((9, 0)) * 3, 0, 3)
    with pytest.raises(MalformedFrame, match="more items than a frame may have"):
        codec.decode(ApiKey.HEARTBEAT, 4, body + b"\4" + bytes((9, 0)) * 4, 0, 3)


def fetch_request() -> FetchRequest:
    return FetchRequest(
        max_wait=i32Timedelta.parse(i32Timedelta.__bound__(milliseconds=1)),
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=(),
        forgotten_topics_data=(),
        rack_id="",
        cluster_id="abc",
        replica_state=ReplicaState(replica_id=3, replica_epoch=9),
    )


def test_unknown_tagged_field_inside_a_known_one_is_skipped() -> None:
    entity = fetch_request()
    body = codec.encode_request(ApiKey.FETCH, 15, 1, "", entity)[4 + 11 :]
    state = bytes.fromhex("01 0d 00000003 0000000000000009 00")
    longer = bytes.fromhex("01 10 00000003 0000000000000009 01 07 01 ff")
    assert state in body
    assert codec.decode(ApiKey.FETCH, 15, body, 0) == entity
    assert codec.decode(ApiKey.FETCH, 15, body.replace(state, longer), 0) == entity


def test_tagged_field_of_another_size_than_it_says_is_malformed() -> None:
    """kio continues after the value, other readers after the stated size."""
    body = codec.encode_request(ApiKey.FETCH, 15, 1, "", fetch_request())[4 + 11 :]
    assert b"\x00\x04\x04abc" in body
    with pytest.raises(MalformedFrame, match="tagged field of 4 bytes, not 3"):
        codec.decode(
            ApiKey.FETCH, 15, body.replace(b"\x00\x04\x04abc", b"\x00\x03\x04abc"), 0
        )


@pytest.mark.parametrize("version", [-1, 99])
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.LEADER_AND_ISR])
def test_version_without_a_schema_is_malformed(key: ApiKey, version: int) -> None:
    with pytest.raises(MalformedFrame, match="no such schema"):
        codec.decode(key, version, b"", 0)


def test_every_advertised_version_that_is_served_has_a_schema() -> None:
    for key, api in APIS.items():
        assert api.advertised[0] <= api.versions[0] <= api.versions[1]
        for version in api.served:
            for kind in (codec.request_type, codec.response_type):
                entity = kind(key, version)
                assert (entity.__api_key__, entity.__version__) == (key, version)
                assert entity.__flexible__ == (version >= FIRST_FLEXIBLE[key])
