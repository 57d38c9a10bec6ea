"""Messages declared once for all versions, and kio-style classes built from them.

Kafka describes a message once, with the versions of each field; kio needs one dataclass
per version. A message is declared here as a dataclass whose annotations contain the
wire types (`Int32`) and versions (``Annotated[Int32, Since(2)]``) of its fields.
`entity_type` builds the dataclass of a version from them, in the style of kio, so that
kio's reader and this package's writer support it. Only features used by the four
controller requests are implemented: no nullable structs, and one kind of tagged field.
"""

from __future__ import annotations

import dataclasses
import uuid
from datetime import timedelta
from functools import cache
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    Self,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v1.header import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as ResponseHeaderV1
from kio.static.constants import EntityType
from kio.static.primitive import i8, i16, i32, i64

from broker.protocol.api_keys import FIRST_FLEXIBLE, NEVER, ApiKey
from broker.protocol.messages.message import NO_TIME
from broker.protocol.schemas.convert import Stepping, converting, drained

Int8: TypeAlias = Annotated[int, i8]
Int16: TypeAlias = Annotated[int, i16]
Int32: TypeAlias = Annotated[int, i32]
Int64: TypeAlias = Annotated[int, i64]

_WIRE_TYPES: Final[dict[Any, str]] = {
    bool: "bool",
    i8: "int8",
    i16: "int16",
    i32: "int32",
    i64: "int64",
    str: "string",
    uuid.UUID: "uuid",
    ErrorCode: "error_code",
}


class Versions(NamedTuple):
    """The first and the last version with a field; a tagged field has a ``tag``."""

    first: int = 0
    last: int = NEVER
    tag: int | None = None


def since(first: int, *, tag: int | None = None) -> Versions:
    """Mark a field that exists from version ``first`` on."""
    return Versions(first, tag=tag)


def until(last: int) -> Versions:
    """Mark a field whose last version is ``last``; -1: not on the wire."""
    return Versions(last=last)


class Versioned:
    """A message in the form of one version, built by `entity_type`."""

    __slots__ = ()


class ControllerMessage:
    """A request or response of one API, over all its versions."""

    __slots__ = ()

    api_key: ClassVar[ApiKey]
    last_version: ClassVar[int]
    kind: ClassVar[EntityType]
    # No version has a throttle time.
    throttle_time: ClassVar[timedelta] = NO_TIME

    @classmethod
    def from_wire(cls, entity: Any) -> Self:
        """Return the message of ``entity``, of any version."""
        return drained(cls.reading(entity))

    @classmethod
    def reading(cls, entity: Any) -> Stepping[Self]:
        """Convert as `from_wire` does, in steps."""
        return (yield from converting(entity, cls))

    def to_wire(self, version: int) -> Versioned:
        """Return the entity of ``version`` with the content of this message."""
        return drained(self.writing(version))

    def writing(self, version: int) -> Stepping[Versioned]:
        """Convert as `to_wire` does, in steps."""
        entity = entity_type(type(self), version)  # type: ignore[arg-type] # is hashable
        return (yield from converting(self, entity))


@cache
def entity_type(message: type[ControllerMessage], version: int) -> type[Versioned]:
    """Return the dataclass of ``message`` at ``version``."""
    assert 0 <= version <= message.last_version, version
    return _build(message, message, version, message.kind)


def _build(
    message: type[ControllerMessage],
    struct: type[Any],
    version: int,
    kind: EntityType,
) -> type[Versioned]:
    flexible = version >= FIRST_FLEXIBLE[message.api_key]
    if message.kind is EntityType.request:
        header: type[Any] = RequestHeaderV2 if flexible else RequestHeaderV1
    else:
        header = ResponseHeaderV1 if flexible else ResponseHeaderV0
    hints = get_type_hints(struct, include_extras=True)
    declared = []
    for field in dataclasses.fields(struct):
        annotation, versions = _versions(hints[field.name])
        if versions.first <= version <= versions.last:
            python_type, wire_type = _wire(message, annotation, version)
            metadata: dict[str, Any] = {}
            if wire_type is not None:
                metadata["kafka_type"] = wire_type
            if versions.tag is not None:
                metadata["tag"] = versions.tag
            made: Any = dataclasses.field(default=field.default, metadata=metadata)
            declared.append((field.name, python_type, made))
    return dataclasses.make_dataclass(
        struct.__name__,
        declared,
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


def _versions(annotation: Any) -> tuple[Any, Versions]:
    """Return the annotation of a field without its versions, and the versions."""
    marks = getattr(annotation, "__metadata__", ())
    versions = next((mark for mark in marks if isinstance(mark, Versions)), Versions())
    rest = tuple(mark for mark in marks if mark is not versions)
    if not marks:
        return annotation, versions
    bare = annotation.__origin__
    return (Annotated[bare, *rest] if rest else bare), versions


def _wire(
    message: type[ControllerMessage], annotation: Any, version: int
) -> tuple[Any, str | None]:
    """Return kio's annotation of a field, and the wire type of a primitive."""
    if get_origin(annotation) is tuple:
        item, wire_type = _wire(message, get_args(annotation)[0], version)
        return GenericAlias(tuple, (item, ...)), wire_type
    if get_origin(annotation) in (Union, UnionType):
        (some,) = (each for each in get_args(annotation) if each is not NoneType)
        python_type, wire_type = _wire(message, some, version)
        return python_type | None, wire_type
    if dataclasses.is_dataclass(annotation):
        return _build(message, annotation, version, EntityType.nested), None  # type: ignore[arg-type] # a class
    python_type = annotation
    if get_origin(annotation) is Annotated:
        (python_type,) = annotation.__metadata__
    return python_type, _WIRE_TYPES[python_type]
