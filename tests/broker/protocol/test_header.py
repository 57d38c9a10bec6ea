"""Request headers, compared with hand-written bytes from the protocol guide."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioHeaderV2
from kio.serial import entity_writer

from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.header import RequestHeader, parse_request_header


def test_version_1_header_ends_after_the_client_id() -> None:
    frame = bytes.fromhex("0000 0003 0000000a 0003 616263 ffff")
    assert parse_request_header(frame) == RequestHeader(0, 3, 10, "abc", 13)


def test_version_2_header_ends_after_the_tagged_fields() -> None:
    frame = bytes.fromhex("0000 0009 0000000a 0003 616263 00 ffff")
    assert parse_request_header(frame) == RequestHeader(0, 9, 10, "abc", 14)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    # Two tags: 5 with two bytes, 300 with none.
    frame = bytes.fromhex("0000 0009 0000000a 0001 61 02 05 02 aabb ac02 00 ffff")
    assert parse_request_header(frame).body_offset == 19


@pytest.mark.parametrize(
    ("frame", "end"),
    [("0012 0000 ffffffff ffff", 10), ("0012 0003 ffffffff ffff 00", 11)],
)
def test_null_client_id_reads_as_the_empty_string(frame: str, end: int) -> None:
    header = parse_request_header(bytes.fromhex(frame))
    assert (header.client_id, header.correlation_id, header.body_offset) == (
        "",
        -1,
        end,
    )


def test_controlled_shutdown_v0_has_no_client_id() -> None:
    # The broker id follows directly; a client id would begin with its length here.
    frame = bytes.fromhex("0007 0000 0000000a 00000001")
    assert parse_request_header(frame) == RequestHeader(7, 0, 10, "", 8)
    assert parse_request_header(frame[:8]) == RequestHeader(7, 0, 10, "", 8)


def test_controlled_shutdown_v1_has_a_client_id() -> None:
    frame = bytes.fromhex("0007 0001 0000000a 0001 61 00000001")
    assert parse_request_header(frame) == RequestHeader(7, 1, 10, "a", 11)


def test_version_unknown_to_us_is_parsed_so_that_api_versions_can_answer() -> None:
    frame = bytes.fromhex("0012 0063 0000000a 0001 61 00 ffff")
    assert parse_request_header(frame) == RequestHeader(18, 99, 10, "a", 12)


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("", "0 bytes"),
        ("0000 0003 0000", "6 bytes"),
        ("0000 0003 0000000a", "8 bytes"),
        ("0007 0001 0000000a", "8 bytes"),
        ("005f 0000 0000000a 0000", "api key 95"),
        ("7fff 0000 0000000a 0000", "api key 32767"),
        ("ffff 0000 0000000a 0000", "api key -1"),
        ("0000 ffff 0000000a 0000", "version -1"),
        ("0000 0003 0000000a 0004 616263", "client id of 4 bytes"),
        ("0000 0003 0000000a fffe", "client id of -2 bytes"),
        ("0000 0003 0000000a 0001 ff", "not UTF-8"),
        ("0000 0009 0000000a 0001 61", "varint ends beyond"),
        ("0000 0009 0000000a 0001 61 01 05 7f aa", "tagged field of 127 bytes"),
        ("0000 0009 0000000a 0001 61 ffffffffff01", "more than five bytes"),
    ],
)
def test_bytes_that_are_no_header_are_malformed(frame: str, reason: str) -> None:
    with pytest.raises(MalformedFrame, match=reason):
        parse_request_header(bytes.fromhex(frame))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_header_or_malformed(frame: bytes) -> None:
    try:
        header = parse_request_header(frame)
    except MalformedFrame:
        return
    assert 8 <= header.body_offset <= len(frame)
    assert header.api_key in ApiKey.__members__.values()


@given(
    key=st.sampled_from([key for key in ApiKey if key != ApiKey.CONTROLLED_SHUTDOWN]),
    version=st.integers(0, 20),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=200),
)
def test_header_of_kio_is_read_back(
    key: int, version: int, correlation_id: int, client_id: str | None
) -> None:
    kio_header = KioHeaderV2 if version >= FIRST_FLEXIBLE[key] else KioHeaderV1
    buffer = io.BytesIO()
    entity_writer(kio_header)(
        buffer,
        kio_header(
            request_api_key=key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    frame = buffer.getvalue()
    expected = RequestHeader(key, version, correlation_id, client_id or "", len(frame))
    assert parse_request_header(frame + b"body") == expected
