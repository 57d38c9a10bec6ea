"""Encoders generated from kio's entity classes, as Python source compiled once each.

kio writes field by field into a file object, without yielding. Here consecutive fields
of fixed size become one ``struct.pack``, and pieces are joined once at the end. The
bytes are the same: a test compares every message of every version with that of Kafka.

A writer reads attributes by name, so any object with the fields of a version can be
written; kio's classes only define the fields.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

# Private to kio, whose version is pinned: kio has no public function for this.
from kio.serial._implicit_defaults import get_tagged_field_default

from broker.protocol.wire.introspect import FIXED, FieldKind, kind_of
from broker.protocol.wire.varint import encode_varint

# Appends the pieces of an entity's encoding to a list; `WriteInSteps` does so in steps.
Write: TypeAlias = Callable[[Any, Callable[[bytes], None]], None]
WriteInSteps: TypeAlias = Callable[[Any, Callable[[bytes], None]], Iterator[None]]

_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_UUID: Final = bytes(16)
# Items per step: about an eighth of a millisecond, or one with the longest strings.
_STEP_ITEMS: Final = 128
# The longest string of Kafka's protocol, encoded.
STRING_BYTES_MAX: Final = 32_767


def compile_writer(entity: type[Any]) -> Write:
    """Return the function that writes objects with the fields of ``entity``."""
    source = _Source()
    source.struct(entity, "e0", 1)
    write: Write = source.compiled(entity.__name__)
    return write


def compile_stepping_writer(entity: type[Any]) -> WriteInSteps:
    """Return the writer of ``entity`` as a generator, which yields every 128 items.

    An array is copied before its first item is written, as it may change between steps.
    """
    source = _Source(steps=True)
    source.line(1, "t = 0")
    source.struct(entity, "e0", 1)
    # Unreachable code makes the function a generator even without arrays.
    source.line(1, "return")
    source.line(1, "yield")
    write: WriteInSteps = source.compiled(entity.__name__)
    return write


class _Source:
    """The source of one writer, generated field by field.

    Formats and expressions of fixed-size values are collected, and packed together
    before the next value of another kind or the next loop.
    """

    def __init__(self, *, steps: bool = False) -> None:
        self.steps = steps
        self.lines = ["def write(e0, put):"]
        self.names: dict[str, Any] = {
            "pack": struct.pack,
            "varint": encode_varint,
            "compact": _compact_string,
            "compact_null": _compact_nullable_string,
            "legacy": _legacy_string,
            "legacy_null": _legacy_nullable_string,
            "compact_text": _compact_text,
            "legacy_text": _legacy_text,
            "ms": _milliseconds,
            "epoch_ms": _epoch_milliseconds,
            "no_uuid": _NO_UUID,
        }
        self.formats: list[str] = []
        self.values: list[str] = []

    def compiled(self, name: str) -> Any:
        """Return the compiled function."""
        if len(self.lines) == 1:
            self.line(1, "pass")
        code = compile("\n".join(self.lines), f"<writer of {name}>", "exec")
        exec(code, self.names)
        return self.names["write"]

    def struct(self, entity: type[Any], variable: str, depth: int) -> None:
        """Write the fields of the struct in ``variable``, then its tagged fields."""
        tagged: list[dataclasses.Field[Any]] = []
        for field in dataclasses.fields(entity):
            if "tag" in field.metadata:
                tagged.append(field)
            else:
                value = f"{variable}.{field.name}"
                self.field(entity, kind_of(field), value, depth)
        if tagged:
            self.flush(depth)
            name = self.constant(_tags_writer(entity, tagged))
            self.line(depth, f"put({name}({variable}))")
        elif entity.__flexible__:
            # A pad byte is zero, which means no tags.
            self.formats.append("x")
        self.flush(depth)

    def field(self, entity: type[Any], kind: FieldKind, value: str, depth: int) -> None:
        """Write one field without a tag."""
        if kind.is_array:
            self.array(entity, kind, value, depth)
        elif kind.struct is None:
            self.primitive(entity, kind, value, depth)
        elif kind.nullable:
            # KIP-893: a byte 1 before a struct, or -1 instead of a null struct.
            self.flush(depth)
            name = f"e{depth}"
            self.line(depth, f"{name} = {value}")
            self.line(depth, f"if {name} is None: put(b'\\xff')")
            self.line(depth, "else:")
            self.line(depth + 1, "put(b'\\1')")
            self.struct(kind.struct, name, depth + 1)
        else:
            self.flush(depth)
            self.line(depth, f"e{depth} = {value}")
            self.struct(kind.struct, f"e{depth}", depth)

    def array(self, entity: type[Any], kind: FieldKind, value: str, depth: int) -> None:
        """Write an array's length and its items; a null array has length -1."""
        self.flush(depth)
        self.line(depth, f"a = {value}")
        if entity.__flexible__:
            self.line(depth, "put(varint(0 if a is None else len(a) + 1))")
        else:
            self.line(depth, "put(pack('>i', -1 if a is None else len(a)))")
        item = f"e{depth}"
        if kind.wire_type in ("int32", "int64"):
            letter = FIXED[kind.wire_type]
            self.line(depth, f"if a: put(pack(f'>{{len(a)}}{letter}', *a))")
            return
        if self.steps:
            self.line(depth, "a = a and tuple(a)")
        self.line(depth, f"for {item} in a or ():")
        if self.steps:
            self.line(depth + 1, "t += 1")
            self.line(depth + 1, f"if not t % {_STEP_ITEMS}: yield")
        if kind.struct is not None:
            self.struct(kind.struct, item, depth + 1)
        else:
            # An array may be null, but its items may not.
            self.primitive(entity, kind._replace(nullable=False), item, depth + 1)
            self.flush(depth + 1)

    def primitive(
        self, entity: type[Any], kind: FieldKind, value: str, depth: int
    ) -> None:
        """Write one value that is neither a struct nor an array."""
        wire_type = kind.wire_type
        assert wire_type is not None
        if wire_type in FIXED:
            self.formats.append(FIXED[wire_type])
            self.values.append(_as_number(wire_type, value))
            return
        self.flush(depth)
        if wire_type == "string":
            form = "compact" if entity.__flexible__ else "legacy"
            # Texts for people may be cut; names may not.
            is_text = value.endswith("error_message")
            null = "_null" if kind.nullable else ""
            self.line(depth, f"put({form}{'_text' if is_text else null}({value}))")
            return
        self.line(depth, f"b = {value}")
        if entity.__flexible__:
            length, no_bytes = "varint(len(b) + 1)", "b'\\0'"
        else:
            length, no_bytes = "pack('>i', len(b))", "b'\\xff\\xff\\xff\\xff'"
        if kind.nullable:
            self.line(depth, f"if b is None: put({no_bytes})")
            self.line(depth, f"else: put({length}); put(b)")
        else:
            self.line(depth, f"put({length}); put(b)")

    def flush(self, depth: int) -> None:
        """Write the collected values of fixed size at once."""
        if not self.formats:
            return
        packer = self.constant(struct.Struct(">" + "".join(self.formats)).pack)
        self.line(depth, f"put({packer}({', '.join(self.values)}))")
        self.formats.clear()
        self.values.clear()

    def constant(self, value: Any) -> str:
        """Return the name of ``value`` in the source."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def line(self, depth: int, text: str) -> None:
        """Add one line of source."""
        self.lines.append("    " * depth + text)


def _as_number(wire_type: str, value: str) -> str:
    """Return the expression of ``value`` as a number for `struct`."""
    match wire_type:
        case "error_code":
            return f"{value}.value"
        case "timedelta_i32" | "timedelta_i64":
            return f"ms({value})"
        case "datetime_i64":
            return f"epoch_ms({value})"
        case "uuid":
            return f"no_uuid if {value} is None else {value}.bytes"
    return value


def _tags_writer(
    entity: type[Any], fields: list[dataclasses.Field[Any]]
) -> Callable[[Any], bytes]:
    """Return the function that encodes tagged fields with non-default values."""
    table: list[tuple[bytes, str, Any, bytes | None, Write]] = []
    for field in sorted(fields, key=lambda each: int(each.metadata["tag"])):
        source = _Source()
        # A present tag has a value, so null needs no encoding.
        kind = kind_of(field)._replace(nullable=False)
        source.field(entity, kind, f"e0.{field.name}", 1)
        source.flush(1)
        write = source.compiled(f"{entity.__name__}.{field.name}")
        default = get_tagged_field_default(field)
        # Structs of different classes are compared by their bytes.
        is_struct = (
            kind.struct is not None and not kind.is_array and default is not None
        )
        unsaid = (
            _encoded(write, SimpleNamespace(**{field.name: default}))
            if is_struct
            else None
        )
        table.append(
            (encode_varint(field.metadata["tag"]), field.name, default, unsaid, write)
        )

    def tags(value: Any) -> bytes:
        count = 0
        pieces: list[bytes] = []
        for tag, name, default, unsaid, write in table:
            if getattr(value, name) == default:
                continue
            encoded = _encoded(write, value)
            if encoded == unsaid:
                continue
            count += 1
            pieces += (tag, encode_varint(len(encoded)), encoded)
        return encode_varint(count) + b"".join(pieces)

    return tags


def _encoded(write: Write, value: object) -> bytes:
    pieces: list[bytes] = []
    write(value, pieces.append)
    return b"".join(pieces)


# ---- values ----


_I16: Final = struct.Struct(">h")


def encode_string(value: str) -> bytes:
    """Return the encoded bytes of a string, without its length.

    Kafka's strings have at most 32,767 bytes, with both encodings of the length.

    :raises ValueError: if the string is longer.
    """
    encoded = value.encode()
    if len(encoded) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(encoded)} bytes: {value[:40]!r}...")
    return encoded


def cut(text: str) -> str:
    """Return ``text``, cut to the largest length of a string on the wire."""
    if len(text) * 4 <= STRING_BYTES_MAX:
        return text
    return text.encode()[:STRING_BYTES_MAX].decode(errors="ignore")


def _compact_string(value: str) -> bytes:
    encoded = encode_string(value)
    return encode_varint(len(encoded) + 1) + encoded


def _compact_nullable_string(value: str | None) -> bytes:
    return b"\0" if value is None else _compact_string(value)


def _legacy_string(value: str) -> bytes:
    encoded = encode_string(value)
    return _I16.pack(len(encoded)) + encoded


def _legacy_nullable_string(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else _legacy_string(value)


def _compact_text(value: str | None) -> bytes:
    return _compact_nullable_string(None if value is None else cut(value))


def _legacy_text(value: str | None) -> bytes:
    return _legacy_nullable_string(None if value is None else cut(value))


def _milliseconds(value: timedelta) -> int:
    return round(value / _MILLISECOND)


def _epoch_milliseconds(value: datetime | None) -> int:
    return -1 if value is None else round(value.timestamp() * 1000)
