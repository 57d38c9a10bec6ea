"""Sending of the markers of decided transactions to the leaders of the partitions.

Kafka: ``TransactionMarkerChannelManager``. When the outcome of a transaction is in the
log, each of its partitions needs a marker. ``work`` does one step: it looks up the
leaders of some partitions and passes their markers to ``send``, or processes results.
After a retriable error a marker is sent again, after a pause and to the leader at that
time. When no partition remains, ``complete`` writes the end of the transaction.

- A partition of a deleted topic needs no marker.
- A leader rejects a marker if it knows a later coordinator or producer. This ends the
  attempts: another coordinator is in charge.
- Nothing here survives a restart: the load of a shard starts the markers again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from logging import getLogger
from typing import Final, NamedTuple

from broker.observation.logs import fields
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import NS_PER_MS
from broker.shards.shard import Shard
from broker.shards.shards import Clock
from broker.transactions.transaction import ProducerIdAndEpoch, Transaction
from broker.transactions.transaction_state import TransactionState

logger = getLogger(__name__)

# Partitions of one transaction in one request, and in one step.
PARTITIONS_PER_ROW: Final = 64
# The pause of Kafka's marker-sending client.
RETRY_MS: Final = 50
_DONE: Final = frozenset(
    {
        ErrorCode.none,
        ErrorCode.unsupported_for_message_format,
        ErrorCode.unsupported_version,
    }
)
_FENCED: Final = frozenset(
    {ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced}
)
# Retries after other errors are logged.
_EXPECTED: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.request_timed_out,
        ErrorCode.kafka_storage_error,
        ErrorCode.network_exception,
        ErrorCode.broker_not_available,
    }
)

# Returns the leader of a partition, None if it has none at present.
LeaderOf = Callable[[TopicPartition], "int | None"]


@dataclass(eq=False, slots=True)
class Ending:
    """A transaction whose markers are in progress, and its shard."""

    shard: Shard[Transaction]
    transaction: Transaction
    producer: ProducerIdAndEpoch
    is_commit: bool

    @property
    def coordinator_epoch(self) -> int:
        """The coordinator epoch, by which leaders fence older coordinators."""
        return self.shard.epoch

    @property
    def transaction_version(self) -> int:
        """The ``transaction.version`` with which the transaction was ended."""
        return self.transaction.value.client_version


class MarkerRow(NamedTuple):
    """A marker of one transaction for some partitions."""

    ending: Ending
    partitions: Sequence[TopicPartition]


class _Outcome(NamedTuple):
    row: MarkerRow
    errors: Mapping[TopicPartition, ErrorCode]


class _Resting(NamedTuple):
    due_ns: int
    # None: write the end again.
    row: MarkerRow | None
    ending: Ending


class Markers:
    """Markers that are not yet written.

    ``is_current`` returns whether this broker still coordinates an ending transaction.
    ``exists`` returns whether a partition exists. ``send`` receives a broker and a row,
    and calls `answered` once. ``moved`` is called when `next_ns` has become earlier.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        is_current: Callable[[Ending], bool],
        complete: Callable[[Ending], None],
        moved: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._is_current = is_current
        self._complete = complete
        self._moved = moved
        self._loaded: deque[tuple[Shard[Transaction], deque[Transaction]]] = deque()
        self._ready: deque[MarkerRow] = deque()
        self._outcomes: deque[_Outcome] = deque()
        self._resting: deque[_Resting] = deque()
        # Partitions of the last routed row whose leader is unknown.
        self.unknown_destinations = 0
        self.leader_of: LeaderOf = lambda _: None
        self.exists: Callable[[TopicPartition], bool] = lambda _: True
        self.send: Callable[[int, MarkerRow], None] | None = None

    def add(self, shard: Shard[Transaction], transaction: Transaction) -> None:
        """Start the markers of a transaction whose outcome is in the log."""
        value = transaction.value
        ending = Ending(
            shard,
            transaction,
            ProducerIdAndEpoch(value.producer_id, value.epoch),
            value.state is TransactionState.PREPARE_COMMIT,
        )
        rest = iter(sorted(value.partitions))
        while row := tuple(islice(rest, PARTITIONS_PER_ROW)):
            self._ready.append(MarkerRow(ending, row))
        if not value.partitions and self._is_current(ending):
            self._complete(ending)
        self._moved()

    def add_loaded(
        self, shard: Shard[Transaction], prepared: Iterable[Transaction]
    ) -> None:
        """Start the markers of transactions that a load has found decided.

        ``prepared`` excludes transactions decided after the load. They would get two
        rows, and a leader would apply the second marker to the next transaction.
        """
        if owed := deque(prepared):
            self._loaded.append((shard, owed))
            self._moved()

    def answered(
        self, row: MarkerRow, errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        """Record the results of a row."""
        self._outcomes.append(_Outcome(row, errors))
        self._moved()

    def failed(self, row: MarkerRow, error: ErrorCode) -> None:
        """Record one error for all partitions of a row."""
        self.answered(row, dict.fromkeys(row.partitions, error))

    def complete_later(self, ending: Ending) -> None:
        """Write the end of a transaction again after a pause: its write failed."""
        self._rest(None, ending)

    @property
    def resting_ends(self) -> int:
        """The number of ends to write again."""
        return sum(1 for each in self._resting if each.row is None)

    def next_ns(self) -> int | None:
        """Return the time of the next `work`, None if nothing waits, 0 for now."""
        if self._loaded or self._ready or self._outcomes:
            return 0
        return self._resting[0].due_ns if self._resting else None

    def work(self) -> bool:
        """Do one step; return whether any was due."""
        if self._outcomes:
            self._take(*self._outcomes.popleft())
        elif self._ready:
            self._route(self._ready.popleft())
        elif self._loaded:
            self._revive()
        elif self._resting and self._resting[0].due_ns <= self._clock().ns:
            _, row, ending = self._resting.popleft()
            if row is not None:
                self._ready.append(row)
            elif self._is_current(ending):
                self._complete(ending)
        else:
            return False
        return True

    def _revive(self) -> None:
        shard, transactions = self._loaded[0]
        for _ in range(min(PARTITIONS_PER_ROW, len(transactions))):
            self.add(shard, transactions.popleft())
        if not transactions:
            self._loaded.popleft()

    def _route(self, row: MarkerRow) -> None:
        """Send a row to the leaders of its partitions."""
        ending = row.ending
        if not self._is_current(ending):
            return
        missing: list[TopicPartition] = []
        unknown: list[TopicPartition] = []
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in row.partitions:
            leader = self.leader_of(key)
            if leader is not None:
                by_leader.setdefault(leader, []).append(key)
            elif self.exists(key):
                unknown.append(key)
            else:
                missing.append(key)
        self.unknown_destinations = len(unknown)
        if unknown:
            self._rest(MarkerRow(ending, unknown), ending)
        for leader, keys in by_leader.items():
            assert self.send is not None, "markers are routed before they can be sent"
            self.send(leader, MarkerRow(ending, keys))
        if missing:
            self._mark(ending, missing)

    def _take(self, row: MarkerRow, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Process the results of a row."""
        ending = row.ending
        if not self._is_current(ending):
            return
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for key in row.partitions:
            error = errors.get(key, ErrorCode.unknown_server_error)
            if error in _FENCED:
                logger.warning(
                    "a transaction is not completed here, its marker is refused",
                    extra=fields(
                        transactional_id=ending.transaction.name,
                        partition=str(key),
                        error=error.name,
                    ),
                )
                return
            if error in _DONE:
                written.append(key)
                continue
            again.append(key)
            if error not in _EXPECTED:
                logger.error(
                    "a marker is written again after an unexpected error",
                    extra=fields(partition=str(key), error=error.name),
                )
        if again:
            self._rest(MarkerRow(ending, again), ending)
        if written:
            self._mark(ending, written)

    def _mark(self, ending: Ending, written: Iterable[TopicPartition]) -> None:
        if ending.transaction.mark(frozenset(written)):
            self._complete(ending)

    def _rest(self, row: MarkerRow | None, ending: Ending) -> None:
        due_ns = self._clock().ns + RETRY_MS * NS_PER_MS
        self._resting.append(_Resting(due_ns, row, ending))
        self._moved()
