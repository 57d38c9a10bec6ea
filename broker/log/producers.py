"""Batches of idempotent producers: Kafka's ``ProducerStateManager``.

A producer numbers its records per partition. The log keeps its last five batches, the
largest number that a client may have in flight. A batch among these is a retry, and the
response contains its first offsets. A batch that does not follow the last is out of
order. A batch of an older producer epoch comes from a zombie (KIP-98). An unknown
producer may begin with any number, since retention may have removed its batches.

State is stored in ``%020d.snapshot`` files of Kafka's format (version 1), written at
the start of each segment and at an orderly stop. Recovery replays the batches after the
newest snapshot. Kafka stores one batch per producer and loses four at a restart. Here
each of the five has its own entry, oldest first; Kafka reads the same file and keeps
the last.

Snapshots also contain open transactions (transactions.py). The leader checks batches
and markers before they are written; `replay` adds batches that are in the log already.

A client may use a new id for every batch, and only age bounds the number of producers.
Iterations over all producers are therefore split into steps. If there are many when a
segment begins, their state is frozen at once and encoded later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from typing import Final, NamedTuple

from crc32c._crc32c import crc32c

from broker.disk.pending_removals import PendingRemovals
from broker.disk.storage import (
    Storage,
    join,
    read_whole,
)
from broker.log.segments.log_config import LONG_MAX
from broker.log.segments.segment import Segment
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.steps import STEP_RECORDS, InSteps, Steps
from broker.log.transactions import (
    UNVERIFIED,
    Marker,
    Unstable,
    VerificationGuard,
    marker_of,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import CONTROL, TRANSACTIONAL, BatchHeader

BATCHES_KEPT: Final = 5
# Producers per step of an iteration over all producers: some milliseconds.
PRODUCERS_PER_STEP: Final = 500
# Guards checked per round of expiry, oldest first.
_GUARDS_PER_ROUND: Final = 500
# The ``transaction.version`` from which the marker of each transaction has a new epoch.
_RAISED_EPOCHS: Final = 2
_EPOCH_MAX: Final = 2**15 - 1
SNAPSHOT: Final = ".snapshot"
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_FROM: Final = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp,
# coordinator epoch, first offset of the open transaction
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """A batch appended by a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState:
    """A producer's epoch and its last five batches in this log, oldest first.

    ``marked_ms`` and ``coordinator_epoch`` are those of its last marker.
    ``transaction_from`` is the first offset of its open transaction. -1: none.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "marked_ms",
        "transaction_from",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []
        self.marked_ms = -1
        self.coordinator_epoch = -1
        self.transaction_from = -1

    @property
    def last_ms(self) -> int:
        """Return the time stamp of the last batch or marker."""
        of_batch = self.batches[-1].timestamp if self.batches else -1
        return max(of_batch, self.marked_ms)


class Producers:
    """The producers of one log. Cost: O(1) per batch with a producer id, else none.

    >>> producers = Producers()
    >>> producers.check(7, 0, 0, 9)
    >>> producers.append(7, 0, BatchMetadata(0, 9, 100, 109, 1))
    >>> producers.check(7, 0, 0, 9).first_offset
    100
    """

    __slots__ = ("_guards", "_states", "frozen", "unstable")

    def __init__(self) -> None:
        self.unstable = Unstable()
        # By producer id, until the producer's transaction begins here.
        self._guards: dict[int, VerificationGuard] = {}
        # All producers; if ``frozen`` is set, those that have appended since.
        self._states: dict[int, ProducerState] = {}
        self.frozen: dict[int, ProducerState] | None = None

    def __len__(self) -> int:
        # Frozen producers that have appended since are counted twice.
        return len(self._states) + len(self.frozen or ())

    def _known(self, producer_id: int) -> ProducerState | None:
        state = self._states.get(producer_id)
        if state is None and self.frozen is not None:
            return self.frozen.get(producer_id)
        return state

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        is_transactional: bool = False,
        guard: VerificationGuard | None = None,
    ) -> BatchMetadata | None:
        """Return the batch that this one repeats; None if it is new and in order.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER and INVALID_PRODUCER_EPOCH. Raises
        INVALID_TXN_STATE for a batch that begins a transaction without a valid guard,
        and for a batch outside of the open transaction.
        """
        state = self._known(producer_id)
        if state is not None and epoch == state.epoch:
            for batch in state.batches:
                if batch[0] == first_sequence and batch[1] == last_sequence:
                    return batch
        if is_transactional:
            self._check_guard(producer_id, epoch, state, guard)
        if self._guards:
            self._check_lowest(producer_id, state, first_sequence)
        if state is None:
            return None
        if epoch != state.epoch:
            self._check_new_epoch(producer_id, state.epoch, epoch, first_sequence)
        else:
            self._check_order(producer_id, state, first_sequence)
        if state.transaction_from >= 0 and not is_transactional:
            raise KafkaError(
                ErrorCode.invalid_txn_state,
                f"producer {producer_id}: a batch of no transaction, and one is open",
            )
        return None

    @staticmethod
    def _check_order(producer_id: int, state: ProducerState, sequence: int) -> None:
        expected = 0
        if state.batches:
            expected = (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
        if sequence != expected:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id}: sequence number {sequence}, "
                f"expected {expected}",
            )

    def check_coordinators(
        self,
        header: BatchHeader,
        marker: Marker | None,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> None:
        """Check a batch of a coordinator, which has no sequence numbers.

        The batch is a marker or contains committed offsets. Raises
        INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, or TRANSACTION_COORDINATOR_FENCED for
        a marker of an earlier coordinator. Under ``transaction_version`` 2 a marker has
        a higher epoch than its transaction. A marker of the same epoch is late or, if
        no transaction is open, repeated.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        state = self._known(producer_id)
        if marker is None:
            self._check_guard(producer_id, epoch, state, guard)
        if state is None:
            return
        is_late = (
            transaction_version >= _RAISED_EPOCHS
            and epoch == state.epoch != _EPOCH_MAX
            and state.transaction_from >= 0
        )
        if epoch < state.epoch or is_late:
            raise _fenced(producer_id, epoch, state.epoch)
        if marker is not None and marker.coordinator_epoch < state.coordinator_epoch:
            raise KafkaError(
                ErrorCode.transaction_coordinator_fenced,
                f"producer {producer_id}: coordinator epoch "
                f"{marker.coordinator_epoch}, the latest is {state.coordinator_epoch}",
            )

    def _check_guard(
        self,
        producer_id: int,
        epoch: int,
        state: ProducerState | None,
        guard: VerificationGuard | None,
    ) -> None:
        if state is not None and state.transaction_from >= 0 and state.epoch == epoch:
            return
        if guard is UNVERIFIED or (guard and guard is self._guards.get(producer_id)):
            return
        raise KafkaError(
            ErrorCode.invalid_txn_state,
            f"producer {producer_id}: the batch is of no ongoing transaction",
        )

    def _check_lowest(
        self, producer_id: int, state: ProducerState | None, first_sequence: int
    ) -> None:
        guard = self._guards.get(producer_id)
        if guard is None:
            return
        lowest = guard.lowest_sequence
        if guard.begins_at_zero and (state is None or not state.batches):
            lowest = 0
        if first_sequence > lowest:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id}: sequence number {first_sequence}, "
                f"{lowest} was not written",
            )

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        now_ms: int,
        begins_at_zero: bool = False,
    ) -> VerificationGuard | None:
        """Return the guard to verify and append with; None if none is needed.

        No guard is needed while a transaction of the producer is open. Kafka's
        ``maybeStartTransactionVerification``.
        """
        state = self._known(producer_id)
        if state is not None and state.transaction_from >= 0 and state.epoch == epoch:
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            guard = VerificationGuard(epoch, first_sequence, now_ms, begins_at_zero)
            self._guards[producer_id] = guard
        else:
            guard.note(epoch, first_sequence)
        return guard

    def take_guards(self, known: Producers) -> None:
        """Take over the verifications in progress of a log of the same content."""
        self._guards = known._guards

    def described(self) -> Iterator[tuple[int, ProducerState]]:
        """Iterate over all producers; producers may be removed meanwhile."""
        for producer_id in self._ids():
            state = self._known(producer_id)
            if state is not None:
                yield producer_id, state

    @staticmethod
    def _check_new_epoch(
        producer_id: int, known: int, epoch: int, first_sequence: int
    ) -> None:
        if epoch < known:
            raise _fenced(producer_id, epoch, known)
        if first_sequence != 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id}: a new epoch begins with {first_sequence}",
            )

    def append(
        self,
        producer_id: int,
        epoch: int,
        batch: BatchMetadata,
        is_transactional: bool = False,
    ) -> None:
        """Record a batch that was written; it may begin a transaction."""
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._states[producer_id] = self._begun(producer_id, epoch)
        batches = state.batches
        batches.append(batch)
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        if is_transactional and state.transaction_from < 0:
            self._begin(producer_id, state, batch.first_offset)

    def _begin(self, producer_id: int, state: ProducerState, offset: int) -> None:
        """Begin the producer's transaction at an offset."""
        state.transaction_from = offset
        self.unstable.begin(offset)
        self._guards.pop(producer_id, None)

    def _begun(self, producer_id: int, epoch: int) -> ProducerState:
        """Create a producer's state in this epoch; leave the former state unchanged."""
        state = ProducerState(epoch)
        known = self._known(producer_id)
        if known is not None:
            state.marked_ms = known.marked_ms
            state.coordinator_epoch = known.coordinator_epoch
            state.transaction_from = known.transaction_from
            if known.epoch == epoch:
                state.batches += known.batches
        return state

    def replay(
        self, header: BatchHeader, marker: Marker | None = None
    ) -> AbortedTransaction | None:
        """Add a batch that is in the log (recovery, and followers).

        ``marker`` is the content of a control batch. Returns the transaction that it
        aborts. Control batches, and batches of offsets committed in a transaction, have
        an epoch but no sequence numbers. A batch of an older epoch changes nothing.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        known = self._known(producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return None
        if header.attributes & CONTROL or header.base_sequence < 0:
            state = self._states.get(producer_id)
            if state is None or state.epoch != header.producer_epoch:
                state = self._begun(producer_id, header.producer_epoch)
                self._states[producer_id] = state
            state.marked_ms = max(state.marked_ms, header.max_timestamp)
            is_data = header.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL
            if is_data and state.transaction_from < 0:
                self._begin(producer_id, state, header.base_offset)
            return None if marker is None else self._end(state, header, marker)
        self._remember(header)
        return None

    def _end(
        self, state: ProducerState, header: BatchHeader, marker: Marker
    ) -> AbortedTransaction | None:
        """End the producer's transaction; return it if it is aborted."""
        self._guards.pop(header.producer_id, None)
        state.coordinator_epoch = marker.coordinator_epoch
        first_offset, state.transaction_from = state.transaction_from, -1
        if first_offset < 0:
            return None
        self.unstable.end(first_offset, header.last_offset)
        if not marker.is_abort:
            return None
        return AbortedTransaction(
            header.producer_id,
            first_offset,
            header.last_offset,
            self.unstable.first_open(header.last_offset + 1),
        )

    def _remember(self, header: BatchHeader) -> None:
        self.append(
            header.producer_id,
            header.producer_epoch,
            BatchMetadata(
                header.base_sequence,
                header.last_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
            ),
            bool(header.attributes & TRANSACTIONAL),
        )

    def latest_id(self, below: int) -> int:
        """Return the greatest producer id below a bound, -1 if there is none."""
        self.thaw()
        return max((each for each in self._states if each < below), default=-1)

    def last_offsets(self) -> Steps[frozenset[int]]:
        """Return the last offset of each producer, which compaction must keep."""
        found = set()
        for number, producer_id in enumerate(self._ids(), 1):
            state = self._known(producer_id)
            if state is not None and state.batches:
                found.add(state.batches[-1].last_offset)
            if not number % PRODUCERS_PER_STEP:
                yield None
        return frozenset(found)

    def expire(self, before_ms: int) -> Steps[None]:
        """Remove producers and guards whose last batch is older than ``before_ms``.

        Producers are kept while a frozen state is being written; the next round removes
        them.
        """
        for producer_id, guard in islice(
            tuple(self._guards.items()), _GUARDS_PER_ROUND
        ):
            if guard.begun_ms < before_ms:
                del self._guards[producer_id]
        states = self._states
        for number, producer_id in enumerate(self._ids(), 1):
            if self.frozen is not None or self._states is not states:
                return
            state = states.get(producer_id)
            # A producer with an open transaction does not expire, as in Kafka.
            if state and state.transaction_from < 0 and state.last_ms < before_ms:
                del states[producer_id]
            if not number % PRODUCERS_PER_STEP:
                yield None

    def _ids(self) -> list[int]:
        """Return the present producer ids; some may be removed between two steps."""
        return [*self._states, *(self.frozen or ())]

    def exchange(self, other: Producers) -> None:
        """Swap states with ``other``, a state of this log at an earlier offset."""
        self._states, other._states = other._states, self._states
        self.frozen, other.frozen = other.frozen, self.frozen
        self.unstable, other.unstable = other.unstable, self.unstable
        self._guards.clear()

    def emptied(self) -> InSteps[None]:
        """Remove all producers, in steps because there may be many."""
        kept = [self._states, self.frozen or {}]
        self._states, self.frozen = {}, None
        for states in kept:
            while states:
                for _ in range(min(len(states), PRODUCERS_PER_STEP)):
                    states.popitem()
                yield None

    # ---- frozen state ----

    def freeze(self) -> bool:
        """Keep the present state, in O(1); return False if a state is kept already."""
        if self.frozen is not None:
            return False
        self.frozen, self._states = self._states, {}
        return True

    def thaw(self) -> None:
        """Release the frozen state. Cost: O(producers that have appended since)."""
        if self.frozen is not None:
            self.frozen.update(self._states)
            self._states, self.frozen = self.frozen, None

    def encode_frozen(self) -> Steps[bytes | None]:
        """Return the content of the frozen state's snapshot; None if there is none."""
        frozen = self.frozen
        if frozen is None:
            return None
        pieces, states = [], iter(frozen.items())
        while piece := _entries(islice(states, PRODUCERS_PER_STEP)):
            pieces.append(piece)
            yield None
            if self.frozen is not frozen:
                return None
        return _whole(b"".join(pieces))

    # ---- snapshots ----

    def encode(self) -> bytes:
        """Return the content of a snapshot file."""
        self.thaw()
        return _whole(_entries(self._states.items()))

    def decode(self, content: bytes) -> InSteps[bool]:
        """Load a snapshot; return False, and load nothing, if it is damaged.

        There must be no producers before.
        """
        if len(content) < _HEAD.size:
            return False
        version, crc, count = _HEAD.unpack_from(content)
        sized = len(content) == _HEAD.size + count * _ENTRY.size
        if version != _VERSION or not sized or crc32c(content[_CRC_FROM:]) != crc:
            return False
        open_from = set()
        entries = _ENTRY.iter_unpack(memoryview(content)[_HEAD.size :])
        for number, fields in enumerate(entries, 1):
            if not number % PRODUCERS_PER_STEP:
                yield None
            producer_id, epoch, last_sequence, last_offset, delta, timestamp = fields[
                :6
            ]
            state = self._states.get(producer_id)
            if state is None or state.epoch != epoch:
                state = self._states[producer_id] = ProducerState(epoch)
            state.coordinator_epoch, state.transaction_from = fields[6:]
            if last_offset < 0:
                state.marked_ms = timestamp
            else:
                first_sequence = (last_sequence - delta) & _SEQUENCE_MASK
                state.batches.append(
                    BatchMetadata(
                        first_sequence,
                        last_sequence,
                        last_offset - delta,
                        last_offset,
                        timestamp,
                    )
                )
                del state.batches[:-BATCHES_KEPT]
            if state.transaction_from >= 0:
                open_from.add(state.transaction_from)
        self.unstable.load(open_from)
        return True

    def check_invariants(self) -> None:
        """Assert that each producer's batches follow each other."""
        for producer_id in self._ids():
            state = self._known(producer_id)
            assert state is not None, producer_id
            assert len(state.batches) <= BATCHES_KEPT, producer_id
            offsets = [batch.first_offset for batch in state.batches]
            assert offsets == sorted(offsets), (producer_id, offsets)


def _fenced(producer_id: int, epoch: int, latest: int) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_epoch,
        f"producer {producer_id}: epoch {epoch}, the latest is {latest}",
    )


def _entries(states: Iterable[tuple[int, ProducerState]]) -> bytes:
    """Return the entries of a snapshot for these producers."""
    return b"".join(
        _ENTRY.pack(
            producer_id,
            state.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.first_offset,
            batch.timestamp,
            state.coordinator_epoch,
            state.transaction_from,
        )
        for producer_id, state in states
        for batch in state.batches or (BatchMetadata(-1, -1, -1, -1, state.marked_ms),)
    )


def _whole(entries: bytes) -> bytes:
    """Return the content of the snapshot with these entries."""
    body = struct.pack(">i", len(entries) // _ENTRY.size) + entries
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def snapshot_offsets(storage: Storage, directory: str) -> list[int]:
    """Return the offsets of the snapshots in a log's directory, ascending."""
    return [
        int(name.removesuffix(SNAPSHOT))
        for name in storage.names(directory)
        if name.endswith(SNAPSHOT) and name.removesuffix(SNAPSHOT).isdigit()
    ]


def write_snapshot(
    storage: Storage, directory: str, offset: int, producers: Producers
) -> str:
    """Write the state before ``offset``; return the path of the file.

    The file is not synced. After a crash, an incomplete snapshot is detected, and an
    earlier one is used.
    """
    path = snapshot_path(directory, offset)
    write_content(storage, path, producers.encode())
    return path


def write_content(storage: Storage, path: str, content: bytes) -> None:
    """Write an encoded snapshot; see `write_snapshot`."""
    file = storage.open(path, create=True)
    file.truncate(len(content))
    file.write(0, (content,), len(content))


def snapshot_path(directory: str, offset: int) -> str:
    """Return the path of the snapshot at ``offset``."""
    return join(directory, f"{offset:020d}{SNAPSHOT}")


def _load_snapshot(
    storage: Storage,
    directory: str,
    up_to: int,
    not_after: int,
    doomed: PendingRemovals,
) -> InSteps[tuple[int, Producers]]:
    """Return the newest valid snapshot at most at ``not_after``, and its offset.

    Damaged snapshots, and snapshots beyond ``up_to``, which the log does not confirm,
    are scheduled for removal.
    """
    for offset in reversed(snapshot_offsets(storage, directory)):
        if not_after < offset <= up_to:
            continue
        path = snapshot_path(directory, offset)
        if offset <= up_to:
            producers = Producers()
            if (yield from producers.decode(read_whole(storage, path))):
                return offset, producers
        doomed.discard(storage, path)
    return 0, Producers()


def replayed(
    storage: Storage,
    directory: str,
    segments: Iterable[Segment],
    up_to: int,
    doomed: PendingRemovals,
    from_offset: int = LONG_MAX,
) -> InSteps[Producers]:
    """Return the state before ``up_to``, from the newest snapshot and later batches.

    Batches from ``from_offset`` on are read in any case, since the transactions that
    they abort are not listed yet. The batch that contains ``up_to`` is not read.
    """
    known_to, producers = yield from _load_snapshot(
        storage, directory, up_to, min(up_to, from_offset), doomed
    )
    in_order = tuple(segments)
    batches = 0
    for segment, following in zip_longest(in_order, in_order[1:]):
        if following is not None and following.base_offset <= known_to:
            continue
        found = segment.locate(known_to)
        if found is None:
            continue
        position, _ = found
        for at, header in segment.headers(position):
            batches += 1
            if not batches % STEP_RECORDS:
                yield None
            if header.base_offset < known_to:
                continue
            if header.last_offset >= up_to:
                return producers
            marker = None
            if header.attributes & CONTROL:
                marker = marker_of(header, segment.file.read(at, header.size))
            aborted = producers.replay(header, marker)
            if aborted is not None:
                segment.aborted.add(aborted)
    return producers
