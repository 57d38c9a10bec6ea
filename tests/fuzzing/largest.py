"""The largest legal requests of an API and version, one for each of its arrays.

One array has the requested number of items, either all equal or all distinct. Every
other array has one item. Thus each loop over a request's items runs as long as
possible.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import SimpleNamespace as Row
from typing import Any, NamedTuple
from uuid import UUID

from broker.protocol.wire.codec import encode_request, request_type
from broker.protocol.wire.introspect import FieldKind, kind_of

Path = tuple[str, ...]
_NUMBERS = {
    "timestamp": -1,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "broker_epoch": -1,
    "session_epoch": -1,
    "min_bytes": 2**31 - 1,
    "max_bytes": 2**31 - 1,
    "partition_max_bytes": 1 << 20,
    "acks": 1,
    "replication_factor": 1,
    "num_partitions": 1,
    "resource_type": 2,
    "response_partition_limit": 2**31 - 1,
}


class Largest(NamedTuple):
    """A request: the path of its long array, whether items differ, and its frame."""

    key: int
    version: int
    path: Path
    distinct: bool
    frame: bytes

    def __str__(self) -> str:
        items = "items" if self.distinct else "equal items"
        return f"{self.key} v{self.version}: {'.'.join(self.path)} of {items}"


def largest(
    key: int, version: int, items: int, *, equal_too: bool = True
) -> Iterator[Largest]:
    """Yield a request of ``items`` items for each array, distinct and equal."""
    entity = request_type(key, version)
    for path in _arrays(entity):
        for distinct in (True, False) if equal_too else (True,):
            # The other arrays have one item each, which also count.
            count = items // (2 if _holds_arrays(entity, path) else 1) - 8
            body = _Filler(path, count, distinct=distinct).struct(entity, ())
            frame = encode_request(key, version, 7, "largest", body)
            yield Largest(key, version, path, distinct, frame)


@cache
def _kinds(entity: type[Any]) -> Mapping[str, FieldKind]:
    """Return the kind of each field, which takes long to find out."""
    return {field.name: kind_of(field) for field in dataclasses.fields(entity)}


def _arrays(entity: type[Any], above: Path = ()) -> Iterator[Path]:
    for name, kind in _kinds(entity).items():
        path = (*above, name)
        if kind.is_array:
            yield path
        if kind.struct is not None:
            yield from _arrays(kind.struct, path)


def _holds_arrays(entity: type[Any], path: Path) -> bool:
    for name in path:
        struct = _kinds(entity)[name].struct
        if struct is None:
            return False
        entity = struct
    return any(True for _ in _arrays(entity))


class _Filler:
    """Fills in a request."""

    def __init__(self, path: Path, count: int, *, distinct: bool) -> None:
        self._path = path
        self._count = count
        self._distinct = distinct
        # The index of the current item of the long array.
        self._number = 0

    def struct(self, entity: type[Any], above: Path) -> Row:
        """Return the fields of a struct."""
        return Row(
            **{
                name: self._value(kind, name, above)
                for name, kind in _kinds(entity).items()
            }
        )

    def _value(self, kind: FieldKind, name: str, above: Path) -> Any:
        path = (*above, name)
        if not kind.is_array:
            return self._item(kind, name, above)
        if path != self._path:
            return [self._item(kind, name, above)]
        items = []
        for number in range(self._count):
            self._number = number if self._distinct else 0
            items.append(self._item(kind, name, above))
        self._number = 0
        return items

    def _item(self, kind: FieldKind, name: str, above: Path) -> Any:
        if kind.struct is not None:
            if kind.nullable and not kind.is_array:
                return None
            return self.struct(kind.struct, (*above, name))
        match kind.wire_type:
            case "string":
                return self._string(name)
            case "bytes" | "records":
                return b""
            case "uuid":
                return UUID(int=self._number + 1)
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(seconds=30)
            case "bool":
                return False
        if "partition" in name or "index" in name or name == "index":
            return _NUMBERS.get(name, self._number)
        return _NUMBERS.get(name, 0)

    def _string(self, name: str) -> str:
        # The first name exists.
        stem = "g" if "group" in name or "key" in name else "t"
        return f"{stem}{self._number}" if self._number else stem
