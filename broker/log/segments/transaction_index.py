"""The aborted transactions of a segment, in Kafka's format: ``.txnindex``.

A transaction is listed in the segment of its abort marker. Consumers of committed
records receive the list and skip those records; compaction removes them. Kafka's
``TransactionIndex`` and ``AbortedTxn``: entries of 34 bytes (version 0, producer id,
first and last offset, last stable offset), ordered by last offset. The last stable
offset is the start of the first transaction still open at the marker. Transactions
aborted later begin there or after it.

Like the other indexes, it is a cache of the log: written when the segment ends, synced
with it, and rebuilt from the batches after a kill.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from broker.disk.storage import File, Storage, read_whole

TRANSACTION_INDEX: Final = ".txnindex"
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_last_offset_of = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """An aborted transaction; the last offset is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose markers are in one segment. Cost: in memory."""

    __slots__ = ("_is_on_file", "_storage", "entries", "path")

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self._storage = storage
        self._is_on_file = False
        self.entries: list[AbortedTransaction] = []

    def load(self) -> bool:
        """Load the file; return False, and load nothing, unless it is valid."""
        content = read_whole(self._storage, self.path)
        self._is_on_file = True
        if len(content) % _ENTRY.size:
            return False
        versions, found = [], []
        for version, *fields in _ENTRY.iter_unpack(content):
            versions.append(version)
            found.append(AbortedTransaction._make(fields))
        ends = [each.last_offset for each in found]
        if max(versions, default=_VERSION) > _VERSION or ends != sorted(set(ends)):
            return False
        self.entries = found
        return True

    def add(self, aborted: AbortedTransaction) -> None:
        """Add a transaction, unless it or a later one is listed."""
        if not self.entries or aborted.last_offset > self.entries[-1].last_offset:
            self.entries.append(aborted)

    def from_offset(self, offset: int) -> Iterator[AbortedTransaction]:
        """Iterate over the transactions that end at ``offset`` or later."""
        first = bisect_left(self.entries, offset, key=_last_offset_of)
        for number in range(first, len(self.entries)):
            yield self.entries[number]

    def truncate(self, offset: int) -> None:
        """Remove the transactions whose marker is at ``offset`` or later."""
        del self.entries[bisect_left(self.entries, offset, key=_last_offset_of) :]

    def write_out(self) -> list[File]:
        """Write exactly these entries to the file; return the file, if there is one."""
        if not self.entries and not self._is_on_file:
            return []
        content = b"".join(_ENTRY.pack(_VERSION, *each) for each in self.entries)
        file = self._storage.open(self.path, create=True)
        file.write(0, (content,), len(content))
        file.truncate(len(content))
        self._is_on_file = True
        return [file]

    @property
    def is_on_file(self) -> bool:
        """Return whether a file may exist."""
        return self._is_on_file

    def check(self) -> None:
        """Assert the order of the entries."""
        ends = [each.last_offset for each in self.entries]
        assert ends == sorted(set(ends)), (self.path, ends)
        for each in self.entries:
            assert each.first_offset < each.last_offset, (self.path, each)
            assert each.last_stable_offset <= each.last_offset + 1, (self.path, each)
