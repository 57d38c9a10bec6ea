"""A group coordinator with a log in memory and a clock that a test moves."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.groups.commits import CommitRequest, Outcomes, Position
from broker.groups.coordinator import GroupCoordinator
from broker.groups.state.config import GroupConfig
from broker.groups.state.group import Group
from broker.groups.state.messages import (
    GroupProtocol,
    JoinAnswer,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant, InTransaction, Record
from broker.shards.shard_log import (
    Records,
    Replayed,
    TransactionalRecords,
    TransactionEnd,
)
from broker.shards.waiting import Waiting
from tests.broker.groups.all_offsets import fetch_all

START_MS = 1_700_000_000_000
NS_PER_MS = 1_000_000


class MemoryGroupLog:
    """Appends succeed at once, unless they are held back or told to fail."""

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
        """Write a marker."""
        written = self.partitions.setdefault(partition, [])
        written.append(TransactionEnd(producer_id, is_commit))

    def release(self, error: ErrorCode = ErrorCode.none) -> None:
        """Finish the oldest append that is held back."""
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


class GroupWorld:
    """The coordinator, its log and the time; one group unless a test names others."""

    group_id = "g"

    def __init__(self, **settings: int) -> None:
        settings = {"offsets_topic_num_partitions": 4} | settings
        self.config = replace(GroupConfig(), **settings)
        self.log = MemoryGroupLog()
        self.now_ms = 0
        self.start()

    def start(self) -> None:
        """Start a coordinator anew over the same log, as after a restart."""
        self.coordinator = GroupCoordinator(
            self.config, log=self.log, clock=self.instant, rng=random.Random(7)
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
        assert group is not None
        return group

    @property
    def state(self) -> str:
        return self.group.state.value

    def join(self, member_id: str = "", **fields: object) -> Waiting[JoinAnswer]:
        """Send JoinGroup; defaults are those of a consumer that knows one protocol."""
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
        """Commit offsets and return what became of each."""
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
        """Sync everyone, followers first; each is assigned its own id as bytes."""
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
    """The class, for settings of a test's own."""
    return GroupWorld


@pytest.fixture
def make_protocols() -> Callable[..., tuple[GroupProtocol, ...]]:
    """Protocols by name, with a subscription to given topics."""
    return protocols
