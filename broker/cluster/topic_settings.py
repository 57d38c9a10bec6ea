"""Settings of a topic's replicas: its own configs, with the broker's as defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from broker.cluster.topic_configs import log_config, topic_value
from broker.config import BrokerConfig
from broker.log.segments.log_config import LogConfig
from broker.protocol.topic_partition import TopicPartition

# The partitions of a topic whose replica on this broker is throttled; None: all.
_Throttled = frozenset[int] | None


class _Settings(NamedTuple):
    log_config: LogConfig
    min_insync: int
    throttled_leaders: _Throttled
    throttled_followers: _Throttled


class TopicSettings:
    """The settings of topics, cached while a topic has logs on this broker.

    ``configs_of`` returns a topic's configs, None for an unknown topic, whose logs are
    neither deleted nor compacted. ``config`` returns the broker's current config;
    ``is_here`` returns whether a topic has logs. `discard` is called after a change of
    configs or the removal of a topic's last log, so the logs bound the cache.
    """

    def __init__(
        self,
        configs_of: Callable[[str], Mapping[str, str] | None],
        config: Callable[[], BrokerConfig],
        local_id: int,
        is_here: Callable[[str], bool],
    ) -> None:
        self._configs_of = configs_of
        self._config = config
        self._is_here = is_here
        self._id = local_id
        self._known: dict[str, _Settings] = {}

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        return self._of(topic).log_config

    def min_insync(self, topic: str) -> int:
        """Return ``min.insync.replicas`` of a topic."""
        return self._of(topic).min_insync

    def throttles_leader(self, key: TopicPartition) -> bool:
        """Return whether ``leader.replication.throttled.replicas`` has this replica."""
        named = self._of(key.topic).throttled_leaders
        return named is None or key.partition in named

    def throttles_follower(self, key: TopicPartition) -> bool:
        """Return the same for ``follower.replication.throttled.replicas``."""
        named = self._of(key.topic).throttled_followers
        return named is None or key.partition in named

    def discard(self, topic: str | None = None) -> None:
        """Drop the cached settings of a topic, or of all."""
        if topic is None:
            self._known.clear()
        else:
            self._known.pop(topic, None)

    def check(self) -> None:
        """Assert that every cached topic has a log on this broker."""
        left = [topic for topic in self._known if not self._is_here(topic)]
        assert not left, left

    def _of(self, topic: str) -> _Settings:
        known = self._known.get(topic)
        if known is None:
            found, config = self._configs_of(topic), self._config()
            configs = found or {}

            def value(name: str) -> Any:
                return topic_value(name, configs, config)

            of_log = log_config(configs, config)
            if found is None:
                of_log = replace(of_log, cleanup_policy=frozenset())
            known = _Settings(
                of_log,
                topic_value("min.insync.replicas", configs, config),
                self._mine(value("leader.replication.throttled.replicas")),
                self._mine(value("follower.replication.throttled.replicas")),
            )
            if self._is_here(topic):
                self._known[topic] = known
        return known

    def _mine(self, replicas: Sequence[str]) -> _Throttled:
        """Return this broker's partitions in ``*`` or a list of PARTITION:BROKER."""
        if tuple(replicas) == ("*",):
            return None
        pairs = (each.split(":") for each in replicas if each)
        return frozenset(int(it) for it, broker in pairs if int(broker) == self._id)
