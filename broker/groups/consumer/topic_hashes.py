"""Hashes of topics, by which a group detects changes of its topics.

Kafka: ``computeTopicHash`` and ``computeGroupHash`` (KIP-1101). A topic's hash is XXH3
over its id, name, partitions and their racks; a group's hash is XXH3 over the hashes of
its topics, in the order of their names. The values equal Kafka's, so a group whose log
Kafka has written is not rebalanced after its load.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

import xxhash

_VERSION: Final = b"\0"


def topic_hash(topic_id: UUID, name: str, racks: Sequence[Iterable[str]]) -> int:
    """Return the hash of a topic; ``racks`` has the racks of each partition's replicas.

    >>> topic_hash(UUID(int=0x0123456789ABCDEFFEDCBA9876543210), "foo", [(), (), ()])
    -6866685120132495045
    """
    halves = struct.unpack(">QQ", topic_id.bytes)
    parts = [_VERSION, struct.pack("<QQ", *halves), _string(name)]
    parts.append(struct.pack("<i", len(racks)))
    for partition, each in enumerate(racks):
        parts.append(struct.pack("<i", partition))
        for rack in sorted(each, key=_java_order):
            parts += (struct.pack("<i", _units(rack)), _string(rack))
    return _hash(b"".join(parts))


def group_hash(topics: Iterable[tuple[str, int]]) -> int:
    """Return the hash of a group's topics, given as names and hashes.

    >>> group_hash([("b", -6), ("a", 5)]), group_hash([])
    (-8035532103161863932, 0)
    """
    hashes = [each for _, each in sorted(topics, key=lambda it: _java_order(it[0]))]
    return _hash(struct.pack(f"<{len(hashes)}q", *hashes)) if hashes else 0


def _hash(data: bytes) -> int:
    (signed,) = struct.unpack(">q", xxhash.xxh3_64_digest(data))
    return int(signed)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _units(text: str) -> int:
    return len(_java_order(text)) // 2


def _string(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + struct.pack("<i", _units(text))
