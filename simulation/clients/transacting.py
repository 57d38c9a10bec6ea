"""Producers of transactions in a simulated cluster, and records of their outcomes.

A *writer* writes new records. A *copier* reads a topic as a member of a group, and
commits the copies together with the offsets of their sources.

A producer ends if a request of its transaction may still be in flight. Under
``transaction.version`` 0 and 1 a late EndTxn or TxnOffsetCommit can arrive within the
next transaction of the same epoch (the reason for KIP-890). The next producer of the id
has another epoch.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import trio

from broker.client.consumer.consumer import KafkaConsumer, open_consumer
from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.producer.producer import KafkaProducer, open_producer
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.clients.consuming import (
    CONSUMER_SETTINGS,
    GIVEN_UP_NS,
    POLL_S,
    member_settings,
)
from simulation.clients.producing import PRODUCER_SETTINGS
from simulation.clients.send_notes import SendNotes
from simulation.histories import (
    Commit,
    Initialization,
    Place,
    Transaction,
    TransactionOutcome,
)

_ALL: Final = -1
_COMMIT_ATTEMPTS: Final = 3
# Number of records of an abandoned transaction; and of a hurried copier's at most.
_SOME: Final = 6
_MANY: Final = 50
# Share of records after which a sender pauses, and the mean pause.
_PAUSES: Final = 0.3
_PAUSE_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactorPlan:
    """Plan of the producers of one transactional id.

    ``aborts`` is the share of transactions aborted on purpose. With ``returns`` a
    killed producer of the id is replaced. ``pauses`` is the share of records followed
    by a pause.
    """

    transactional_id: str
    timeout_ms: int
    aborts: float
    records: int
    pause_ms: int
    returns: bool
    pauses: float = _PAUSES

    def hurried(self) -> TransactorPlan:
        """Return the plan of a producer that should finish soon."""
        return replace(self, aborts=0.0, records=_MANY, pauses=0.0)


@dataclass(slots=True)
class _Opened:
    """A transaction without an outcome."""

    name: str
    positions: Mapping[TopicPartition, int]
    group: str
    ends_ns: int = -1
    is_commit: bool = False
    outcome: TransactionOutcome = "unknown"


@dataclass(slots=True)
class RecordingTransactor:
    """A producer of transactions that records each with its outcome.

    ``name`` is unique. With ``has_epochs`` every transaction has its own epoch.
    """

    context: ClientContext
    name: str
    plan: TransactorPlan
    output: Sequence[TopicPartition]
    rng: random.Random
    has_epochs: bool = False
    commits: int = 0
    _number: int = 0
    _notes: SendNotes = field(init=False)

    def __post_init__(self) -> None:
        self._notes = SendNotes(self.context, self.name, _ALL, idempotent=True)

    async def write(self, until_s: float) -> None:
        """Write transactions until an instant, or until the producer has to end."""

        async def work(producer: KafkaProducer, nursery: trio.Nursery) -> None:
            goes_on = True
            while goes_on and trio.current_time() < until_s:
                sources = [None] * self.rng.randint(1, self.plan.records)
                goes_on = await self._transact(producer, nursery, sources)
                await trio.sleep(self.rng.expovariate(1000 / self.plan.pause_ms))

        await self._produce(work)

    async def write_everywhere(self) -> None:
        """Make one transaction with a record for each partition."""

        async def work(producer: KafkaProducer, nursery: trio.Nursery) -> None:
            await self._transact(producer, nursery, [None] * len(self.output))

        await self._produce(work)

    async def abandon(self) -> None:
        """Open a transaction in some partitions, and leave it to its time-out."""
        opened = self._open()

        async def work(producer: KafkaProducer, nursery: trio.Nursery) -> None:
            await producer.begin_transaction()
            await self._send(producer, nursery, opened, [None] * _SOME)
            await producer.flush()

        await self._produce(work)
        self._note(opened)

    async def copy(self, group: str, topic: str, protocol: Mapping[str, Any]) -> None:
        """Copy records of a topic as a member, until cancelled or ended by an error."""
        async with self._consumer(group, protocol) as consumer:

            async def work(producer: KafkaProducer, nursery: trio.Nursery) -> None:
                consumer.subscribe([topic])
                goes_on = True
                while goes_on:
                    count = self.rng.randint(1, self.plan.records)
                    records = await consumer.poll(count, timeout_s=POLL_S)
                    if records:
                        goes_on = await self._copied(
                            producer, nursery, consumer, records
                        )

            await self._produce(work)

    async def _produce(
        self, work: Callable[[KafkaProducer, trio.Nursery], Awaitable[None]]
    ) -> None:
        """Work with a producer of the id until an error; its successor continues."""
        try:
            async with self._producer() as producer, trio.open_nursery() as nursery:
                with suppress(KafkaError):
                    await self._initialize(producer)
                    await work(producer, nursery)
        finally:
            self._notes.give_up()

    async def _copied(
        self,
        producer: KafkaProducer,
        nursery: trio.Nursery,
        consumer: KafkaConsumer,
        records: Sequence[ConsumerRecord],
    ) -> bool:
        """Copy records in a transaction; return whether the producer may continue."""
        before = self.commits
        sources = [
            (TopicPartition(each.topic, each.partition), each.offset)
            for each in records
        ]
        goes_on = await self._transact(producer, nursery, sources, consumer, records)
        if self.commits == before:
            for each in reversed(records):
                partition = TopicPartition(each.topic, each.partition)
                if partition in consumer.assignment:
                    consumer.seek(partition, each.offset)
        return goes_on

    # ---- one transaction ------------------------------------------------------------

    async def _initialize(self, producer: KafkaProducer) -> None:
        invoked_ns = self.context.now_ns()
        await producer.init_transactions()
        self.context.history.initializations.append(
            Initialization(
                transactional_id=self.plan.transactional_id,
                producer=self.name,
                invoked_ns=invoked_ns,
                answered_ns=self.context.now_ns(),
            )
        )

    def _open(self, records: Sequence[ConsumerRecord] = (), group: str = "") -> _Opened:
        self._number += 1
        positions = {
            TopicPartition(each.topic, each.partition): each.offset + 1
            for each in records
        }
        return _Opened(f"{self.name}/{self._number}", positions, group)

    async def _transact(
        self,
        producer: KafkaProducer,
        nursery: trio.Nursery,
        sources: Sequence[Place | None],
        consumer: KafkaConsumer | None = None,
        records: Sequence[ConsumerRecord] = (),
    ) -> bool:
        """Run a transaction on these; return whether the producer may continue."""
        group = consumer.group_metadata() if consumer is not None else None
        opened = self._open(records, "" if group is None else group.group_id)
        longest_ns = 0
        try:
            await producer.begin_transaction()
            sent = await self._send(producer, nursery, opened, sources)
            if group is not None:
                began_ns = self.context.now_ns()
                await producer.send_offsets_to_transaction(opened.positions, group)
                longest_ns = self.context.now_ns() - began_ns
            commits = sent and self.rng.random() >= self.plan.aborts
            opened.ends_ns = self.context.now_ns()
            if commits:
                opened.is_commit = True
                await self._commit(producer)
                opened.outcome = "committed"
                self.commits += 1
            else:
                await producer.abort_transaction()
            longest_ns = max(longest_ns, self.context.now_ns() - opened.ends_ns)
        except KafkaError:
            await self._abort(producer, opened)
            return False
        finally:
            self._note(opened)
        return self.has_epochs or longest_ns < GIVEN_UP_NS

    async def _send(
        self,
        producer: KafkaProducer,
        nursery: trio.Nursery,
        opened: _Opened,
        sources: Sequence[Place | None],
    ) -> bool:
        """Send a record for each source; return whether the client accepted all."""
        first = self.rng.randrange(len(self.output))
        took_all = True
        for number, source in enumerate(sources, first):
            took_all &= await self._notes.send(
                producer,
                nursery,
                self.output[number % len(self.output)],
                transaction=opened.name,
                source=source,
            )
            if self.rng.random() < self.plan.pauses:
                await trio.sleep(self.rng.expovariate(1 / _PAUSE_S))
        return took_all

    async def _commit(self, producer: KafkaProducer) -> None:
        """Commit; repeat after a time-out, where Kafka allows it."""
        for attempt in range(_COMMIT_ATTEMPTS):
            try:
                await producer.commit_transaction()
            except KafkaError as error:
                if not error.code.retriable or attempt == _COMMIT_ATTEMPTS - 1:
                    raise
            else:
                return

    async def _abort(self, producer: KafkaProducer, opened: _Opened) -> None:
        if opened.ends_ns < 0:
            opened.ends_ns = self.context.now_ns()
        try:
            await producer.abort_transaction()
        except KafkaError:
            # Its time-out or the next producer aborts an uncommitted transaction.
            return
        opened.outcome = "aborted"

    def _note(self, opened: _Opened) -> None:
        now_ns = self.context.now_ns()
        if not opened.is_commit:
            opened.outcome = "aborted"
        ends_ns = opened.ends_ns if opened.ends_ns >= 0 else now_ns
        history = self.context.history
        history.transactions.append(
            Transaction(
                name=opened.name,
                transactional_id=self.plan.transactional_id,
                producer=self.name,
                group=opened.group,
                ends_ns=ends_ns,
                answered_ns=now_ns,
                outcome=opened.outcome,
            )
        )
        if opened.outcome == "aborted":
            return
        for partition, offset in opened.positions.items():
            history.commits.append(
                Commit(
                    group=opened.group,
                    partition=partition,
                    offset=offset,
                    invoked_ns=ends_ns,
                    answered_ns=now_ns,
                    outcome="ok" if opened.outcome == "committed" else "unknown",
                )
            )

    # ---- clients --------------------------------------------------------------------

    def _producer(self) -> AbstractAsyncContextManager[KafkaProducer]:
        settings: dict[str, Any] = {
            **PRODUCER_SETTINGS,
            "transaction_timeout_ms": self.plan.timeout_ms,
        }
        return open_producer(
            self.context.bootstrap,
            connect=self.context.host.connect,
            rng=self.rng,
            now_ms=self.context.now_ms,
            client_id=self.name,
            transactional_id=self.plan.transactional_id,
            **settings,
        )

    def _consumer(
        self, group: str, protocol: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[KafkaConsumer]:
        settings: dict[str, Any] = {
            **CONSUMER_SETTINGS,
            **member_settings(protocol),
            "isolation_level": "read_committed",
        }
        return open_consumer(
            self.context.bootstrap,
            connect=self.context.host.connect,
            rng=self.rng,
            client_id=self.name,
            group_id=group,
            **settings,
        )
