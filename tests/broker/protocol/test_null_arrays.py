"""A null array is refused where Kafka's schema has none, at any depth."""

from __future__ import annotations

import struct

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire import codec

NULL_ARRAY = struct.pack(">i", -1)


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.PRODUCE, 3, struct.pack(">hhi", -1, 1, 1000) + NULL_ARRAY),
        (ApiKey.PRODUCE, 9, struct.pack(">bhi", 0, 1, 1000) + b"\0\0"),
        # One topic, "a", whose partitions are null.
        (
            ApiKey.PRODUCE,
            3,
            struct.pack(">hhiih1s", -1, 1, 1000, 1, 1, b"a") + NULL_ARRAY,
        ),
        (ApiKey.CREATE_TOPICS, 2, NULL_ARRAY + struct.pack(">ib", 5, 0)),
        (ApiKey.LEADER_AND_ISR, 2, struct.pack(">iiq", 1, 1, -1) + NULL_ARRAY * 2),
        (
            ApiKey.JOIN_GROUP,
            0,
            struct.pack(">h1sihh", b"\0\1"[1], b"a", 10, 0, 0) + NULL_ARRAY,
        ),
    ],
)
def test_a_null_array_is_malformed(api_key: int, version: int, body: bytes) -> None:
    with pytest.raises(MalformedFrame, match="null"):
        codec.decode(api_key, version, body, 0)


def test_a_nullable_array_may_be_null() -> None:
    assert codec.decode(ApiKey.METADATA, 1, NULL_ARRAY, 0).topics is None
    partitions = codec.decode(
        ApiKey.CREATE_PARTITIONS,
        0,
        struct.pack(">ih1si", 1, 1, b"a", 3) + NULL_ARRAY + struct.pack(">ib", 5, 0),
        0,
    )
    assert partitions.topics[0].assignments is None
