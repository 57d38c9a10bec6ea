"""Configs of topics, brokers and clients in ZooKeeper, and notifications of changes.

A writer of an entity's configs writes its znode first and then a notification below
/config/changes, which every broker watches (Kafka's ``ZkConfigManager``). A
notification names an entity, whose configs are then read again. Notifications that
exist before a session's first read are skipped. Any broker that reads a notification
older than fifteen minutes removes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from logging import getLogger
from typing import Final

from broker.cluster.topic_configs import TOPIC_KEYS
from broker.coordination.coordinator_roles import ConfigKind, Configs
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.broker_records import (
    read_config,
    read_config_change,
    write_config,
    write_config_change,
)
from broker.coordination.zookeeper.layout.json_text import MalformedZnode
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError
from broker.quotas.entity import USER, is_entity, path_of, user_of
from broker.zookeeper.znodes import BadVersion, NodeExists, NoNode, Znode

logger = getLogger(__name__)

# Kafka's ``ZkNodeChangeNotificationListener``: changeExpirationMs.
_KEPT_MS: Final = 15 * 60 * 1000
_DEFAULT: Final = "<default>"
_CLIENTS: Final = ("users", "clients", "ips")


class ClusterConfigs:
    """Configs of topics by name, and ``others`` by kind and name."""

    def __init__(self) -> None:
        self.topics: dict[str, Configs] = {}
        self.others = _none()
        self._seen = ""
        # Number of completed reads per entity. Reads overlap and complete in any order.
        # A result that arrives during another read is kept over the result of that
        # read: it is at least as new, or a further notification is still to come.
        self._read_counts: Counter[str] = Counter()

    def of_topic(self, name: str) -> Configs:
        """Return a topic's own configs, as last read."""
        return self.topics.get(name, {})

    async def read_all(self, znodes: RetryingZnodes) -> bool:
        """Read all configs, and watch for changes; return whether any have changed."""
        present = await znodes.children(paths.CONFIG_CHANGES, watch=True)
        self._seen = max(present, default="")
        counts_before = +self._read_counts
        before = dict(self.topics), dict(self.others[ConfigKind.BROKER])
        topics = await _configs(znodes, paths.TOPIC_CONFIGS)
        others = _none()
        found = await _configs(znodes, paths.BROKER_CONFIGS)
        others[ConfigKind.BROKER] = {_broker(name): it for name, it in found.items()}
        for entity, configs in (await _client_configs(znodes)).items():
            known, name = _place(topics, others, entity)
            known[name] = configs
        for entity in self._read_counts - counts_before:
            newer, name = _place(self.topics, self.others, entity)
            known, _ = _place(topics, others, entity)
            known[name] = newer[name]
        self.topics, self.others = topics, others
        return (topics, others[ConfigKind.BROKER]) != before

    async def read_changes(self, znodes: RetryingZnodes, now_ms: int) -> list[str]:
        """Read changed configs and renew the watch.

        Returns the entities, as ``topics/T``, ``brokers/N``, ``users/U``,
        ``users/U/clients/C``, ``clients/C`` or ``ips/A``, once each.
        """
        present = await znodes.children(paths.CONFIG_CHANGES, watch=True)
        found = await znodes.find_all(
            f"{paths.CONFIG_CHANGES}/{name}" for name in present
        )
        changed: dict[str, None] = {}
        for path, (data, stat) in found.items():
            name = path.rpartition("/")[2]
            if name > self._seen:
                try:
                    changed[read_config_change(data)] = None
                except MalformedZnode as fault:
                    logger.error(
                        "a notification of changed configs makes no sense",
                        extra=fields(znode=path, fault=fault),
                    )
            if now_ms - stat.ctime_ms > _KEPT_MS:
                await znodes.delete(path)
        self._seen = max(self._seen, *present) if present else self._seen
        for entity in changed:
            await self._read(znodes, entity)
        return list(changed)

    async def _read(self, znodes: RetryingZnodes, entity: str) -> None:
        kind, _, name = entity.partition("/")
        if (kind in ("topics", "brokers") and "/" not in name) or (
            kind in _CLIENTS and is_entity(entity)
        ):
            found = await znodes.find(f"/config/{entity}")
            self._store(entity, _read_config(entity, found and found.data))

    def _store(self, entity: str, configs: Configs) -> None:
        self._read_counts[entity] += 1
        known, name = _place(self.topics, self.others, entity)
        known[name] = configs

    async def read_topics(self, znodes: RetryingZnodes, names: Collection[str]) -> None:
        """Read the configs of some topics."""
        counts_before = +self._read_counts
        found = await znodes.find_all(paths.topic_config(name) for name in names)
        for name in names:
            entity = f"topics/{name}"
            if self._read_counts[entity] == counts_before[entity]:
                data, _ = found.get(paths.topic_config(name), (None, None))
                self._store(entity, _read_config(entity, data))

    async def write(
        self,
        entity: str,
        configs: Configs,
        instead_of: Configs | None,
        znodes: RetryingZnodes,
    ) -> bool:
        """Replace an entity's configs, and notify all brokers.

        Returns False if the present configs are not ``instead_of`` (None: any). They
        are then stored here, and nothing is written.
        """
        path, data, done = f"/config/{entity}", write_config(configs), False
        while not done:
            found = await znodes.find(path)
            present = _read_config(entity, found and found.data)
            if instead_of is not None and present != instead_of:
                self._store(entity, present)
                return False
            done = await _replaced(znodes, path, data, found)
        await znodes.create(
            paths.CONFIG_CHANGE, write_config_change(entity), sequential=True
        )
        self._store(entity, dict(configs))
        return True


async def _replaced(
    znodes: RetryingZnodes, path: str, data: bytes, found: Znode | None
) -> bool:
    """Write a znode if it is unchanged since it was found; return whether it was."""
    if found is None:
        try:
            await _create(znodes, path, data)
        except NodeExists:
            return False
    else:
        try:
            await znodes.set(path, data, version=found.stat.version)
        except (NoNode, BadVersion):
            return False
    return True


async def _create(znodes: RetryingZnodes, path: str, data: bytes) -> None:
    """Create a znode, and its parents without data."""
    try:
        await znodes.create(path, data)
    except NoNode:
        parent = path.rpartition("/")[0]
        with suppress(NodeExists):
            await _create(znodes, parent, b"")
        await _create(znodes, path, data)


def entity_of(kind: ConfigKind, name: str) -> str:
    """Return the entity path of a config owner in notifications."""
    if kind is ConfigKind.BROKER:
        return f"brokers/{name or _DEFAULT}"
    return path_of({USER: name}) if kind is ConfigKind.USER else name


def _none() -> dict[ConfigKind, dict[str, Configs]]:
    return {kind: {} for kind in ConfigKind}


def _place(
    topics: dict[str, Configs],
    others: dict[ConfigKind, dict[str, Configs]],
    entity: str,
) -> tuple[dict[str, Configs], str]:
    """Return the mapping that holds an entity's configs, and its key there."""
    kind, _, name = entity.partition("/")
    if kind == "topics":
        return topics, name
    if (user := user_of(entity)) is not None:
        return others[ConfigKind.USER], user
    if kind in _CLIENTS:
        return others[ConfigKind.CLIENT], entity
    return others[ConfigKind.BROKER], _broker(name)


def _broker(name: str) -> str:
    return "" if name == _DEFAULT else name


async def _configs(znodes: RetryingZnodes, parent: str) -> dict[str, Configs]:
    names = await znodes.children(parent)
    found = await znodes.find_all(f"{parent}/{name}" for name in names)
    return {
        path.rpartition("/")[2]: _read_config(path, data)
        for path, (data, _) in found.items()
    }


async def _client_configs(znodes: RetryingZnodes) -> dict[str, Configs]:
    """Return the configs of users, of their clients, of clients and of addresses."""
    parents = [paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS]
    entities: dict[str, Configs] = {}
    for parent in parents:
        try:
            names = await znodes.children(parent)
        except NoNode:
            continue
        found = await znodes.find_all(f"{parent}/{name}" for name in names)
        for path, (data, stat) in found.items():
            entities[path.removeprefix("/config/")] = _read_config(path, data)
            if parent == paths.USER_CONFIGS and stat.num_children:
                parents.append(f"{path}/clients")
    return entities


def _read_config(entity: str, data: bytes | None) -> Configs:
    """Return an entity's configs; log unreadable data and return no configs."""
    if not data:
        return {}
    try:
        configs = read_config(data)
    except MalformedZnode as fault:
        _log_unreadable(entity, fault)
        return {}
    return _understood(entity, configs) if "topics/" in entity else configs


def _understood(topic: str, configs: Configs) -> Configs:
    """Return the valid part of a topic's configs; other writers may set other keys."""
    known = {}
    for name, written in configs.items():
        try:
            if name in TOPIC_KEYS:
                TOPIC_KEYS[name].key.read(written)
        except ConfigError as fault:
            _log_unreadable(topic, fault)
        else:
            known[name] = written
    return known


def _log_unreadable(entity: str, fault: Exception) -> None:
    logger.error(
        "configs that cannot be read are not in force",
        extra=fields(entity=entity, fault=fault),
    )
