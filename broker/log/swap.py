"""Putting a compacted segment in the place of those it was made from, crash-safe.

Kafka's ``LocalLog.replaceSegments``. The copy is written and synced as ``.cleaned``;
its renaming to ``.swap`` commits. What follows (the old files go, the copy gets its
final name, its indexes theirs) recovery would finish after a crash. Until the commit an
error leaves the log untouched, after it the log leaves service, as after a failed
flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from broker.log.batch import BatchHeader
from broker.log.durability import storage_error
from broker.log.segment import Segment, file_name
from broker.log.storage import join, remove_if_there

if TYPE_CHECKING:
    from broker.log.log import Log

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"


class Swap:
    """A copy in the making of neighbouring segments, none of them active."""

    def __init__(self, log: Log, group: Sequence[Segment], now_ms: int) -> None:
        self._log = log
        self._group = group
        self._base_offset = group[0].base_offset
        self._done = False
        try:
            self._copy = Segment(
                log.storage,
                log.directory,
                self._base_offset,
                config=log.config,
                created_ms=now_ms,
                suffix=CLEANED,
                create=True,
            )
        except OSError as error:
            raise storage_error(log.directory, error) from error

    def add(self, header: BatchHeader, batch: bytes) -> None:
        """Append a batch to the copy."""
        try:
            self._copy.append(
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                (batch,),
                len(batch),
            )
        except OSError as error:
            raise storage_error(self._log.directory, error) from error

    def commit(self) -> None:
        """Replace the group by the copy, unless the group has changed meanwhile."""
        first = self._still_there()
        if first is None:
            return
        log, copy = self._log, self._copy
        try:
            for file in (copy.file, *copy.write_indexes()):
                file.sync()
            self._rename(".log", CLEANED, SWAP)
        except OSError as error:
            raise storage_error(log.directory, error) from error
        self._done = True
        log.segments.replace(first, first + len(self._group) - 1, copy)
        log.durability.gone(self._group)
        try:
            self._finish()
        except OSError as error:
            raise log.durability.failed(error) from error

    def _still_there(self) -> int | None:
        """Return the number of the group's first segment; None if it changed."""
        segments = self._log.segments
        if not all(map(segments.holds, self._group)):
            return None
        return segments.index_of(self._base_offset)

    def _finish(self) -> None:
        log, copy = self._log, self._copy
        log.storage.sync_directory(log.directory)
        for old in reversed(self._group[1:]):
            old.remove()
        for kind in (".index", ".timeindex", ".txnindex"):
            remove_if_there(log.storage, self._group[0].path(kind))
        self._rename(".log", SWAP, "")
        for index, kind in (
            (copy.offset_index, ".index"),
            (copy.time_index, ".timeindex"),
        ):
            self._rename(kind, CLEANED, "")
            index.moved(copy.path(kind))
        copy.release_indexes()
        log.storage.sync_directory(log.directory)

    def _rename(self, kind: str, old: str, new: str) -> None:
        directory = self._log.directory
        self._log.storage.rename(
            join(directory, file_name(self._base_offset, kind + old)),
            join(directory, file_name(self._base_offset, kind + new)),
        )

    def abandon_unless_committed(self) -> None:
        """Remove the copy, if it did not come to anything."""
        if self._done:
            return
        try:
            for kind in (".log", ".index", ".timeindex"):
                name = file_name(self._base_offset, kind + CLEANED)
                remove_if_there(self._log.storage, join(self._log.directory, name))
        except OSError as error:
            raise storage_error(self._log.directory, error) from error
