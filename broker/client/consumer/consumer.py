"""The consumer: reads topics as a member of a group, or selected partitions.

Kafka's ``KafkaConsumer`` for Trio, by iteration or polls. Records returned by a poll
count as processed at the next poll, not before. A block that ends with an exception
therefore does not commit its last records, and the group reads them again.

>>> async def example():
...     async with open_consumer("localhost:9092", group_id="readers") as consumer:
...         consumer.subscribe(["greetings"])
...         async for record in consumer:
...             print(record.offset, record.value)
"""

from __future__ import annotations

import math
import random
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from broker.client.background_tasks import background
from broker.client.client_config import (
    ClientConfig,
    parse_bootstrap,
)
from broker.client.client_login import logged_in
from broker.client.client_metadata import Metadata
from broker.client.client_tls import secured
from broker.client.consumer.auto_commit import AutoCommit, returned
from broker.client.consumer.consumer_commits import (
    Commits,
    GroupMetadata,
    OffsetAndMetadata,
)
from broker.client.consumer.consumer_config import (
    ALLOW_AUTO_CREATE_TOPICS,
    DEFAULT_API_TIMEOUT_MS,
    GROUP_ID,
    GROUP_PROTOCOL,
    MAX_POLL_RECORDS,
    consumer_config,
)
from broker.client.consumer.consumer_coordinator import ConsumerCoordinator
from broker.client.consumer.consumer_membership import ConsumerMembership
from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.consumer.epoch_member import EpochMember
from broker.client.consumer.fetcher import Fetcher
from broker.client.consumer.group_member import GroupMember
from broker.client.consumer.offset_calls import OffsetAndTimestamp, OffsetCalls
from broker.client.consumer.positions import Positions
from broker.client.consumer.rebalance_listener import RebalanceListener
from broker.client.consumer.subscription_state import (
    EARLIEST,
    LATEST,
    SubscriptionState,
)
from broker.client.network_client import Connect, NetworkClient, connect_tcp
from broker.client.retriable_errors import timed_out
from broker.client.signals import Changes
from broker.protocol.errors import ConfigError
from broker.protocol.topic_partition import TopicPartition

# Records of an iteration between two polls, which serve rebalances and other tasks.
_RECORDS_PER_POLL: Final = 64


@asynccontextmanager
async def open_consumer(
    bootstrap: str,
    *,
    connect: Connect = connect_tcp,
    ssl_context: ssl.SSLContext | None = None,
    rng: random.Random | None = None,
    **settings: Any,
) -> AsyncIterator[KafkaConsumer]:
    """Open a consumer for the cluster at ``bootstrap``, a list of host:port.

    Settings are Kafka's, with underscores for points. ``ssl_context`` replaces the one
    from the settings of TLS. Raises `ConfigError`.
    """
    config = consumer_config(settings)
    connect = secured(config, connect, ssl_context)
    connect = logged_in(config, connect)
    consumer = KafkaConsumer(config, bootstrap, connect, rng or random.Random())
    async with background() as nursery:
        await nursery.start(consumer.client.run)
        for task in consumer.tasks:
            nursery.start_soon(task)
        try:
            yield consumer
        except Exception:
            # Not after a cancellation, in which no await is possible: the session
            # times out.
            await consumer.close(in_peace=False)
            raise
        await consumer.close(in_peace=True)


class KafkaConsumer:
    """Reads records; created by `open_consumer`."""

    def __init__(
        self,
        config: ClientConfig,
        bootstrap: str,
        connect: Connect,
        rng: random.Random,
    ) -> None:
        self.client = client = NetworkClient(config, connect, rng)
        auto_create = config[ALLOW_AUTO_CREATE_TOPICS]
        self._metadata = metadata = Metadata(
            config, parse_bootstrap(bootstrap), client, rng, auto_create=auto_create
        )
        self._subscriptions = subscriptions = SubscriptionState()
        self._offsets = OffsetCalls(config, client, metadata, rng)
        self._fetcher = Fetcher(config, client, metadata, subscriptions, rng)
        self.tasks = [metadata.run, self._fetcher.run]
        self._commits: Commits | None = None
        self._coordinator: ConsumerCoordinator | ConsumerMembership | None = None
        if config[GROUP_ID] is not None:
            self._commits, self._coordinator = _joining(
                config, client, metadata, subscriptions, rng
            )
            self._coordinator.on_change = self._notify
            self.tasks.append(self._coordinator.run)
        self._positions = Positions(
            config, subscriptions, self._offsets, self._commits, rng
        )
        self.tasks.append(self._positions.run)
        self._positions.on_position = self._positioned
        self._news = Changes()
        self._fetcher.on_records = self._news.notify
        self._fetcher.on_out_of_range = self._positions.out_of_range
        client.on_change = self._wake
        self._api_timeout_s = config.seconds(DEFAULT_API_TIMEOUT_MS)
        self._max_poll_records = config[MAX_POLL_RECORDS]
        self._subscribed = False
        self._polling = False
        self._returned = 0

    # ---- subscription and assignment ------------------------------------------------

    def subscribe(
        self, topics: Iterable[str], listener: RebalanceListener | None = None
    ) -> None:
        """Read topics as a member of the group; takes effect at the next poll."""
        if self._coordinator is None:
            raise ConfigError(GROUP_ID.name, None, "a group to subscribe in")
        if self._subscriptions.assigned and not self._subscribed:
            raise ValueError("partitions are assigned: subscribe or assign, not both")
        self._subscribed = True
        self._coordinator.subscribe(topics, listener)

    async def unsubscribe(self) -> None:
        """Leave the group, and stop reading."""
        await self.close(in_peace=True)
        self._subscribed = False

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, independently of the group's members."""
        if self._subscribed:
            raise ValueError("topics are subscribed to: subscribe or assign, not both")
        wanted = [TopicPartition(*each) for each in partitions]
        self._metadata.add({topic for topic, _ in wanted})
        self._subscriptions.assign(wanted)
        self._notify()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return self._subscriptions.assigned

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of partitions until `resume`; prefetched ones are kept."""
        for partition in partitions:
            self._subscriptions.state(partition).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        for partition in partitions:
            self._subscriptions.state(partition).paused = False
        self._notify()

    async def partitions_for(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; raises `KafkaError`."""
        until_s = trio.current_time() + self._api_timeout_s
        count = await self._metadata.wait_for(topic, until_s)
        return [TopicPartition(topic, number) for number in range(count)]

    # ---- records --------------------------------------------------------------------

    async def poll(
        self, max_records: int | None = None, timeout_s: float = math.inf
    ) -> list[ConsumerRecord]:
        """Return some records, or none after ``timeout_s``.

        Records of earlier polls count as processed. A cancelled poll takes no records.
        Raises `KafkaError` for an unreadable partition, a group that refuses the
        member, and failed authentication, and any exception of a rebalance listener.
        """
        if self._polling:
            raise trio.BusyResourceError("another task polls this consumer")
        until_s = trio.current_time() + timeout_s
        count = max_records or self._max_poll_records
        self._polling = True
        try:
            await trio.lowlevel.checkpoint()
            while True:
                may_take = await self._rebalanced(until_s)
                records = self._take(count) if may_take else []
                if records or trio.current_time() >= until_s:
                    return records
                self._metadata.check_accepted()
                with trio.move_on_at(until_s):
                    await self._news.next()
        finally:
            self._polling = False

    def __aiter__(self) -> KafkaConsumer:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record, and return it."""
        self._returned += 1
        rebalances = self._coordinator is not None and self._coordinator.needs_user
        if self._returned % _RECORDS_PER_POLL and not rebalances and not self._polling:
            await trio.lowlevel.checkpoint_if_cancelled()
            records = self._take(1)
            if records:
                return records[0]
        return (await self.poll(1))[0]

    async def _rebalanced(self, until_s: float) -> bool:
        """Carry out the user's part of a rebalance; False if unfinished in time."""
        if self._coordinator is None:
            return True
        with trio.move_on_at(until_s):
            await self._coordinator.poll()
        return not self._coordinator.needs_user

    def _take(self, count: int) -> list[ConsumerRecord]:
        records = self._subscriptions.take(count)
        if self._subscriptions.has_room:
            self._subscriptions.has_room = False
            self._fetcher.wake()
        return records

    # ---- positions ------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position; raises `ValueError` if the partition is not assigned."""
        if offset < 0:
            raise ValueError(f"offset {offset}, expected 0 or more")
        self._subscriptions.state(partition).seek(offset)
        self._notify()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the positions to the first records."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the positions after the last records."""
        self._reset(partitions, LATEST)

    async def position(self, partition: TopicPartition) -> int:
        """Wait for the offset of the next record; raises `KafkaError`."""
        state = self._subscriptions.state(partition)
        self._positions.wake()
        with trio.move_on_after(self._api_timeout_s):
            await trio.lowlevel.checkpoint()
            while state.position is None:
                if state.failure is not None:
                    raise state.failure
                await self._news.next()
        if state.position is None:
            raise timed_out(f"{partition} has no position")
        return state.position

    async def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each time; None: no such record."""
        found = await self._offsets.insist(times_ms)
        return {
            partition: None if each.offset < 0 else each
            for partition, each in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        found = await self._offsets.insist(dict.fromkeys(partitions, EARLIEST))
        return {partition: each.offset for partition, each in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        found = await self._offsets.insist(dict.fromkeys(partitions, LATEST))
        return {partition: each.offset for partition, each in found.items()}

    # ---- commits --------------------------------------------------------------------

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit offsets, by default of all returned records; raises `KafkaError`."""
        if offsets is None:
            await self._group().commit(returned(self._subscriptions))
        else:
            await self._group().commit(
                {
                    partition: OffsetAndMetadata(at) if isinstance(at, int) else at
                    for partition, at in offsets.items()
                }
            )

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without one are left out."""
        return await self._group().committed(partitions)

    def group_metadata(self) -> GroupMetadata:
        """Return this member's identity, for `send_offsets_to_transaction`."""
        return self._group().group_metadata()

    async def close(self, *, in_peace: bool) -> None:
        """Leave the group; with ``in_peace`` commit the returned records before."""
        if self._coordinator is not None:
            await self._coordinator.leave(in_peace=in_peace)
        self._subscriptions.assign(())

    # ---- internals ------------------------------------------------------------------

    def _group(self) -> Commits:
        if self._commits is None:
            raise ConfigError(GROUP_ID.name, None, "a group to commit for")
        return self._commits

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        for partition in partitions:
            self._subscriptions.state(partition).reset(timestamp)
        self._notify()

    def _positioned(self) -> None:
        self._news.notify()
        self._fetcher.wake()

    def _notify(self) -> None:
        """Wake the background tasks, and polls, after a change of the state."""
        self._news.notify()
        self._wake()

    def _wake(self) -> None:
        if self._metadata.is_refused:
            self._news.notify()
        self._positions.wake()
        self._fetcher.wake()


def _joining(
    config: ClientConfig,
    client: NetworkClient,
    metadata: Metadata,
    subscriptions: SubscriptionState,
    rng: random.Random,
) -> tuple[Commits, ConsumerCoordinator | ConsumerMembership]:
    """Return the commits and the membership of a group, by ``group.protocol``."""
    if config[GROUP_PROTOCOL] == "classic":
        classic = GroupMember(config, client, metadata)
        commits = Commits(config, classic, rng)
        auto_commit = AutoCommit(config, commits, subscriptions)
        return commits, ConsumerCoordinator(
            config, classic, auto_commit, metadata, subscriptions, rng
        )
    member = EpochMember(config, client, metadata, rng)
    commits = Commits(config, member, rng)
    auto_commit = AutoCommit(config, commits, subscriptions)
    return commits, ConsumerMembership(
        config, member, auto_commit, metadata, subscriptions, rng
    )
