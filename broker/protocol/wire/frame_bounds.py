"""Check of frames by their schema before native decoding, which trusts its input.

kio's native reader reserves memory for the stated number of items of an array, and
aborts the process if that fails: a frame of twenty bytes could end the broker. It
accepts null for arrays that are not nullable and ignores the sizes of tagged fields. It
rejects unknown tags, although KIP-482 requires to skip them, and cannot read a null
tagged field. Such fields are therefore removed from the frame. The items of a frame are
counted, since each of them becomes an object.

`bounds_check` returns a function that checks a frame without building objects. The
function is Python source, compiled once per message and version as ``dataclasses``
compiles an ``__init__``, which saves a call per field of every request.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Mapping
from struct import Struct, calcsize
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.introspect import FIXED, FieldKind, has_array, kind_of
from broker.protocol.wire.varint import decode_varint, encode_varint
from broker.protocol.wire.writer import STRING_BYTES_MAX

# Checks (frame, offset, length of the frame, walk); returns the offset of the end.
Check: TypeAlias = "Callable[[bytes, int, int, Walk], int]"
CheckInSteps: TypeAlias = (
    "Callable[[bytes, int, int, Walk], Generator[None, None, int]]"
)

_FIXED_BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {wire_type: calcsize(f">{letter}") for wire_type, letter in FIXED.items()}
)
_INT32: Final = Struct(">i")
# Items per step: less than a tenth of a millisecond.
_STEP_ITEMS: Final = 128
# Largest number of tagged fields of one struct; Kafka's own structs have at most three.
_TAGS_MAX: Final = 512


def bounds_check(entity: type[Any]) -> Check | None:
    """Return the check of ``entity``, or ``None`` if nothing has to be checked.

    The check takes (frame, offset, length of the frame, walk). It raises
    `MalformedFrame` if an array or a tagged field cannot have its stated size, or if
    the frame has more items than the walk admits. It raises `IndexError` or
    `struct.error` if the frame is too short. It records unknown tagged fields in the
    walk. Cost: O(items).
    """
    if not entity.__flexible__ and not has_array(entity):
        return None
    source = _Source()
    source.struct(entity, 1)
    source.lines.append("    return o")
    check: Check = source.compiled(entity.__name__)
    return check


def bounds_check_in_steps(entity: type[Any]) -> CheckInSteps:
    """Return the check of ``entity`` as a generator, which yields every 128 items."""
    source = _Source(steps=True)
    source.struct(entity, 1)
    source.lines.append("    return o")
    # An unreachable line makes the function a generator even without arrays.
    source.lines.append("    yield")
    check: CheckInSteps = source.compiled(entity.__name__)
    return check


class _Source:
    """The source of one check, generated field by field.

    In the source ``f`` is the frame, ``o`` the offset, ``n`` the frame's length, ``w``
    the `Walk`. Sizes of fixed-size fields are summed in ``ahead`` instead of being
    skipped one by one.
    """

    def __init__(self, *, steps: bool = False) -> None:
        self.steps = steps
        self.lines = ["def check(f, o, n, w):"]
        if steps:
            self.lines.append("    t = 0")
        self.names: dict[str, Any] = {
            "int32": _INT32.unpack_from,
            "varint": decode_varint,
            "long_string": _long_string,
            "long_bytes": _long_bytes,
            "tags": _skip_tags,
            "refuse": _refuse_length,
            "too_many": _refuse_items,
        }
        self.ahead = 0

    def compiled(self, name: str) -> Any:
        """Return the compiled function."""
        exec(compile("\n".join(self.lines), f"<bounds of {name}>", "exec"), self.names)
        return self.names["check"]

    def struct(self, entity: type[Any], depth: int) -> None:
        """Check the fields of a struct, then its tagged fields."""
        known: dict[int, _Tagged] = {}
        for field in dataclasses.fields(entity):
            if "tag" in field.metadata:
                known[field.metadata["tag"]] = _Tagged(
                    _field_check(entity, field),
                    is_nullable=kind_of(field).struct is None and field.default is None,
                )
            else:
                self.field(entity, field, depth)
        if entity.__flexible__:
            table = f"known_{len(self.names)}"
            self.names[table] = known
            at = self.here()
            self.line(depth, f"if f[{at}]: o = tags(f, {at}, n, {table}, w)")
            self.line(depth, f"else: o = {at} + 1")
        self.settle(depth)

    def field(
        self, entity: type[Any], field: dataclasses.Field[Any], depth: int
    ) -> None:
        """Check one field without a tag."""
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
        """Read an array's length; -1 means null."""
        at = self.here()
        if entity.__flexible__:
            self.line(depth, f"c = f[{at}]; o = {at} + 1")
            self.line(depth, "if c > 127: c, o = varint(f, o - 1)")
            self.line(depth, "c -= 1")
        else:
            self.line(depth, f"c, = int32(f, {at}); o = {at} + 4")

    def items(self, entity: type[Any], kind: FieldKind, depth: int) -> None:
        """Check an array's length against the frame, then check its items."""
        size = _FIXED_BYTES.get(kind.wire_type or "", 1)
        needed = "c" if size == 1 else f"c * {size}"
        null = "" if kind.nullable else "c < 0 or "
        self.line(depth, f"if {null}{needed} > n - o: refuse(c, n - o)")
        if kind.wire_type in _FIXED_BYTES:
            self.line(depth, "if c > 0:")
            self.line(depth + 1, f"o += {needed}; w.left -= c // w.numbers")
            self.line(depth + 1, "if w.left < 0: too_many()")
            return
        self.line(depth, "if c > 0:")
        self.line(depth + 1, "w.left -= c")
        self.line(depth + 1, "if w.left < 0: too_many()")
        self.line(depth, "for _ in range(c):")
        if self.steps:
            self.line(depth + 1, "t += 1")
            self.line(depth + 1, f"if not t % {_STEP_ITEMS}: yield")
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
            # A compact length is the length plus one, and 0 is null. Varints of up to
            # two bytes, the most frequent for records, are read inline.
            self.line(depth, f"o = {at}; c = f[o]")
            self.line(depth, "if c < 128: o += c or 1")
            self.line(
                depth, "elif 0 < f[o + 1] < 128: o += 1 + (c & 127 | f[o + 1] << 7)"
            )
            long = "long_string" if wire_type == "string" else "long_bytes"
            self.line(depth, f"else: o = {long}(f, o)")
        elif wire_type == "string":
            self.line(depth, f"c = f[{at}] << 8 | f[{at} + 1]")
            self.line(depth, f"o = {at} + 2 + (c if c < 32768 else 0)")
        else:
            self.line(depth, f"c, = int32(f, {at})")
            self.line(depth, f"o = {at} + 4 + (c if c > 0 else 0)")

    def here(self) -> str:
        """Return the expression of the current offset, and reset ``ahead``."""
        ahead, self.ahead = self.ahead, 0
        return f"o + {ahead}" if ahead else "o"

    def settle(self, depth: int) -> None:
        """Add ``ahead`` to the offset, before a branch or a join of control flow."""
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
    check: Check = source.compiled(f"{entity.__name__}.{field.name}")
    return check


class Walk:
    """State of a check: ``left`` is the number of items still admitted.

    ``numbers`` plain numbers of an array count as one item. ``edits`` remove unknown
    tags from the frame: (start, end, replacement), in the order of the frame.
    """

    __slots__ = ("edits", "left", "numbers")

    def __init__(self, items_max: int, numbers: int = 1) -> None:
        self.left = items_max
        self.numbers = numbers
        self.edits: list[tuple[int, int, bytes]] = []

    def edited(self, frame: bytes) -> bytes:
        """Return ``frame`` without unknown tags. Cost: one copy."""
        pieces: list[bytes] = []
        at = 0
        for start, end, instead in self.edits:
            pieces += (frame[at:start], instead)
            at = end
        pieces.append(frame[at:])
        return b"".join(pieces)


class _Tagged(NamedTuple):
    """A tagged field; ``is_nullable`` if it may be present as null, a zero byte."""

    check: Check
    is_nullable: bool


def _skip_tags(
    frame: bytes, count_at: int, length: int, known: Mapping[int, _Tagged], walk: Walk
) -> int:
    count, offset = decode_varint(frame, count_at)
    if count > _TAGS_MAX:
        raise MalformedFrame(f"{count} tagged fields in one struct")
    edits = walk.edits
    before, tags_at, kept = len(edits), offset, count
    for _ in range(count):
        start = offset
        tag, size_at = decode_varint(frame, start)
        size, offset = decode_varint(frame, size_at)
        end = offset + size
        if end > length:
            raise MalformedFrame(f"tagged field of {size} bytes ends beyond the frame")
        tagged = known.get(tag)
        if tagged is None:
            walk.left -= 1
            if walk.left < 0:
                _refuse_items()
            kept -= 1
            edits.append((start, end, b""))
        elif tagged.is_nullable and size == 1 and not frame[offset]:
            kept -= 1
            edits.append((start, end, b""))
        else:
            within = len(edits)
            found = tagged.check(frame, offset, length, walk)
            if found != end:
                found -= offset
                raise MalformedFrame(f"tagged field of {found} bytes, not {size}")
            if len(edits) > within:
                rest = encode_varint(size - _removed(edits[within:]))
                edits.insert(within, (size_at, offset, rest))
        offset = end
    if kept < count:
        edits.insert(before, (count_at, tags_at, encode_varint(kept)))
    return offset


def _removed(edits: Iterable[tuple[int, int, bytes]]) -> int:
    return sum(end - start - len(instead) for start, end, instead in edits)


def _long_string(frame: bytes, offset: int) -> int:
    length, offset = decode_varint(frame, offset)
    if length - 1 > STRING_BYTES_MAX:
        raise MalformedFrame(f"string of {length - 1} bytes")
    return offset + max(length - 1, 0)


def _long_bytes(frame: bytes, offset: int) -> int:
    length, offset = decode_varint(frame, offset)
    # A zero in several bytes also means null.
    return offset + max(length - 1, 0)


def _refuse_items() -> None:
    raise MalformedFrame("more items than a frame may have")


def _refuse_length(items: int, bytes_left: int) -> None:
    if items < 0:
        raise MalformedFrame("null for an array that is not nullable")
    raise MalformedFrame(f"array of {items} items in {bytes_left} bytes")
