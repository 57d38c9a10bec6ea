"""Request bodies from the schemas: each field has a usual value or an extreme one.

Bodies are written byte by byte from the field metadata of kio's classes and of our
controller classes. An entity cannot hold all that a peer may send: wrong lengths, null
in a field that is not nullable, invalid UTF-8.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from functools import cache
from typing import Any, Final

from broker.protocol.wire.codec import request_type
from broker.protocol.wire.introspect import FIXED, FieldKind, kind_of
from broker.protocol.wire.varint import encode_varint
from tests.fuzzing.drawn import either, one_in
from tests.fuzzing.record_batches import extreme_batch

_kind_of: Final = cache(kind_of)
# Size of a body beyond which nothing long is added to it.
LONG_BODY: Final = 150_000
_BITS: Final = {"b": 8, "h": 16, "i": 32, "q": 64}
_UNSIGNED: Final = {"B": 8, "H": 16, "I": 32, "Q": 64}
_STRINGS: Final = (
    b"",
    b".",
    b"..",
    b"a/b",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\N{SNOWMAN}".encode() * 83,
    b"x" * 249,
    b"x" * 250,
    b"x" * 32_700,
    b"x" * 32_767,
    "\N{SNOWMAN}".encode() * 10_922,
    b"-1",
    b"9223372036854775808",
    b"1e999",
    b"__consumer_offsets",
    b"1:2,*:*",
    b'{"a":',
    b"\r\nx=y",
)
# Longer than a legacy string can be; Kafka refuses these lengths in compact strings.
_COMPACT: Final = (b"x" * 32_768, b"x" * 70_000)


@dataclasses.dataclass
class Words:
    """Names that exist in the broker, so that requests are processed further."""

    topics: list[bytes] = dataclasses.field(default_factory=lambda: [b"t", b"c"])
    topic_ids: list[bytes] = dataclasses.field(default_factory=lambda: [bytes(16)])
    groups: list[bytes] = dataclasses.field(default_factory=lambda: [b"g", b"h"])
    members: list[bytes] = dataclasses.field(default_factory=lambda: [b""])
    others: list[bytes] = dataclasses.field(
        default_factory=lambda: [
            b"consumer",
            b"range",
            b"retention.ms",
            b"cleanup.policy",
            b"compact",
            b"segment.bytes",
            b"message.timestamp.type",
            b"max.connections.per.ip.overrides",
            b"log.retention.ms",
            b"1000",
            b"1",
            b"0",
        ]
    )

    def of_field(self, name: str) -> list[bytes]:
        """Return usual values of a field of this name."""
        if "group" in name or name.startswith(("key", "coordinator")):
            return self.groups
        if "member" in name:
            return self.members
        if "topic" in name or name in ("name", "resource_name"):
            return self.topics * 3 + self.others[:4]
        return self.others


class Body:
    """Builder of one body; each value is extreme with probability 1 / ``spice``."""

    def __init__(self, rng: random.Random, words: Words, spice: int) -> None:
        self._rng = rng
        self._words = words
        self._spice = spice
        self._pieces: list[bytes] = []
        self._size = 0

    def of(self, key: int, version: int) -> bytes:
        """Return a body of this API and version."""
        self.struct(request_type(key, version))
        return b"".join(self._pieces)

    def struct(self, entity: type[Any]) -> None:
        """Write the fields of a struct, then known and unknown tagged fields."""
        tagged = []
        for field in dataclasses.fields(entity):
            if "tag" in field.metadata:
                tagged.append(field)
            else:
                self._field(entity, field)
        if entity.__flexible__:
            self._tags(entity, tagged)

    # ---- single values --------------------------------------------------------------

    def _write(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def _extreme(self) -> bool:
        return one_in(self._rng, self._spice)

    def _field(self, entity: type[Any], field: dataclasses.Field[Any]) -> None:
        kind = _kind_of(field)
        if kind.is_array:
            self._array(entity, field.name, kind)
        elif kind.struct is not None:
            self._nullable_struct(kind)
        else:
            self._primitive(entity, field.name, kind.wire_type or "", kind.nullable)

    def _nullable_struct(self, kind: FieldKind) -> None:
        assert kind.struct is not None
        if kind.nullable:
            present = either(self._rng, self._spice, [1, 255], [0, 2, 127])
            self._write(bytes([present]))
            if present == 255:
                return
        self.struct(kind.struct)

    def _primitive(
        self, entity: type[Any], name: str, wire_type: str, nullable: bool
    ) -> None:
        if wire_type in FIXED:
            self._write(self._fixed(name, FIXED[wire_type]))
            return
        if wire_type == "string":
            value = self._string(entity, name)
        elif wire_type == "records":
            value = extreme_batch(self._rng)
        else:
            value = self._bytes()
        wide = wire_type != "string"
        null = one_in(self._rng, 3) if nullable else one_in(self._rng, self._spice * 4)
        self._length(entity, -1 if null else len(value), wide=wide)
        if not null:
            self._write(value)

    def _fixed(self, name: str, code: str) -> bytes:
        rng = self._rng
        if code == "16s":
            rare = [bytes(16), bytes(15) + b"\1", b"\xff" * 16]
            return either(rng, self._spice, self._words.topic_ids, rare)
        if code == "?":
            return bytes([either(rng, self._spice, [0, 1], [2, 255])])
        if code == "d":
            return struct.pack(">d", rng.choice((0.0, 1.0, -1.0, 1e308, float("nan"))))
        bits = _BITS.get(code) or _UNSIGNED[code]
        low, high = (0, 2**bits - 1)
        if code in _BITS:
            low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        usual = [0, 1] if "partition" in name or "index" in name else [0, 1, -1, 5]
        if name in ("replica_id", "broker_epoch", "current_leader_epoch"):
            usual = [-1]
        elif bits >= 32 and ("time" in name or "wait" in name or "bytes" in name):
            usual = [0, 1, 6000, 30_000]
        rare = [low, high, low + 1, high - 1, -1, 2, 127, 128, 32_767, 1 << bits // 2]
        number = either(rng, self._spice, usual, rare)
        return struct.pack(">" + code, min(max(number, low), high))

    def _string(self, entity: type[Any], name: str) -> bytes:
        if not self._extreme():
            return self._rng.choice(self._words.of_field(name))
        if self._size > LONG_BODY:
            return b""
        return self._rng.choice(_STRINGS + (_COMPACT if entity.__flexible__ else ()))

    def _bytes(self) -> bytes:
        rng = self._rng
        # A consumer's subscription (version, topics, user data), or random bytes.
        usual = [b"", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"]
        rare = [rng.randbytes(20), b"\0\0\x7f\xff\xff\xff", b"z" * 100_000]
        return either(rng, self._spice, usual, rare)

    # ---- lengths and arrays ---------------------------------------------------------

    def _length(self, entity: type[Any], length: int, *, wide: bool) -> None:
        """Write a length, which is wrong with a small probability."""
        if one_in(self._rng, self._spice * 6):
            wrong = (length + 1, length - 1, -2, 0, 127, 2**31 - 1, -(2**31))
            length = self._rng.choice(wrong)
        if entity.__flexible__:
            encoded = encode_varint((length + 1) & (2**32 - 1))
            if one_in(self._rng, self._spice * 8):
                # The same number in a longer varint than necessary, or in an invalid
                # one.
                more = self._rng.choice((1, 4, 9))
                encoded = encoded[:-1] + bytes([encoded[-1] | 0x80])
                encoded += b"\x80" * (more - 1) + b"\0"
            self._write(encoded)
        elif wide:
            self._write(struct.pack(">i", min(max(length, -(2**31)), 2**31 - 1)))
        else:
            self._write(struct.pack(">h", min(max(length, -(2**15)), 2**15 - 1)))

    def _array(self, entity: type[Any], name: str, kind: FieldKind) -> None:
        rng = self._rng
        count = either(rng, self._spice, [1, 1, 2, 0], [-1, 0, 17, 300, 5000])
        if kind.nullable and one_in(rng, 5):
            count = -1
        if self._size > LONG_BODY:
            count = min(count, 1)
        if kind.struct is not None:
            count = min(count, 300)
        self._length(entity, count, wide=True)
        once = count > 20 and not one_in(rng, 3)
        start = len(self._pieces)
        for number in range(count):
            if kind.struct is not None:
                self.struct(kind.struct)
            else:
                self._primitive(entity, name, kind.wire_type or "", False)
            if once or (self._size > LONG_BODY and number):
                # Repeat the item up to the declared count.
                item = b"".join(self._pieces[start:])
                room = max(LONG_BODY // (len(item) or 1), 1)
                self._write(item * min(count - number - 1, room))
                return

    def _tags(self, entity: type[Any], known: list[dataclasses.Field[Any]]) -> None:
        """Write the tagged fields: some of the known, rarely some unknown ones."""
        rng = self._rng
        fields = []
        for field in known:
            if one_in(rng, 3):
                inner = Body(rng, self._words, self._spice)
                inner._field(entity, field)
                fields.append((field.metadata["tag"], b"".join(inner._pieces)))
        if one_in(rng, self._spice * 3):
            unknown = rng.choice((1, 2, 63, 64, 65, 1000))
            first = rng.choice((100, 0, 2**31 - 1))
            content = rng.choice((b"", b"u", b"u" * 300))
            fields += [(first + number, content) for number in range(unknown)]
        count = either(
            rng, self._spice * 8, [len(fields)], [len(fields) + 1, 2**32 - 1]
        )
        pieces = [encode_varint(count)]
        for tag, content in fields:
            size = either(rng, self._spice * 4, [len(content)], [0, 2**31 - 1])
            pieces += (encode_varint(tag & (2**32 - 1)), encode_varint(size), content)
        self._write(b"".join(pieces))
