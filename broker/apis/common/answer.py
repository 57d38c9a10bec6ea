"""Values that are common to the responses of several APIs."""

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


def to_ms(duration: timedelta) -> int:
    """Return a time-out of kio in whole milliseconds."""
    return duration // _MILLISECOND
