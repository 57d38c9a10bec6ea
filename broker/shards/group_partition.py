"""The partition of ``__consumer_offsets``, and so the broker, of a group.

All brokers and Kafka tools must compute the same partition. Therefore this is exactly
Java's ``Utils.abs(groupId.hashCode()) % n``: the hash is over UTF-16 units, in 32 bits,
and ``Utils.abs`` of the smallest integer is 0.
"""

from __future__ import annotations

import codecs
from typing import Final

# Looked up at import, because the first use of a codec opens a file.
_UTF_16: Final = codecs.getencoder("utf-16-be")


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``.

    >>> java_hash("Hello World"), java_hash("polygenelubricants")
    (-862545276, -2147483648)
    """
    value = 0
    units, _ = _UTF_16(text, "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partitions: int) -> int:
    """Return the partition that holds the group.

    >>> partition_for("polygenelubricants", 50)
    0
    """
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partitions
