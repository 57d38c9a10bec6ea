"""Versions that Kafka 4.4 has and kio lacks: new fields of the version before.

The class of such a version is built from kio's class of the version before it. A row
goes when a release of kio has its version: a test compares the table with kio's index.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import GenericAlias, MappingProxyType
from typing import Any, Final, NamedTuple, get_args

from kio.static.primitive import i16, i32

from broker.protocol.api_keys import ApiKey


class NewField(NamedTuple):
    """A field at the end of a struct, with its type, wire type and default."""

    name: str
    python_type: Any
    wire_type: str
    default: object


# By API and version; the fields by the name of the struct that has them.
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
        }
    )
)


def following(entity: type[Any], api_key: int) -> type[Any]:
    """Return the class of the version after that of ``entity``, a class of kio's."""
    version = entity.__version__ + 1
    return _built(entity, version, LATER_VERSIONS[api_key, version])


def _built(
    entity: type[Any], version: int, added: Mapping[str, tuple[NewField, ...]]
) -> type[Any]:
    return dataclasses.make_dataclass(
        entity.__name__,
        [
            *_kept(entity, version, added),
            *(
                (
                    new.name,
                    new.python_type,
                    dataclasses.field(
                        default=new.default, metadata={"kafka_type": new.wire_type}
                    ),
                )
                for new in added.get(entity.__name__, ())
            ),
        ],
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


def _kept(
    entity: type[Any], version: int, added: Mapping[str, tuple[NewField, ...]]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of ``entity``, with structs of ``version``."""
    for field in dataclasses.fields(entity):
        annotation: Any = field.type
        # Structs of these messages are items of arrays: ``tuple[Struct, ...]``.
        items = get_args(annotation)
        if items and dataclasses.is_dataclass(items[0]):
            struct: Any = items[0]
            annotation = GenericAlias(tuple, (_built(struct, version, added), ...))
        made: Any = dataclasses.field(default=field.default, metadata=field.metadata)
        yield field.name, annotation, made
