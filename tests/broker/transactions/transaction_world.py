"""A transaction coordinator with an in-memory log and simulated leaders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS, Instant, Record
from broker.shards.shard_log import Records
from broker.transactions.markers import MarkerRow
from broker.transactions.transaction import ProducerIdAndEpoch
from broker.transactions.transaction_config import TransactionConfig
from broker.transactions.transaction_coordinator import (
    InitRequest,
    TransactionCoordinator,
)
from broker.transactions.transaction_state import TransactionState
from tests.broker.groups.conftest import MemoryGroupLog

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
LEADER = 7


class MemoryTransactionLog(MemoryGroupLog):
    """An in-memory log of non-transactional records."""

    def replay(self, partition: int) -> Iterator[Records]:
        for record in list(self.partitions.get(partition, ())):
            assert isinstance(record, Record)
            yield (record,)


class TransactionWorld:
    """A coordinator of all partitions, with its log, clock and unanswered markers."""

    def __init__(self, transaction_version: int = 0, **settings: int) -> None:
        self.transaction_version = transaction_version
        self.config = replace(TransactionConfig(partitions=2), **settings)
        self.log = MemoryTransactionLog()
        self.now_ms = 0
        self.last_id = 1_000
        self.epoch = 0
        self.gone: set[TopicPartition] = set()
        self.leaderless: set[TopicPartition] = set()
        self.start()

    def start(self) -> None:
        """Start a new coordinator on the same log, as after a restart."""
        self.sent: list[MarkerRow] = []
        self.epoch += 1
        self.coordinator = TransactionCoordinator(
            self.config,
            log=self.log,
            clock=self.instant,
            transaction_version=lambda: self.transaction_version,
        )
        markers = self.coordinator.markers
        markers.leader_of = lambda key: (
            None if key in self.gone | self.leaderless else LEADER
        )
        markers.exists = lambda key: key not in self.gone
        markers.send = lambda _, row: self.sent.append(row)
        for partition in range(self.config.partitions):
            self.coordinator.elect(partition, self.epoch)
        self.coordinator.load_all()

    def instant(self) -> Instant:
        return Instant(self.now_ms * NS_PER_MS, START_MS + self.now_ms)

    def advance(self, ms: int) -> None:
        """Advance the clock, running each due piece of work at its time."""
        end_ms = self.now_ms + ms
        coordinator = self.coordinator
        while True:
            due = [
                at_ns
                for at_ns in (
                    coordinator.next_event_ns(),
                    coordinator.markers.next_ns(),
                    coordinator.loading.next_ns(),
                )
                if at_ns is not None
            ]
            if not due or min(due) > end_ms * NS_PER_MS:
                break
            self.now_ms = max(self.now_ms, min(due) // NS_PER_MS)
            worked = [
                coordinator.loading.work(),
                coordinator.markers.work(),
                coordinator.work(),
            ]
            assert any(worked), "woken for nothing"
            coordinator.check()
        self.now_ms = end_ms

    # ---- requests ----

    def init(
        self, name: str = "x", known: ProducerIdAndEpoch | None = None
    ) -> ProducerIdAndEpoch | ErrorCode:
        request = InitRequest(transactional_id=name, timeout_ms=TIMEOUT_MS, known=known)
        try:
            new_id = None
            if self.coordinator.needs_producer_id(request):
                self.last_id += 1
                new_id = self.last_id
            answer = self.coordinator.init_producer_id(request, new_id).answer()
        except KafkaError as refused:
            return refused.code
        return answer.error if answer.error is not ErrorCode.none else answer.producer

    def producer(self, name: str = "x") -> ProducerIdAndEpoch:
        producer = self.init(name)
        assert isinstance(producer, ProducerIdAndEpoch), producer
        return producer

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: int, name: str = "x"
    ) -> ErrorCode:
        keys = frozenset(TopicPartition("t", each) for each in partitions)
        try:
            return self.coordinator.add_partitions(name, producer, keys).answer()
        except KafkaError as refused:
            return refused.code

    def end(
        self, producer: ProducerIdAndEpoch, is_commit: bool = True, name: str = "x"
    ) -> ErrorCode:
        try:
            return self.coordinator.end(name, producer, is_commit).answer().error
        except KafkaError as refused:
            return refused.code

    def end_5(
        self, producer: ProducerIdAndEpoch, is_commit: bool = True, name: str = "x"
    ) -> ProducerIdAndEpoch | ErrorCode:
        """Handle EndTxn 5: return the next producer, or an error."""
        coordinator = self.coordinator
        try:
            new_id = None
            if coordinator.end_needs_producer_id(name, producer):
                self.last_id += 1
                new_id = self.last_id
            answer = coordinator.end_and_raise_epoch(
                name, producer, is_commit, new_id
            ).answer()
        except KafkaError as refused:
            return refused.code
        return answer.error if answer.error is not ErrorCode.none else answer.producer

    def state(self, name: str = "x") -> TransactionState:
        return self.coordinator.describe(name).state

    def answer(self, error: ErrorCode = ErrorCode.none) -> list[MarkerRow]:
        """Answer all markers in flight."""
        self.advance(0)
        rows, self.sent = self.sent, []
        for row in rows:
            self.coordinator.markers.failed(row, error)
        self.advance(0)
        return rows

    def finish(self, name: str = "x") -> None:
        """Answer all markers; the transaction must then be complete."""
        self.answer()
        assert self.state(name).label.startswith("Complete"), self.state(name)


def marked(rows: list[MarkerRow]) -> dict[int, bool]:
    """Return whether each partition's marker is a commit."""
    return {
        key.partition: row.ending.is_commit for row in rows for key in row.partitions
    }
