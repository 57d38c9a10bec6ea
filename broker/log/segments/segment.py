"""A segment of a log: a file of batches and its two sparse indexes.

Kafka's ``LogSegment``. Every ``index.interval.bytes`` an entry (last offset of a batch,
its position) is added to the offset index. The positions of the batches since the last
entry are kept in memory. Reads near the end of the log, the most frequent ones,
therefore need no I/O. Earlier positions are found by an index entry and one read of the
headers after it.

repair.py opens a segment of an earlier process.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from broker.disk.pending_removals import PendingRemovals
from broker.disk.storage import File, Storage, join
from broker.disk.versioned_writes import VersionedWrites
from broker.log.segments.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.log.segments.timestamps import newest_of
from broker.log.segments.transaction_index import TRANSACTION_INDEX, TransactionIndex
from broker.protocol.buffer import Buffer
from broker.protocol.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    corrupt,
    parse_header,
)

# Base offset, batch length and last offset delta, the fields for locating an offset.
_WHERE: Final = struct.Struct(">qi11xi")
_SCAN_BYTES: Final = 65_536
_LOCATE_BYTES: Final = 8192
RELATIVE_MAX: Final = 2**31 - 1


def file_name(base_offset: int, suffix: str) -> str:
    """Return Kafka's name of a segment's file: twenty digits and a suffix.

    >>> file_name(42, ".log")
    '00000000000000000042.log'
    """
    return f"{base_offset:020d}{suffix}"


class Segment:
    """A file of batches from ``base_offset`` on, with indexes.

    Cost: ``append`` one write; ``locate`` no I/O among the last batches, else
    O(log n) small reads and one of 8 KiB.
    """

    __slots__ = (
        "_cuts",
        "_index_bytes",
        "_index_interval",
        "_since_index",
        "_storage",
        "_tail_from",
        "_tail_lasts",
        "_tail_positions",
        "_tears",
        "aborted",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "first_timestamp",
        "indexes_full",
        "max_timestamp",
        "offset_index",
        "offset_of_max_timestamp",
        "size",
        "time_index",
        "torn",
    )

    def __init__(
        self,
        storage: Storage,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        created_ms: int,
        suffix: str = "",
        create: bool = False,
    ) -> None:
        def path(kind: str) -> str:
            return join(directory, file_name(base_offset, kind + suffix))

        self._storage = storage
        self._index_interval = config.index_interval_bytes
        self._index_bytes = config.segment_index_bytes
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.file: File = storage.open(path(".log"), create=create)
        self.size = self.file.size()
        if create and self.size:
            self.file.truncate(0)
            self.size = 0
        # Bytes of a failed write or of a truncation may follow the segment's end.
        self.torn = False
        self._tears = 0
        self._cuts = VersionedWrites()
        self.offset_index = SparseIndex(storage, path(".index"), OFFSET_ENTRY)
        self.time_index = SparseIndex(storage, path(".timeindex"), TIME_ENTRY)
        self.aborted = TransactionIndex(storage, path(TRANSACTION_INDEX))
        # Timestamp of the first batch, from which segment.ms counts. None: unknown.
        self.first_timestamp: int | None = None
        self.reset()

    def reset(self) -> None:
        """Empty the indexes and the positions in memory."""
        self.offset_index.reset()
        self.time_index.reset()
        # Largest timestamp of the segment, and the last offset of its batch.
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        # An index file has reached its size limit, so the segment must end.
        self.indexes_full = False
        self._since_index = 0
        # The batches from the last index entry on, with offsets >= _tail_from.
        self._tail_lasts: list[int] = []
        self._tail_positions: list[int] = []
        self._tail_from = self.base_offset

    # ---- writing ----

    def append(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        pieces: Sequence[Buffer],
        size: int,
    ) -> None:
        """Write a batch at the end; the segment must not be torn.

        After an ``OSError`` the segment is unchanged, but torn.
        """
        position = self.size
        if self._since_index > self._index_interval:
            self.offset_index.spill()
            self.time_index.spill()
        try:
            self.file.write(position, pieces, size)
        except OSError:
            self.tear()
            raise
        self.size = position + size
        self.note(base_offset, last_offset, max_timestamp, position, size)

    def note(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        position: int,
        size: int,
    ) -> None:
        """Record a batch at ``position``."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._since_index > self._index_interval:
            self.offset_index.add(last_offset - self.base_offset, position)
            self.index_time()
            self.indexes_full = (
                self.time_index.size_bytes + TIME_ENTRY.size >= self._index_bytes
            )
            self.remember_from(base_offset)
        elif not position:
            self.first_timestamp = max_timestamp
        self._tail_lasts.append(last_offset)
        self._tail_positions.append(position)
        self._since_index += size

    def remember_from(self, offset: int) -> None:
        """Keep positions of batches in memory from this offset on."""
        self._since_index = 0
        self._tail_from = offset
        self._tail_lasts.clear()
        self._tail_positions.clear()

    def remember_nothing(self) -> None:
        """Keep no positions in memory; locate all batches by the files."""
        self.remember_from(LONG_MAX)

    def index_time(self) -> None:
        """Add the largest timestamp so far to the time index, unless it is in it."""
        newest, _ = self.time_index.last() or (NO_TIMESTAMP, 0)
        if self.max_timestamp > newest:
            self.time_index.add(
                self.max_timestamp, self.offset_of_max_timestamp - self.base_offset
            )

    def admits(
        self,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Return whether a batch fits; otherwise the log has to roll first.

        Kafka's ``LogSegment.shouldRoll``: bytes, age (by the batches' own timestamps,
        if any), space in the indexes, 31 bits of relative offset.
        """
        if last_offset - self.base_offset > RELATIVE_MAX:
            return False
        if not self.size:
            return True
        first = self.first_timestamp
        age_ms = (
            now_ms - self.created_ms
            if first is None or first < 0
            else max_timestamp - first
        )
        return (
            self.size + size <= config.segment_bytes
            and age_ms <= config.segment_ms
            and not self.indexes_full
        )

    def first_time_ms(self) -> int | None:
        """Return the timestamp of the first batch; None without batches. May read."""
        if self.first_timestamp is None and self.size:
            self.first_timestamp = next(self.headers())[1].max_timestamp
        return self.first_timestamp

    def cut(self) -> None:
        """Cut off the bytes after the last batch, if the segment is torn.

        May run in a thread: an append calls `cut` first, and waits for that thread.
        """
        self._cuts.write(self._tears, self._cut)

    def _cut(self) -> None:
        self.file.truncate(self.size)
        self.torn = False

    def tear(self) -> None:
        """Record that bytes may follow the end, until `cut`."""
        self._tears += 1
        self.torn = True

    def write_indexes(self) -> tuple[File, ...]:
        """Write all index entries to the files, when a segment ends."""
        self.index_time()
        return (
            self.offset_index.write_out(),
            self.time_index.write_out(),
            *self.aborted.write_out(),
        )

    def take_over_indexes(self, again: Segment) -> None:
        """Use the rebuilt indexes of the same file."""
        self.offset_index, self.time_index = again.offset_index, again.time_index
        self.max_timestamp = again.max_timestamp
        self.offset_of_max_timestamp = again.offset_of_max_timestamp
        self.indexes_full = again.indexes_full
        self.first_timestamp = again.first_timestamp
        self._since_index = again._since_index
        self._tail_from = again._tail_from
        self._tail_lasts = again._tail_lasts
        self._tail_positions = again._tail_positions

    def release_indexes(self) -> None:
        """Close the index files, which readers of an ended segment rarely need."""
        self.offset_index.release()
        self.time_index.release()

    # ---- reading ----

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return position and size of the first batch that ends at ``offset`` or later.

        Returns None if the segment ends before ``offset``.
        """
        if offset < self._tail_from:
            entry = self.offset_index.floor(offset - self.base_offset)
            _, position = entry or (0, 0)
            return self._locate_from(position, offset)
        positions = self._tail_positions
        number = bisect_left(self._tail_lasts, offset)
        if number == len(positions):
            return None
        position = positions[number]
        number += 1
        end = positions[number] if number < len(positions) else self.size
        return position, end - position

    def offset_behind(self, position: int) -> int | None:
        """Return an upper bound of the offsets of all batches before ``position``.

        None if the bound is the segment's end. Kafka's ``fetchUpperBoundOffset``.
        """
        relative = self.offset_index.first_at(position)
        return None if relative is None else self.base_offset + relative

    def _locate_from(self, position: int, offset: int) -> tuple[int, int] | None:
        """Search the headers from an index entry's position on."""
        data, data_at = b"", position
        unpack = _WHERE.unpack_from
        while position < self.size:
            at = position - data_at
            if at + HEADER_SIZE > len(data):
                data, data_at, at = self.file.read(position, _LOCATE_BYTES), position, 0
                if len(data) < HEADER_SIZE:
                    raise corrupt(f"{self!r} ends within a header at {position}")
            base_offset, length, delta = unpack(data, at)
            if base_offset + delta >= offset:
                return position, length + LENGTH_OVERHEAD
            if length <= 0:
                raise corrupt(f"{self!r} has no batch at {position}")
            position += length + LENGTH_OVERHEAD
        return None

    def headers(self, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from position ``start`` on.

        Stops at an incomplete batch; raises CORRUPT_MESSAGE at bytes that are no batch.
        """
        position, end = start, self.size
        data, data_at = b"", start
        while end - position >= HEADER_SIZE:
            at = position - data_at
            if at + HEADER_SIZE > len(data):
                data, data_at, at = self.file.read(position, _SCAN_BYTES), position, 0
            header = parse_header(data, at)
            if position + header.size > end:
                return
            yield position, header
            position += header.size

    # ---- files ----

    def doom(self, doomed: PendingRemovals) -> None:
        """Rename the files for removal; slices stay readable."""
        for kind in (".log", ".index", ".timeindex", TRANSACTION_INDEX):
            doomed.discard(self._storage, self.path(kind))

    def moved(self, directory: str) -> None:
        """Record that the directory of its files was renamed."""
        self.directory = directory
        self.offset_index.moved(self.path(".index"))
        self.time_index.moved(self.path(".timeindex"))
        self.aborted.path = self.path(TRANSACTION_INDEX)

    def path(self, suffix: str) -> str:
        """Return the path of one of the segment's files."""
        return join(self.directory, file_name(self.base_offset, suffix))

    def __repr__(self) -> str:
        return f"<segment {self.base_offset} {self.size} bytes>"

    def check(self) -> None:
        """Assert that file, indexes and memory are consistent."""
        self.offset_index.check()
        self.time_index.check()
        self.aborted.check()
        assert self.file.size() >= self.size, (self.file.size(), self.size)
        batches = dict(self.headers())
        ends = [position + header.size for position, header in batches.items()]
        assert (ends[-1] if ends else 0) == self.size, (ends, self.size)
        for number in range(len(self.offset_index)):
            relative, position = self.offset_index.entry(number)
            assert batches[position].last_offset == relative + self.base_offset
        for last, position in zip(self._tail_lasts, self._tail_positions, strict=True):
            assert batches[position].last_offset == last, (position, last)
        largest = max((h.max_timestamp for h in batches.values()), default=NO_TIMESTAMP)
        if self.max_timestamp != max(largest, NO_TIMESTAMP):
            read = self.file.read
            assert self.max_timestamp == max(
                newest_of(header, read(position, header.size))
                for position, header in batches.items()
            ), self
