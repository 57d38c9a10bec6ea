"""Versions of Kafka 4.4 that are missing in kio: earlier versions with other fields.

The class of such a version is built from kio's class of the preceding version. A row is
removed when a release of kio has its version: a test compares the table with kio's
index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import GenericAlias, MappingProxyType
from typing import Any, Final, NamedTuple, get_args
from uuid import UUID

from kio.static.primitive import i16, i32

from broker.protocol.api_keys import ApiKey


class NewField(NamedTuple):
    """A field at the end of a struct, or in place of a field that it replaces."""

    name: str
    python_type: Any
    wire_type: str
    default: object
    replaced: str | None = None


_TOPIC_ID: Final = NewField(
    "topic_id", UUID | None, "uuid", dataclasses.MISSING, replaced="name"
)

# New fields by API and version, then by the name of their struct.
LATER_VERSIONS: Final[Mapping[tuple[int, int], Mapping[str, tuple[NewField, ...]]]] = (
    MappingProxyType(
        {
            # KIP-1242.
            (ApiKey.API_VERSIONS, 5): {
                "ApiVersionsRequest": (
                    NewField("cluster_id", str | None, "string", None),
                    NewField("node_id", i32, "int32", i32(-1)),
                )
            },
            (ApiKey.DELETE_GROUPS, 3): {
                "DeletableGroupResult": (
                    NewField("error_message", str | None, "string", None),
                )
            },
            # KIP-1319.
            (ApiKey.TXN_OFFSET_COMMIT, 6): {
                "TxnOffsetCommitRequestTopic": (_TOPIC_ID,),
                "TxnOffsetCommitResponseTopic": (_TOPIC_ID,),
            },
        }
    )
)


def following(entity: type[Any], api_key: int) -> type[Any]:
    """Return the class of the version that follows ``entity``, a class of kio."""
    version = entity.__version__ + 1
    return _built(entity, version, LATER_VERSIONS[api_key, version])


def _built(
    entity: type[Any], version: int, changes: Mapping[str, tuple[NewField, ...]]
) -> type[Any]:
    return dataclasses.make_dataclass(
        entity.__name__,
        list(_fields(entity, version, changes)),
        namespace={
            "__type__": entity.__type__,
            "__version__": i16(version),
            "__flexible__": entity.__flexible__,
            "__api_key__": entity.__api_key__,
            "__header_schema__": entity.__header_schema__,
            "__module__": __name__,
        },
        frozen=True,
        slots=True,
        kw_only=True,
    )


def _fields(
    entity: type[Any], version: int, changes: Mapping[str, tuple[NewField, ...]]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of ``entity`` and the new ones, with structs of ``version``."""
    new = {it.replaced or it.name: it for it in changes.get(entity.__name__, ())}
    for field in dataclasses.fields(entity):
        replacing = new.pop(field.name, None)
        if replacing is not None:
            yield _declared(replacing)
            continue
        annotation: Any = field.type
        # Structs of these messages are items of arrays: ``tuple[Struct, ...]``.
        items = get_args(annotation)
        if items and dataclasses.is_dataclass(items[0]):
            struct: Any = items[0]
            annotation = GenericAlias(tuple, (_built(struct, version, changes), ...))
        made: Any = dataclasses.field(default=field.default, metadata=field.metadata)
        yield field.name, annotation, made
    yield from map(_declared, new.values())


def _declared(new: NewField) -> tuple[str, Any, Any]:
    made: Any = dataclasses.field(
        default=new.default, metadata={"kafka_type": new.wire_type}
    )
    return new.name, new.python_type, made
