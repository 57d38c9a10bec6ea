"""A segment's sparse indexes, in Kafka's formats: offset to position, time to offset.

``.index`` has entries of 8 bytes (offset minus the segment's base, position),
``.timeindex`` of 12 bytes (timestamp, offset minus base): Kafka's ``OffsetIndex`` and
``TimeIndex``. Both columns of both files grow strictly, so either can be searched.

Kafka maps the files into memory. Here the newest entries stay in memory and are written
to the file a page at a time. Older entries are found by a binary search with ``pread``,
which ends in one page. This saves memory, preallocates no disk space, and needs no
mapping, which a truncation could invalidate. An index is a cache of the log: after a
crash it is dropped and rebuilt.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from typing import Final

from broker.disk.storage import File, Storage

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_PAGE_ENTRIES: Final = 512


class SparseIndex:
    """Pairs of integers with strictly growing columns, on file or still in memory.

    Cost: ``add`` O(1) without I/O, ``spill`` one write in 512 entries, ``floor``
    O(log n) and, for entries on file, as many small reads.
    """

    __slots__ = (
        "_entry",
        "_file",
        "_firsts",
        "_on_file",
        "_seconds",
        "_storage",
        "path",
    )

    def __init__(self, storage: Storage, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._storage = storage
        self._entry = entry
        self._file: File | None = None
        self._on_file = 0
        self._firsts: list[int] = []
        self._seconds: list[int] = []

    def __len__(self) -> int:
        return self._on_file + len(self._firsts)

    @property
    def size_bytes(self) -> int:
        """Return the size of the complete file."""
        return len(self) * self._entry.size

    def load(self) -> bool:
        """Load the file's entries; return False unless the index is valid."""
        try:
            file = self._storage.open(self.path)
        except FileNotFoundError:
            return False
        entries, rest = divmod(file.size(), self._entry.size)
        self._file, self._on_file = file, entries
        self._firsts, self._seconds = [], []
        if rest:
            return False
        return entries < 2 or all(
            first < last
            for first, last in zip(self.entry(0), self.entry(entries - 1), strict=True)
        )

    def reset(self) -> None:
        """Remove all entries, in memory and on file."""
        self._on_file = 0
        self._firsts, self._seconds = [], []

    def add(self, first: int, second: int) -> None:
        """Append an entry above all others in both columns."""
        self._firsts.append(first)
        self._seconds.append(second)

    def spill(self) -> None:
        """Move a page to the file if two are in memory; an error loses no entry."""
        if len(self._firsts) >= 2 * _PAGE_ENTRIES:
            self._write_out(_PAGE_ENTRIES)

    def last(self) -> tuple[int, int] | None:
        """Return the last entry."""
        return self.entry(len(self) - 1) if len(self) else None

    def entry(self, number: int) -> tuple[int, int]:
        """Return an entry by its number."""
        if number >= self._on_file:
            number -= self._on_file
            return self._firsts[number], self._seconds[number]
        size = self._entry.size
        first, second = self._entry.unpack(self._to_read().read(number * size, size))
        return first, second

    def floor(self, first: int) -> tuple[int, int] | None:
        """Return the last entry whose first column is at most ``first``."""
        number = self._count_up_to(first, 0) - 1
        return self.entry(number) if number >= 0 else None

    def first_at(self, second: int) -> int | None:
        """Return the first column of the first entry with a second column as large."""
        number = self._count_up_to(second - 1, 1)
        return self.entry(number)[0] if number < len(self) else None

    def truncate(self, value: int, *, column: int) -> None:
        """Remove the entries whose ``column`` (0 or 1) is at least ``value``."""
        keep = self._count_up_to(value - 1, column)
        in_memory = max(keep - self._on_file, 0)
        del self._firsts[in_memory:], self._seconds[in_memory:]
        self._on_file = min(self._on_file, keep)

    def write_out(self) -> File:
        """Write exactly these entries to the file; return it, not synced."""
        self._write_out(len(self._firsts))
        file = self._to_write()
        if file.size() != self.size_bytes:
            file.truncate(self.size_bytes)
        return file

    def release(self) -> None:
        """Close the file until it is needed again."""
        self._file = None

    def moved(self, path: str) -> None:
        """Record that the file was renamed."""
        self.path = path

    def check(self) -> None:
        """Assert that both columns grow strictly."""
        entries = [self.entry(number) for number in range(len(self))]
        for before, after in itertools.pairwise(entries):
            assert before[0] < after[0], (self.path, before, after)
            assert before[1] < after[1], (self.path, before, after)

    # ---- helpers ----

    def _to_read(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self.path)
        return self._file

    def _to_write(self) -> File:
        if self._file is None:
            self._file = self._storage.open(self.path, create=True)
        return self._file

    def _write_out(self, count: int) -> None:
        if not count:
            return
        pack = self._entry.pack
        page = b"".join(map(pack, self._firsts[:count], self._seconds[:count]))
        self._to_write().write(self._on_file * self._entry.size, (page,), len(page))
        self._on_file += count
        del self._firsts[:count], self._seconds[:count]

    def _count_up_to(self, value: int, column: int) -> int:
        """Count the entries whose column is at most ``value``."""
        recent = self._seconds if column else self._firsts
        if recent and recent[0] <= value:
            return self._on_file + bisect_right(recent, value)
        low, high = 0, self._on_file
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            if self.entry(middle)[column] <= value:
                low = middle + 1
            else:
                high = middle
        page, start = self._page(low, high), low
        size, unpack = self._entry.size, self._entry.unpack_from
        while low < high:
            middle = (low + high) // 2
            if unpack(page, (middle - start) * size)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def _page(self, low: int, high: int) -> bytes:
        if low == high:
            return b""
        size = self._entry.size
        return self._to_read().read(low * size, (high - low) * size)
