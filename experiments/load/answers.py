"""What the load generator wants to know of an answer: the first error code in it.

One scanner per API, for the one version of it that ``wire`` sends; everything else is
skipped. It runs after the load, over the answers kept, so it costs no request time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from types import MappingProxyType

from experiments.load import wire

NO_ERROR, REQUEST_TIMED_OUT, NETWORK_EXCEPTION = 0, 7, 13


class Reader:
    """A position in an answer's bytes. Reads past the end raise ``struct.error``."""

    __slots__ = ("_bytes", "at")

    def __init__(self, answer: bytes, at: int = 0) -> None:
        self._bytes = answer
        self.at = at

    def int16(self) -> int:
        """Read an int16."""
        value: int = struct.unpack_from(">h", self._bytes, self.at)[0]
        self.at += 2
        return value

    def int32(self) -> int:
        """Read an int32."""
        value: int = struct.unpack_from(">i", self._bytes, self.at)[0]
        self.at += 4
        return value

    def string(self) -> str | None:
        """Read a nullable string."""
        size = self.int16()
        if size < 0:
            return None
        self.at += size
        return self._bytes[self.at - size : self.at].decode()

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes."""
        self.at += size

    def skip_string(self) -> None:
        """Skip a nullable string."""
        size = self.int16()
        self.skip(max(0, size))

    def skip_array(self, item_bytes: int) -> None:
        """Skip a nullable array of items of a fixed size."""
        count = self.int32()
        self.skip(max(0, count) * item_bytes)

    def count(self) -> range:
        """Read the length of a nullable array, to iterate over."""
        return range(self.int32())


def error_of(api_key: int, answer: bytes) -> int:
    """Return the first error code of an answer, 0 if there is none.

    ``answer`` is a response frame without its size. Cost: O(partitions in it).
    """
    reader = Reader(answer, 4)
    return next((code for code in _ERRORS[api_key](reader) if code), NO_ERROR)


def node_of(answer: bytes) -> tuple[int, str, int]:
    """Return id, host and port of the first broker of a METADATA answer."""
    reader = Reader(answer, 8)
    assert len(reader.count()) >= 1, "METADATA names no broker"
    node = reader.int32()
    host = reader.string()
    assert host is not None, "METADATA names a broker without a host"
    return node, host, reader.int32()


def _produce_errors(reader: Reader) -> Iterable[int]:
    for _topic in reader.count():
        reader.skip_string()
        for _partition in reader.count():
            reader.skip(4)
            yield reader.int16()
            reader.skip(24)
            for _record_error in reader.count():
                reader.skip(4)
                reader.skip_string()
            reader.skip_string()


def _fetch_errors(reader: Reader) -> Iterable[int]:
    reader.skip(4)
    yield reader.int16()
    reader.skip(4)
    for _topic in reader.count():
        reader.skip_string()
        for _partition in reader.count():
            reader.skip(4)
            yield reader.int16()
            reader.skip(24)
            reader.skip_array(16)
            reader.skip(4)
            reader.skip(max(0, reader.int32()))


def _metadata_errors(reader: Reader) -> Iterable[int]:
    reader.skip(4)
    for _broker in reader.count():
        reader.skip(4)
        reader.skip_string()
        reader.skip(4)
        reader.skip_string()
    reader.skip_string()
    reader.skip(4)
    for _topic in reader.count():
        yield reader.int16()
        reader.skip_string()
        reader.skip(1)
        for _partition in reader.count():
            yield reader.int16()
            reader.skip(12)
            for _replicas_isr_offline in range(3):
                reader.skip_array(4)
        reader.skip(4)


def _list_offsets_errors(reader: Reader) -> Iterable[int]:
    reader.skip(4)
    for _topic in reader.count():
        reader.skip_string()
        for _partition in reader.count():
            reader.skip(4)
            yield reader.int16()
            reader.skip(20)


def _leader_and_isr_errors(reader: Reader) -> Iterable[int]:
    yield reader.int16()
    for _partition in reader.count():
        reader.skip_string()
        reader.skip(4)
        yield reader.int16()


def _update_metadata_errors(reader: Reader) -> Iterable[int]:
    yield reader.int16()


def _create_topics_errors(reader: Reader) -> Iterable[int]:
    reader.skip(4)
    for _topic in reader.count():
        reader.skip_string()
        yield reader.int16()
        reader.skip_string()


_ERRORS = MappingProxyType(
    {
        wire.PRODUCE: _produce_errors,
        wire.FETCH: _fetch_errors,
        wire.METADATA: _metadata_errors,
        wire.LIST_OFFSETS: _list_offsets_errors,
        wire.LEADER_AND_ISR: _leader_and_isr_errors,
        wire.UPDATE_METADATA: _update_metadata_errors,
        wire.CREATE_TOPICS: _create_topics_errors,
    }
)
