"""The transaction coordinator of one broker: one method per verb.

Kafka: ``TransactionCoordinator`` and ``TransactionStateManager``. A verb finds the
transactional id, obtains its decision (`broker.transactions.transaction`), and writes
the decision to ``__transaction_state``. The response follows when all in-sync replicas
have it. Verbs never wait: they return a later response as `Waiting`.

``work`` does a step of the due work: aborting transactions that are open for too long,
and removing unused ids. A partition without open transactions schedules no aborts, one
without ids no removals. Therefore a broker without transactions is not woken.

Requests for ids of other partitions fail: NOT_COORDINATOR if this broker does not lead
the partition, COORDINATOR_LOAD_IN_PROGRESS if it has not read it yet.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from logging import getLogger
from typing import Final, NamedTuple

from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS, Effects, Instant, Write
from broker.shards.parked_answer import Waiting
from broker.shards.shard import Shard
from broker.shards.shard_log import ShardLog
from broker.shards.shards import Clock, Shards
from broker.shards.timers import Timers
from broker.transactions.markers import Ending, Markers
from broker.transactions.transaction import (
    NO_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionValue,
)
from broker.transactions.transaction_config import TransactionConfig
from broker.transactions.transaction_loading import TransactionLoading
from broker.transactions.transaction_records import (
    transaction_record,
    transaction_tombstone,
)
from broker.transactions.transaction_state import PREPARED, TransactionState

logger = getLogger(__name__)

# Transactional ids examined in one step.
IDS_PER_STEP: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """InitProducerId with a transactional id; ``known`` is the producer's identity."""

    transactional_id: str
    timeout_ms: int
    known: ProducerIdAndEpoch | None = None


class ProducerAnswer(NamedTuple):
    """The producer's id and epoch from now on, or an error."""

    error: ErrorCode
    producer: ProducerIdAndEpoch = ProducerIdAndEpoch(-1, -1)


class _Chore(enum.Enum):
    ABORT = "abort transactions that are open for too long"
    EXPIRE = "forget ids that nobody uses"


class _Task(NamedTuple):
    chore: _Chore
    partition: int


class TransactionCoordinator:
    """The coordinator of all ids whose partition of ``__transaction_state`` it leads.

    ``transaction_version`` returns the finalized level of this feature. From 1 on,
    records have the newer format. From 2 on, a fence raises the epoch as in EndTxn 5.
    ``on_earlier_deadline`` is called when ``next_event_ns`` has become earlier.
    """

    def __init__(
        self,
        config: TransactionConfig,
        *,
        log: ShardLog,
        clock: Clock,
        transaction_version: Callable[[], int] = lambda: 0,
        on_earlier_deadline: Callable[[], None] = lambda: None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._transaction_version = transaction_version
        self._shards = Shards[Transaction](config.partitions, log, clock)
        self._chores = Timers[_Task](on_earlier_deadline)
        # Ids that a chore has yet to examine.
        self._rounds: deque[tuple[_Task, Iterator[Transaction]]] = deque()
        self.markers = Markers(
            clock,
            is_current=self._is_current,
            complete=self._complete,
            moved=on_earlier_deadline,
        )
        self.loading = TransactionLoading(
            self._shards, on_loaded=self._loaded, on_work=on_earlier_deadline
        )
        self.aborted_by_time_out = self.expired_ids = 0

    # ---- partitions -------------------------------------------------------------

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of ``__transaction_state`` for an id."""
        return self._shards.partition(transactional_id)

    def elect(self, partition: int, epoch: int) -> None:
        """Begin to coordinate a partition's ids, once ``loading`` has read them."""
        self.loading.elect(partition, epoch)

    def resign(self, partition: int) -> None:
        """Stop coordinating a partition's ids."""
        for chore in _Chore:
            self._chores.cancel(_Task(chore, partition))
        self.loading.resign(partition)

    def load_all(self) -> None:
        """Load every elected partition now: at the start, before requests arrive."""
        while self.loading.work():
            pass

    def _loaded(self, shard: Shard[Transaction]) -> None:
        if shard.by_id:
            for chore in _Chore:
                self._schedule(_Task(chore, shard.partition))
        self.markers.add_loaded(shard, self.loading.pop_prepared(shard.partition))

    # ---- due work ---------------------------------------------------------------

    def next_event_ns(self) -> int | None:
        """Return the time of the next `work`; None: not before the next verb.

        An unfinished chore is always due.
        """
        return 0 if self._rounds else self._chores.next_ns()

    def work(self) -> bool:
        """Do one step of due work; return whether any was due."""
        if self._rounds:
            self._continue_round()
            return True
        task = self._chores.pop_due(self._clock().ns)
        if task is None:
            return False
        shard = self._shards.by_partition.get(task.partition)
        if shard is not None and not shard.loading:
            ids = iter(tuple(shard.by_id.values()))
            self._rounds.append((task, ids))
        return True

    def _schedule(self, task: _Task) -> None:
        """Schedule a chore after its interval, unless it is scheduled already."""
        if task in self._chores:
            return
        config = self._config
        interval_ms = (
            config.abort_timed_out_interval_ms
            if task.chore is _Chore.ABORT
            else config.remove_expired_interval_ms
        )
        self._chores.schedule(task, self._clock().ns + interval_ms * NS_PER_MS)

    def _continue_round(self) -> None:
        task, ids = self._rounds[0]
        now = self._clock()
        aborts = task.chore is _Chore.ABORT
        handle = self._abort_if_late if aborts else self._expire_if_old
        for _ in range(IDS_PER_STEP):
            transaction = next(ids, None)
            if transaction is None:
                self._rounds.popleft()
                return
            if self._shards.has(transaction.name, transaction):
                handle(transaction, now)
                if not aborts or transaction.state is TransactionState.ONGOING:
                    self._schedule(task)

    def _abort_if_late(self, transaction: Transaction, now: Instant) -> None:
        if not transaction.is_timed_out(now.wall_ms):
            return

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.none:
                self.aborted_by_time_out += 1

        logger.info(
            "a transaction is aborted by its time-out",
            extra=fields(transactional_id=transaction.name),
        )
        # Without a new producer id: this step cannot wait for one.
        fenced = transaction.fence(None, self._transaction_version(), now.wall_ms)
        self._write(transaction, fenced, then)

    def _expire_if_old(self, transaction: Transaction, now: Instant) -> None:
        before_ms = now.wall_ms - self._config.transactional_id_expiration_ms
        if not transaction.may_expire(before_ms):
            return
        transaction.expire()
        name = transaction.name

        def done(error: ErrorCode, _: Instant) -> Effects:
            if error is ErrorCode.none:
                self.expired_ids += 1
                self._shards.remove(name, transaction)
            else:
                transaction.refused()
            return Effects()

        self._shards.append(name, Write((transaction_tombstone(name),), done))

    # ---- verbs ------------------------------------------------------------------

    def needs_producer_id(self, request: InitRequest) -> bool:
        """Return whether `init_producer_id` will need a new id; raise `KafkaError`."""
        if not request.transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "an empty transactional id")
        if not 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.invalid_transaction_timeout)
        transaction = self._shards.find(request.transactional_id)
        return transaction is None or transaction.needs_new_id(
            request.known, self._transaction_version()
        )

    def init_producer_id(
        self, request: InitRequest, new_id: int | None
    ) -> Waiting[ProducerAnswer]:
        """InitProducerId: a producer id and epoch that fence earlier ones of this id.

        ``new_id`` is used if `needs_producer_id` is true. Raises `KafkaError`.
        """
        now = self._clock()
        transaction = self._find_or_new(request, new_id, now)
        value = transaction.init(
            request.known,
            request.timeout_ms,
            new_id,
            self._transaction_version(),
            now.wall_ms,
        )
        waiting = Waiting[ProducerAnswer]()

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.none and value.state in PREPARED:
                error = ErrorCode.concurrent_transactions
            if error is ErrorCode.none:
                waiting.settle(ProducerAnswer(error, value.producer))
            else:
                waiting.settle(ProducerAnswer(error))

        self._write(transaction, value, then)
        return waiting

    def _find_or_new(
        self, request: InitRequest, new_id: int | None, now: Instant
    ) -> Transaction:
        name = request.transactional_id
        shard = self._shards.shard(name)
        ids = shard.by_id
        if name not in ids:
            if new_id is None:
                # The id has expired since `needs_producer_id`.
                raise KafkaError(ErrorCode.concurrent_transactions)
            ids[name] = Transaction(
                name,
                TransactionValue(
                    producer_id=new_id,
                    epoch=NO_EPOCH,
                    timeout_ms=request.timeout_ms,
                    updated_ms=now.wall_ms,
                ),
            )
            self._schedule(_Task(_Chore.EXPIRE, shard.partition))
        return ids[name]

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int = 0,
    ) -> Waiting[ErrorCode]:
        """AddPartitionsToTxn and AddOffsetsToTxn; raise `KafkaError`."""
        transaction = self._known(transactional_id)
        now_ms = self._clock().wall_ms
        value = transaction.add(producer, partitions, client_version, now_ms)
        waiting = Waiting[ErrorCode]()
        if value is None:
            waiting.settle(ErrorCode.none)
        else:
            self._write(transaction, value, waiting.settle)
        return waiting

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> frozenset[TopicPartition]:
        """Return the partitions of the producer's transaction; raise `KafkaError`."""
        return self._known(transactional_id).verify(producer)

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, is_commit: bool
    ) -> Waiting[ProducerAnswer]:
        """EndTxn 0 to 4: respond when the outcome is decided; raise `KafkaError`."""
        transaction = self._known(transactional_id)
        value = transaction.end(producer, is_commit, self._clock().wall_ms)
        return self._end(transaction, value)

    def end_needs_producer_id(
        self, transactional_id: str, producer: ProducerIdAndEpoch
    ) -> bool:
        """Return whether `end_and_raise_epoch` needs a new id; raise `KafkaError`."""
        return self._known(transactional_id).end_needs_new_id(producer)

    def end_and_raise_epoch(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        new_id: int | None,
    ) -> Waiting[ProducerAnswer]:
        """EndTxn 5: as `end`, but respond with the producer of the next transaction.

        ``new_id`` is used if `end_needs_producer_id` is true. Raises `KafkaError`.
        """
        transaction = self._known(transactional_id)
        value = transaction.end_and_raise_epoch(
            producer, is_commit, new_id, self._clock().wall_ms
        )
        return self._end(transaction, value)

    def _end(
        self, transaction: Transaction, value: TransactionValue | None
    ) -> Waiting[ProducerAnswer]:
        waiting = Waiting[ProducerAnswer]()

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.none:
                producer = (value or transaction.value).next_producer
                waiting.settle(ProducerAnswer(error, producer))
            else:
                waiting.settle(ProducerAnswer(error))

        if value is None:
            then(ErrorCode.none)
        else:
            self._write(transaction, value, then)
        return waiting

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "an empty transactional id")
        transaction = self._shards.find(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        return transaction

    # ---- writing ----------------------------------------------------------------

    def _write(
        self,
        transaction: Transaction,
        value: TransactionValue,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """Write a pending value; fail if this broker no longer coordinates the id."""
        name = transaction.name
        shard = self._shards.by_partition[self.partition_for(name)]

        def done(error: ErrorCode, _: Instant) -> Effects:
            if error is ErrorCode.none and not self._shards.has(name, transaction):
                error = ErrorCode.not_coordinator
            if error is ErrorCode.none:
                transaction.written()
                if value.state is TransactionState.ONGOING:
                    self._schedule(_Task(_Chore.ABORT, shard.partition))
            else:
                transaction.refused()
            then(error)
            if error is ErrorCode.none and value.state in PREPARED:
                self.markers.add(shard, transaction)
            return Effects()

        record = transaction_record(name, value, self._transaction_version())
        self._shards.append(name, Write((record,), done))

    def _is_current(self, ending: Ending) -> bool:
        transaction = ending.transaction
        return (
            self._shards.has(transaction.name, transaction)
            and transaction.state in PREPARED
        )

    def _complete(self, ending: Ending) -> None:
        transaction = ending.transaction

        def then(error: ErrorCode) -> None:
            # After NOT_COORDINATOR as well, by which Kafka stops: a full disk is
            # reported with it, and this broker may remain the coordinator.
            if error is not ErrorCode.none:
                self.markers.complete_later(ending)

        value = transaction.end_markers(self._clock().wall_ms)
        self._write(transaction, value, then)

    # ---- reading ----------------------------------------------------------------

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of an id, to read only; raise `KafkaError`."""
        if not transactional_id:
            raise KafkaError(ErrorCode.invalid_request, "an empty transactional id")
        transaction = self._shards.find(transactional_id)
        if transaction is None or _is_dead(transaction):
            raise KafkaError(ErrorCode.transactional_id_not_found)
        return transaction

    def all(self) -> Iterator[Transaction]:
        """Iterate over all ids; raise COORDINATOR_LOAD_IN_PROGRESS during a load."""
        if self._shards.is_loading():
            raise KafkaError(ErrorCode.coordinator_load_in_progress)
        return (each for each in self._shards.all() if not _is_dead(each))

    @property
    def unreadable_batches(self) -> int:
        """The number of batches skipped by loads."""
        return self._shards.log.unreadable_batches

    @property
    def partition_loads(self) -> int:
        """The number of loaded partitions."""
        return self._shards.partition_loads

    def check(self) -> None:
        """Assert every invariant."""
        self._chores.check()
        for partition, shard in self._shards.by_partition.items():
            for name, transaction in shard.by_id.items():
                assert transaction.name == name, (name, transaction)
                assert self.partition_for(name) == partition, transaction
                transaction.check()


def _is_dead(transaction: Transaction) -> bool:
    pending = transaction.pending
    return pending is not None and pending.state is TransactionState.DEAD
