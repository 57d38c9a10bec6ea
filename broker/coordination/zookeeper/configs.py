"""Configs of topics, brokers and clients, from ZooKeeper, and news of their changes.

A writer of an entity's configs writes its znode first and then a notification below
/config/changes, which every broker watches (Kafka's ``ZkConfigManager``). Each
notification names an entity, whose configs are then read anew; those of a session's
first reading are older than it and are skipped. Notifications are removed after a
quarter of an hour, by any broker that sees them then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from logging import getLogger
from typing import Final

from broker.cluster.topic_configs import TOPIC_KEYS
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
from broker.quotas.entity import is_entity, user_of
from broker.zookeeper.znodes import BadVersion, NodeExists, NoNode, Znode

logger = getLogger(__name__)

# Kafka's ``ZkNodeChangeNotificationListener``: changeExpirationMs.
_KEPT_MS: Final = 15 * 60 * 1000
_DEFAULT: Final = "<default>"
_CLIENTS: Final = ("users", "clients", "ips")


class ClusterConfigs:
    """Configs set for topics and users by name, and for brokers by id ("" for all).

    ``clients`` has the quotas of all other entities, by path (`broker.quotas.entity`).
    """

    def __init__(self) -> None:
        self.topics: dict[str, Mapping[str, str]] = {}
        self.brokers: dict[str, Mapping[str, str]] = {}
        self.users: dict[str, Mapping[str, str]] = {}
        self.clients: dict[str, Mapping[str, str]] = {}
        self._seen = ""
        # Number of readings of an entity. Reads take their time and are answered in any
        # order. A reading made during another one is not older than that, or there is a
        # notification still to come.
        self._learned: Counter[str] = Counter()

    def of_topic(self, name: str) -> Mapping[str, str]:
        """Return a topic's own configs, as far as they are known here."""
        return self.topics.get(name, {})

    async def read_all(self, znodes: RetryingZnodes) -> bool:
        """Read all configs, and watch for changes; return whether there was news."""
        present = await znodes.children(paths.CONFIG_CHANGES, watch=True)
        self._seen = max(present, default="")
        before, learned = (dict(self.topics), dict(self.brokers)), +self._learned
        topics = await _configs(znodes, paths.TOPIC_CONFIGS)
        found = await _configs(znodes, paths.BROKER_CONFIGS)
        brokers = {_broker(name): configs for name, configs in found.items()}
        users: dict[str, Mapping[str, str]] = {}
        clients: dict[str, Mapping[str, str]] = {}
        for entity, configs in (await _client_configs(znodes)).items():
            user = user_of(entity)
            if user is None:
                clients[entity] = configs
            else:
                users[user] = configs
        for entity in self._learned - learned:
            kind, _, name = entity.partition("/")
            if kind == "topics":
                topics[name] = self.topics[name]
            elif (user := user_of(entity)) is not None:
                users[user] = self.users[user]
            elif kind in _CLIENTS:
                clients[entity] = self.clients[entity]
            else:
                brokers[_broker(name)] = self.brokers[_broker(name)]
        self.topics, self.brokers = topics, brokers
        self.users, self.clients = users, clients
        return (topics, brokers) != before

    async def read_changes(self, znodes: RetryingZnodes, now_ms: int) -> list[str]:
        """Learn what has changed, and go on watching.

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
            self._know(entity, _read_config(entity, found and found.data))

    def _know(self, entity: str, configs: Mapping[str, str]) -> None:
        self._learned[entity] += 1
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self.topics[name] = configs
        elif (user := user_of(entity)) is not None:
            self.users[user] = configs
        elif kind in _CLIENTS:
            self.clients[entity] = configs
        else:
            self.brokers[_broker(name)] = configs

    async def read_topics(self, znodes: RetryingZnodes, names: Collection[str]) -> None:
        """Learn the configs of some topics."""
        learned = +self._learned
        found = await znodes.find_all(paths.topic_config(name) for name in names)
        for name in names:
            entity = f"topics/{name}"
            if self._learned[entity] == learned[entity]:
                data, _ = found.get(paths.topic_config(name), (None, None))
                self._know(entity, _read_config(entity, data))

    async def write(
        self,
        entity: str,
        configs: Mapping[str, str],
        instead_of: Mapping[str, str] | None,
        znodes: RetryingZnodes,
    ) -> bool:
        """Replace an entity's configs, and notify all brokers.

        Returns False if they are not ``instead_of``, unless that is None: the present
        ones are then known here, and nothing else is done.
        """
        path, data, done = f"/config/{entity}", write_config(configs), False
        while not done:
            found = await znodes.find(path)
            present = _read_config(entity, found and found.data)
            if instead_of is not None and present != instead_of:
                self._know(entity, present)
                return False
            done = await _replaced(znodes, path, data, found)
        await znodes.create(
            paths.CONFIG_CHANGE, write_config_change(entity), sequential=True
        )
        self._know(entity, dict(configs))
        return True


async def _replaced(
    znodes: RetryingZnodes, path: str, data: bytes, found: Znode | None
) -> bool:
    """Write a znode if it is as it was found; return whether it was."""
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


def broker_entity(broker_id: str) -> str:
    """Return what notifications call a broker; "" is the default of all."""
    return f"brokers/{broker_id or _DEFAULT}"


def _broker(name: str) -> str:
    return "" if name == _DEFAULT else name


async def _configs(znodes: RetryingZnodes, parent: str) -> dict[str, Mapping[str, str]]:
    names = await znodes.children(parent)
    found = await znodes.find_all(f"{parent}/{name}" for name in names)
    return {
        path.rpartition("/")[2]: _read_config(path, data)
        for path, (data, _) in found.items()
    }


async def _client_configs(
    znodes: RetryingZnodes,
) -> dict[str, Mapping[str, str]]:
    """Return the configs of users, of their clients, of clients and of addresses."""
    parents = [paths.USER_CONFIGS, paths.CLIENT_CONFIGS, paths.IP_CONFIGS]
    entities: dict[str, Mapping[str, str]] = {}
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


def _read_config(entity: str, data: bytes | None) -> Mapping[str, str]:
    """Return an entity's configs; unreadable data sets nothing, and is logged."""
    if not data:
        return {}
    try:
        configs = read_config(data)
    except MalformedZnode as fault:
        _tell(entity, fault)
        return {}
    return _understood(entity, configs) if "topics/" in entity else configs


def _understood(topic: str, configs: Mapping[str, str]) -> Mapping[str, str]:
    """Return the valid part of a topic's configs; other writers may know more keys."""
    known = {}
    for name, written in configs.items():
        try:
            if name in TOPIC_KEYS:
                TOPIC_KEYS[name].key.read(written)
        except ConfigError as fault:
            _tell(topic, fault)
        else:
            known[name] = written
    return known


def _tell(entity: str, fault: Exception) -> None:
    logger.error(
        "configs that cannot be read are not in force",
        extra=fields(entity=entity, fault=fault),
    )
