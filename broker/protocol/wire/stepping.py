"""Decoding of large requests in steps, so that others are served in between.

kio's native reader decodes a complete frame in one call, for any number of items. Here
each call of its readers decodes one field, or one item of an array. The generator
yields after every 4 kB of the frame. The resulting entities are equal: a test decodes
every request in both ways.

A frame must have passed its bounds check before (`broker.protocol.wire.frame_bounds`):
its arrays have their stated lengths, and its tagged fields are known.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeAlias

# Private to kio, whose version is pinned: kio's package exports `entity_reader` alone.
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._parse import entity_reader, get_field_reader, get_reader

from broker.protocol.wire.introspect import FieldKind, has_array, kind_of
from broker.protocol.wire.varint import decode_varint

# Takes (frame, offset); returns the value and its size.
Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
# Takes (frame, offset, pace); returns the value and the offset after it.
SteppingReader: TypeAlias = (
    "Callable[[bytes, int, Pace], Generator[None, None, tuple[Any, int]]]"
)

# Less than a millisecond for the smallest items, which have one byte.
STEP_BYTES: Final = 4096
# Plain numbers in arrays, by their wire types.
_NUMBERS: Final = {"int8": "b", "int32": "i"}
_INT32: Final = struct.Struct(">i")


class Pace:
    """The offset at which the present step ends."""

    __slots__ = ("until",)

    def __init__(self, offset: int) -> None:
        self.until = offset + STEP_BYTES


class _Plan(NamedTuple):
    """A field without a tag, read by kio or in steps."""

    name: str
    native: Reader | None
    stepping: SteppingReader | None


class _Tagged(NamedTuple):
    """A tagged field."""

    name: str
    read: Reader
    default: Any


def stepping_reader(entity: type[Any]) -> SteppingReader:
    """Return the reader of ``entity`` in steps."""
    plans: list[_Plan] = []
    tagged: dict[int, _Tagged] = {}
    for field in dataclasses.fields(entity):
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = _Tagged(
                field.name,
                get_field_reader(entity, field, False, True),
                get_tagged_field_default(field),
            )
            continue
        kind = kind_of(field)
        if kind.is_array:
            plans.append(_Plan(field.name, None, _array_reader(entity, kind)))
        else:
            native = get_field_reader(entity, field, False, False)
            plans.append(_Plan(field.name, native, None))
    flexible = entity.__flexible__
    defaults = {each.name: each.default for each in tagged.values()}

    def read(
        frame: bytes, offset: int, pace: Pace
    ) -> Generator[None, None, tuple[Any, int]]:
        values = dict(defaults)
        for name, native, stepping in plans:
            if native is not None:
                values[name], size = native(frame, offset)
                offset += size
            else:
                assert stepping is not None, name
                values[name], offset = yield from stepping(frame, offset, pace)
        if flexible:
            count, offset = decode_varint(frame, offset)
            for _ in range(count):
                tag, offset = decode_varint(frame, offset)
                _, offset = decode_varint(frame, offset)
                field = tagged[tag]
                values[field.name], size = field.read(frame, offset)
                offset += size
        return entity(**values), offset

    return read


def _array_reader(entity: type[Any], kind: FieldKind) -> SteppingReader:
    length = _compact_length if entity.__flexible__ else _length
    if kind.wire_type in _NUMBERS:
        return _numbers_reader(length, _NUMBERS[kind.wire_type])
    if kind.struct is not None and has_array(kind.struct):
        return _nested_reader(length, stepping_reader(kind.struct))
    if kind.struct is not None:
        return _items_reader(length, entity_reader(kind.struct))
    assert kind.wire_type is not None
    item = get_reader(kind.wire_type, entity.__flexible__, False)
    return _items_reader(length, item)


_Length: TypeAlias = Callable[[bytes, int], tuple[int, int]]


def _length(frame: bytes, offset: int) -> tuple[int, int]:
    """Return the number of items (-1: null) of an array, and the first offset."""
    return _INT32.unpack_from(frame, offset)[0], offset + 4


def _compact_length(frame: bytes, offset: int) -> tuple[int, int]:
    count, offset = decode_varint(frame, offset)
    return count - 1, offset


def _items_reader(length: _Length, item: Reader) -> SteppingReader:
    """Return the reader of an array whose items kio reads one by one."""

    def read(
        frame: bytes, offset: int, pace: Pace
    ) -> Generator[None, None, tuple[Any, int]]:
        count, offset = length(frame, offset)
        if count < 0:
            return None, offset
        items: list[Any] = []
        append, until = items.append, pace.until
        for _ in range(count):
            value, size = item(frame, offset)
            append(value)
            offset += size
            if offset >= until:
                yield
                until = pace.until = offset + STEP_BYTES
        return tuple(items), offset

    return read


def _nested_reader(length: _Length, item: SteppingReader) -> SteppingReader:
    """Return the reader of an array whose items contain arrays."""

    def read(
        frame: bytes, offset: int, pace: Pace
    ) -> Generator[None, None, tuple[Any, int]]:
        count, offset = length(frame, offset)
        if count < 0:
            return None, offset
        items: list[Any] = []
        for _ in range(count):
            value, offset = yield from item(frame, offset, pace)
            items.append(value)
            if offset >= pace.until:
                yield
                pace.until = offset + STEP_BYTES
        return tuple(items), offset

    return read


def _numbers_reader(length: _Length, code: str) -> SteppingReader:
    """Return the reader of an array of plain numbers; ``code`` is that of `struct`."""
    size = struct.calcsize(f">{code}")

    def read(
        frame: bytes, offset: int, pace: Pace
    ) -> Generator[None, None, tuple[Any, int]]:
        count, offset = length(frame, offset)
        if count < 0:
            return None, offset
        numbers: list[int] = []
        while count:
            some = min(count, STEP_BYTES)
            numbers += struct.unpack_from(f">{some}{code}", frame, offset)
            count -= some
            offset += size * some
            if offset >= pace.until:
                yield
                pace.until = offset + STEP_BYTES
        return tuple(numbers), offset

    return read
