"""Dynamic alterations of a broker's configuration (KIP-226).

The coordinator stores them. A value for one broker takes precedence over the value for
all brokers, and both over the file. Unknown keys and keys without effect are logged
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger

from broker.cluster.config_overrides import ConfigSource, Synonym
from broker.config import BrokerConfig
from broker.coordination.coordinator_roles import AdminManager, ConfigKind
from broker.node.hosts import Hosts
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError

logger = getLogger(__name__)

# Altered values, by broker id; "" is for all brokers.
Altered = Mapping[str, Mapping[str, str]]


class Alterations:
    """The configuration of one broker: its file, and the configuration in effect."""

    def __init__(
        self, written: BrokerConfig, admin: AdminManager, hosts: Hosts
    ) -> None:
        self._written = written
        self._admin = admin
        self._hosts = hosts
        self._logged: frozenset[str] = frozenset()

    def load(self) -> BrokerConfig:
        """Return the configuration in effect at a start; raise `ConfigError`."""
        self._hosts.resolve_now(self._written)
        config = self.in_force()
        try:
            self._hosts.resolve_now(config)
        except ConfigError as error:
            # The host was resolved at the alteration; the start must not fail.
            logger.error(
                "a bound on connections is not in force", extra=fields(fault=error)
            )
        return config

    def in_force(self) -> BrokerConfig:
        """Return the configuration in effect; log its keys without effect."""
        config = self.under(self._admin.configs[ConfigKind.BROKER])
        ignored = {
            "unknown keys are ignored": config.unknown,
            "keys that are set and have no effect here": config.without_effect,
        }
        for message, names in ignored.items():
            new = [name for name in names if name not in self._logged]
            if new:
                logger.warning(message, extra=fields(keys=",".join(new)))
        self._logged = frozenset((*config.unknown, *config.without_effect))
        return config

    def under(self, altered: Altered) -> BrokerConfig:
        """Return the configuration with these alterations; raise `ConfigError`."""
        own = altered.get(str(self._written.node_id), {})
        changes = {**altered.get("", {}), **own}
        return self._written.updated(changes) if changes else self._written

    def written_as(self, key: str) -> list[Synonym]:
        """Return the values of a key and their sources, in order of precedence."""
        altered = self._admin.configs[ConfigKind.BROKER]
        own = altered.get(str(self._written.node_id), {})
        return [
            Synonym(key, configs[key], source)
            for configs, source in (
                (own, ConfigSource.DYNAMIC_BROKER_CONFIG),
                (altered.get("", {}), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
                (self._written.written, ConfigSource.STATIC_BROKER_CONFIG),
            )
            if key in configs
        ]
