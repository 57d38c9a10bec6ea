"""Fields of kio's entity classes, for the code generated from them."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, Final, NamedTuple, Union, get_args, get_origin

# Wire types of fixed size, with their `struct` formats; kio represents the first four
# by Python types that a writer has to convert.
FIXED: Final = types.MappingProxyType(
    {
        "error_code": "h",
        "timedelta_i32": "i",
        "timedelta_i64": "q",
        "datetime_i64": "q",
        "bool": "?",
        "int8": "b",
        "uint8": "B",
        "int16": "h",
        "uint16": "H",
        "int32": "i",
        "uint32": "I",
        "int64": "q",
        "uint64": "Q",
        "float64": "d",
        "uuid": "16s",
    }
)


class FieldKind(NamedTuple):
    """Kind of a field; ``struct`` is an entity class, or ``None`` for a primitive."""

    struct: type[Any] | None
    wire_type: str | None
    is_array: bool
    nullable: bool


def kind_of(field: dataclasses.Field[Any]) -> FieldKind:
    """Return the wire type of ``field`` of one of kio's entity classes."""
    annotation: Any = field.type
    nullable = is_array = False
    if get_origin(annotation) in (types.UnionType, Union):
        nullable = True
        (annotation,) = (a for a in get_args(annotation) if a is not types.NoneType)
    if get_origin(annotation) is tuple:
        is_array = True
        annotation = get_args(annotation)[0]
    struct: Any = annotation if dataclasses.is_dataclass(annotation) else None
    return FieldKind(struct, field.metadata.get("kafka_type"), is_array, nullable)


def has_array(entity: type[Any]) -> bool:
    """Return whether ``entity`` or a struct in it has an array."""
    kinds = [kind_of(field) for field in dataclasses.fields(entity)]
    return any(
        kind.is_array or (kind.struct is not None and has_array(kind.struct))
        for kind in kinds
    )
