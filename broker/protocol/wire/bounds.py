"""Frames walked by their schema before native decoding, which trusts them too far.

kio's native reader reserves memory for as many items as an array says that it has,
and aborts the process where that fails: a frame of twenty bytes could end the broker.
It takes null for an array that must not be, ignores the sizes of tagged fields, and
refuses a tag that it does not know, which KIP-482 would have skipped.

`bounds_check` makes a function that walks a frame without building anything. It is
Python source, compiled once per message and version as ``dataclasses`` compiles an
``__init__``: a walk of closures takes three times as long, on every request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from struct import Struct, calcsize
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from broker.errors import MalformedFrame
from broker.wire.introspect import FIXED, FieldKind, has_array, kind_of
from broker.wire.writer import encode_varint

# Walks (frame, offset, length of the frame); returns the offset where it stopped.
Check: TypeAlias = Callable[[bytes, int, int], int]

_FIXED_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {wire_type: calcsize(f">{letter}") for wire_type, letter in FIXED.items()}
)
_INT32: Final = Struct(">i")


def bounds_check(entity: type[Any]) -> Check | None:
    """Return the check of ``entity``, or ``None`` where there is nothing to check.

    Called with (frame, offset, length of the frame), it raises `MalformedFrame`
    where an array cannot be as long as it says or a tagged field has another size
    than it says, `UnknownTag` at the first tag that the schema does not have, and
    `IndexError` or `struct.error` where the frame ends too early.
    """
    if not entity.__flexible__ and not has_array(entity):
        return None
    source = _Source()
    source.struct(entity, 1)
    source.lines.append("    return o")
    return source.compiled(entity.__name__)


class _Source:
    """The source of one check, growing field by field.

    In it ``f`` is the frame, ``o`` the offset, ``n`` the frame's length. Bytes of
    fixed size are not skipped one by one but added up in ``ahead``.
    """

    def __init__(self) -> None:
        self.lines = ["def check(f, o, n):"]
        self.names: dict[str, Any] = {
            "int32": _INT32.unpack_from,
            "varint": _varint,
            "long_string": _long_string,
            "tags": _skip_tags,
            "refuse": _refuse_length,
        }
        self.ahead = 0

    def compiled(self, name: str) -> Check:
        """Return the function."""
        exec(compile("\n".join(self.lines), f"<bounds of {name}>", "exec"), self.names)
        check: Check = self.names["check"]
        return check

    def struct(self, entity: type[Any], depth: int) -> None:
        """Walk the fields of a struct, and its tagged fields after them."""
        known: dict[int, Check] = {}
        for field in dataclasses.fields(entity):
            if "tag" in field.metadata:
                known[field.metadata["tag"]] = _field_check(entity, field)
            else:
                self.field(entity, field, depth)
        if entity.__flexible__:
            table = f"known_{len(self.names)}"
            self.names[table] = known
            at = self.here()
            self.line(depth, f"if f[{at}]: o = tags(f, {at}, n, {table})")
            self.line(depth, f"else: o = {at} + 1")
        self.settle(depth)

    def field(
        self, entity: type[Any], field: dataclasses.Field[Any], depth: int
    ) -> None:
        """Walk one field that has no tag."""
        kind = kind_of(field)
        if kind.is_array:
            self.array_length(entity, depth)
            self.items(entity, kind, depth)
        elif kind.struct is None:
            self.primitive(entity, kind.wire_type, depth)
        elif kind.nullable:
            at = self.here()
            self.line(depth, f"p = f[{at}]; o = {at} + 1")
            self.line(depth, "if p != 255:")
            self.struct(kind.struct, depth + 1)
        else:
            self.struct(kind.struct, depth)

    def array_length(self, entity: type[Any], depth: int) -> None:
        """Read an array's length; null is -1."""
        at = self.here()
        if entity.__flexible__:
            self.line(depth, f"c = f[{at}]; o = {at} + 1")
            self.line(depth, "if c > 127: c, o = varint(f, o - 1)")
            self.line(depth, "c -= 1")
        else:
            self.line(depth, f"c, = int32(f, {at}); o = {at} + 4")

    def items(self, entity: type[Any], kind: FieldKind, depth: int) -> None:
        """Check an array's length against the frame, then walk its items."""
        size = _FIXED_BYTES.get(kind.wire_type or "", 1)
        needed = "c" if size == 1 else f"c * {size}"
        null = "" if kind.nullable else "c < 0 or "
        self.line(depth, f"if {null}{needed} > n - o: refuse(c, n - o)")
        if kind.wire_type in _FIXED_BYTES:
            self.line(depth, f"if c > 0: o += {needed}")
            return
        self.line(depth, "for _ in range(c):")
        if kind.struct is not None:
            self.struct(kind.struct, depth + 1)
        else:
            self.primitive(entity, kind.wire_type, depth + 1)
            self.settle(depth + 1)

    def primitive(self, entity: type[Any], wire_type: str | None, depth: int) -> None:
        """Skip one value that is neither a struct nor an array."""
        assert wire_type is not None
        if wire_type in _FIXED_BYTES:
            self.ahead += _FIXED_BYTES[wire_type]
            return
        at = self.here()
        if entity.__flexible__:
            # A compact length counts itself, and 0 is null. Two bytes of varint are
            # read here, since most records need them; longer ones by the function.
            self.line(depth, f"o = {at}; c = f[o]")
            self.line(depth, "if c < 128: o += c or 1")
            self.line(
                depth, "elif 0 < f[o + 1] < 128: o += 1 + (c & 127 | f[o + 1] << 7)"
            )
            self.line(depth, "else: o = long_string(f, o)")
        elif wire_type == "string":
            self.line(depth, f"c = f[{at}] << 8 | f[{at} + 1]")
            self.line(depth, f"o = {at} + 2 + (c if c < 32768 else 0)")
        else:
            self.line(depth, f"c, = int32(f, {at})")
            self.line(depth, f"o = {at} + 4 + (c if c > 0 else 0)")

    def here(self) -> str:
        """Return the expression of the current offset, and forget what is ahead."""
        ahead, self.ahead = self.ahead, 0
        return f"o + {ahead}" if ahead else "o"

    def settle(self, depth: int) -> None:
        """Put what is ahead into the offset, before control flow parts or joins."""
        if self.ahead:
            self.line(depth, f"o += {self.ahead}")
            self.ahead = 0

    def line(self, depth: int, text: str) -> None:
        """Add one line of source."""
        self.lines.append("    " * depth + text)


def _field_check(entity: type[Any], field: dataclasses.Field[Any]) -> Check:
    """Return the check of one tagged field."""
    source = _Source()
    source.field(entity, field, 1)
    source.settle(1)
    source.lines.append("    return o")
    return source.compiled(f"{entity.__name__}.{field.name}")


class UnknownTag(Exception):
    """A tagged field that the schema does not have, and how to be without it."""

    def __init__(self, count_at: int, count: int, start: int, end: int) -> None:
        super().__init__(count_at, count, start, end)
        # (offset, value to subtract 1 from), then the sizes of enclosing tagged fields.
        self.count = (count_at, count)
        self.start = start
        self.end = end
        self.enclosing: list[tuple[int, int]] = []

    def cut(self, frame: bytes) -> bytes:
        """Return ``frame`` without the field."""
        shorter = frame[: self.start] + frame[self.end :]
        shorter = _replace_varint(shorter, *self.count, self.count[1] - 1)
        for at, size in self.enclosing:
            removed = len(frame) - len(shorter)
            shorter = _replace_varint(shorter, at, size, size - removed)
        return shorter


def _skip_tags(
    frame: bytes, offset: int, length: int, known: Mapping[int, Check]
) -> int:
    count_at = offset
    count, offset = _varint(frame, offset)
    for _ in range(count):
        start = offset
        tag, size_at = _varint(frame, start)
        size, offset = _varint(frame, size_at)
        end = offset + size
        if end > length:
            raise MalformedFrame(f"tagged field of {size} bytes ends beyond the frame")
        check = known.get(tag)
        if check is None:
            raise UnknownTag(count_at, count, start, end)
        try:
            found = check(frame, offset, length)
        except UnknownTag as unknown:
            unknown.enclosing.append((size_at, size))
            raise
        if found != end:
            raise MalformedFrame(f"tagged field of {found - offset} bytes, not {size}")
        offset = end
    return offset


def _replace_varint(frame: bytes, at: int, old: int, new: int) -> bytes:
    return frame[:at] + encode_varint(new) + frame[at + len(encode_varint(old)) :]


def _long_string(frame: bytes, offset: int) -> int:
    length, offset = _varint(frame, offset)
    # An overlong zero is null too.
    return offset + max(length - 1, 0)


def _varint(frame: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise MalformedFrame("varint of more than five bytes")


def _refuse_length(items: int, bytes_left: int) -> None:
    if items < 0:
        raise MalformedFrame("null for an array that is not nullable")
    raise MalformedFrame(f"array of {items} items in {bytes_left} bytes")
