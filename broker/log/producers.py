"""What idempotent producers have appended: Kafka's ``ProducerStateManager``.

A producer numbers its records per partition; the log remembers its last five batches
(as many as a client may have in flight). A batch that is among them is a retry and is
answered with the offsets of the first time; one that does not follow the last is out of
order; one of an older producer epoch comes from a zombie (KIP-98). A producer that is
not known may begin with any number: retention may have removed its past.

State survives in ``%020d.snapshot`` files of Kafka's format (version 1), written where
a segment begins and at an orderly stop; recovery replays the batches after the newest
one. Kafka stores one batch per producer and so forgets four at a restart. Here each of
the five is an entry of its own, oldest first: Kafka reads the same file and keeps the
last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import zip_longest
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.disk.storage import (
    Storage,
    join,
    read_whole,
    remove_if_there,
)
from broker.log.segments.segment import Segment
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import BatchHeader

BATCHES_KEPT: Final = 5
SNAPSHOT: Final = ".snapshot"
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_CRC_FROM: Final = 6
# producer id, epoch, last sequence, last offset, offset delta, timestamp,
# coordinator epoch, first offset of the open transaction
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class BatchMetadata(NamedTuple):
    """One batch that a producer appended."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerState:
    """One producer's epoch and its last five batches in this log, oldest first."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[BatchMetadata] = []


class Producers:
    """The producers of one log. Cost: O(1) per batch; a batch without one costs none.

    >>> producers = Producers()
    >>> producers.check(7, 0, 0, 9)
    >>> producers.append(7, 0, BatchMetadata(0, 9, 100, 109, 1))
    >>> producers.check(7, 0, 0, 9).first_offset
    100
    """

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        """Return the batch that this one repeats, None if it is new and in order.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_PRODUCER_EPOCH.
        """
        state = self._states.get(producer_id)
        if state is None:
            return None
        if epoch != state.epoch:
            self._check_new_epoch(producer_id, state.epoch, epoch, first_sequence)
            return None
        for batch in state.batches:
            if batch[0] == first_sequence and batch[1] == last_sequence:
                return batch
        if state.batches:
            expected = (state.batches[-1].last_sequence + 1) & _SEQUENCE_MASK
            if first_sequence != expected:
                raise KafkaError(
                    ErrorCode.out_of_order_sequence_number,
                    f"producer {producer_id}: sequence number {first_sequence}, "
                    f"expected {expected}",
                )
        return None

    @staticmethod
    def _check_new_epoch(
        producer_id: int, known: int, epoch: int, first_sequence: int
    ) -> None:
        if epoch < known:
            raise KafkaError(
                ErrorCode.invalid_producer_epoch,
                f"producer {producer_id}: epoch {epoch}, the latest is {known}",
            )
        if first_sequence != 0:
            raise KafkaError(
                ErrorCode.out_of_order_sequence_number,
                f"producer {producer_id}: a new epoch begins with {first_sequence}",
            )

    def append(self, producer_id: int, epoch: int, batch: BatchMetadata) -> None:
        """Remember a batch that was written."""
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._states[producer_id] = ProducerState(epoch)
        batches = state.batches
        batches.append(batch)
        if len(batches) > BATCHES_KEPT:
            del batches[0]

    def replay(self, header: BatchHeader) -> None:
        """Remember a batch that is in the log (recovery, and followers).

        A control batch carries an epoch but no sequence numbers; an older epoch
        changes nothing.
        """
        if header.producer_id < 0:
            return
        state = self._states.get(header.producer_id)
        if state is not None and header.producer_epoch < state.epoch:
            return
        if header.base_sequence < 0:
            if state is None or state.epoch != header.producer_epoch:
                self._states[header.producer_id] = ProducerState(header.producer_epoch)
            return
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
        )

    def latest_id(self, below: int) -> int:
        """Return the greatest producer id below a bound, -1 if there is none."""
        return max((each for each in self._states if each < below), default=-1)

    def last_offsets(self) -> frozenset[int]:
        """Return the last offset of each producer, which compaction must not lose."""
        return frozenset(
            state.batches[-1].last_offset
            for state in self._states.values()
            if state.batches
        )

    def expire(self, before_ms: int) -> None:
        """Forget the producers whose last batch is older than ``before_ms``."""
        self._states = {
            producer_id: state
            for producer_id, state in self._states.items()
            if not state.batches or state.batches[-1].timestamp >= before_ms
        }

    def clear(self) -> None:
        """Forget all."""
        self._states.clear()

    # ---- snapshots ----

    def encode(self) -> bytes:
        """Return the content of a snapshot file."""
        entries = [
            _ENTRY.pack(
                producer_id,
                state.epoch,
                batch.last_sequence,
                batch.last_offset,
                batch.last_offset - batch.first_offset,
                batch.timestamp,
                -1,
                -1,
            )
            for producer_id, state in self._states.items()
            for batch in state.batches or (BatchMetadata(-1, -1, -1, -1, -1),)
        ]
        body = struct.pack(">i", len(entries)) + b"".join(entries)
        return struct.pack(">hI", _VERSION, crc32c(body)) + body

    def decode(self, content: bytes) -> bool:
        """Take over a snapshot; return False, and take nothing, if it is damaged."""
        self._states.clear()
        if len(content) < _HEAD.size:
            return False
        version, crc, count = _HEAD.unpack_from(content)
        sized = len(content) == _HEAD.size + count * _ENTRY.size
        if version != _VERSION or not sized or crc32c(content[_CRC_FROM:]) != crc:
            return False
        for fields in _ENTRY.iter_unpack(content[_HEAD.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp = fields[
                :6
            ]
            state = self._states.get(producer_id)
            if state is None or state.epoch != epoch:
                state = self._states[producer_id] = ProducerState(epoch)
            if last_offset >= 0:
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
        return True

    def check_invariants(self) -> None:
        """Assert that each producer's batches follow each other."""
        for producer_id, state in self._states.items():
            assert len(state.batches) <= BATCHES_KEPT, producer_id
            offsets = [batch.first_offset for batch in state.batches]
            assert offsets == sorted(offsets), (producer_id, offsets)


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
    """Write the state as it is before ``offset``; return the path of the file.

    It is not synced: one that a crash leaves half written is recognised, and the one
    before it is used.
    """
    content = producers.encode()
    path = join(directory, f"{offset:020d}{SNAPSHOT}")
    file = storage.open(path, create=True)
    file.truncate(len(content))
    file.write(0, (content,), len(content))
    return path


def remove_snapshot(storage: Storage, directory: str, offset: int) -> None:
    """Remove the snapshot at ``offset``, if there is one."""
    remove_if_there(storage, join(directory, f"{offset:020d}{SNAPSHOT}"))


def _load_snapshot(
    storage: Storage, directory: str, up_to: int, producers: Producers
) -> int | None:
    """Take over the newest sound snapshot at most at ``up_to``; return its offset.

    Snapshots beyond ``up_to`` and damaged ones are removed: the log does not bear them
    out.
    """
    for offset in reversed(snapshot_offsets(storage, directory)):
        if offset <= up_to:
            path = join(directory, f"{offset:020d}{SNAPSHOT}")
            if producers.decode(read_whole(storage, path)):
                return offset
        remove_snapshot(storage, directory, offset)
    producers.clear()
    return None


def replay_producers(
    storage: Storage,
    directory: str,
    segments: Iterable[Segment],
    producers: Producers,
    up_to: int,
) -> None:
    """Rebuild the state before ``up_to``: the newest snapshot, then the batches."""
    known_to = _load_snapshot(storage, directory, up_to, producers) or 0
    in_order = tuple(segments)
    for segment, following in zip_longest(in_order, in_order[1:]):
        if following is not None and following.base_offset <= known_to:
            continue
        found = segment.locate(known_to)
        if found is not None:
            position, _ = found
            for _, header in segment.headers(position):
                if header.base_offset >= known_to:
                    producers.replay(header)
