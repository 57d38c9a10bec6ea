"""Message schemas with version ranges, turned into kio's entity classes.

Kafka describes a message once, with the versions of each field; kio wants one
dataclass per version. `entity_type` builds that dataclass from a `Struct`, so that
kio's own reader and writer serve it. Only what the four controller requests use is
here: no nullable structs, and one kind of tagged field.
"""

from __future__ import annotations

import dataclasses
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1
from kio.schema.types import BrokerId, TopicName
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from broker.protocol.api_keys import FIRST_FLEXIBLE, NEVER, ApiKey

# What a field's type is called in the tables -> kio's Python type and wire type.
_PRIMITIVES: Final[dict[str, tuple[Any, str]]] = {
    "bool": (bool, "bool"),
    "int8": (i8, "int8"),
    "int16": (i16, "int16"),
    "int32": (i32, "int32"),
    "int64": (i64, "int64"),
    "string": (str, "string"),
    "uuid": (uuid.UUID | None, "uuid"),
    "brokerId": (BrokerId, "int32"),
    "topicName": (TopicName, "string"),
    "errorCode": (ErrorCode, "error_code"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """A named sequence of fields, some of them of certain versions only."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: on the wire from version ``since`` to ``until``, both included.

    A ``default`` of ``...`` is none.
    """

    name: str
    type: str | Struct
    array: bool = False
    since: int = 0
    until: int = NEVER
    nullable: bool = False
    default: Any = ...
    tag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request or a response of one API, over all its versions."""

    api_key: ApiKey
    kind: EntityType
    body: Struct
    last_version: int


class Versioned:
    """A message in the shape of one version, made by `entity_type`."""

    __slots__ = ()


@cache
def entity_type(message: Message, version: int) -> type[Versioned]:
    """Return the dataclass of ``message`` at ``version``."""
    assert 0 <= version <= message.last_version, version
    return _build(message, message.body, version, message.kind)


def nested_type(entity: type[Any], field_name: str) -> type[Any]:
    """Return the class of the items of an array field of ``entity``."""
    field = next(f for f in dataclasses.fields(entity) if f.name == field_name)
    item: type[Any] = field.type.__args__[0]  # type: ignore[union-attr] # tuple[X, ...]
    return item


def _build(
    message: Message, struct: Struct, version: int, kind: EntityType
) -> type[Any]:
    flexible = version >= FIRST_FLEXIBLE[message.api_key]
    if message.kind is EntityType.request:
        header: type[Any] = RequestHeaderV2 if flexible else RequestHeaderV1
    else:
        header = ResponseHeaderV1 if flexible else ResponseHeaderV0
    return dataclasses.make_dataclass(
        struct.name,
        [
            _declare(message, field, version)
            for field in struct.fields
            if field.since <= version <= field.until
        ],
        namespace={
            "__type__": kind,
            "__version__": i16(version),
            "__flexible__": flexible,
            "__api_key__": i16(message.api_key),
            "__header_schema__": header,
            "__module__": __name__,
        },
        bases=(Versioned,),
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _declare(
    message: Message, field: Field, version: int
) -> tuple[str, Any, dataclasses.Field[Any]]:
    metadata: dict[str, Any] = {}
    python_type: Any
    if isinstance(field.type, Struct):
        python_type = _build(message, field.type, version, EntityType.nested)
    else:
        python_type, metadata["kafka_type"] = _PRIMITIVES[field.type]
    if field.nullable:
        python_type = python_type | None
    if field.array:
        python_type = tuple[python_type, ...]
    if field.tag is not None:
        metadata["tag"] = field.tag
    default = dataclasses.MISSING if field.default is ... else field.default
    declared: Any = dataclasses.field(default=default, metadata=metadata)
    return field.name, python_type, declared
