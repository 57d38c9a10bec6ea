"""The first error code in a response: its own, or that of a row.

The arrays that may contain errors follow from the schema, and are determined once per
version. Other parts of a response are not searched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import fields
from functools import cache
from itertools import repeat
from typing import Any, Final, TypeAlias

from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import response_type
from broker.protocol.wire.introspect import kind_of

_FIELD: Final = "error_code"
_STEP_ROWS: Final = 512

# The arrays of a struct whose rows contain errors, by name, with their nested arrays.
Arrays: TypeAlias = tuple[tuple[str, "Arrays"], ...]


def first_error(
    api_key: int, version: int, answer: object
) -> Generator[None, None, int]:
    """Return the first error code in a response, its own before those of rows, or 0.

    ``answer`` is a message for `broker.protocol.wire.codec.encode`. Yields after every
    512 rows. Cost: O(rows that may contain errors).
    """
    top = ((answer, _arrays_of(api_key, version)),)
    pending: list[Iterator[tuple[Any, Arrays]]] = [iter(top)]
    seen = 0
    while pending:
        found = next(pending[-1], None)
        if found is None:
            pending.pop()
            continue
        row, arrays = found
        error = getattr(row, _FIELD, ErrorCode.none)
        if error is not ErrorCode.none:
            return int(error)
        seen += 1
        if not seen % _STEP_ROWS:
            yield
        for name, within in reversed(arrays):
            pending.append(zip(getattr(row, name) or (), repeat(within)))
    return 0


@cache
def _arrays_of(api_key: int, version: int) -> Arrays:
    return _arrays_in(response_type(api_key, version))


def _arrays_in(struct: type[Any]) -> Arrays:
    found = []
    for field in fields(struct):
        kind = kind_of(field)
        if kind.is_array and kind.struct is not None:
            within = _arrays_in(kind.struct)
            if within or _FIELD in {each.name for each in fields(kind.struct)}:
                found.append((field.name, within))
    return tuple(found)
