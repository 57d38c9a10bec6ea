"""Decisions about operations, cached, and the audit of them.

A decision depends on principal, host, operation, resource and the current entries.
Decisions are cached until entries change; a change clears the cache. The cache holds at
most `DECISIONS_MAX` decisions, because any peer can send new names; a full cache is
cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from broker.authorization.acl_index import AclIndex
from broker.authorization.acls import (
    OPERATIONS,
    AclEntry,
    AclOperation,
    ResourcePattern,
    ResourceType,
)
from broker.authorization.audit import AuditLog, Decision
from broker.protocol.api_keys import ApiKey
from broker.protocol.principal import KafkaPrincipal

DECISIONS_MAX: Final = 16_384
# Decisions about longer names, which no topic can have, are not cached.
NAME_CHARS_MAX: Final = 249


class Client(Protocol):
    """The requesting client: a connection."""

    host: str
    principal: KafkaPrincipal


class Authorizer:
    """Kafka's ``StandardAuthorizer``.

    ``super_users`` may do everything. ``allows_unlisted`` is the decision about a
    resource without entries.
    """

    def __init__(
        self,
        *,
        super_users: Collection[KafkaPrincipal],
        allows_unlisted: bool,
        now_ns: Callable[[], int],
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allows_unlisted = allows_unlisted
        self._audit = AuditLog(now_ns)
        self._index = AclIndex()
        self._decisions: dict[
            tuple[KafkaPrincipal, str, AclOperation, ResourceType, str | None], bool
        ] = {}

    # ---- entries ----------------------------------------------------------------

    def put(self, pattern: ResourcePattern, entries: Collection[AclEntry]) -> None:
        """Replace the entries of a pattern; none removes it."""
        self._index.put(pattern, entries)
        self._decisions = {}

    def replace_all(self, acls: Mapping[ResourcePattern, Collection[AclEntry]]) -> None:
        """Replace all entries."""
        index = AclIndex()
        for pattern, entries in acls.items():
            index.put(pattern, entries)
        self._index = index
        self._decisions = {}

    # ---- decisions --------------------------------------------------------------

    def allows(
        self,
        client: Client,
        api_key: int,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str | None,
        *,
        logs_denial: bool = True,
    ) -> bool:
        """Return whether ``client`` may do ``operation`` on a resource.

        ``name`` None: on some resource of the type (``authorizeByResourceType``).
        ``api_key`` is the request's, for the audit; a denial that only filters a
        response is not logged. Cost: O(1) for a cached decision.
        """
        key = client.principal, client.host, operation, resource_type, name
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decided(*key)
        if not allowed:
            if logs_denial:
                self._audit.denied(_decision(client, api_key, *key[2:]))
        elif self._audit.has_allowed:
            self._audit.allowed(_decision(client, api_key, *key[2:]))
        return allowed

    def operations(self, client: Client, resource_type: ResourceType, name: str) -> int:
        """Return the operations allowed on a resource as a bit field (KIP-430)."""
        principal, host = client.principal, client.host
        found = 0
        for operation in OPERATIONS[resource_type]:
            key = principal, host, operation, resource_type, name
            allowed = self._decisions.get(key)
            if allowed is None:
                allowed = self._decided(*key)
            found |= allowed << operation
        return found

    def _decided(
        self,
        principal: KafkaPrincipal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str | None,
    ) -> bool:
        """Decide, and cache the decision."""
        if principal in self._super_users:
            found: bool | None = True
        elif name is None:
            found = self._index.decide_any(
                str(principal), host, operation, resource_type
            )
        else:
            found = self._index.decide(
                str(principal), host, operation, resource_type, name
            )
        allowed = self._allows_unlisted if found is None else found
        if name is None or len(name) <= NAME_CHARS_MAX:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions = {}
            self._decisions[principal, host, operation, resource_type, name] = allowed
        return allowed


def _decision(
    client: Client,
    api_key: int,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str | None,
) -> Decision:
    return Decision(
        str(client.principal),
        client.host,
        ApiKey(api_key).name,
        operation,
        resource_type,
        name,
    )
