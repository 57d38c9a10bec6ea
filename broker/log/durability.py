"""Durability of a log: the synced part, and the work of the next flush.

Kafka's ``LocalLog.flush`` and its recovery point. A flush is `Syncs`, a value: the log
lists the files to sync, any thread runs it, and the log records the outcome. After a
failed ``fsync`` the kernel may have dropped the pages and report success the next time.
The log is therefore out of service until a restart recovers it. After a full disk, it
is out of service only until mending.py has rewritten the unsynced data.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import suppress
from posixpath import basename, dirname
from typing import Final, NamedTuple

from broker.disk.closable_storage import ClosableStorage
from broker.disk.disk_failures import LogStorageError, LogUnavailable
from broker.disk.storage import File, Storage, join
from broker.log.epochs import LeaderEpochs
from broker.log.flush_times import FlushTimes
from broker.log.segments.segment import Segment
from broker.log.steps import BlockingCall

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


class NothingSynced(OSError):
    """A failure before any sync: no page is lost, and the flush can be repeated.

    Raised from the error of the device.
    """


def sync_names(storage: Storage, directory: str) -> None:
    """Make the names in a directory durable; raise OSError, perhaps `NothingSynced`."""
    try:
        storage.sync_directory(directory)
    except OSError as error:
        if error.errno in _NO_DESCRIPTOR:
            raise NothingSynced(error.errno, str(error)) from error
        raise


class Syncs(NamedTuple):
    """The files and directories to sync for durability below ``offset``."""

    epochs: BlockingCall | None
    storage: Storage
    directories: Sequence[str]
    files: Sequence[File]
    segments: Sequence[Segment]
    offset: int
    generation: int
    names: int
    times: FlushTimes | None
    # Contains the duration once the syncs have run.
    took_ns: list[int]

    def run(self) -> None:
        """Sync files, then names. Accesses no log, so it may run in another thread."""
        if self.times is None:
            self._sync()
            return
        begun_ns = self.times.now_ns()
        self._sync()
        self.took_ns.append(self.times.now_ns() - begun_ns)

    def _sync(self) -> None:
        if self.epochs is not None:
            try:
                self.epochs()
            except OSError as error:
                raise NothingSynced(error.errno, str(error)) from error
        for file in self.files:
            file.sync()
        for directory in self.directories:
            try:
                sync_names(self.storage, directory)
            except NothingSynced:
                raise
            except OSError as error:
                # Files can be rewritten after a full disk; names cannot.
                raise OSError(errno.EIO, f"names are not durable: {error}") from error


class Durability:
    """The recovery point of a log, below which all data is durable, and its changes."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_home_is_durable",
        "_names",
        "_names_synced",
        "_snapshots",
        "_storage",
        "_unflushed",
        "closed",
        "flush_times",
        "generation",
        "mendable",
        "out_of_service",
        "recovery_point",
    )

    def __init__(
        self,
        storage: ClosableStorage,
        directory: str,
        epochs: LeaderEpochs,
        recovery_point: int,
        unflushed: list[Segment],
        *,
        names_changed: bool,
    ) -> None:
        self._storage = storage
        self._directory = directory
        self._epochs = epochs
        self.recovery_point = recovery_point
        # Segments that ended or were repaired since the last flush, oldest first.
        self._unflushed = unflushed
        # Paths of producer snapshots written since the last flush, each with the count
        # of changes at that time. Not open files: too many would stay open for long.
        self._snapshots: dict[str, int] = {}
        # Counts truncations: syncs begun before a truncation are void.
        self.generation = 0
        # Counts changes of names in the directory; the count at the last sync.
        self._names = int(names_changed)
        self._names_synced = 0
        self._home_is_durable = False
        # Counts flushes, for metrics.
        self.flush_times: FlushTimes | None = None
        # The reason why appends are refused after a failed flush.
        self.out_of_service: str | None = None
        # The flush failed because the disk was full.
        self.mendable = False
        self.closed = False

    def rolled(self, ended: Segment, snapshot: str | None) -> None:
        """Record that a segment ended, and that files were created."""
        self._unflushed.append(ended)
        self._names += 1
        if snapshot is not None:
            self.add(snapshot)

    def add(self, snapshot: str) -> None:
        """Record the path of a file that the next flush must sync."""
        self._names += 1
        self._snapshots[snapshot] = self._names

    def note_removed(self, old: Sequence[Segment]) -> None:
        """Record that segments were removed, or replaced by a synced copy."""
        removed = set(map(id, old))
        self._unflushed = [
            segment for segment in self._unflushed if id(segment) not in removed
        ]
        self._names += bool(old)

    def truncated(self, log_end_offset: int, kept: Sequence[Segment]) -> None:
        """Record that the log was truncated to ``log_end_offset``."""
        self.generation += 1
        # Otherwise a flush without new data would leave the old end on disk.
        self._names += 1
        self.recovery_point = min(self.recovery_point, log_end_offset)
        still_there = set(map(id, kept))
        self._unflushed = [
            segment for segment in self._unflushed if id(segment) in still_there
        ]

    def lower(self, recovery_point: int) -> None:
        """Lower the recovery point, and void flushes in progress."""
        self.generation += 1
        self.recovery_point = min(self.recovery_point, recovery_point)

    def flush(self, active: Segment, log_end_offset: int) -> None:
        """Make all data durable, with blocking calls."""
        self.run(self.syncs(active, log_end_offset))

    def run(self, syncs: Syncs | None) -> None:
        """Run syncs, if any, with blocking calls."""
        if syncs is None:
            return
        try:
            syncs.run()
        except OSError as error:
            raise self.sync_failed(error) from error
        self.done(syncs)

    def syncs(
        self, active: Segment, log_end_offset: int, more: Sequence[File] = ()
    ) -> Syncs | None:
        """Return the work of the next flush; None if all data is durable.

        The caller reports with ``done`` or ``sync_failed``. Raises KAFKA_STORAGE_ERROR
        if the files could not be written; the log is then unchanged.
        """
        self.check_in_service()
        if log_end_offset == self.recovery_point and self._names == self._names_synced:
            return None
        return self._syncs_of(self._unflushed, (active.file, *more), log_end_offset)

    @property
    def everything(self) -> bool:
        """Return whether all recorded changes of files and names are durable."""
        return self._names == self._names_synced and not self._unflushed

    def syncs_of_ended(self, offset: int) -> Syncs:
        """Return the syncs of the segments that ended at ``offset`` or before.

        There may be none, if a compaction has replaced these segments by synced copies.
        """
        self.check_in_service()
        ended = [each for each in self._unflushed if each.base_offset < offset]
        return self._syncs_of(ended, (), offset)

    def _syncs_of(
        self, ended: Sequence[Segment], more: Sequence[File], offset: int
    ) -> Syncs:
        epochs = self._epochs.writing()
        if epochs is not None:
            self._names += 1
        files: list[File] = []
        try:
            for path in self._snapshots:
                # A snapshot that was removed since is not needed.
                with suppress(FileNotFoundError):
                    files.append(self._storage.open(path))
            for segment in ended:
                files += [segment.file, *segment.write_indexes()]
        except OSError as error:
            raise self._storage.failure(self._directory, error) from error
        return Syncs(
            epochs,
            self._storage,
            self._changed_directories(),
            [*files, *more],
            tuple(ended),
            offset,
            self.generation,
            self._names,
            self.flush_times,
            [],
        )

    def _changed_directories(self) -> Sequence[str]:
        if self._names == self._names_synced:
            return ()
        home = () if self._home_is_durable else (dirname(self._directory),)
        return (self._directory, *home)

    def moved(self, directory: str) -> None:
        """Record that the log's directory was renamed, which is not durable yet."""
        self._snapshots = {
            join(directory, basename(path)): at for path, at in self._snapshots.items()
        }
        self._directory = directory
        self._names += 1
        self._home_is_durable = False

    def home_synced(self) -> None:
        """Record that the log's own name is durable in its parent directory."""
        self._home_is_durable = True

    def done(self, syncs: Syncs) -> None:
        """Record finished syncs, and advance the recovery point."""
        if syncs.times is not None:
            for took_ns in syncs.took_ns:
                syncs.times.add(took_ns)
        if syncs.directories:
            self._names_synced = syncs.names
            self._home_is_durable = True
        if syncs.generation != self.generation:
            return
        synced = set(map(id, syncs.segments))
        self._unflushed = [
            segment for segment in self._unflushed if id(segment) not in synced
        ]
        for segment in syncs.segments:
            segment.release_indexes()
        self._snapshots = {
            path: at for path, at in self._snapshots.items() if at > syncs.names
        }
        self.recovery_point = max(self.recovery_point, syncs.offset)

    def close(self, reason: str) -> None:
        """Take the log out of service permanently, as it is closed."""
        self.out_of_service = reason
        self.closed = True
        self.mendable = False
        self.generation += 1

    def sync_failed(self, error: OSError) -> LogStorageError | LogUnavailable:
        """Return the error to raise; end the log's service if pages may be lost."""
        if isinstance(error, NothingSynced) and not self.closed:
            return self._storage.failure(self._directory, error)
        return self.failed(error)

    def failed(self, error: OSError) -> LogStorageError | LogUnavailable:
        """Take the log out of service; return the error to raise."""
        if self.closed:
            # An error on a closed log does not mean that the device has failed.
            assert self.out_of_service is not None
            return LogUnavailable(self.out_of_service)
        self.out_of_service = f"{self._directory}: a flush failed: {error}"
        self.mendable = error.errno in _FULL
        # Syncs in progress may report success for lost pages.
        self.generation += 1
        return self._storage.failure(self._directory, error)

    def take_up(self) -> None:
        """Return the log to service, after all undurable data was rewritten."""
        assert self.mendable, self.out_of_service
        self.out_of_service = None
        self.mendable = False

    @property
    def unflushed(self) -> Sequence[Segment]:
        """Return the segments that ended or were repaired since the last flush."""
        return self._unflushed

    def check_in_service(self) -> None:
        """Raise KAFKA_STORAGE_ERROR after a failed flush or if the log is closed."""
        if self.out_of_service:
            raise LogUnavailable(self.out_of_service)
