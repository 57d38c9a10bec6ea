"""The topics in a consumer's subscription, the only part that a broker reads.

Member metadata is the clients' business (``ConsumerProtocolSubscription``), except that
a broker must not expire, nor let be deleted, offsets of topics in use. Every version
begins as version 0 does - a version, then an array of topic names - so that prefix is
read and the rest ignored, as ``ClassicGroup.computeSubscribedTopics`` does.
"""

from __future__ import annotations

import struct


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the topics; None if the subscription does not parse.

    >>> sorted(subscribed_topics(bytes.fromhex("000100000001000161")))
    ['a']
    """
    try:
        return frozenset(_topics(subscription))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None


def _topics(subscription: bytes) -> list[str]:
    version, count = struct.unpack_from(">hi", subscription)
    if version < 0 or count < 0 or count > len(subscription):
        raise ValueError(f"expected a subscription, found version {version}")
    at = 6
    topics = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", subscription, at)
        end = at + 2 + size
        if size < 0 or end > len(subscription):
            raise ValueError(f"expected a topic name, found size {size}")
        topics.append(subscription[at + 2 : end].decode())
        at = end
    return topics
