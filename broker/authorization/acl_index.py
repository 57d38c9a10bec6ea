"""An index of access control lists: the decision about one operation.

Kafka's ``StandardAuthorizer`` decides in this order:

1. An entry that denies the operation, on any pattern that the resource belongs to.
2. An entry that allows it.
3. Where no pattern with entries matches the resource, the default.
4. Otherwise the operation is denied.

Entries are indexed by pattern and principal, so that a decision reads the entries of
its own principal and of ``User:*`` only. Prefixes are found by their lengths. Cost:
O(distinct lengths of prefixes + entries of the principal).

A decision about any resource of a type needs the patterns with entries of the
principal. They are indexed, so that the cost does not grow with other principals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from broker.authorization.acls import (
    EVERYBODY,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

# Entries of one pattern, by principal.
_ByPrincipal: TypeAlias = Mapping[str, tuple[AclEntry, ...]]


class AclIndex:
    """Entries by pattern."""

    def __init__(self) -> None:
        self._entries: dict[ResourcePattern, _ByPrincipal] = {}
        # Patterns by resource type and the principal of their entries.
        self._patterns: dict[tuple[ResourceType, str], set[ResourcePattern]] = {}
        # Number of prefixes by type and length.
        self._lengths: dict[ResourceType, Counter[int]] = {}

    def put(self, pattern: ResourcePattern, entries: Collection[AclEntry]) -> None:
        """Replace the entries of a pattern; none removes it."""
        before = self._entries.pop(pattern, None)
        by_principal: dict[str, list[AclEntry]] = {}
        for entry in entries:
            by_principal.setdefault(entry.principal, []).append(entry)
        if entries:
            self._entries[pattern] = {
                principal: tuple(each) for principal, each in by_principal.items()
            }
        self._note_principals(pattern, before or {}, by_principal)
        if pattern.pattern_type is PatternType.PREFIXED:
            change = bool(entries) - (before is not None)
            self._count(pattern, change)

    def _note_principals(
        self,
        pattern: ResourcePattern,
        before: Collection[str],
        after: Collection[str],
    ) -> None:
        patterns, kind = self._patterns, pattern.resource_type
        for principal in after:
            if principal not in before:
                patterns.setdefault((kind, principal), set()).add(pattern)
        for principal in before:
            if principal not in after:
                named = patterns[kind, principal]
                named.discard(pattern)
                if not named:
                    del patterns[kind, principal]

    def _count(self, pattern: ResourcePattern, change: int) -> None:
        lengths = self._lengths.setdefault(pattern.resource_type, Counter())
        length = len(pattern.name)
        lengths[length] += change
        if not lengths[length]:
            del lengths[length]

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> bool | None:
        """Return whether an operation is allowed; None if no pattern has entries."""
        found: bool | None = None
        for by_principal in self._matching(resource_type, name):
            found = found or False
            for whose in {principal, EVERYBODY}:
                for entry in by_principal.get(whose, ()):
                    if entry.applies_to(host, operation):
                        if entry.permission is PermissionType.DENY:
                            return False
                        found = True
        return found

    def _matching(
        self, resource_type: ResourceType, name: str
    ) -> Iterator[_ByPrincipal]:
        """Iterate over the entries of all patterns that match a resource."""
        entries = self._entries
        for literal in {name, WILDCARD}:
            pattern = ResourcePattern(resource_type, literal)
            if pattern in entries:
                yield entries[pattern]
        for length in self._lengths.get(resource_type, ()):
            pattern = ResourcePattern(
                resource_type, name[:length], PatternType.PREFIXED
            )
            if length <= len(name) and pattern in entries:
                yield entries[pattern]

    def decide_any(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool | None:
        """Return whether the operation is allowed on some resource of a type.

        None: no resource is allowed, and not all are denied. Kafka's
        ``authorizeByResourceType``. Cost: O(patterns with entries of the principal).
        """
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        for whose in {principal, EVERYBODY}:
            for pattern in self._patterns.get((resource_type, whose), ()):
                for entry in self._entries[pattern][whose]:
                    if entry.host not in (WILDCARD, host) or entry.operation not in (
                        operation,
                        AclOperation.ALL,
                    ):
                        continue
                    if entry.permission is PermissionType.DENY:
                        denied.add(pattern)
                    else:
                        allowed.append(pattern)
        if ResourcePattern(resource_type, WILDCARD) in denied:
            return False
        lengths = {
            len(each.name)
            for each in denied
            if each.pattern_type is PatternType.PREFIXED
        }
        return any(not _is_dominated(each, denied, lengths) for each in allowed) or None


def _is_dominated(
    allowed: ResourcePattern, denied: set[ResourcePattern], lengths: set[int]
) -> bool:
    """Return whether all resources of a pattern are denied.

    ``lengths`` are those of the denied prefixes.
    """
    kind, name, pattern_type = allowed
    if pattern_type is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if allowed in denied:
            return True
    return any(
        ResourcePattern(kind, name[:length], PatternType.PREFIXED) in denied
        for length in lengths
        if length <= len(name)
    )
