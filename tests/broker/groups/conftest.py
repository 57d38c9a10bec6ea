"""A group coordinator with a log in memory and a clock that tests advance."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from broker.groups.committed_offsets import CommitRequest, Outcomes, Position
from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.consumer.consumer_group_messages import (
    ConsumerHeartbeat,
    HeartbeatAnswer,
)
from broker.groups.consumer.subscribed_topics import KnownTopic
from broker.groups.consumer.topic_hashes import topic_hash
from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.state.group import Group
from broker.groups.state.group_messages import (
    GroupProtocol,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.state.group_settings import ConsumerSettings, GroupConfig
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant, InTransaction, Record
from broker.shards.parked_answer import Waiting
from broker.shards.shard_log import (
    Records,
    Replayed,
    TransactionalRecords,
    TransactionEnd,
)
from tests.broker.groups.all_offsets import fetch_all

START_MS = 1_700_000_000_000
NS_PER_MS = 1_000_000


class MemoryGroupLog:
    """A log whose appends succeed at once, unless they are held back or set to fail."""

    def __init__(self) -> None:
        self.partitions: dict[int, list[Any]] = {}
        self.hold = False
        self.unreadable_batches = 0
        self.read_fails_in: int | None = None
        self.fail_with = ErrorCode.none
        self.held: deque[tuple[int, Sequence[Record], Callable[..., None]]] = deque()

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
        transaction: InTransaction | None = None,
    ) -> None:
        assert records, "an empty batch"
        if transaction is not None:
            self._append_in(transaction.producer_id, partition, records, done)
        elif self.hold:
            self.held.append((partition, records, done))
        elif self.fail_with is not ErrorCode.none:
            done(self.fail_with)
        else:
            self.partitions.setdefault(partition, []).extend(records)
            done(ErrorCode.none)

    def _append_in(
        self,
        producer_id: int,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
    ) -> None:
        if self.fail_with is ErrorCode.none:
            written = self.partitions.setdefault(partition, [])
            written.append(TransactionalRecords(producer_id, records))
        done(self.fail_with)

    def end(self, partition: int, producer_id: int, *, is_commit: bool) -> None:
        """Write a transaction marker."""
        written = self.partitions.setdefault(partition, [])
        written.append(TransactionEnd(producer_id, is_commit))

    def release(self, error: ErrorCode = ErrorCode.none) -> None:
        """Complete the oldest append that is held back."""
        partition, records, done = self.held.popleft()
        if error is ErrorCode.none:
            self.partitions.setdefault(partition, []).extend(records)
        done(error)

    def is_empty(self, partition: int) -> bool:
        return partition != self.read_fails_in and not self.partitions.get(partition)

    def replay(self, partition: int) -> Iterator[Records]:
        raise AssertionError("groups read their transactions, too")

    def replay_all(self, partition: int) -> Iterator[Replayed]:
        if partition == self.read_fails_in:
            raise KafkaError(ErrorCode.kafka_storage_error)
        for each in list(self.partitions.get(partition, ())):
            yield (each,) if isinstance(each, Record) else each
            yield ()


class MemoryTopics:
    """The topics of a cluster, in memory."""

    def __init__(self) -> None:
        self.version = 0
        self.ids: dict[str, UUID] = {}
        self.counts: dict[str, int] = {}

    def create(self, name: str, partitions: int) -> UUID:
        """Create a topic, or add partitions to it; return its id."""
        self.version += 1
        self.counts[name] = partitions
        number = len(self.ids) + self.version
        return self.ids.setdefault(name, UUID(int=number, version=4))

    def delete(self, name: str) -> None:
        self.version += 1
        del self.counts[name], self.ids[name]

    def find(self, name: str) -> KnownTopic | None:
        topic_id = self.ids.get(name)
        if topic_id is None:
            return None
        count = self.counts[name]
        return KnownTopic(topic_id, count, topic_hash(topic_id, name, [()] * count))

    def name(self, topic_id: UUID) -> str | None:
        names = [name for name, known in self.ids.items() if known == topic_id]
        return names[0] if names else None

    def names(self) -> Iterator[str]:
        return iter(tuple(self.ids))


class GroupWorld:
    """A coordinator, its log and its clock; requests are for one group by default."""

    group_id = "g"

    def __init__(self, **settings: object) -> None:
        settings = {"offsets_topic_num_partitions": 4} | settings
        self.config = replace(GroupConfig(), **settings)  # type: ignore[arg-type]  # keywords are the test's
        self.log = MemoryGroupLog()
        self.topics = MemoryTopics()
        self.own_settings: dict[str, ConsumerSettings] = {}
        self.now_ms = 0
        self.start()

    def start(self) -> None:
        """Start a new coordinator over the same log, as after a restart."""
        self.coordinator = GroupCoordinator(
            self.config,
            log=self.log,
            clock=self.instant,
            rng=random.Random(7),
            topics=self.topics,
            own_settings=self.own_settings.get,
        )
        for partition in range(self.config.offsets_topic_num_partitions):
            self.coordinator.elect(partition)
        self.coordinator.load_all()

    def instant(self) -> Instant:
        return Instant(self.now_ms * NS_PER_MS, START_MS + self.now_ms)

    def advance(self, ms: int) -> None:
        """Advance the clock from timer to timer, running each."""
        end_ms = self.now_ms + ms
        while True:
            if self.coordinator.loading.work():
                self.coordinator.check()
                continue
            due_ns = self.coordinator.next_event_ns()
            if due_ns is None or due_ns > end_ms * NS_PER_MS:
                break
            self.now_ms = max(self.now_ms, due_ns // NS_PER_MS)
            assert self.coordinator.work(), "woken for nothing"
            self.coordinator.check()
        self.now_ms = end_ms

    @property
    def group(self) -> Group:
        group = self.coordinator.describe(self.group_id)
        assert isinstance(group, Group), group
        return group

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.coordinator.describe(self.group_id)
        assert isinstance(group, ConsumerGroup), group
        return group

    def beat(
        self, member_id: str, epoch: int = 0, **fields: object
    ) -> Waiting[HeartbeatAnswer]:
        """Send ConsumerGroupHeartbeat; a joining member subscribes to topic t."""
        given: dict[str, object] = {
            "group_id": self.group_id,
            "member_id": member_id,
            "epoch": epoch,
            "client_id": "c",
            "client_host": "/127.0.0.1",
        }
        if epoch == 0:
            given |= {
                "rebalance_timeout_ms": 60_000,
                "topics": frozenset({"t"}),
                "owned": {},
            }
        steps = self.coordinator.consumer_heartbeat(
            ConsumerHeartbeat(**(given | fields))  # type: ignore[arg-type]  # keywords are the test's
        )
        while True:
            try:
                next(steps)
            except StopIteration as done:
                waiting: Waiting[HeartbeatAnswer] = done.value
                return waiting

    @property
    def state(self) -> str:
        return self.group.state.value

    def join(self, member_id: str = "", **fields: object) -> Waiting[JoinAnswer]:
        """Send JoinGroup; the defaults are those of a consumer with one protocol."""
        given: dict[str, object] = {
            "group_id": self.group_id,
            "member_id": member_id,
            "client_id": "c",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
            "requires_known_member_id": False,
        }
        return self.coordinator.join(JoinRequest(**(given | fields)))  # type: ignore[arg-type]  # keywords are the test's

    def sync(
        self, member_id: str, generation: int, **fields: object
    ) -> Waiting[SyncAnswer]:
        """Send SyncGroup."""
        given: dict[str, object] = {
            "group_id": self.group_id,
            "member_id": member_id,
            "generation": generation,
        }
        return self.coordinator.sync(SyncRequest(**(given | fields)))  # type: ignore[arg-type]  # keywords are the test's

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        return self.coordinator.heartbeat(
            self.group_id, member_id, instance_id, generation
        )

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        **fields: object,
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit offsets; return the error code of each partition."""
        waiting = self.committing(offsets, member_id, generation, **fields)
        return dict(waiting.answer())

    def committing(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation: int = -1,
        **fields: object,
    ) -> Waiting[Outcomes]:
        """Send OffsetCommit."""
        given: dict[str, object] = {
            "group_id": self.group_id,
            "member_id": member_id,
            "generation": generation,
            "instance_id": None,
            "retention_ms": -1,
            "positions": {
                TopicPartition(*target): Position(offset, 5, "m")
                for target, offset in offsets.items()
            },
        }
        request = CommitRequest(**(given | fields))  # type: ignore[arg-type]  # keywords are the test's
        return self.coordinator.offsets.commit(request)

    def fetched(self) -> dict[tuple[str, int], int]:
        """Return all offsets of the group."""
        fetched = fetch_all(
            self.coordinator.offsets, self.group_id, require_stable=False
        )
        return {tuple(target): one.offset for target, one in fetched.items()}

    def form(self, count: int, **fields: object) -> list[str]:
        """Bring a group with ``count`` members to Stable; return ids, leader first."""
        waiting = [self.join(client_id=f"c{at}", **fields) for at in range(count)]
        self.advance(6_000)
        members = [one.answer().member_id for one in waiting]
        generation = waiting[0].answer().generation
        leader = waiting[0].answer().leader
        members.sort(key=lambda member_id: member_id != leader)
        self.spread(members, generation)
        assert self.state == "Stable"
        return members

    def spread(self, members: list[str], generation: int) -> None:
        """Sync all members, followers first; assign each member its own id as bytes."""
        waiting = [self.sync(member_id, generation) for member_id in members[1:]]
        assignments = {member_id: member_id.encode() for member_id in members}
        waiting.append(self.sync(members[0], generation, assignments=assignments))
        self.advance(0)
        for one in waiting:
            assert one.answer().error is ErrorCode.none


def protocols(*names: str, topics: Sequence[str] = ("t",)) -> tuple[GroupProtocol, ...]:
    """Return protocols with a consumer's subscription to ``topics`` (version 0)."""
    subscription = b"\0\0" + len(topics).to_bytes(4, "big")
    for topic in topics:
        subscription += len(topic).to_bytes(2, "big") + topic.encode()
    subscription += (0).to_bytes(4, "big", signed=True)
    return tuple(GroupProtocol(name, subscription) for name in names)


@pytest.fixture
def world() -> GroupWorld:
    """A coordinator with Kafka's defaults."""
    return GroupWorld()


@pytest.fixture
def make_world() -> type[GroupWorld]:
    """The class `GroupWorld`, for tests with settings of their own."""
    return GroupWorld


@pytest.fixture
def make_protocols() -> Callable[..., tuple[GroupProtocol, ...]]:
    """The function `protocols`."""
    return protocols
