"""How handlers build answers: rows of fields, encoded by the schema of the version.

The schemas are kio's, so an answer is not declared a second time: `Row` is a bag of
named fields, and the codec picks those that the request's version has. Where kio's
newest class has all fields of the older ones, that class serves as well. A test
encodes every API's answers in every version, so that a missing field cannot hide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from kio.static.primitive import i32Timedelta

from broker.errors import ErrorCode, KafkaError

NO_THROTTLE: Final = i32Timedelta.parse(timedelta(0))
_MILLISECOND: Final = timedelta(milliseconds=1)

Row = SimpleNamespace


def answer(**fields: Any) -> Row:
    """Return a whole answer, which is not throttled."""
    return Row(throttle_time=NO_THROTTLE, **fields)


def failure(error: KafkaError) -> dict[str, Any]:
    """Return the two fields that say what went wrong."""
    return {"error_code": error.code, "error_message": error.message}


def first_error(row: Any) -> int:
    """Return the first error code in an answer, its own before those within; or 0."""
    error = getattr(row, "error_code", ErrorCode.none)
    if error is not ErrorCode.none:
        return int(error)
    for value in _values(row):
        if isinstance(value, list | tuple):
            for item in value:
                if found := first_error(item):
                    return found
    return 0


def _values(row: Any) -> Iterable[Any]:
    if isinstance(row, Row):
        return vars(row).values()
    if dataclasses.is_dataclass(row):
        return [getattr(row, field.name) for field in dataclasses.fields(row)]
    return ()


def to_ms(duration: timedelta) -> int:
    """Return whole milliseconds of one of kio's time-outs."""
    return duration // _MILLISECOND
