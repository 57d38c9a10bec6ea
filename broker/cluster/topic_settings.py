"""What holds for the logs of a topic: its own configs, else the broker's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker.cluster.topic_configs import log_config, topic_value
from broker.config import BrokerConfig
from broker.log.segments.log_config import LogConfig


class _Settings(NamedTuple):
    log_config: LogConfig
    min_insync: int


class TopicSettings:
    """The settings of topics, read once each.

    ``configs_of`` returns what a topic's configs are, none if there is no such topic;
    ``config`` is the broker's, in force. Whoever alters either says `forget`.
    """

    def __init__(
        self,
        configs_of: Callable[[str], Mapping[str, str]],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._configs_of = configs_of
        self._config = config
        self._known: dict[str, _Settings] = {}

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        return self._of(topic).log_config

    def min_insync(self, topic: str) -> int:
        """Return ``min.insync.replicas`` of a topic."""
        return self._of(topic).min_insync

    def forget(self, topic: str | None = None) -> None:
        """Read a topic's settings anew, or those of all."""
        if topic is None:
            self._known.clear()
        else:
            self._known.pop(topic, None)

    def _of(self, topic: str) -> _Settings:
        known = self._known.get(topic)
        if known is None:
            configs, config = self._configs_of(topic), self._config()
            known = self._known[topic] = _Settings(
                log_config(configs, config),
                topic_value("min.insync.replicas", configs, config),
            )
        return known
