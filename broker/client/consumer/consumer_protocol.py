"""Messages between the members of a group, which the broker forwards."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from broker.client.partitions import by_topic
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")


class Subscription(NamedTuple):
    """The subscribed topics of a member, and its owned partitions."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None


def encode_subscription(subscription: Subscription) -> bytes:
    """Return a subscription as bytes, without its instance id.

    >>> encode_subscription(Subscription(("t",))).hex()
    '0002000000010001740000000000000000ffffffff'
    """
    topics = b"".join(map(_string, sorted(subscription.topics)))
    return b"".join(
        (
            _I16.pack(2),
            _I32.pack(len(subscription.topics)) + topics,
            _I32.pack(0),
            _partitions(subscription.owned),
            _I32.pack(subscription.generation),
        )
    )


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Return the subscription in ``data``; raises `KafkaError`."""
    reader = _Reader(data)
    version = reader.i16()
    topics = tuple(reader.string() for _ in range(reader.count()))
    reader.skip_bytes()
    owned = reader.partitions() if version >= 1 else ()
    generation = reader.i32() if version >= 2 else -1
    return Subscription(topics, owned, generation, instance_id)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return an assignment as bytes."""
    return _I16.pack(0) + _partitions(partitions) + _I32.pack(-1)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions assigned in ``data``; raises `KafkaError`.

    Empty bytes are no partitions: the leader has left before the sync.
    """
    if not data:
        return ()
    reader = _Reader(data)
    reader.i16()
    return reader.partitions()


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    grouped = by_topic(sorted(partitions))
    pieces = [_I32.pack(len(grouped))]
    for topic, numbers in grouped.items():
        pieces.append(_string(topic) + _I32.pack(len(numbers)))
        pieces.extend(map(_I32.pack, numbers))
    return b"".join(pieces)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return _I16.pack(len(encoded)) + encoded


class _Reader:
    """Reader of consecutive fields; raises `KafkaError` for a missing one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def i16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def i32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def count(self) -> int:
        return max(self.i32(), 0)

    def string(self) -> str:
        try:
            return self._take(self.i16()).decode()
        except UnicodeDecodeError:
            raise _nonsense() from None

    def skip_bytes(self) -> None:
        self._take(max(self.i32(), 0))

    def partitions(self) -> tuple[TopicPartition, ...]:
        found = []
        for _ in range(self.count()):
            topic = self.string()
            found += [TopicPartition(topic, self.i32()) for _ in range(self.count())]
        return tuple(found)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise _nonsense()
        taken, self._at = self._data[self._at : end], end
        return taken


def _nonsense() -> KafkaError:
    code = ErrorCode.inconsistent_group_protocol
    return KafkaError(code, "a member's bytes are not of the consumer protocol")
