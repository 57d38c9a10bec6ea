"""How handlers build answers: rows of fields, encoded by the schema of the version.

The schemas are kio's, so an answer is not declared a second time: `Row` is a bag of
named fields, and the codec picks those that the request's version has. Where kio's
newest class has all fields of the older ones, that class serves as well. A test
encodes every API's answers in every version, so that a missing field cannot hide.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from kio.static.primitive import i32Timedelta

from broker.protocol.errors import KafkaError

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
_MILLISECOND: Final = timedelta(milliseconds=1)

Row = SimpleNamespace

NO_ID: Final = UUID(int=0)
NOT_ASKED: Final = -(2**31)
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)
# Bits of Kafka's ``AclOperation``, for a resource on which all is allowed.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def answer(**fields: Any) -> Row:
    """Return a whole answer, which is not throttled."""
    return Row(throttle_time=NO_THROTTLE, **fields)


def failure(error: KafkaError) -> dict[str, Any]:
    """Return the two fields that say what went wrong."""
    return {"error_code": error.code, "error_message": error.message}


def to_ms(duration: timedelta) -> int:
    """Return whole milliseconds of one of kio's time-outs."""
    return duration // _MILLISECOND
