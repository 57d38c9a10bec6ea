"""Messages between consumers inside the classic protocol, as read by a broker.

Member metadata (``ConsumerProtocolSubscription``) is opaque to a broker, except that
offsets of topics in use must neither expire nor be deleted. Every version begins with a
version number and an array of topic names. This prefix is read and the rest ignored, as
in ``ClassicGroup.computeSubscribedTopics``.

In a consumer group the broker computes the assignments of members of the classic
protocol, too. It reads their whole subscriptions and writes their assignments
(``ConsumerProtocolAssignment``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

Partitions: TypeAlias = dict[str, frozenset[int]]


class Subscription(NamedTuple):
    """The topics that a member subscribes to, and the partitions it claims to own."""

    version: int
    topics: frozenset[str]
    owned: Partitions
    rack_id: str | None


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics; None if the subscription does not parse.

    >>> sorted(subscribed_topics(bytes.fromhex("000100000001000161")))
    ['a']
    """
    try:
        _, topics = _Fields(subscription).head()
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def read_subscription(subscription: bytes) -> Subscription | None:
    """Return the subscription, None if it does not parse.

    Version 1 adds the partitions owned, 2 their generation, 3 a rack.
    """
    fields = _Fields(subscription)
    try:
        version, topics = fields.head()
        fields.skip_bytes()
        owned = fields.partitions() if version >= 1 else {}
        if version >= 2:
            fields.int32()
        rack_id = fields.nullable_string() if version >= 3 else None
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return Subscription(version, frozenset(topics), owned, rack_id or None)


def read_assignment(assignment: bytes) -> Partitions | None:
    """Return the partitions of an assignment, None if it does not parse.

    Empty bytes are no partitions: the member has not synced.
    """
    if not assignment:
        return {}
    fields = _Fields(assignment)
    try:
        fields.int16()
        return fields.partitions()
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def assignment_bytes(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """Return an assignment as bytes; all versions have the same format.

    >>> assignment_bytes(1, {"a": [0, 2]}).hex()
    '000100000001000161000000020000000000000002ffffffff'
    """
    parts = [struct.pack(">hi", version, len(partitions))]
    for topic, indexes in partitions.items():
        name = topic.encode()
        parts.append(struct.pack(">h", len(name)) + name)
        parts.append(struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    # No user data.
    parts.append(struct.pack(">i", -1))
    return b"".join(parts)


class _Fields:
    """Reader of fields; raises ``struct.error`` or ValueError for invalid bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def head(self) -> tuple[int, list[str]]:
        version = self.int16()
        if version < 0:
            raise ValueError(f"expected a subscription, found version {version}")
        return version, [self.string() for _ in range(self.count())]

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def _number(self, form: str, size: int) -> int:
        (number,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(number)

    def count(self) -> int:
        count = self.int32()
        if not 0 <= count <= len(self._data):
            raise ValueError(f"expected an array, found length {count}")
        return count

    def nullable_string(self) -> str | None:
        size = self.int16()
        return None if size == -1 else self._take(size).decode()

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("expected a string, found null")
        return text

    def skip_bytes(self) -> None:
        size = self.int32()
        if size != -1:
            self._take(size)

    def partitions(self) -> Partitions:
        found: Partitions = {}
        for _ in range(self.count()):
            topic = self.string()
            count = self.count()
            indexes = struct.unpack_from(f">{count}i", self._data, self._at)
            self._at += 4 * count
            found[topic] = found.get(topic, frozenset()).union(indexes)
        return found

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"expected {size} bytes, found {len(self._data)}")
        taken, self._at = self._data[self._at : end], end
        return taken
