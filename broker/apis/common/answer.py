"""Values that the answers of several APIs have in common."""

from __future__ import annotations

from datetime import timedelta
from typing import Final
from uuid import UUID

from broker.protocol.errors import ErrorCode, KafkaError

_MILLISECOND: Final = timedelta(milliseconds=1)

NO_ERROR: Final = KafkaError(ErrorCode.none)
NO_ID: Final = UUID(int=0)
NOT_ASKED: Final = -(2**31)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
# Bits of Kafka's ``AclOperation``, for a resource on which all is allowed.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def to_ms(duration: timedelta) -> int:
    """Return whole milliseconds of one of kio's time-outs."""
    return duration // _MILLISECOND
