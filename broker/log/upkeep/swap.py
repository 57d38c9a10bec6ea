"""Crash-safe replacement of segments by their compacted copy.

Kafka's ``LocalLog.replaceSegments``. The copy is written and synced as ``.cleaned``;
its renaming to ``.swap`` commits. The later renamings (of the old files, the copy and
its indexes) are finished by recovery after a crash. An error before the commit leaves
the log unchanged; an error afterwards takes it out of service, as after a failed flush.
Syncs are blocking calls; all renamings are one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.disk.storage import File, join, remove_if_there
from broker.log.durability import sync_names
from broker.log.log import Log
from broker.log.segments.segment import Segment, file_name
from broker.log.segments.transaction_index import TRANSACTION_INDEX
from broker.log.steps import Steps
from broker.protocol.records.batch import BatchHeader

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
# An empty file in the directory of a compacted log; Kafka ignores it.
GAPS_MARKER: Final = "doorkeeper-gaps"


class Swap:
    """A compacted copy, being written, of neighbouring inactive segments.

    Methods that access the disk raise ``OSError``.
    """

    def __init__(self, log: Log, group: Sequence[Segment], now_ms: int) -> None:
        self._log = log
        self._group = group
        self._base_offset = group[0].base_offset
        self._done = False
        self._copy = Segment(
            log.storage,
            log.directory,
            self._base_offset,
            config=log.config,
            created_ms=now_ms,
            suffix=CLEANED,
            create=True,
        )

    def add(self, header: BatchHeader, batch: bytes) -> None:
        """Append a batch to the copy."""
        self._copy.append(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            (batch,),
            len(batch),
        )

    def commit(self) -> Steps[None]:
        """Replace the group by the copy, unless the group changes meanwhile."""
        log, copy = self._log, self._copy
        for segment in self._group:
            for aborted in segment.aborted.entries:
                copy.aborted.add(aborted)
        yield partial(_sync, (copy.file, *copy.write_indexes()))
        first = self._still_there()
        if first is None:
            return
        mark_gaps(log)
        self._rename(".log", CLEANED, SWAP)
        self._done = True
        log.segments.replace(first, first + len(self._group) - 1, copy)
        log.durability.note_removed(self._group)
        try:
            self._finish()
        except OSError as error:
            raise log.durability.failed(error) from error
        try:
            yield partial(sync_names, log.storage, log.directory)
        except OSError as error:
            raise log.durability.sync_failed(error) from error

    def _still_there(self) -> int | None:
        """Return the number of the group's first segment; None if it changed."""
        segments = self._log.segments
        if not all(map(segments.holds, self._group)):
            return None
        return segments.index_of(self._base_offset)

    def _finish(self) -> None:
        """Rename the replaced segments, newest first, then the copy to its final name.

        No sync is needed between renamings: a journalling file system keeps their
        order.
        """
        log, copy = self._log, self._copy
        for old in reversed(self._group):
            old.doom(log.doomed)
        self._rename(".log", SWAP, "")
        # Renamed first: if another index is missing, recovery rebuilds all of them.
        if copy.aborted.is_on_file:
            self._rename(TRANSACTION_INDEX, CLEANED, "")
        copy.aborted.path = copy.path(TRANSACTION_INDEX)
        for index, kind in (
            (copy.offset_index, ".index"),
            (copy.time_index, ".timeindex"),
        ):
            self._rename(kind, CLEANED, "")
            index.moved(copy.path(kind))
        copy.release_indexes()

    def _rename(self, kind: str, old: str, new: str) -> None:
        directory = self._log.directory
        self._log.storage.rename(
            join(directory, file_name(self._base_offset, kind + old)),
            join(directory, file_name(self._base_offset, kind + new)),
        )

    def abandon_unless_committed(self) -> None:
        """Remove the copy if it was not committed, unless the log is closed."""
        if self._done or self._log.closed is not None:
            return
        for kind in (".log", ".index", ".timeindex", TRANSACTION_INDEX):
            name = file_name(self._base_offset, kind + CLEANED)
            remove_if_there(self._log.storage, join(self._log.directory, name))


def mark_gaps(log: Log) -> None:
    """Mark the directory: from now on offsets may be missing between segments.

    Without the mark, recovery treats such a gap as lost batches. The mark survives a
    kill; the next sync of the directory makes it durable. Raises ``OSError``.
    """
    if not log.has_gaps:
        log.storage.open(join(log.directory, GAPS_MARKER), create=True)
        log.has_gaps = True


def _sync(files: Sequence[File]) -> None:
    for file in files:
        file.sync()
