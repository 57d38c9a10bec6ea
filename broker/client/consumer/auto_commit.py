"""Periodic commits of the records that earlier polls have returned.

Kafka's ``enable.auto.commit``. The positions are stored at the next poll, when the
records returned before have been processed, and committed in parallel with the poll.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from broker.client.client_config import ClientConfig
from broker.client.consumer.consumer_commits import Commits, OffsetAndMetadata
from broker.client.consumer.consumer_config import (
    AUTO_COMMIT_INTERVAL_MS,
    ENABLE_AUTO_COMMIT,
)
from broker.client.consumer.coordinated_member import Generation
from broker.client.consumer.subscription_state import SubscriptionState
from broker.client.signals import Signal
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition


class _Noted(NamedTuple):
    """Positions, and the generation in which the partitions were assigned."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    generation: Generation


class AutoCommit:
    """The automatic commits of one consumer."""

    def __init__(
        self, config: ClientConfig, commits: Commits, subscriptions: SubscriptionState
    ) -> None:
        self._enabled = config[ENABLE_AUTO_COMMIT]
        self._interval_s = config.seconds(AUTO_COMMIT_INTERVAL_MS)
        self._commits = commits
        self._subscriptions = subscriptions
        self._next_s: float | None = None
        self._noted: _Noted | None = None
        self._due = Signal()

    def polled(self, now_s: float) -> None:
        """Store the positions for a commit, if the interval has passed."""
        if not self._enabled:
            return
        if self._next_s is None:
            self._next_s = now_s + self._interval_s
        elif now_s >= self._next_s:
            self._next_s = now_s + self._interval_s
            self._noted = _Noted(
                returned(self._subscriptions), self._commits.generation
            )
            self._due.notify()

    async def now(self) -> None:
        """Commit before partitions are revoked.

        A failure is ignored: it causes duplicates, but must not stop the rebalance.
        """
        if self._enabled:
            with suppress(KafkaError):
                await self._commits.commit(returned(self._subscriptions))

    async def run(self) -> None:
        """Commit stored positions, until cancelled."""
        while True:
            await self._due.wait()
            assert self._noted is not None
            # The next commit includes the positions of a failed one.
            with suppress(KafkaError):
                await self._commits.commit(*self._noted)


def returned(
    subscriptions: SubscriptionState,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the positions in the form of a commit."""
    return {
        partition: OffsetAndMetadata(position)
        for partition, position in subscriptions.positions().items()
    }
