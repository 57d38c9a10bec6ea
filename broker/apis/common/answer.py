"""How handlers build answers: rows of fields, encoded by the schema of the version.

The schemas are kio's, so an answer is not declared a second time: `Row` is a bag of
named fields, and the codec picks those that the request's version has. Where kio's
newest class has all fields of the older ones, that class serves as well. A test
encodes every API's answers in every version, so that a missing field cannot hide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from kio.static.primitive import i32Timedelta

from broker.protocol.errors import ErrorCode, KafkaError

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
_MILLISECOND: Final = timedelta(milliseconds=1)
_STEP_ROWS: Final = 512

Row = SimpleNamespace

NO_ID: Final = UUID(int=0)
NOT_ASKED: Final = -(2**31)
# Read uncommitted, read committed.
ISOLATION_LEVELS: Final = (0, 1)
# Bits of Kafka's ``AclOperation``, for a resource on which all is allowed.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))


def answer(**fields: Any) -> Row:
    """Return a whole answer, which is not throttled."""
    return Row(throttle_time=NO_THROTTLE, **fields)


def failure(error: KafkaError) -> dict[str, Any]:
    """Return the two fields that say what went wrong."""
    return {"error_code": error.code, "error_message": error.message}


def first_error(row: Any) -> Generator[None, None, int]:
    """Return the first error code in an answer, its own before those within; or 0.

    Yields after every 512 rows.
    """
    pending = [row]
    seen = 0
    while pending:
        each = pending.pop()
        error = getattr(each, "error_code", ErrorCode.none)
        if error is not ErrorCode.none:
            return int(error)
        seen += 1
        if not seen % _STEP_ROWS:
            yield
        rows = [
            row
            for value in _values(each)
            if isinstance(value, list | tuple) and value and _is_row(value[0])
            for row in value
        ]
        pending += reversed(rows)
    return 0


def _is_row(value: object) -> bool:
    """Say whether ``value`` is a struct, not a number or a string."""
    return isinstance(value, Row) or dataclasses.is_dataclass(value)


def _values(row: Any) -> Iterable[Any]:
    if isinstance(row, Row):
        return vars(row).values()
    return [getattr(row, field.name) for field in dataclasses.fields(row)]


def to_ms(duration: timedelta) -> int:
    """Return whole milliseconds of one of kio's time-outs."""
    return duration // _MILLISECOND
