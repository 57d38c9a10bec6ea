"""Access control lists as values: patterns of resources, entries, and filters.

Names and numbers are those of Kafka's ``AclBinding`` and of the packages around it. A
pattern matches one resource, all with a prefix, or all of a type (the literal name
``*``). An entry allows or denies one operation to one principal from one host.
"""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Final, NamedTuple

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(enum.IntEnum):
    """Types of resources."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """Ways in which a pattern, or a filter of patterns, matches resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(enum.IntEnum):
    """Operations on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class PermissionType(enum.IntEnum):
    """Effects of an entry."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# Operations of each resource type (Kafka: ``AclEntry.supportedOperations``).
OPERATIONS: Final = MappingProxyType(
    {
        ResourceType.TOPIC: (
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        ResourceType.CLUSTER: (
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
    }
)

_ALLOWED_BY: Final = MappingProxyType(
    {
        AclOperation.DESCRIBE: frozenset(
            {
                AclOperation.ALL,
                AclOperation.DESCRIBE,
                AclOperation.READ,
                AclOperation.WRITE,
                AclOperation.DELETE,
                AclOperation.ALTER,
            }
        ),
        AclOperation.DESCRIBE_CONFIGS: frozenset(
            {
                AclOperation.ALL,
                AclOperation.DESCRIBE_CONFIGS,
                AclOperation.ALTER_CONFIGS,
            }
        ),
    }
)


class ResourcePattern(NamedTuple):
    """A set of resources: one name, a prefix, or all of a type."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    """A permission; ``principal`` is ``TYPE:NAME``, ``host`` an address or ``*``."""

    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType

    def applies_to(self, host: str, operation: AclOperation) -> bool:
        """Return whether the entry decides about an operation of its principal.

        Permission to read, write, delete or alter includes DESCRIBE; permission to
        alter configs includes DESCRIBE_CONFIGS. A denial includes no other operation.
        """
        if self.host not in (WILDCARD, host):
            return False
        if self.permission is PermissionType.ALLOW and operation in _ALLOWED_BY:
            return self.operation in _ALLOWED_BY[operation]
        return self.operation in (operation, AclOperation.ALL)


class AclBinding(NamedTuple):
    """An entry, and the pattern that it belongs to."""

    pattern: ResourcePattern
    entry: AclEntry


class AclFilter(NamedTuple):
    """A filter of bindings; None and the types ``ANY`` match everything."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: PermissionType

    @property
    def has_unknown_kind(self) -> bool:
        """Return whether a kind is UNKNOWN: then nothing matches."""
        return 0 in (
            self.resource_type,
            self.pattern_type,
            self.operation,
            self.permission,
        )

    def passes_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether a pattern passes the filter.

        ``MATCH`` selects all patterns that match the named resource.
        """
        wanted = self.pattern_type
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if wanted not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if wanted is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def passes_entry(self, entry: AclEntry) -> bool:
        """Return whether an entry passes, regardless of its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (PermissionType.ANY, entry.permission)
        )


def display_name(kind: enum.IntEnum) -> str:
    """Return the name of a type or operation as Kafka writes it: ``ClusterAction``.

    >>> display_name(AclOperation.CLUSTER_ACTION)
    'ClusterAction'
    """
    return kind.name.title().replace("_", "")
