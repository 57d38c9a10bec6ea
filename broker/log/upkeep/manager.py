"""The logs of a broker's ``log.dirs``: found, opened, checkpointed, closed.

Kafka's ``LogManager``. A directory contains a sub-directory ``topic-partition`` per
log, the checkpoints of all logs and, after an orderly stop, a marker that makes
recovery unnecessary. At a start the marker is removed before any other change. Locks
keep other brokers from using the directories (`broker.disk.directory_locks`).

The periodic work on logs is in rounds.py and log_cleaner.py.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from posixpath import dirname
from typing import Final, TypeAlias
from uuid import UUID

from broker.disk import checkpoints
from broker.disk.disk_failures import LogStorageError, LogUnavailable
from broker.disk.log_dirs import LogDirs
from broker.disk.offset_files import OffsetFiles
from broker.disk.partition_metadata import read_topic_id, write_topic_id
from broker.disk.pending_removals import PendingRemovals, remove_all
from broker.disk.storage import Storage, join, remove_if_there, write_atomically
from broker.log import flushing
from broker.log.flush_times import FlushTimes
from broker.log.log import Log
from broker.log.producers import Producers
from broker.log.segments.log_config import LogConfig
from broker.log.steps import BlockingCall, Steps, run
from broker.log.trimming import recovery_floor, truncate_fully
from broker.log.upkeep.directory_names import (
    doomed_name,
    future_name,
    stray_name,
)
from broker.log.upkeep.offsets import (
    LOGS_PER_STEP,
    HighWatermark,
    gather,
    no_files,
    readers_by_home,
)
from broker.log.upkeep.opening import Opening, check_each_only_once
from broker.log.upkeep.periodic_task import CallsHere
from broker.log.upkeep.recovery import Report, open_log
from broker.log.upkeep.takeover import mark, mark_path, marked
from broker.protocol.errors import KafkaError, UncleanStop
from broker.protocol.topic_partition import TopicPartition

# Makes calls, possibly in threads, and returns when all have returned.
RunAll: TypeAlias = Callable[[Sequence[BlockingCall]], None]
_HERE: Final = CallsHere().run_all
_OFFSET_OF: Final[Mapping[str, Callable[[Log], int]]] = {
    checkpoints.RECOVERY_POINTS: attrgetter("recovery_point"),
    checkpoints.LOG_START_OFFSETS: attrgetter("log_start_offset"),
    checkpoints.CLEANER_OFFSETS: attrgetter("cleaner_offset"),
}
_CLEAN: Final = b'{"version":0,"brokerEpoch":-1}'


class LogManager:
    """All logs of this broker, by (topic, partition).

    Methods that access the disk raise ``OSError``, or `KafkaError` if a log raises it.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        storage: Storage,
        *,
        config_of: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
        report: Report = lambda loss: None,
        on_topic_removed: Callable[[str], None] = lambda topic: None,
        flush_times: FlushTimes | None = None,
    ) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        # The partitions of each topic, and the number of logs in each directory.
        self._indexes: dict[str, set[int]] = {}
        self._in_directory: Counter[str] = Counter()
        # Checkpointed high watermarks of the logs found at the start.
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.log_dirs = log_dirs
        self.storage = storage
        self._config_of = config_of
        self.now_ms = now_ms
        self._flush_times = flush_times
        self._report = report
        # Called with a topic whose last log here is removed.
        self._on_topic_removed = on_topic_removed
        # Copies that will replace logs in other directories.
        self.futures: dict[TopicPartition, Log] = {}
        # Replaced logs, which are still to be removed.
        self.left: dict[TopicPartition, Log] = {}
        # Requested directories of partitions that have no log yet.
        self.preferred: dict[TopicPartition, str] = {}
        # Paths to be removed: files of segments, directories of partitions.
        self.doomed = PendingRemovals()
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._deletions = 0
        self._files = OffsetFiles(storage)
        # By directory, the partitions without a log that checkpoints may still contain.
        self._deleted: dict[str, set[TopicPartition]] = {}

    # ---- start and stop ----

    def open(self, run_all: RunAll = _HERE) -> None:
        """Open all logs in the existing directories, by ``run_all``.

        A directory that cannot be read is taken offline. Raises `ConfigError` if two
        directories have the same partition.
        """
        openings = []
        for directory in self.log_dirs.online:
            with self._or_offline(directory):
                openings.append(
                    Opening(directory, self.storage, self._files, self.doomed)
                )
        for settle in (self._settle_exchanges, self._sort_futures):
            for each in openings:
                with self._or_offline(each.directory):
                    settle(each, openings)
            online = self.log_dirs.online
            openings = [each for each in openings if each.directory in online]
        check_each_only_once(openings)
        ways = self._config_of, self.now_ms(), self._report, self._note
        run_all([call for each in openings for call in each.calls(*ways)])
        for opening in openings:
            with self._or_offline(opening.directory):
                for key, log in opening.opened().items():
                    topic_id = read_topic_id(self.storage, log.directory)
                    if topic_id is not None:
                        self._topic_ids[key] = topic_id
                    self._add(key, log)
                    if key in opening.high_watermarks:
                        self.high_watermarks[key] = opening.high_watermarks[key]
                for key, future in opening.opened_futures().items():
                    self._add_future(key, future)
                cut_short = opening.cut_short()
                run(self._keeping(cut_short, checkpoints.RECOVERY_POINTS))
        for opening in openings:
            known = self._files.known(opening.directory)
            self._deleted[opening.directory] = known - opening.kept()
        self._check_futures()
        # After an error, for example a full disk, a later round repeats this.
        with suppress(OSError):
            run(self.checkpointing_deletions())

    def _settle_exchanges(self, opening: Opening, openings: Sequence[Opening]) -> None:
        """Decide which log is the partition's if a marked log is found."""
        for key in opening.marked:
            path = opening.paths[key]
            if any(key in each.paths for each in openings if each is not opening):
                self._doom(key, path)
            elif marked(self.storage, path) in self.log_dirs.offline:
                # The other log may be in the offline directory: do not use this.
                opening.unknown.add(key)
            else:
                self.storage.remove(mark_path(path))
                continue
            del opening.paths[key]

    def _sort_futures(self, opening: Opening, openings: Sequence[Opening]) -> None:
        """Keep one copy of each log that is in another directory.

        A copy without a log is set aside, unless the log may be in an offline
        directory.
        """
        elsewhere = [each for each in openings if each is not opening]
        for key, paths in opening.found_futures.items():
            has_log = any(key in each.paths for each in elsewhere)
            for path in paths:
                if has_log and not any(key in each.futures for each in openings):
                    opening.futures[key] = path
                elif has_log or key in opening.paths:
                    self._doom(key, path)
                elif not self.log_dirs.offline:
                    taken = self.storage.names(opening.directory)
                    kept_as = join(opening.directory, stray_name(key, taken))
                    self.storage.rename(path, kept_as)

    def _check_futures(self) -> None:
        """Drop copies of logs that were not opened or that belong to another topic."""
        for key, future in tuple(self.futures.items()):
            with self._or_offline(future.home):
                topic_id = read_topic_id(self.storage, future.directory)
                if key not in self.logs:
                    self._take_future(key).close("its log is offline")
                elif topic_id not in (None, self._topic_ids.get(key)):
                    self.remove_future(key)

    @contextmanager
    def _or_offline(self, directory: str) -> Iterator[None]:
        """Take a directory out of service if its device fails."""
        try:
            yield
        except OSError as error:
            self.log_dirs.take_offline(directory, error)
            self.close_directory(directory)

    def close(
        self,
        high_watermark: HighWatermark,
        run_all: RunAll,
    ) -> None:
        """Settle and close every log, and write the marker of an orderly stop.

        ``run_all`` may use threads: each call accesses another log. A directory gets no
        marker if it or one of its logs fails; `UncleanStop` is raised after all other
        directories are closed. An offline directory counts as failed.
        """
        failed: dict[str, Exception] = {
            directory: OSError(f"{directory} is offline: {reason}")
            for directory, reason in self.log_dirs.offline.items()
        }

        def settle(log: Log) -> None:
            try:
                flushing.settle(log)
            except KafkaError as error:
                failed.setdefault(log.home, error)

        failed |= self._sync_homes()
        every = (*self.logs.values(), *self.futures.values())
        run_all([partial(settle, log) for log in every])
        for log in every:
            log.close(f"{log.directory}: the broker is stopping")
        files = run(gather(self.logs, high_watermark, self._others()))
        for directory in self.log_dirs.online:
            try:
                self._files.writing(
                    directory, files.get(directory, no_files()), self._files.view()
                )()
                if directory not in failed:
                    write_atomically(
                        self.storage, directory, checkpoints.CLEAN_SHUTDOWN, _CLEAN
                    )
            except OSError as error:
                failed.setdefault(directory, error)
        if failed:
            raise UncleanStop("; ".join(map(str, failed.values())))

    def _sync_homes(self) -> dict[str, Exception]:
        """Sync each directory once, instead of once per log; return the failures."""
        failed: dict[str, Exception] = {}
        for directory in self.log_dirs.online:
            try:
                self.storage.sync_directory(directory)
            except OSError as error:
                failed[directory] = error
        for log in self.logs.values():
            if log.home not in failed:
                log.durability.home_synced()
        return failed

    # ---- creation and removal of logs ----

    def open_log(
        self, key: TopicPartition, topic_id: UUID | None, *, is_new: bool = True
    ) -> Log:
        """Return the log of a partition; create it if there is none.

        A new log is created in the requested directory, or in the directory with the
        fewest logs. Raises KAFKA_STORAGE_ERROR if no directory is online or, unless
        ``is_new``, if the log may be in an offline directory, as in Kafka. Raises
        ``OSError`` while a checkpoint may contain an earlier log of this name: see
        `checkpointing_deletions`.
        """
        log = self.logs.get(key)
        if log is None:
            offline = self.log_dirs.offline
            if not self.log_dirs.online or (offline and not is_new):
                raise LogUnavailable(f"offline: {', '.join(offline)}")
            home = self.preferred.pop(key, "")
            if home not in self.log_dirs.online:
                home = self._emptiest()
            topic, partition = key
            log = self._created(key, home, f"{topic}-{partition}")
            self._add(key, log)
        if topic_id is not None and key not in self._topic_ids:
            with self._reporting(log.home):
                path = write_topic_id(self.storage, log.directory, topic_id)
            log.durability.add(path)
            self._topic_ids[key] = topic_id
        return log

    def _created(self, key: TopicPartition, home: str, name: str) -> Log:
        topic, _ = key
        with self._reporting(home):
            if key in self._deleted.get(home, ()):
                raise OSError(errno.EAGAIN, f"checkpoints describe another {key}")
            return open_log(
                join(home, name),
                self._config_of(topic),
                self.storage,
                self.now_ms(),
                doomed=self.doomed,
                on_failure=self._note,
            )

    def may_be_offline(self, key: TopicPartition) -> bool:
        """Return whether an unknown log may be in an offline directory."""
        return key not in self.logs and bool(self.log_dirs.offline)

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """Return the topic id with which the partition's log was created."""
        return self._topic_ids.get(key)

    def delete_log(self, key: TopicPartition) -> None:
        """Close the log of a partition, if there is one, and drop its files.

        All further operations on the log are refused. The directory is renamed, as in
        Kafka, so that after a crash there is either the whole log or none. A round
        removes the directory after ``file.delete.delay.ms``. If the renaming fails, the
        log stays closed, and the next call tries again. Raises ``OSError``.
        """
        log = self.logs.get(key)
        if log is None:
            return
        self.remove_future(key)
        if key in self.left:
            self._leave(key)
        log.close(f"{log.directory}: the log was deleted")
        self._doom(key, log.directory, log.config.file_delete_delay_ms)
        self._take(key)
        self._topic_ids.pop(key, None)

    def _doom(self, key: TopicPartition, path: str, delay_ms: int = 0) -> None:
        """Rename a log's directory for removal; raise ``OSError``."""
        home, doomed = dirname(path), path
        with self._reporting(home):
            while self.storage.is_directory(doomed):
                self._deletions += 1
                doomed = join(home, doomed_name(key, self._deletions))
            self.storage.rename(path, doomed)
        self._deleted.setdefault(home, set()).add(key)
        self.doomed.add(doomed, self.now_ms(), delay_ms)

    def syncing_names(self) -> Steps[None]:
        """Make creations and removals of logs durable; raise OSError."""
        for directory in tuple(self.log_dirs.online):
            with self._reporting(directory):
                yield partial(self.storage.sync_directory, directory)
        yield from self.checkpointing_deletions()

    def checkpointing_deletions(self) -> Steps[None]:
        """Remove deleted logs from the checkpoints; raise OSError.

        Until then no log is created under these names.
        """
        for directory in tuple(self.log_dirs.online):
            deleted = frozenset(self._deleted.get(directory, ()))
            if deleted:
                still = self._deleted[directory]
                with self._reporting(directory):
                    yield partial(self._files.remove, directory, deleted, still)
                still -= deleted

    def close_directory(self, directory: str) -> list[TopicPartition]:
        """Close the logs of an offline directory; return their partitions."""
        reason = f"{directory} is offline: {self.log_dirs.offline[directory]}"
        lost = [key for key, log in self.logs.items() if log.home == directory]
        for key in lost:
            self._take(key).close(reason)
        for key, future in tuple(self.futures.items()):
            # A copy without its log is not used until the next start.
            if future.home == directory or key not in self.logs:
                self._take_future(key).close(reason)
        for key, log in tuple(self.left.items()):
            if log.home == directory or key not in self.logs:
                del self.left[key]
        return lost

    def set_aside(self, key: TopicPartition) -> str:
        """Rename the log of a partition as a stray; return the new path.

        No data is removed. Raises OSError.
        """
        self.remove_future(key)
        log = self._take(key)
        self._deleted.setdefault(log.home, set()).add(key)
        self._topic_ids.pop(key, None)
        home = log.home
        kept_as = join(home, stray_name(key, self.storage.names(home)))
        log.close(f"{log.directory}: the log was set aside")
        self.storage.rename(log.directory, kept_as)
        self.storage.sync_directory(home)
        return kept_as

    def configure(self, topic: str) -> Steps[None]:
        """Apply the present settings of a topic to its logs."""
        for number, index in enumerate(tuple(self._indexes.get(topic, ())), 1):
            key = TopicPartition(topic, index)
            for log in (self.logs.get(key), self.futures.get(key)):
                if log is not None:
                    log.configure(self._config_of(topic))
            if not number % LOGS_PER_STEP:
                yield None
        yield None

    def has_logs_of(self, topic: str) -> bool:
        """Return whether a topic has a log here."""
        return topic in self._indexes

    def topics(self) -> list[str]:
        """Return the topics that have logs here."""
        return list(self._indexes)

    def checkpoint(self, high_watermark: HighWatermark) -> Steps[None]:
        """Write recovery points, log starts, high watermarks and cleaner offsets.

        If a directory fails, the others are written first; then its error is raised.
        """
        refused: OSError | None = None
        view = self._files.view()
        files = yield from gather(self.logs, high_watermark, self._others())
        for directory in self.log_dirs.online:
            content = files.get(directory, no_files())
            try:
                with self._reporting(directory):
                    yield self._files.writing(directory, content, view)
            except OSError as error:
                refused = error
        if refused is not None:
            raise refused
        yield from self.checkpointing_deletions()

    def keeping_starts(self, keys: Iterable[TopicPartition]) -> dict[str, BlockingCall]:
        """Return the calls, by directory, that checkpoint the start of these logs.

        After a kill, records before the start then stay deleted. The caller reports an
        OSError of a call. Cost: a small file and its fsync.
        """
        logs = {key: self.logs[key] for key in keys}
        add, name = self._files.add, checkpoints.LOG_START_OFFSETS
        readers = readers_by_home(logs, _OFFSET_OF[name])
        return {home: partial(add, home, name, read) for home, read in readers.items()}

    def lowering(self, ends: Mapping[TopicPartition, int]) -> Steps[None]:
        """Lower recovery points and cleaner offsets before logs are truncated to ends.

        They are also lowered on disk. Otherwise, after a kill, batches written after
        the truncation would be trusted, or treated as compacted. Raises OSError.
        """
        lowered: dict[TopicPartition, Log] = {}
        uncleaned: dict[TopicPartition, Log] = {}
        for key, end in ends.items():
            log = self.logs.get(key)
            if log is None or end >= max(log.recovery_point, log.cleaner_offset):
                continue
            floor = recovery_floor(log, end)
            if end < log.recovery_point:
                lowered[key] = log
            if end < log.cleaner_offset:
                # Kafka: `LogCleanerManager.maybeTruncateCheckpoint`.
                log.cleaner_offset = floor
                uncleaned[key] = log
            # Also ends a compaction in progress.
            log.durability.lower(floor)
        yield from self._keeping(lowered, checkpoints.RECOVERY_POINTS)
        yield from self._keeping(uncleaned, checkpoints.CLEANER_OFFSETS)

    def _keeping(self, logs: Mapping[TopicPartition, Log], name: str) -> Steps[None]:
        readers = readers_by_home(logs, _OFFSET_OF[name])
        for home, read in readers.items():
            with self._reporting(home):
                yield partial(self._files.add, home, name, read)

    # ---- moves to another directory ----

    def begin_future(self, key: TopicPartition, home: str, number: UUID) -> None:
        """Create the copy that will replace a partition's log.

        Raises ``OSError``. Raises KAFKA_STORAGE_ERROR while any directory is offline,
        as in Kafka, because it may contain another copy.
        """
        log = self.logs[key]
        if self.log_dirs.offline:
            raise LogUnavailable(f"offline: {', '.join(self.log_dirs.offline)}")
        name = future_name(key, number)
        try:
            future = self._created(key, home, name)
            topic_id = self._topic_ids.get(key)
            if topic_id is not None:
                with self._reporting(home):
                    path = write_topic_id(self.storage, future.directory, topic_id)
                future.durability.add(path)
        except OSError:
            # An incomplete copy must not start a move at the next start.
            self.doomed.add(join(home, name), self.now_ms())
            raise
        self._add_future(key, future)
        self.preferred.pop(key, None)
        # End a compaction in progress, which would make the log cleaner than its copy.
        log.durability.lower(log.recovery_point)

    def remove_future(self, key: TopicPartition) -> None:
        """Cancel a move, if there is one; raise ``OSError``."""
        future = self.futures.get(key)
        if future is None:
            return
        future.close(f"{future.directory}: the move was cancelled")
        self._doom(key, future.directory)
        self._take_future(key)
        log = self.logs[key]
        with self._reporting(log.home):
            remove_if_there(self.storage, mark_path(log.directory))

    def emptying_future(self, key: TopicPartition) -> Steps[None]:
        """Empty a copy and restart it at its log's start; raise ``OSError``."""
        log, future = self.logs[key], self.futures[key]
        future.durability.lower(0)
        yield from self._keeping({key: future}, checkpoints.RECOVERY_POINTS)
        truncate_fully(future, log.log_start_offset, self.now_ms(), Producers())

    def noting_exchange(self, key: TopicPartition) -> Steps[None]:
        """Record durably that a copy replaces its log, and the copy's offsets.

        Raises ``OSError``.
        """
        log, future = self.logs[key], self.futures[key]
        # A later `checkpointing_deletions` could otherwise remove these offsets.
        yield from self.checkpointing_deletions()
        for name in _OFFSET_OF:
            yield from self._keeping({key: future}, name)
        with self._reporting(log.home):
            yield partial(mark, self.storage, log.directory, future.home)

    def exchange(self, key: TopicPartition) -> None:
        """Replace a log by a copy of the same content; raise ``OSError``.

        The log is closed, and `leaving` removes it.
        """
        log, future = self.logs[key], self.futures[key]
        topic, partition = key
        before, path = future.directory, join(future.home, f"{topic}-{partition}")
        with self._reporting(future.home):
            if self.storage.is_directory(path):
                raise OSError(errno.EAGAIN, f"{path} is there already")
            self.storage.rename(before, path)
        self.doomed.moved(before, path)
        future.moved(path)
        del self.futures[key]
        self.logs[key] = future
        self._in_directory[log.home] -= 1
        future.producers.take_guards(log.producers)
        future.flushed_ms = log.flushed_ms
        log.successor = future
        log.close(f"{log.directory}: the log has moved to {future.home}")
        self.left[key] = log

    def leaving(self, key: TopicPartition) -> Steps[None]:
        """Remove a replaced log, once its replacement is durable.

        Raises ``OSError``.
        """
        log, home = self.left[key], self.logs[key].home
        with self._reporting(home):
            yield partial(self.storage.sync_directory, home)
        if self.left.get(key) is log:
            self._leave(key)
            with self._reporting(log.home):
                yield partial(self.storage.sync_directory, log.home)

    def _leave(self, key: TopicPartition) -> None:
        log = self.left[key]
        self._doom(key, log.directory, log.config.file_delete_delay_ms)
        del self.left[key]

    def _others(self) -> list[tuple[TopicPartition, Log]]:
        """Return the copies and the replaced logs."""
        return [*self.futures.items(), *self.left.items()]

    def _add_future(self, key: TopicPartition, future: Log) -> None:
        self.futures[key] = future
        future.durability.flush_times = self._flush_times
        self._in_directory[future.home] += 1

    def _take_future(self, key: TopicPartition) -> Log:
        future = self.futures.pop(key)
        self._in_directory[future.home] -= 1
        return future

    # ---- removal ----

    def remove(self, path: str) -> Steps[None]:
        """Remove a path of `doomed`; raise OSError.

        Paths in an offline directory are removed after the next start.
        """
        for home in self.log_dirs.online:
            if path.startswith(f"{home}/"):
                with self._reporting(home):
                    yield partial(remove_all, self.storage, path)

    # ---- helpers ----

    @contextmanager
    def _reporting(self, directory: str) -> Iterator[None]:
        """Report an error of the device as a failure of the directory."""
        try:
            yield
        except OSError as error:
            self.log_dirs.failed(directory, error)
            raise

    def _note(self, failure: LogStorageError) -> None:
        self.log_dirs.failed(failure.log_dir, failure.error)

    def _add(self, key: TopicPartition, log: Log) -> None:
        topic, index = key
        self.logs[key] = log
        log.durability.flush_times = self._flush_times
        self._indexes.setdefault(topic, set()).add(index)
        self._in_directory[log.home] += 1

    def _take(self, key: TopicPartition) -> Log:
        topic, index = key
        log = self.logs.pop(key)
        self._indexes[topic].remove(index)
        if not self._indexes[topic]:
            del self._indexes[topic]
            self._on_topic_removed(topic)
        self._in_directory[log.home] -= 1
        return log

    def _emptiest(self) -> str:
        """Return the directory in service with the fewest logs."""
        return min(self.log_dirs.online, key=lambda each: self._in_directory[each])
