"""Transactions in a log: their starts, their markers, and the last stable offset.

Kafka's ``ProducerStateManager`` keeps open transactions, and completed transactions
whose marker is not below the high watermark yet. Consumers of committed records read up
to the first offset of all these, the last stable offset.

A batch begins a transaction in a partition only with a `VerificationGuard` (KIP-890):
the coordinator has confirmed that the partition belongs to the transaction. A marker
that arrives meanwhile invalidates the guard, so that no late batch begins a transaction
that would never end.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from broker.log.segments.segment_list import Segments
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.steps import Steps
from broker.protocol.buffer import Buffer
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from broker.protocol.records.batch_records import iter_records, new_batch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_ENTRIES_PER_STEP: Final = 1000
_last_offset_of = attrgetter("last_offset")


class Marker(NamedTuple):
    """A control record that ends a transaction: Kafka's ``EndTransactionMarker``."""

    is_abort: bool
    coordinator_epoch: int


def marker_of(header: BatchHeader, batch: Buffer) -> Marker | None:
    """Return the marker in a control batch; None if there is none of a known type.

    As in Kafka, control records of unknown types are ignored. Compaction may leave
    control batches without a record.
    """
    try:
        record = next(iter_records(header, batch), None)
        if record is None or record.key is None or record.value is None:
            return None
        _, kind = _KEY.unpack_from(record.key)
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
    except (KafkaError, struct.error):
        return None
    if kind not in (_ABORT, _COMMIT):
        return None
    return Marker(kind == _ABORT, coordinator_epoch)


def marker_batch(
    producer_id: int, producer_epoch: int, marker: Marker, now_ms: int
) -> bytes:
    """Return the control batch of a marker: Kafka's ``withEndTransactionMarker``."""
    key = _KEY.pack(0, _ABORT if marker.is_abort else _COMMIT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return new_batch(
        [(now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


class VerificationGuard:
    """The permission to begin one producer's transaction in one partition.

    Batches after ``lowest_sequence``, that of the first batch that waited for the
    coordinator, are out of order until that batch is written. ``begins_at_zero``: epoch
    and sequence numbers are used for this transaction only (``transaction.version`` 2).
    """

    __slots__ = ("begins_at_zero", "begun_ms", "epoch", "lowest_sequence")

    def __init__(
        self,
        epoch: int,
        lowest_sequence: int,
        begun_ms: int,
        begins_at_zero: bool = False,
    ) -> None:
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.begun_ms = begun_ms
        self.begins_at_zero = begins_at_zero

    def note(self, epoch: int, sequence: int) -> None:
        """Record another batch that waits for the coordinator."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


# Replaces guards if ``transaction.partition.verification.enable`` is off.
UNVERIFIED: Final = VerificationGuard(-1, 0, 0)


class Unstable:
    """Transactions that are open, or whose marker may not be replicated yet.

    Cost: O(1) per call, except for `first_open` and `load`.
    """

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        # Offset of the marker (None while open) by first offset, ascending.
        self._ends: dict[int, int | None] = {}

    def begin(self, first_offset: int) -> None:
        """Record the start of a transaction, after all others."""
        self._ends[first_offset] = None

    def load(self, first_offsets: Iterable[int]) -> None:
        """Load the open transactions of a snapshot."""
        self._ends = dict.fromkeys(sorted(first_offsets))

    def end(self, first_offset: int, marker_offset: int) -> None:
        """Record the offset of a transaction's marker."""
        self._ends[first_offset] = marker_offset

    def first_open(self, default: int) -> int:
        """Return the first offset of the first transaction without a marker."""
        for first_offset, end in self._ends.items():
            if end is None:
                return first_offset
        return default

    def stable_below(self, high_watermark: int) -> int:
        """Return the last stable offset; remove transactions that are stable now."""
        ends = self._ends
        while ends:
            first_offset = next(iter(ends))
            end = ends[first_offset]
            if end is None or end >= high_watermark:
                return min(first_offset, high_watermark)
            del ends[first_offset]
        return high_watermark

    def __bool__(self) -> bool:
        return bool(self._ends)


def aborted_between(
    segments: Segments, offset: int, up_to_offset: int
) -> list[AbortedTransaction]:
    """Return the aborted transactions with records from ``offset`` to ``up_to_offset``.

    Kafka's ``collectAbortedTxns``.
    """
    found: list[AbortedTransaction] = []
    for number in range(segments.index_of(offset), len(segments)):
        for each in segments[number].aborted.from_offset(offset):
            if each.first_offset < up_to_offset:
                found.append(each)
            if each.last_stable_offset >= up_to_offset:
                return found
    return found


class AbortedBatches:
    """The batches of a log that belong to aborted transactions."""

    def __init__(self) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}

    def read(self, segments: Segments) -> Steps[None]:
        """Read the aborted transactions of the segments."""
        number = 0
        for segment in tuple(segments):
            for each in segment.aborted.from_offset(0):
                self._by_producer.setdefault(each.producer_id, []).append(each)
                number += 1
                if not number % _ENTRIES_PER_STEP:
                    yield None

    def __contains__(self, header: BatchHeader) -> bool:
        """Return whether a batch's transaction was aborted."""
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return False
        of_producer = self._by_producer.get(header.producer_id)
        if not of_producer:
            return False
        # A producer has one transaction at a time: they do not overlap.
        number = bisect_left(of_producer, header.base_offset, key=_last_offset_of)
        if number == len(of_producer):
            return False
        return of_producer[number].first_offset <= header.base_offset
