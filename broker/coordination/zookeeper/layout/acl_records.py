"""Access control lists in ZooKeeper: Kafka's ``ZkAclStore`` and ``ZkAclChangeStore``.

Each pattern has a znode with its entries. Literal patterns and prefixes have separate
parents, and so have the notifications of their changes, since brokers before Kafka 2.0
support literal patterns only.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from broker.authorization.acl_text import (
    RESOURCE_TYPES,
    read_entries,
    write_entries,
)
from broker.authorization.acls import (
    AclEntry,
    PatternType,
    ResourcePattern,
    ResourceType,
    display_name,
)
from broker.coordination.zookeeper.layout.json_text import (
    MalformedZnode,
    reads,
    write_json,
)

_VERSION: Final = 1
# The parents of patterns, by pattern type.
STORES: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
LITERAL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_CHANGES: Final = "/kafka-acl-extended-changes"
CHANGES: Final = (LITERAL_CHANGES, EXTENDED_CHANGES)
# Znodes that a broker with an authorizer creates, parents first.
PERSISTENT: Final = (
    "/kafka-acl-extended",
    *(
        path
        for store in STORES.values()
        for path in (store, *(f"{store}/{kind}" for kind in RESOURCE_TYPES))
    ),
    *CHANGES,
)


def acl_path(pattern: ResourcePattern) -> str:
    """Return the path of a pattern's entries."""
    store = STORES[pattern.pattern_type]
    return f"{store}/{display_name(pattern.resource_type)}/{pattern.name}"


def write_acls(entries: Collection[AclEntry]) -> bytes:
    """Return the data of a pattern."""
    return write_json({"version": _VERSION, "acls": write_entries(entries)})


@reads("entries of an access control list", _VERSION)
def read_acls(found: dict[str, Any]) -> frozenset[AclEntry]:
    """Return the entries of a pattern."""
    return read_entries(found["acls"])


def change_path(pattern: ResourcePattern) -> str:
    """Return the prefix of the sequential znode that reports a change."""
    literal = pattern.pattern_type is PatternType.LITERAL
    return f"{LITERAL_CHANGES if literal else EXTENDED_CHANGES}/acl_changes_"


def write_acl_change(pattern: ResourcePattern) -> bytes:
    """Return the notification of a pattern's change."""
    kind, name, pattern_type = pattern
    if pattern_type is PatternType.LITERAL:
        return f"{kind.name}:{name}".encode()
    return write_json(
        {
            "version": _VERSION,
            "resourceType": kind.name,
            "name": name,
            "patternType": pattern_type.name,
        }
    )


def read_acl_change(path: str, data: bytes) -> ResourcePattern:
    """Return the pattern of a notification; raise `MalformedZnode`."""
    if path.startswith(f"{EXTENDED_CHANGES}/"):
        return _read_extended(data)
    try:
        kind, colon, name = data.decode().partition(":")
        if not colon:
            raise ValueError("no colon")
        return ResourcePattern(ResourceType[kind.upper()], name)
    except (ValueError, KeyError) as fault:
        raise MalformedZnode(data, "a changed access control list", fault) from fault


@reads("a changed access control list", _VERSION)
def _read_extended(found: dict[str, Any]) -> ResourcePattern:
    return ResourcePattern(
        ResourceType[str(found["resourceType"]).upper()],
        str(found["name"]),
        PatternType[str(found["patternType"]).upper()],
    )
