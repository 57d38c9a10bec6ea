"""The time limit of a Produce, read from its frame without decoding."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import encode_request, request_type
from broker.protocol.wire.header import parse_request_header
from broker.requests.deadlines import deadline_ns

MS = 1_000_000
VERSIONS = APIS[ApiKey.PRODUCE].served


def frame_of(version, *, acks, timeout_ms, transactional_id=None):
    body = request_type(ApiKey.PRODUCE, version)(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=(),
    )
    return encode_request(ApiKey.PRODUCE, version, 7, "client", body)[4:]


def limit_ms(frame):
    due_ns = deadline_ns(parse_request_header(frame), frame, 5 * MS)
    return None if due_ns is None else due_ns / MS - 5


@given(
    st.sampled_from(VERSIONS),
    st.sampled_from((-1, 1)),
    st.integers(0, 2**31 - 1),
    st.none() | st.text(max_size=30),
)
def test_the_deadline_is_that_of_the_request(
    version, acks, timeout_ms, transactional_id
):
    frame = frame_of(
        version, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    assert limit_ms(frame) == timeout_ms


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_without_an_answer_has_no_deadline(version):
    assert limit_ms(frame_of(version, acks=0, timeout_ms=100)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_cut_short_has_no_limit_and_raises_nothing(version):
    whole = frame_of(version, acks=1, timeout_ms=100, transactional_id="x" * 20)
    offset = parse_request_header(whole).body_offset
    for size in range(offset, offset + 20):
        assert limit_ms(whole[:size]) is None


def test_an_id_too_long_to_be_one_hides_the_limit():
    frame = frame_of(11, acks=1, timeout_ms=100, transactional_id="x" * 127)
    assert limit_ms(frame) is None


def test_other_requests_name_no_limit():
    body = request_type(ApiKey.METADATA, 1)(topics=None)
    assert limit_ms(encode_request(ApiKey.METADATA, 1, 7, "client", body)[4:]) is None
