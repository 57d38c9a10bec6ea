"""The client's view of the cluster: brokers, topics, leaders; refreshed when stale.

Kafka's ``Metadata`` and its updater. One task sends requests; all others read, report
stale metadata, or wait for the next update. Requests go to a random known broker, and
after a failure alternately to a bootstrap server, so that a cluster with new addresses
is found again (KIP-899).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import (
    METADATA_MAX_AGE_MS,
    ClientConfig,
)
from broker.client.network_client import Address, NetworkClient
from broker.client.retriable_errors import REFUSED, timed_out
from broker.client.signals import Changes, Signal
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from broker.protocol.topic_partition import TopicPartition

# Errors of a topic that is being created, or whose leader is being elected.
_PASSING: Final = frozenset(
    {ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available}
)


class Leader(NamedTuple):
    """The leader of a partition, and its epoch (-1: unknown)."""

    node_id: int
    epoch: int


class Metadata:
    """The cluster by the last Metadata response."""

    def __init__(
        self,
        config: ClientConfig,
        bootstrap: tuple[tuple[str, int], ...],
        client: NetworkClient,
        rng: random.Random,
        *,
        auto_create: bool = True,
    ) -> None:
        self._client = client
        self._rng = rng
        self._bootstrap = tuple(Address(*each) for each in bootstrap)
        self._auto_create = auto_create
        self._max_age_s = config.seconds(METADATA_MAX_AGE_MS)
        self._backoff = retry_backoff(config, rng)
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._counts: dict[str, int] = {}
        self._errors: dict[str, ErrorCode] = {}
        self._names: dict[UUID, str] = {}
        # The failed authentication of the last attempt; retries cannot succeed.
        self._refusal: KafkaError | None = None
        self._topics: set[str] = set()
        self._failures = 0
        self._answered_s = float("-inf")
        self._stale = Signal()
        self.changes = Changes()
        client.on_disconnect = self.request_update

    # ---- queries --------------------------------------------------------------------

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of a topic, if known."""
        return self._counts.get(topic)

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, if its id is known."""
        return self._names.get(topic_id)

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader, if there is one and its address is known."""
        leader = self._leaders.get(partition)
        return leader if leader and leader.node_id in self._brokers else None

    def address(self, node_id: int, purpose: str = "main") -> Address:
        """Return the address of a broker."""
        return self._brokers[node_id]._replace(purpose=purpose)

    def led(self, topic: str) -> list[int]:
        """Return the partitions of a topic that have a leader."""
        return [
            number
            for number in range(self._counts.get(topic, 0))
            if self.leader(TopicPartition(topic, number))
        ]

    def any_address(self) -> Address:
        """Return a random broker, for a request that any broker can serve."""
        known = [*self._brokers.values()] or [*self._bootstrap]
        if self._failures % 2 == 1:
            # The known brokers have failed.
            known = [*self._bootstrap]
        return self._rng.choice(known)

    # ---- updates --------------------------------------------------------------------

    def add(self, topics: Iterable[str]) -> None:
        """Add topics to the metadata; request an update if they are new."""
        new = set(topics) - self._topics
        if new:
            self._topics |= new
            self.request_update()

    def request_update(self) -> None:
        """Request an update, since metadata seems stale."""
        self._stale.notify()

    async def wait_for(self, topic: str, until_s: float) -> int:
        """Wait until a topic is known, and return its number of partitions.

        Raises `KafkaError`: the topic's error, failed authentication, or a time-out.
        """
        self.add([topic])
        with trio.move_on_at(until_s):
            while topic not in self._counts:
                error = self._errors.get(topic)
                if error is not None and error not in _PASSING:
                    raise KafkaError(error, f"topic {topic}")
                self.check_accepted()
                self.request_update()
                await self.changes.next()
        count = self._counts.get(topic)
        if count is None:
            raise timed_out(f"topic {topic} is not in the metadata")
        return count

    @property
    def is_refused(self) -> bool:
        """Return whether the brokers refuse the client's credentials."""
        return self._refusal is not None

    def check_accepted(self) -> None:
        """Raise `KafkaError` if the brokers refuse the client's credentials."""
        if self._refusal is not None:
            raise self._refusal

    async def run(self) -> None:
        """Update when requested, and at the latest after ``metadata.max.age.ms``."""
        while True:
            await self._stale.wait(self._answered_s + self._max_age_s)
            await self._update()

    async def _update(self) -> None:
        names = sorted(self._topics)
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=self._auto_create,
        )
        try:
            answer = await self._client.call(self.any_address(), request)
            if not answer.brokers:
                # A response without brokers is from a broker that has no metadata yet,
                # as in Java's client.
                raise KafkaError(ErrorCode.broker_not_available, "no brokers")
        except KafkaError as error:
            self._failures += 1
            if error.code in REFUSED:
                self._refusal = error
                self.changes.notify()
                self._client.on_change()
            await trio.sleep(self._backoff.after(self._failures))
            self.request_update()
            return
        self._failures = 0
        self._answered_s = trio.current_time()
        self._take(answer)
        self.changes.notify()
        self._client.on_change()
        # Limits the rate: a task that still misses something requests an update again.
        await trio.sleep(self._backoff.after(1))
        if set(names) < self._topics:
            self.request_update()

    def _take(self, answer: MetadataResponse) -> None:
        self._brokers = {
            each.node_id: Address(each.host, each.port) for each in answer.brokers
        }
        for topic in answer.topics:
            name = topic.name
            if name is None:
                # Impossible for a request by name.
                continue
            if topic.error_code is not ErrorCode.none:
                self._errors[name] = topic.error_code
                self._remove(name, topic.error_code)
                continue
            self._errors.pop(name, None)
            if topic.topic_id is not None:
                self._names[topic.topic_id] = name
            self._counts[name] = len(topic.partitions)
            for each in topic.partitions:
                self._take_leader(TopicPartition(name, each.partition_index), each)

    def _take_leader(
        self, name: TopicPartition, found: MetadataResponsePartition
    ) -> None:
        epoch = found.leader_epoch
        known = self._leaders.get(name)
        # The response of a lagging broker must not replace a newer leader.
        if known is None or epoch == -1 or epoch >= known.epoch:
            self._leaders[name] = Leader(found.leader_id, epoch)

    def _remove(self, topic: str, code: ErrorCode) -> None:
        """Remove a topic that does not exist; other errors keep the partitions."""
        if code is ErrorCode.unknown_topic_or_partition:
            for number in range(self._counts.pop(topic, 0)):
                self._leaders.pop(TopicPartition(topic, number), None)


def counts_of(metadata: Metadata, topics: Iterable[str]) -> Mapping[str, int]:
    """Return the partition counts of known topics."""
    counts = {topic: metadata.partition_count(topic) for topic in topics}
    return {topic: count for topic, count in counts.items() if count is not None}
