"""Access control lists in requests: kinds, filters, alterations."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from broker.authorization.acls import (
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from broker.coordination.coordinator_roles import AlterAcls
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame

E = TypeVar("E", bound=enum.IntEnum)

SECURITY_DISABLED: Final = KafkaError(
    ErrorCode.security_disabled, "No Authorizer is configured on the broker."
)
# Patterns per alteration, which are made durable together.
_PATTERNS_PER_CHANGE: Final = 128
_UNKNOWN: Final = 0


class FilterFields(Protocol):
    """The common fields of a filter in DescribeAcls and DeleteAcls."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def known(kind: type[E], code: int) -> E:
    """Return the kind of a code; raise `MalformedFrame` for the code of UNKNOWN.

    Kafka closes the connection of a client that sends this code, with or without an
    authorizer. Codes without a kind are accepted, and mean UNKNOWN, too.
    """
    if code == _UNKNOWN:
        raise MalformedFrame(f"{kind.__name__} {code} is UNKNOWN")
    try:
        return kind(code)
    except ValueError:
        return kind(_UNKNOWN)


def filter_of(row: FilterFields) -> AclFilter:
    """Return a request's filter; raise `MalformedFrame` for UNKNOWN."""
    return AclFilter(
        known(ResourceType, row.resource_type_filter),
        row.resource_name_filter,
        known(PatternType, row.pattern_type_filter),
        row.principal_filter,
        row.host_filter,
        known(AclOperation, row.operation),
        known(PermissionType, row.permission_type),
    )


async def alter_acls(
    changes: Mapping[ResourcePattern, AlterAcls], broker: Broker
) -> dict[ResourcePattern, KafkaError]:
    """Alter the entries of patterns, in pages; return the failed patterns."""
    failed: dict[ResourcePattern, KafkaError] = {}
    remaining = list(changes.items())
    for start in range(0, len(remaining), _PATTERNS_PER_CHANGE):
        page = dict(remaining[start : start + _PATTERNS_PER_CHANGE])
        failed |= await broker.coordinator.admin.alter_acls(page)
    return failed
