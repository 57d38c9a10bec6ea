"""Access control lists as text: the names that Kafka writes into ZooKeeper.

The registry of a single broker uses the same form (`broker.coordination`).
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

from broker.authorization.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
    display_name,
)

E = TypeVar("E", bound=enum.IntEnum)


def _by_name(kinds: Iterable[E]) -> Mapping[str, E]:
    """Return the members that an entry may have, by their Kafka names."""
    return MappingProxyType(
        {
            display_name(kind): kind
            for kind in kinds
            if kind.name not in ("UNKNOWN", "ANY", "MATCH")
        }
    )


RESOURCE_TYPES: Final = _by_name(ResourceType)
PATTERN_TYPES: Final = _by_name(PatternType)
_OPERATIONS: Final = _by_name(AclOperation)
_PERMISSIONS: Final = _by_name(PermissionType)


def write_pattern(pattern: ResourcePattern) -> str:
    """Return a pattern as ``TYPE:PATTERN TYPE:NAME``.

    >>> write_pattern(ResourcePattern(ResourceType.TOPIC, "a:b"))
    'Topic:Literal:a:b'
    """
    kind, name, pattern_type = pattern
    return f"{display_name(kind)}:{display_name(pattern_type)}:{name}"


def read_pattern(written: str) -> ResourcePattern:
    """Return the pattern of a text; raise KeyError or ValueError."""
    kind, pattern_type, name = written.split(":", 2)
    return ResourcePattern(RESOURCE_TYPES[kind], name, PATTERN_TYPES[pattern_type])


def write_entries(entries: Collection[AclEntry]) -> list[dict[str, str]]:
    """Return entries as values of JSON, in a fixed order."""
    return [
        {
            "principal": entry.principal,
            "permissionType": display_name(entry.permission),
            "operation": display_name(entry.operation),
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]


def read_entries(found: Iterable[Mapping[str, Any]]) -> frozenset[AclEntry]:
    """Return the entries of values of JSON; raise KeyError or TypeError."""
    return frozenset(
        AclEntry(
            str(each["principal"]),
            str(each["host"]),
            _OPERATIONS[each["operation"]],
            _PERMISSIONS[each["permissionType"]],
        )
        for each in found
    )
