"""Broker keys that may be altered at runtime, and the bounds of an alteration.

Kafka's ``DynamicBrokerConfig`` (KIP-226) and ``DynamicConfig.Broker``. Most keys are
cluster-wide; a value for one broker takes precedence over the value for all. Keys that
Kafka alters per broker only belong to listeners and their security. Listeners of this
broker are opened at the start, with their mechanisms. Of their keys, only the locations
and types of key stores and trust stores are alterable, each for one listener of one
broker.

Numbers of processors and recovery threads take effect at the next start; all other
changes take effect at once.
"""

from __future__ import annotations

from typing import Final

from broker.config.broker_config import BrokerConfig, find_key
from broker.config.network_keys import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    NUM_NETWORK_THREADS,
)
from broker.config.tls_keys import ALTERABLE_TLS
from broker.protocol.errors import ConfigError

_NAMES: Final = """
    background.threads compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level follower.replication.throttled.rate
    leader.replication.throttled.rate log.cleaner.backoff.ms
    log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms
    log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
    log.cleaner.threads log.cleanup.policy log.flush.interval.messages
    log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
    log.local.retention.bytes log.local.retention.ms log.message.downconversion.enable
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms
    log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate
    log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
    log.segment.bytes log.segment.delete.delay.ms max.connection.creation.rate
    max.connections max.connections.per.ip max.connections.per.ip.overrides
    message.max.bytes metric.reporters min.insync.replicas num.io.threads
    num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
    producer.id.expiration.ms remote.fetch.max.wait.ms
    remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size
    remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size
    remote.log.manager.fetch.max.bytes.per.second remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second
    transaction.partition.verification.enable unclean.leader.election.enable
"""
# Settings of policies, which Kafka does not have.
_OF_SCHEDULERS: Final = ("doorkeeper.priority.ageing.ms", "doorkeeper.wfq.weights")
_ALTERABLE: Final = frozenset((*_NAMES.split(), *_OF_SCHEDULERS))
# With the prefix ``listener.name.NAME.``.
_OF_A_LISTENER: Final = frozenset(
    {
        MAX_CONNECTION_CREATION_RATE,
        MAX_CONNECTIONS,
        NUM_NETWORK_THREADS,
        *ALTERABLE_TLS,
    }
)
_THREADS: Final = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


def is_alterable(name: str) -> bool:
    """Return whether a broker's config can be altered while it runs."""
    key = find_key(name)
    if key is None or key.name == name:
        return name in _ALTERABLE
    return key in _OF_A_LISTENER


def is_of_one_broker(name: str) -> bool:
    """Return whether a config can be altered for one broker, and not for all."""
    return find_key(name) in ALTERABLE_TLS


def check_threads(before: BrokerConfig, after: BrokerConfig) -> None:
    """Raise `ThreadsRefused` if a number of threads changes by more than 2x, or to 0.

    Kafka: ``DynamicThreadPool.validateReconfiguration``.
    """
    for name in _THREADS:
        old, new = before.values[name], after.values[name]
        if new == old:
            continue
        if new <= 0:
            raise ThreadsRefused(name, new, "value should be at least 1")
        if new < old // 2:
            least = f"value should be at least half the current value {old}"
            raise ThreadsRefused(name, new, least)
        if new > old * 2:
            most = f"value should not be greater than double the current value {old}"
            raise ThreadsRefused(name, new, most)


class ThreadsRefused(ConfigError):
    """A change of a number of threads beyond Kafka's bounds, with Kafka's message."""

    def __str__(self) -> str:
        failed = "Dynamic thread count update validation failed for"
        return f"{failed} {self.key}={self.found}, {self.expected}"
