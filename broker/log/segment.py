"""One segment of a log: a file of batches and its two sparse indexes.

Kafka's ``LogSegment``. Every ``index.interval.bytes`` an entry (last offset of a batch,
its position) goes to the offset index. The batches since the last entry are remembered
in memory, so that whoever reads near the end of the log, as nearly every consumer and
follower does, is served without any I/O; further back, an index entry and one read of
the headers behind it find the place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from broker.errors import KafkaError
from broker.log.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    parse_header,
)
from broker.log.config import LogConfig
from broker.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from broker.log.storage import Buffer, File, Storage, join, remove_if_there

_SCAN_BYTES: Final = 65_536
_LOCATE_BYTES: Final = 8192
_RECOVERY_BYTES: Final = 1 << 20
_RELATIVE_MAX: Final = 2**31 - 1


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
        "_index_bytes",
        "_index_interval",
        "_since_index",
        "_storage",
        "_tail_from",
        "_tail_lasts",
        "_tail_positions",
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
        self.size = 0 if create else self.file.size()
        self.offset_index = SparseIndex(storage, path(".index"), OFFSET_ENTRY)
        self.time_index = SparseIndex(storage, path(".timeindex"), TIME_ENTRY)
        # Largest timestamp of the segment, and the last offset of its batch.
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = base_offset
        # Of the first batch; segment.ms counts from it. None: not known (yet).
        self.first_timestamp: int | None = None
        # An index file may not grow any more: the segment must end.
        self.indexes_full = False
        self._since_index = 0
        # Batches from the one last indexed on: offsets from _tail_from are among them.
        self._tail_from = base_offset
        self._tail_lasts: list[int] = []
        self._tail_positions: list[int] = []

    # ---- writing ----

    def append(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        pieces: Sequence[Buffer],
        size: int,
    ) -> None:
        """Write one batch at the end; after an ``OSError`` nothing has changed."""
        position = self.size
        if self._since_index > self._index_interval:
            self.offset_index.spill()
            self.time_index.spill()
        self.file.write(position, pieces, size)
        self.size = position + size
        self._note(base_offset, last_offset, max_timestamp, position, size)

    def _note(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        position: int,
        size: int,
    ) -> None:
        """Account for a batch that stands at ``position``."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if self._since_index > self._index_interval:
            self.offset_index.add(last_offset - self.base_offset, position)
            self.index_time()
            self.indexes_full = (
                self.time_index.size_bytes + TIME_ENTRY.size >= self._index_bytes
            )
            self._since_index = 0
            self._forget_tail(base_offset)
        elif not position:
            self.first_timestamp = max_timestamp
        self._tail_lasts.append(last_offset)
        self._tail_positions.append(position)
        self._since_index += size

    def _forget_tail(self, base_offset: int) -> None:
        self._tail_from = base_offset
        self._tail_lasts.clear()
        self._tail_positions.clear()

    def index_time(self) -> None:
        """Note the largest timestamp so far in the time index, unless it is there."""
        last = self.time_index.last()
        if self.max_timestamp > (last[0] if last else NO_TIMESTAMP):
            offset = self.offset_of_max_timestamp - self.base_offset
            if last is None or offset > last[1]:
                self.time_index.add(self.max_timestamp, offset)

    def admits(
        self,
        size: int,
        last_offset: int,
        max_timestamp: int,
        now_ms: int,
        config: LogConfig,
    ) -> bool:
        """Tell whether a batch may join, or the log has to roll first.

        Kafka's ``LogSegment.shouldRoll``: bytes, age (by the batches' own time stamps
        where they have any), room in the indexes, 31 bits of relative offset.
        """
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
            and last_offset - self.base_offset <= _RELATIVE_MAX
            and not self.indexes_full
        )

    def cut(self) -> None:
        """Cut off what a failed write left behind the last batch."""
        self.file.truncate(self.size)

    def write_indexes(self) -> tuple[File, File]:
        """Bring both index files up to date, as a segment that ends needs it."""
        self.index_time()
        return self.offset_index.write_out(), self.time_index.write_out()

    def release_indexes(self) -> None:
        """Close the index files, which few readers of an ended segment need."""
        self.offset_index.release()
        self.time_index.release()

    # ---- reading ----

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return position and size of the first batch that ends at ``offset`` or later.

        None if the segment ends before.
        """
        if offset >= self._tail_from:
            number = bisect_left(self._tail_lasts, offset)
            if number == len(self._tail_lasts):
                return None
            position = self._tail_positions[number]
            following = number + 1
            end = (
                self._tail_positions[following]
                if following < len(self._tail_positions)
                else self.size
            )
            return position, end - position
        entry = self.offset_index.floor(offset - self.base_offset)
        start = entry[1] if entry else 0
        for position, header in self.headers(start, chunk=_LOCATE_BYTES):
            if header.last_offset >= offset:
                return position, header.size
        return None

    def headers(
        self, start: int = 0, *, chunk: int = _SCAN_BYTES
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from position ``start`` on.

        Stops at a batch that is not wholly there; raises CORRUPT_MESSAGE at bytes that
        are none.
        """
        position, end = start, self.size
        data, data_at = b"", start
        while end - position >= HEADER_SIZE:
            if position + HEADER_SIZE > data_at + len(data):
                data, data_at = (
                    self.file.read(position, min(chunk, end - position)),
                    position,
                )
            header = parse_header(data, position - data_at)
            if position + header.size > end:
                return
            yield position, header
            position += header.size

    # ---- the life of its files ----

    def remove(self) -> None:
        """Remove the files; slices of the log stay readable."""
        remove_if_there(self._storage, self._path(".log"))
        self.offset_index.remove()
        self.time_index.remove()
        remove_if_there(self._storage, self._path(".txnindex"))

    def _path(self, suffix: str) -> str:
        return join(self.directory, file_name(self.base_offset, suffix))

    # ---- opening what a former process left ----

    def load_indexes(self) -> bool:
        """Take over the index files; return False if they are missing or not sane."""
        sane = self.offset_index.load() and self.time_index.load()
        last_offset, last_time = self.offset_index.last(), self.time_index.last()
        if not sane or (last_offset and last_offset[1] >= self.size):
            return False
        if last_time:
            self.max_timestamp = last_time[0]
            self.offset_of_max_timestamp = self.base_offset + last_time[1]
        return True

    def resume(self) -> int | None:
        """Take over a segment to append to; return the next offset.

        None unless indexes and log are as an orderly stop leaves them. Costs a read of
        what follows the last index entry.
        """
        if not self.load_indexes():
            return None
        entry = self.offset_index.last()
        end = entry[1] if entry else 0
        next_offset = self.base_offset
        self._since_index = 0
        try:
            if end:
                self.first_timestamp = next(self.headers())[1].max_timestamp
            for position, header in self.headers(end):
                if position == end and not self._tail_lasts:
                    self._forget_tail(header.base_offset if entry else self.base_offset)
                self._note_header(position, header)
                next_offset, end = header.last_offset + 1, position + header.size
        except KafkaError:
            return None
        return next_offset if end == self.size else None

    def recover(self, on_batch: Callable[[BatchHeader], None]) -> tuple[int, int]:
        """Keep what is whole, cut off the rest, build the indexes anew.

        Calls ``on_batch`` for each batch kept; returns the next offset and the number
        of bytes cut off. Reads the whole segment and checks every CRC.
        """
        self._reset()
        next_offset, end = self.base_offset, 0
        # From the first batch that is corrupt on, nothing was ever written whole.
        with suppress(KafkaError):
            for position, header in self._checked_batches():
                if header.base_offset < next_offset:
                    break
                self._note_header(position, header)
                on_batch(header)
                next_offset, end = header.last_offset + 1, position + header.size
        torn = self.size - end
        if torn:
            self.file.truncate(end)
            self.size = end
        return next_offset, torn

    def truncate_to(self, offset: int) -> int:
        """Cut off every batch that ends at ``offset`` or later; return the next offset.

        Returns ``offset`` itself if a gap or the end of a batch is there.
        """
        place = self.locate(offset)
        if place is None:
            return offset
        position, _ = place
        (_, header) = next(self.headers(position))
        self.file.truncate(position)
        self.size = position
        self.offset_index.truncate(position, column=1)
        self.time_index.truncate(header.base_offset - self.base_offset, column=1)
        self._reload()
        return min(offset, header.base_offset)

    def _reload(self) -> None:
        """Derive what is in memory from log and indexes, after a truncation."""
        entry, last_time = self.offset_index.last(), self.time_index.last()
        self.max_timestamp = last_time[0] if last_time else NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset + (
            last_time[1] if last_time else 0
        )
        self._since_index = 0
        self._forget_tail(self.base_offset)
        for position, header in self.headers(entry[1] if entry else 0):
            if entry and not self._tail_lasts:
                self._tail_from = header.base_offset
            self._note_header(position, header)

    def _reset(self) -> None:
        self.offset_index.reset()
        self.time_index.reset()
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.first_timestamp = None
        self._since_index = 0
        self._forget_tail(self.base_offset)

    def _note_header(self, position: int, header: BatchHeader) -> None:
        self._note(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            position,
            header.size,
        )

    def _checked_batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch whose CRC is right."""
        data, data_at = memoryview(b""), 0
        for position, header in self.headers():
            end = position + header.size
            if end > data_at + len(data):
                wanted = max(_RECOVERY_BYTES, header.size)
                data_at = position
                data = memoryview(self.file.read(position, wanted))
            check_crc(data[position - data_at : end - data_at], header.crc)
            yield position, header

    def __repr__(self) -> str:
        return f"<segment {self.base_offset} {self.size} bytes>"

    def check(self) -> None:
        """Assert that file, indexes and memory agree."""
        self.offset_index.check()
        self.time_index.check()
        assert self.file.size() >= self.size, (self.file.size(), self.size)
        batches = dict(self.headers())
        ends = [position + header.size for position, header in batches.items()]
        assert (ends[-1] if ends else 0) == self.size, (ends, self.size)
        for number in range(len(self.offset_index)):
            relative, position = self.offset_index.entry(number)
            assert batches[position].last_offset == relative + self.base_offset
        for last, position in zip(self._tail_lasts, self._tail_positions, strict=True):
            assert batches[position].last_offset == last, (position, last)
