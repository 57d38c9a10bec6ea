"""Frames that are not valid requests: Apache Kafka's answers and ours."""

from __future__ import annotations

import struct

import pytest

from broker.protocol.api_keys import ApiKey
from tests.kafka.conftest import same_answers
from tests.kafka.peer import Peer

pytestmark = pytest.mark.kafka


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def header(key: int, version: int, client: bytes | None = b"me") -> bytes:
    """Return a request header of version 1."""
    name = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client))
    return struct.pack(">hhi", key, version, 7) + name + (client or b"")


def say(peer: Peer, what: str, frame: bytes) -> None:
    """Send bytes on a new connection and record the response."""
    peer.send_bytes(frame, what)
    peer.note(what, peer.receive(what))


@same_answers
def test_versions_that_nobody_speaks(peer: Peer) -> None:
    for key, version in (
        (ApiKey.PRODUCE, 99),
        (ApiKey.FETCH, -1),
        (ApiKey.METADATA, 99),
        (ApiKey.HEARTBEAT, 77),
        (ApiKey.CREATE_TOPICS, 99),
        (999, 0),
        (-1, 0),
    ):
        body = header(key, version) + bytes(40)
        say(peer, f"api {key} version {version}", framed(body))


@same_answers
def test_frames_that_are_none(peer: Peer) -> None:
    for what, frame in (
        ("a size below zero", struct.pack(">i", -5)),
        ("a size beyond all bounds", struct.pack(">i", 2**31 - 1)),
        ("an empty frame", framed(b"")),
        ("half a header", framed(b"\0\3\0")),
        ("a client id longer than the frame", framed(header(3, 1)[:8] + b"\x70\0")),
        ("a body that ends too soon", framed(header(3, 1) + b"\0\0\0\5\0\1")),
        ("an array of two thousand millions", framed(header(3, 1) + b"\x7f" * 4)),
        ("text that is no UTF-8", framed(header(3, 1) + b"\0\0\0\1\0\2\xff\xfe")),
        ("a line of HTTP", b"GET / HTTP/1.1\r\n\r\n"),
    ):
        say(peer, what, frame)


@same_answers
def test_one_that_breaks_off_is_not_answered(peer: Peer) -> None:
    good = framed(header(18, 0))
    peer.send_bytes(good + good[:5], "half")
    first = peer.receive("half")
    peer.note("the whole one is answered", isinstance(first, bytes))
    peer.send_bytes(good[5:], "half")
    peer.note("and the other when it is whole", isinstance(peer.receive("half"), bytes))


@same_answers
def test_answers_come_in_the_order_of_requests(peer: Peer) -> None:
    metadata = framed(header(3, 1, None) + struct.pack(">i", 0))
    # All versions of ApiVersions from 3 on have a header of version 2.
    newer = framed(header(18, 99) + b"\0")
    frames = [framed(header(18, 0)), metadata, newer, metadata]
    peer.send_bytes(b"".join(frames), "pipelined")
    for number in range(len(frames)):
        frame = peer.receive("pipelined")
        # The correlation id is followed by two bytes that distinguish the responses.
        peer.note(f"answer {number}", frame[:4] if isinstance(frame, bytes) else frame)
