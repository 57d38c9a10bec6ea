"""Access control lists in ZooKeeper, and notifications of their changes.

Kafka's ``AclAuthorizer``: a writer replaces the entries of one pattern, on condition
that they are unchanged since it read them. It then adds a notification, which every
broker watches. A notification names a pattern, whose entries are then read again. Reads
and writes exclude each other, so an older response never replaces a newer one.
"""

from __future__ import annotations

from logging import getLogger
from typing import Final

import trio

from broker.authorization.acl_text import RESOURCE_TYPES
from broker.authorization.acls import (
    EVERYBODY,
    WILDCARD,
    AclEntry,
    AclOperation,
    PermissionType,
    ResourcePattern,
)
from broker.coordination.coordinator_roles import AlterAcls
from broker.coordination.zookeeper.layout.acl_records import (
    CHANGES,
    PERSISTENT,
    STORES,
    acl_path,
    change_path,
    read_acl_change,
    read_acls,
    write_acl_change,
    write_acls,
)
from broker.coordination.zookeeper.layout.json_text import MalformedZnode
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.zookeeper.znodes import BadVersion, NodeExists, NoNode, Znode

logger = getLogger(__name__)

# Kafka's ``ZkNodeChangeNotificationListener``: changeExpirationMs.
_KEPT_MS: Final = 15 * 60 * 1000
# Replacement for unreadable entries, which may contain a denial.
_UNREADABLE: Final = frozenset(
    {AclEntry(EVERYBODY, WILDCARD, AclOperation.ALL, PermissionType.DENY)}
)


class ClusterAcls:
    """Entries by pattern."""

    def __init__(self) -> None:
        self.entries: dict[ResourcePattern, frozenset[AclEntry]] = {}
        self._turn = trio.Lock()
        # The last notification read, by parent.
        self._seen = dict.fromkeys(CHANGES, "")

    async def read_all(self, znodes: RetryingZnodes) -> None:
        """Read all entries, and watch for changes."""
        async with self._turn:
            for path in PERSISTENT:
                await znodes.ensure(path)
            for parent in CHANGES:
                present = await znodes.children(parent, watch=True)
                self._seen[parent] = max(present, default="")
            found: dict[ResourcePattern, frozenset[AclEntry]] = {}
            for pattern_type, store in STORES.items():
                for written, kind in RESOURCE_TYPES.items():
                    parent = f"{store}/{written}"
                    names = await znodes.children(parent)
                    data = await znodes.find_all(f"{parent}/{name}" for name in names)
                    for path, znode in data.items():
                        name = path.removeprefix(f"{parent}/")
                        pattern = ResourcePattern(kind, name, pattern_type)
                        found[pattern] = _read(pattern, znode)
            self.entries = found

    async def read_changes(
        self, znodes: RetryingZnodes, now_ms: int
    ) -> list[ResourcePattern]:
        """Read changed entries and renew the watch; return the patterns."""
        async with self._turn:
            changed: dict[ResourcePattern, None] = {}
            for parent in CHANGES:
                for pattern in await self._news(znodes, parent, now_ms):
                    changed[pattern] = None
            for pattern in changed:
                self._store(pattern, await znodes.find(acl_path(pattern)))
            return list(changed)

    async def _news(
        self, znodes: RetryingZnodes, parent: str, now_ms: int
    ) -> list[ResourcePattern]:
        """Return the patterns of new notifications, and remove old ones."""
        present = await znodes.children(parent, watch=True)
        found = await znodes.find_all(f"{parent}/{name}" for name in present)
        changed = []
        for path, (data, stat) in found.items():
            if path.rpartition("/")[2] > self._seen[parent]:
                try:
                    changed.append(read_acl_change(path, data))
                except MalformedZnode as fault:
                    logger.error(
                        "a notification of changed access makes no sense",
                        extra=fields(znode=path, fault=fault),
                    )
            if now_ms - stat.ctime_ms > _KEPT_MS:
                await znodes.delete(path)
        self._seen[parent] = max(self._seen[parent], *present, "")
        return changed

    async def alter(
        self, pattern: ResourcePattern, alter: AlterAcls, znodes: RetryingZnodes
    ) -> None:
        """Replace the entries of a pattern, and notify all brokers.

        Raises INVALID_REQUEST for a name that is not valid for a znode.
        """
        if "/" in pattern.name or pattern.name in (".", ".."):
            raise KafkaError(ErrorCode.invalid_request, "Failed to create ACL")
        path = acl_path(pattern)
        async with self._turn:
            while True:
                found = await znodes.find(path)
                before = frozenset() if found is None else _altered(pattern, found)
                after = alter(before)
                if after == before or await _replaced(znodes, path, after, found):
                    break
            if after != before:
                await znodes.create(
                    change_path(pattern), write_acl_change(pattern), sequential=True
                )
            self._put(pattern, after)

    def _store(self, pattern: ResourcePattern, found: Znode | None) -> None:
        self._put(pattern, frozenset() if found is None else _read(pattern, found))

    def _put(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        if entries:
            self.entries[pattern] = entries
        else:
            self.entries.pop(pattern, None)


def _read(pattern: ResourcePattern, found: Znode) -> frozenset[AclEntry]:
    """Return the entries of a znode; unreadable ones deny everything."""
    try:
        return read_acls(found.data)
    except MalformedZnode as fault:
        logger.error(
            "an access control list cannot be read, and denies everything",
            extra=fields(pattern=acl_path(pattern), fault=fault),
        )
        return _UNREADABLE


def _altered(pattern: ResourcePattern, found: Znode) -> frozenset[AclEntry]:
    try:
        return read_acls(found.data)
    except MalformedZnode as fault:
        raise KafkaError(
            ErrorCode.unknown_server_error, f"{acl_path(pattern)}: {fault}"
        ) from fault


async def _replaced(
    znodes: RetryingZnodes,
    path: str,
    entries: frozenset[AclEntry],
    found: Znode | None,
) -> bool:
    """Write a znode if it is unchanged since it was found; return whether it was."""
    try:
        if found is None:
            await znodes.create(path, write_acls(entries))
        elif entries:
            await znodes.set(path, write_acls(entries), version=found.stat.version)
        else:
            await znodes.delete(path, version=found.stat.version)
    except (NodeExists, NoNode, BadVersion):
        return False
    return True
