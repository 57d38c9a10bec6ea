"""JSON as Kafka writes it into znodes: compact, and read with expected types."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from broker.protocol.errors import ConfigError

T = TypeVar("T")

_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, ConfigError)


class MalformedZnode(Exception):
    """A znode's data is not in Kafka's format."""

    def __init__(self, found: bytes, expected: str, fault: Exception) -> None:
        super().__init__(found, expected, fault)
        self.found = found
        self.expected = expected
        self.fault = fault

    def __str__(self) -> str:
        return f"found {self.found!r}, expected {self.expected}: {self.fault!r}"


def write_json(value: Mapping[str, Any]) -> bytes:
    """Return an object as text."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def reads(
    expected: str, *versions: int
) -> Callable[[Callable[[dict[str, Any]], T]], Callable[[bytes], T]]:
    """Turn a reader of objects into a reader of znode data.

    The new reader raises `MalformedZnode`. ``versions`` are the supported versions; if
    empty, the object has no version.
    """

    def reader(read: Callable[[dict[str, Any]], T]) -> Callable[[bytes], T]:
        @wraps(read)
        def from_data(data: bytes) -> T:
            try:
                found = json.loads(data)
                if versions and int(found["version"]) not in versions:
                    raise ValueError(f"version {found['version']!r}")
                return read(found)
            except _UNREADABLE as fault:
                raise MalformedZnode(data, expected, fault) from fault

        return from_data

    return reader
