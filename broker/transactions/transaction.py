"""A transactional id: its producer, its transaction, and the rules of both.

Kafka: ``TransactionMetadata``, and the decisions of ``TransactionCoordinator``. Pure:
times are parameters. Each decision is a new `TransactionValue`, which takes effect when
it is in the log.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                     -> PrepareAbort  -> CompleteAbort

- A decision is *pending* during its write. Meanwhile every other decision is rejected
  with CONCURRENT_TRANSACTIONS, so that values follow each other in the log.
- The epoch fences: a second producer of the same id gets a higher epoch, and requests
  with a lower one fail with PRODUCER_FENCED. An ongoing transaction is first aborted
  under the higher epoch (PrepareEpochFence, which is never written). From the cluster's
  ``transaction.version`` 2 on, this abort follows KIP-890, below.
- An epoch of 32,766 is exhausted: the next producer gets a new producer id. The last
  number is reserved for fencing.
- InitProducerId with the present id and epoch (KIP-360) raises the epoch of the same
  producer. ``last_epoch`` identifies its repetition. It is not in the log, as in Kafka.
- With ``transaction.version`` 2 (KIP-890) every outcome raises the epoch, so that late
  batches of a transaction never count for the next one. The producer receives the new
  epoch at once. At the last epoch it receives a new producer id with epoch 0. This id
  takes effect when the markers are written under the old id. A repeated request is
  identified by its epoch, not by the state.
- A prepared outcome is final: the markers always follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.transactions.transaction_state import (
    BEFORE,
    COMPLETE,
    IDLE,
    PREPARED,
    TransactionState,
)

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
# The transaction.version from which every outcome raises the epoch.
EPOCH_PER_TRANSACTION: Final = 2


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer in requests."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """The logged value of a transactional id, and ``last_epoch``.

    ``previous_producer_id`` is the producer id of the value before. ``client_version``
    is the ``transaction.version`` of the last request that changed the transaction.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int
    started_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def producer(self) -> ProducerIdAndEpoch:
        """The current producer, with which requests are compared."""
        return ProducerIdAndEpoch(self.producer_id, self.epoch)

    @property
    def next_producer(self) -> ProducerIdAndEpoch:
        """The producer of the next transaction."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer
        return ProducerIdAndEpoch(self.next_producer_id, 0)


class _Outcome(NamedTuple):
    prepared: TransactionState
    complete: TransactionState


# States by whether the transaction commits.
_OUTCOMES: Final = {
    True: _Outcome(TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT),
    False: _Outcome(TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT),
}


def is_exhausted(epoch: int) -> bool:
    """Return whether an epoch can only be raised for fencing."""
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """A transactional id.

    ``value`` is in the log, with two exceptions: partitions with a written marker are
    removed, and an epoch may be raised to fence a producer. ``pending`` is in writing.
    """

    __slots__ = ("_has_failed_fence", "_is_fencing", "name", "pending", "value")

    def __init__(self, name: str, value: TransactionValue) -> None:
        self.name = name
        self.value = value
        self.pending: TransactionValue | None = None
        self._is_fencing = self._has_failed_fence = False

    def __repr__(self) -> str:
        return f"<transaction {self.name!r} {self.value} pending {self.pending}>"

    @property
    def state(self) -> TransactionState:
        """The state of ``value``, not of ``pending``."""
        return self.value.state

    # ---- decisions: each returns the value to write, or raises `KafkaError` ----

    def needs_new_id(self, known: ProducerIdAndEpoch | None, version: int) -> bool:
        """Return whether `init` will need a new producer id."""
        value = self.value
        if self.pending is not None or not is_exhausted(value.epoch):
            return False
        if value.state is TransactionState.ONGOING:
            return version >= EPOCH_PER_TRANSACTION
        return value.state in IDLE and (known is None or known.epoch == value.epoch)

    def init(
        self,
        known: ProducerIdAndEpoch | None,
        timeout_ms: int,
        new_id: int | None,
        version: int,
        now_ms: int,
    ) -> TransactionValue:
        """InitProducerId: a new epoch or producer id, or first an abort.

        ``known`` is the producer's identity in the request, ``version`` the cluster's
        ``transaction.version``. If the value is in state PrepareAbort, the caller
        responds with CONCURRENT_TRANSACTIONS after its write.
        """
        value = self.value
        self._check_free()
        if known is not None and not self._may_be(known):
            raise KafkaError(ErrorCode.producer_fenced)
        if value.state is TransactionState.ONGOING:
            return self.fence(new_id, version, now_ms)
        producer_id, epoch, last_epoch = self._next_epoch(known, new_id)
        return self._decide(
            replace(
                value,
                producer_id=producer_id,
                epoch=epoch,
                last_epoch=last_epoch,
                timeout_ms=timeout_ms,
                state=TransactionState.EMPTY,
                partitions=frozenset(),
                started_ms=-1,
                updated_ms=now_ms,
            )
        )

    def _next_epoch(
        self, known: ProducerIdAndEpoch | None, new_id: int | None
    ) -> tuple[int, int, int]:
        """Return the producer id, the epoch, and the epoch before."""
        value = self.value
        is_first = value.epoch == NO_EPOCH
        if known is not None and not is_first and known.epoch != value.epoch:
            if known.epoch != value.last_epoch:
                raise KafkaError(ErrorCode.producer_fenced)
            # A repeated request: its response was lost.
            return value.producer_id, value.epoch, value.last_epoch
        last_epoch = NO_EPOCH if known is None else value.epoch
        if is_exhausted(value.epoch):
            if new_id is None:
                raise KafkaError(ErrorCode.concurrent_transactions)
            return new_id, 0, last_epoch
        return value.producer_id, value.epoch + 1, last_epoch

    def _may_be(self, known: ProducerIdAndEpoch) -> bool:
        value = self.value
        return (
            value.epoch == NO_EPOCH
            or known.producer_id == value.producer_id
            or (
                known.producer_id == value.previous_producer_id
                and is_exhausted(known.epoch)
            )
        )

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> TransactionValue | None:
        """Add partitions, beginning a transaction; return None if all are in it.

        While the markers under its old id are unwritten, a producer with a new id gets
        CONCURRENT_TRANSACTIONS.
        """
        self._check_free()
        self._check_producer(producer)
        value = self.value
        is_ongoing = value.state is TransactionState.ONGOING
        if is_ongoing and partitions <= value.partitions:
            return None
        return self._decide(
            replace(
                value,
                state=TransactionState.ONGOING,
                partitions=value.partitions | partitions if is_ongoing else partitions,
                started_ms=value.started_ms if is_ongoing else now_ms,
                updated_ms=now_ms,
                client_version=client_version,
            )
        )

    def verify(self, producer: ProducerIdAndEpoch) -> frozenset[TopicPartition]:
        """Return the transaction's partitions, for a leader that received a batch.

        Ignores a pending decision: only the end of the transaction changes the result.
        """
        self._check_producer(producer)
        if self.value.state in PREPARED:
            raise KafkaError(ErrorCode.concurrent_transactions)
        return self.value.partitions

    def end(
        self, producer: ProducerIdAndEpoch, is_commit: bool, now_ms: int
    ) -> TransactionValue | None:
        """Decide the outcome; return None if already completed with this outcome."""
        self._check_producer(producer)
        self._check_free()
        state = self.value.state
        if state is TransactionState.ONGOING:
            prepared = _OUTCOMES[is_commit].prepared
            return self._decide(
                replace(self.value, state=prepared, updated_ms=now_ms, client_version=0)
            )
        if state is _OUTCOMES[is_commit].complete:
            return None
        raise self._invalid_state()

    def end_needs_new_id(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether `end_and_raise_epoch` may need a new producer id."""
        return self.value.producer == producer and is_exhausted(producer.epoch)

    def end_and_raise_epoch(
        self,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        new_id: int | None,
        now_ms: int,
    ) -> TransactionValue | None:
        """Decide the outcome for a client of ``transaction.version`` 2.

        Returns None for a repeated request. An abort needs no ongoing transaction: a
        producer whose requests failed does not know whether a partition was added.
        """
        self._check_free()
        value = self.value
        is_repeated = self._is_repeated_end(producer)
        if producer.producer_id != value.producer_id and not is_repeated:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if producer.epoch != value.epoch and not is_repeated:
            raise KafkaError(ErrorCode.producer_fenced)
        if is_repeated:
            if value.state is _OUTCOMES[is_commit].complete:
                return None
            raise self._invalid_state()
        if value.state is not TransactionState.ONGOING and is_commit:
            raise self._invalid_state()
        if is_exhausted(value.epoch) and new_id is None:
            raise KafkaError(ErrorCode.concurrent_transactions)
        return self._prepare(is_commit, new_id, now_ms)

    def _is_repeated_end(self, producer: ProducerIdAndEpoch) -> bool:
        """Return whether the producer repeats its last EndTxn."""
        value = self.value
        if value.state not in COMPLETE:
            return False
        if value.epoch == 0:
            return producer == (value.previous_producer_id, EPOCH_MAX - 1)
        return producer == (value.producer_id, value.epoch - 1)

    def _prepare(
        self, is_commit: bool, new_id: int | None, now_ms: int
    ) -> TransactionValue:
        """Decide the outcome and raise the epoch; the last epoch needs ``new_id``."""
        value = self.value
        next_id = NO_PRODUCER_ID
        if is_exhausted(value.epoch):
            assert new_id is not None, self
            next_id = new_id
        is_ongoing = value.state is TransactionState.ONGOING
        return self._decide(
            replace(
                value,
                epoch=min(value.epoch + 1, EPOCH_MAX),
                last_epoch=value.epoch,
                next_producer_id=next_id,
                state=_OUTCOMES[is_commit].prepared,
                started_ms=value.started_ms if is_ongoing else now_ms,
                updated_ms=now_ms,
                client_version=EPOCH_PER_TRANSACTION,
            )
        )

    def _invalid_state(self) -> KafkaError:
        return KafkaError(
            ErrorCode.invalid_txn_state,
            f"the transaction is in state {self.value.state.label}",
        )

    def is_timed_out(self, now_ms: int) -> bool:
        """Return whether the transaction has been open for too long."""
        value = self.value
        return (
            self.pending is None
            and value.state is TransactionState.ONGOING
            and value.started_ms + value.timeout_ms < now_ms
        )

    def fence(self, new_id: int | None, version: int, now_ms: int) -> TransactionValue:
        """Abort the ongoing transaction under a higher epoch.

        With ``transaction.version`` 2 this is an abort as in EndTxn 5. At the last
        epoch this needs a new producer id. Without one, fencing is as with version 0.

        With version 0 the epoch takes effect at once. If the write fails, a retry does
        not raise it again: no producer received it.
        """
        value = self.value
        has_next = new_id is not None or not is_exhausted(value.epoch)
        if version >= EPOCH_PER_TRANSACTION and has_next:
            return self._prepare(False, new_id, now_ms)
        if not self._has_failed_fence:
            # EPOCH_MAX is possible: a repeated EndTxn 5 may return a fence's epoch.
            epoch = min(value.epoch + 1, EPOCH_MAX)
            value = replace(value, epoch=epoch, last_epoch=NO_EPOCH)
        self.value = value
        self._is_fencing = True
        return self._decide(
            replace(
                value,
                state=TransactionState.PREPARE_ABORT,
                updated_ms=now_ms,
                client_version=0,
            )
        )

    def mark(self, written: frozenset[TopicPartition]) -> bool:
        """Remove partitions with a written marker; return whether none remains."""
        assert self.value.state in PREPARED, self
        rest = self.value.partitions - written
        self.value = replace(self.value, partitions=rest)
        return not rest

    def end_markers(self, now_ms: int) -> TransactionValue:
        """Complete a transaction whose markers are all written."""
        value = self.value
        is_commit = value.state is TransactionState.PREPARE_COMMIT
        producer_id, epoch = value.next_producer
        self._has_failed_fence = False
        return self._decide(
            replace(
                value,
                producer_id=producer_id,
                epoch=epoch,
                next_producer_id=NO_PRODUCER_ID,
                state=_OUTCOMES[is_commit].complete,
                partitions=frozenset(),
                updated_ms=now_ms,
            )
        )

    def may_expire(self, before_ms: int) -> bool:
        """Return whether the id is idle, and unchanged since ``before_ms``."""
        value = self.value
        return (
            self.pending is None
            and value.state in IDLE
            and value.updated_ms <= before_ms
        )

    def expire(self) -> None:
        """Decide to remove the id; other decisions are rejected until then."""
        self._decide(replace(self.value, state=TransactionState.DEAD))

    # ---- outcomes ----

    def written(self) -> None:
        """Make the pending value current: it is in the log."""
        assert self.pending is not None, self
        self.value, self.pending = self.pending, None
        self._is_fencing = False

    def refused(self) -> None:
        """Drop the pending value: its write failed."""
        assert self.pending is not None, self
        self._has_failed_fence = self._has_failed_fence or self._is_fencing
        self.pending, self._is_fencing = None, False

    # ---- checks ----

    def _check_producer(self, producer: ProducerIdAndEpoch) -> None:
        if producer.producer_id != self.value.producer_id:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if producer.epoch != self.value.epoch:
            raise KafkaError(ErrorCode.producer_fenced)

    def _check_free(self) -> None:
        if self.pending is not None or self.value.state in PREPARED:
            raise KafkaError(ErrorCode.concurrent_transactions)

    def _decide(self, value: TransactionValue) -> TransactionValue:
        assert self.pending is None, self
        assert self.value.state in BEFORE[value.state], (self, value)
        value = replace(value, previous_producer_id=self.value.producer_id)
        assert value.state is TransactionState.DEAD or value.epoch >= 0, value
        self.pending = value
        return value

    def check(self) -> None:
        """Assert every invariant."""
        value = self.value
        assert value.producer_id >= 0, self
        assert NO_EPOCH <= value.epoch <= EPOCH_MAX, self
        assert not value.partitions or value.state not in IDLE, self
        assert value.state not in IDLE or not self._is_fencing, self
        if self.pending is not None:
            assert value.state in BEFORE[self.pending.state], self
