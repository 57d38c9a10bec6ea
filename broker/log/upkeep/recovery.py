"""Opening and recovery of a log. Kafka's ``LogLoader``.

After an orderly stop the indexes are trusted and little is read. Otherwise every
segment from the recovery point on is read. The log is cut off before the first batch
that is torn or fails its CRC, and indexes are rebuilt.

The log is also cut off after a segment that ends before the next one begins: a power
loss may remove complete batches, and then leaves no torn batch. Kafka keeps the part
after such a gap. Gaps are accepted if compaction may have made them. A log that was
compacted here has a permanent marker, independent of its topic's policy. So has a log
with a gap that was accepted once. A follower leaves no gap between two segments
(`Log`), and a gap wider than a segment's 31 bits of offsets cannot be a lost end.

Below the recovery point all data and indexes were synced. A missing or invalid index
there is rebuilt; if a batch there cannot be read, all batches are checked.

Interrupted compactions are finished if committed (``.swap``) and dropped otherwise
(``.cleaned``), as in Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.closable_storage import ClosableStorage
from broker.disk.disk_failures import LogStorageError
from broker.disk.pending_removals import PendingRemovals
from broker.disk.storage import Storage, join, remove_if_there
from broker.log.durability import Durability
from broker.log.epochs import LeaderEpochs
from broker.log.log import Log
from broker.log.producers import replayed
from broker.log.segments.log_config import LONG_MAX, LogConfig
from broker.log.segments.repair import Recovered, load_indexes, recover, resume
from broker.log.segments.segment import RELATIVE_MAX, Segment, file_name
from broker.log.segments.segment_list import Segments
from broker.log.segments.transaction_index import TRANSACTION_INDEX
from broker.log.steps import run
from broker.log.upkeep.swap import GAPS_MARKER, SWAP, mark_gaps
from broker.protocol.errors import KafkaError
from broker.protocol.records.batch import CONTROL, BatchHeader

_LOG: Final = re.compile(r"(\d{20})\.log")
_SWAP: Final = re.compile(r"(\d{20})\.log" + re.escape(SWAP))
_OF_SEGMENT: Final = re.compile(r"(\d{20})\.(index|timeindex|txnindex)")
_UNDONE: Final = (".cleaned", ".deleted", ".tmp", ".index.swap", ".timeindex.swap")


class Loss(NamedTuple):
    """Bytes of a segment's file that recovery cut off, and the reason."""

    path: str
    size: int
    reason: str


Report = Callable[[Loss], None]


class _Noted(NamedTuple):
    """The state of a log according to the marker and the checkpoints."""

    clean: bool
    recovery_point: int
    log_start_offset: int
    cleaner_offset: int


def open_log(
    directory: str,
    config: LogConfig,
    storage: Storage,
    now_ms: int,
    *,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaner_offset: int = 0,
    doomed: PendingRemovals | None = None,
    report: Report = lambda loss: None,
    on_failure: Callable[[LogStorageError], None] = lambda _: None,
) -> Log:
    """Open or create the log of a directory called ``topic-partition``.

    ``clean``: the last stop was orderly, so indexes are trusted. Otherwise all data
    from ``recovery_point`` on is read and checked. The log is compacted below
    ``cleaner_offset``. ``doomed`` collects dropped files, ``report`` receives each
    loss of bytes, ``on_failure`` later errors of the device. Raises ``OSError``.
    """
    storage = ClosableStorage(storage, on_failure)
    storage.make_directory(directory)
    changed = _finish_interrupted_work(storage, directory, config, now_ms)
    opened = partial(
        _open,
        directory,
        config,
        storage,
        now_ms,
        _Noted(clean, recovery_point, log_start_offset, cleaner_offset),
        doomed=PendingRemovals() if doomed is None else doomed,
        report=report,
    )
    try:
        return opened(changed=changed, reads_all=False)
    except KafkaError:
        # A trusted segment is damaged: check all segments.
        return opened(changed=True, reads_all=True)


def _open(
    directory: str,
    config: LogConfig,
    storage: ClosableStorage,
    now_ms: int,
    noted: _Noted,
    *,
    doomed: PendingRemovals,
    report: Report,
    changed: bool,
    reads_all: bool,
) -> Log:
    segment = partial(Segment, storage, directory, config=config, created_ms=now_ms)
    names = frozenset(storage.names(directory))
    has_gaps = GAPS_MARKER in names
    epochs = LeaderEpochs(storage, directory)
    segments = [segment(base) for base in _base_offsets(storage, directory)]
    opening = _Opening(
        storage,
        segments,
        epochs,
        noted,
        may_have_gaps=(
            has_gaps or noted.cleaner_offset > 0 or config.cleanup_policy != {"delete"}
        ),
        reads_all=reads_all,
        report=report,
        doomed=doomed,
    )
    log_end_offset = opening.end_offset(noted.log_start_offset)
    if opening.has_dropped:
        # Otherwise, after a power loss, dropped segments could follow later batches.
        storage.sync_directory(directory)
    if not segments:
        changed = True
        segments.append(segment(log_end_offset, create=True))
    log_start_offset = max(noted.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(log_start_offset)
    from_offset = opening.take_aborted(names)
    producers = run(
        replayed(storage, directory, segments, log_end_offset, doomed, from_offset)
    )
    durability = Durability(
        storage,
        directory,
        epochs,
        log_end_offset if noted.clean else min(noted.recovery_point, log_end_offset),
        opening.repaired,
        names_changed=changed or bool(opening.repaired),
    )
    log = Log(
        directory=directory,
        config=config,
        storage=storage,
        segments=Segments(segments),
        epochs=epochs,
        producers=producers,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        durability=durability,
        doomed=doomed,
        now_ms=now_ms,
    )
    if noted.cleaner_offset <= log_end_offset:
        # An offset beyond the end predates a truncation: no part counts as clean.
        log.cleaner_offset = noted.cleaner_offset
    log.has_gaps = has_gaps
    if opening.found_gaps:
        mark_gaps(log)
    if noted.clean and durability.everything:
        log.settled_offset = log_end_offset
    return log


class _Opening:
    """Check of the segments of a log, oldest first, with repairs."""

    def __init__(
        self,
        storage: Storage,
        segments: list[Segment],
        epochs: LeaderEpochs,
        noted: _Noted,
        *,
        may_have_gaps: bool,
        reads_all: bool,
        report: Report,
        doomed: PendingRemovals,
    ) -> None:
        self._report = report
        self._doomed = doomed
        self._storage = storage
        self._segments = segments
        self._reads_all = reads_all
        self._may_have_gaps = may_have_gaps
        self._epochs = epochs
        self._noted = noted
        self.repaired: list[Segment] = []
        self.has_dropped = False
        # Segments after a gap were kept.
        self.found_gaps = False
        # Segments that were read completely, and whether one contains a marker.
        self._read: set[int] = set()
        self._has_markers = False

    def run(self) -> int:
        """Return the log's end.

        Drops the segments after a torn segment. Below the recovery point, a damaged
        segment loses only its own batches after the damage.
        """
        segments = self._segments
        self._drop_epochs()
        log_end_offset = 0
        for number, segment in enumerate(segments):
            is_last = number == len(segments) - 1
            unseen = self._believed(number) and not self._reads_all
            if unseen and not is_last and self._take_indexes(number):
                segment.release_indexes()
                continue
            next_offset = resume(segment) if unseen else None
            # Until the segment is read, only its log file stays open.
            segment.release_indexes()
            if next_offset is None:
                limit = LONG_MAX if is_last else segments[number + 1].base_offset
                kept = recover(segment, self._note_batch, limit)
                self._read.add(segment.base_offset)
                next_offset = kept.next_offset
                if not is_last:
                    self.repaired.append(segment)
                if kept.cut_bytes:
                    lost = Loss(segment.path(".log"), kept.cut_bytes, kept.reason)
                    self._report(lost)
                if not self._goes_on(number, kept):
                    return next_offset
            log_end_offset = next_offset
        return log_end_offset

    def _drop_epochs(self) -> None:
        """Drop the epochs of batches that are read, which assign them again.

        The log may have been truncated and rewritten since the file was written.
        """
        if self._reads_all:
            self._epochs.truncate_from_end(0)
        elif not self._noted.clean:
            number = 0
            while self._believed(number):
                number += 1
            bases = [segment.base_offset for segment in self._segments[number:]]
            end_offset = min([self._noted.recovery_point, *bases[:1]])
            self._epochs.truncate_from_end(end_offset)

    def _goes_on(self, number: int, kept: Recovered) -> bool:
        """Drop segments that cannot follow this one; return whether to continue."""
        segments = self._segments
        if self._believed(number) or number == len(segments) - 1:
            return True
        segment, begins = segments[number], segments[number + 1].base_offset
        if kept.cut_bytes:
            self.drop_after(number, f"it follows {segment!r}, which was cut")
            return False
        if kept.next_offset == begins:
            return True
        reachable = begins - 1 - segment.base_offset <= RELATIVE_MAX
        if reachable and not self._may_have_gaps:
            ends = kept.next_offset
            self.drop_after(number, f"{segment!r} before it ends at {ends}")
            return False
        self.found_gaps = True
        return True

    def _believed(self, number: int) -> bool:
        """Return whether a segment was completely durable."""
        if self._noted.clean:
            return True
        following = number + 1
        return (
            following < len(self._segments)
            and self._segments[following].base_offset <= self._noted.recovery_point
        )

    def _take_indexes(self, number: int) -> bool:
        """Load the indexes of a durable segment, if they are valid.

        If the segment ends at the recovery point, only its batches are known to be
        durable. Its indexes are therefore compared with them.
        """
        segment = self._segments[number]
        ends_at = self._segments[number + 1].base_offset
        if self._noted.clean or ends_at < self._noted.recovery_point:
            return load_indexes(segment)
        return resume(segment) is not None

    def take_aborted(self, names: Collection[str]) -> int:
        """Load the lists of aborted transactions of the durable segments.

        The lists of other segments are removed. Returns the offset from which on lists
        have to be rebuilt.
        """
        anew = {base for base in self._read if self._has_markers}
        for segment in self._segments:
            base = segment.base_offset
            if file_name(base, TRANSACTION_INDEX) not in names:
                continue
            if base in self._read or not segment.aborted.load():
                self._doomed.discard(self._storage, segment.aborted.path)
                anew.add(base)
        return min(anew, default=LONG_MAX)

    def _note_batch(self, header: BatchHeader) -> None:
        self._has_markers |= bool(header.attributes & CONTROL)
        self._epochs.assign(header.partition_leader_epoch, header.base_offset)

    def end_offset(self, log_start_offset: int) -> int:
        """Return the log's end, which is not before its start."""
        end_offset = self.run()
        if end_offset >= log_start_offset:
            return end_offset
        # The part up to the checkpointed start is lost: no readable batch remains.
        why = f"the log ends at {end_offset}, before its start, {log_start_offset}"
        self.drop_after(-1, why)
        return log_start_offset

    def drop_after(self, number: int, why: str) -> None:
        """Remove the segments after this number, newest first."""
        while len(self._segments) > number + 1:
            dropped = self._segments.pop()
            if dropped.size:
                self._report(Loss(dropped.path(".log"), dropped.size, why))
            dropped.doom(self._doomed)
            self.has_dropped = True


def _base_offsets(storage: Storage, directory: str) -> list[int]:
    return [
        int(match[1])
        for name in storage.names(directory)
        if (match := _LOG.fullmatch(name))
    ]


def _finish_interrupted_work(
    storage: Storage, directory: str, config: LogConfig, now_ms: int
) -> bool:
    """Undo or finish interrupted compactions; return whether names changed."""
    names = storage.names(directory)
    changed = False
    for name in names:
        if name.endswith(_UNDONE):
            storage.remove(join(directory, name))
            changed = True
    for name in names:
        if match := _SWAP.fullmatch(name):
            _finish_swap(storage, directory, int(match[1]), config, now_ms)
            changed = True
    logs = set(_base_offsets(storage, directory))
    for name in storage.names(directory):
        match = _OF_SEGMENT.fullmatch(name)
        if match and int(match[1]) not in logs:
            storage.remove(join(directory, name))
            changed = True
    return changed


def _finish_swap(
    storage: Storage, directory: str, base_offset: int, config: LogConfig, now_ms: int
) -> None:
    """Replace the sources of a compacted segment by that segment.

    The last offset of the segment bounds its sources. A source beyond that offset, all
    of whose records were removed, stays and is compacted again later. Raises
    `MalformedCheckpoint` if the segment is damaged: its sources may be the only copy of
    its records.
    """
    swap = Segment(
        storage,
        directory,
        base_offset,
        config=config,
        created_ms=now_ms,
        suffix=SWAP,
    )
    try:
        ends = [header.last_offset for _, header in swap.headers()]
    except KafkaError as damage:
        path = swap.path(".log" + SWAP)
        raise MalformedCheckpoint(path, str(damage), "a compacted segment") from damage
    end = max(ends, default=base_offset)
    for base in reversed(_base_offsets(storage, directory)):
        if base_offset < base <= end:
            for kind in (".log", ".index", ".timeindex", ".txnindex"):
                remove_if_there(storage, join(directory, file_name(base, kind)))
    # Without indexes the segment is read, and aborted transactions are listed anew.
    for kind in (".index", ".timeindex", TRANSACTION_INDEX):
        remove_if_there(storage, join(directory, file_name(base_offset, kind)))
    storage.rename(
        join(directory, file_name(base_offset, ".log" + SWAP)),
        join(directory, file_name(base_offset, ".log")),
    )
