"""The logs of a broker's ``log.dirs``: found, opened, checkpointed, closed.

Kafka's ``LogManager``. A directory holds one sub-directory ``topic-partition`` per log,
the checkpoints of all of them, and, after an orderly stop, a marker that spares the
next start the recovery. The marker goes before anything else is touched. No other
broker has the directories meanwhile (`broker.disk.directory_locks`).

Their periodic work is in rounds.py and log_cleaner.py.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import Final, TypeAlias
from uuid import UUID

from broker.disk import checkpoints
from broker.disk.failures import LogStorageError, LogUnavailable
from broker.disk.log_dirs import LogDirs
from broker.disk.offset_files import OffsetFiles
from broker.disk.partition_metadata import read_topic_id, write_topic_id
from broker.disk.pending_removals import PendingRemovals, remove_all
from broker.disk.storage import Storage, join, write_atomically
from broker.log import flushing
from broker.log.flush_times import FlushTimes
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.steps import BlockingCall, Steps, run
from broker.log.trimming import recovery_floor
from broker.log.upkeep.directory_names import (
    doomed_name,
    stray_name,
)
from broker.log.upkeep.offsets import (
    LOGS_PER_STEP,
    HighWatermark,
    gather,
    looks_by_home,
    no_files,
)
from broker.log.upkeep.opening import Opening, check_each_only_once
from broker.log.upkeep.periodic_task import CallsHere
from broker.log.upkeep.recovery import Report, open_log
from broker.protocol.errors import KafkaError, UncleanStop
from broker.protocol.topic_partition import TopicPartition

# Makes calls, in threads if it likes, and returns when all have returned.
RunAll: TypeAlias = Callable[[Sequence[BlockingCall]], None]
_HERE: Final = CallsHere().run_all
_OFFSET_OF: Final[Mapping[str, Callable[[Log], int]]] = {
    checkpoints.RECOVERY_POINTS: attrgetter("recovery_point"),
    checkpoints.CLEANER_OFFSETS: attrgetter("cleaner_offset"),
}
_CLEAN: Final = b'{"version":0,"brokerEpoch":-1}'


class LogManager:
    """Every log of this broker, by (topic, partition).

    What touches the disk raises ``OSError``, or `KafkaError` where a log does.
    """

    def __init__(
        self,
        log_dirs: LogDirs,
        storage: Storage,
        *,
        config_of: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
        report: Report = lambda loss: None,
        on_gone: Callable[[str], None] = lambda topic: None,
        flush_times: FlushTimes | None = None,
    ) -> None:
        self.logs: dict[TopicPartition, Log] = {}
        # The partitions of each topic, and how many logs a directory has.
        self._indexes: dict[str, set[int]] = {}
        self._in_directory: Counter[str] = Counter()
        # High watermarks as they were written last, of the logs found at the start.
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.log_dirs = log_dirs
        self.storage = storage
        self._config_of = config_of
        self.now_ms = now_ms
        self._flush_times = flush_times
        self._report = report
        # Called with a topic that has no log here any more.
        self._on_gone = on_gone
        # Paths to be removed: files of segments, directories of partitions.
        self.doomed = PendingRemovals()
        self._topic_ids: dict[TopicPartition, UUID] = {}
        self._deletions = 0
        self._files = OffsetFiles(storage)
        # Partitions without a log that a checkpoint may still describe.
        self._gone: set[TopicPartition] = set()

    # ---- start and stop ----

    def open(self, run_all: RunAll = _HERE) -> None:
        """Open all logs in the directories, which exist, by ``run_all``.

        A directory that cannot be read is offline from then on. Raises `ConfigError`
        if two have the same partition.
        """
        openings = []
        for directory in self.log_dirs.online:
            with self._or_offline(directory):
                openings.append(
                    Opening(directory, self.storage, self._files, self.doomed)
                )
        check_each_only_once(openings)
        ways = self._config_of, self.now_ms(), self._report, self._note
        run_all([call for each in openings for call in each.calls(*ways)])
        for opening in openings:
            with self._or_offline(opening.directory):
                self.high_watermarks.update(opening.high_watermarks)
                for key, log in opening.opened().items():
                    topic_id = read_topic_id(self.storage, log.directory)
                    if topic_id is not None:
                        self._topic_ids[key] = topic_id
                    self._add(key, log)
                cut_short = opening.cut_short()
                run(self._keeping(cut_short, checkpoints.RECOVERY_POINTS))
        self._gone = self._files.known() - self.logs.keys()
        # On a full disk the logs of these names wait for a round.
        with suppress(OSError):
            run(self.forgetting_gone())

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
        """Settle and close every log, and leave the marker of an orderly stop.

        ``run_all`` runs calls, in threads if it likes: each touches a log of its own. A
        directory that fails, or one of whose logs does, gets no marker; `UncleanStop`
        is raised once all others are closed. One that is offline counts as failed.
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
        run_all([partial(settle, log) for log in self.logs.values()])
        for log in self.logs.values():
            log.close(f"{log.directory}: the broker is stopping")
        files = run(gather(self.logs, high_watermark))
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
        """Sync once what each log would sync again; return what failed."""
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

    # ---- logs come and go ----

    def open_log(
        self, key: TopicPartition, topic_id: UUID | None, *, is_new: bool = True
    ) -> Log:
        """Return the log of a partition, a new one if there is none.

        A new one goes to the directory with the fewest logs. Unless ``is_new``, the log
        may be in an offline directory: KAFKA_STORAGE_ERROR is then raised, as in Kafka,
        and where no directory is online. ``OSError`` is raised while a checkpoint may
        describe an earlier log of this name: see `forgetting_gone`.
        """
        log = self.logs.get(key)
        if log is None:
            offline = self.log_dirs.offline
            if not self.log_dirs.online or (offline and not is_new):
                raise LogUnavailable(f"offline: {', '.join(offline)}")
            home = self._emptiest()
            topic, partition = key
            with self._reporting(home):
                if key in self._gone:
                    raise OSError(errno.EAGAIN, f"checkpoints describe another {key}")
                log = open_log(
                    join(home, f"{topic}-{partition}"),
                    self._config_of(topic),
                    self.storage,
                    self.now_ms(),
                    doomed=self.doomed,
                    on_failure=self._note,
                )
            self._add(key, log)
        if topic_id is not None and key not in self._topic_ids:
            with self._reporting(log.home):
                path = write_topic_id(self.storage, log.directory, topic_id)
            log.durability.add(path)
            self._topic_ids[key] = topic_id
        return log

    def may_be_offline(self, key: TopicPartition) -> bool:
        """Return whether an unknown log may be in an offline directory."""
        return key not in self.logs and bool(self.log_dirs.offline)

    def topic_id(self, key: TopicPartition) -> UUID | None:
        """Return the topic id that the partition's log was created under."""
        return self._topic_ids.get(key)

    def delete_log(self, key: TopicPartition) -> None:
        """Close the log of a partition, if there is one, and drop its files.

        All further work on it is refused. The directory is renamed, as in Kafka, so
        that a crash leaves the log or none; a round removes it after
        ``file.delete.delay.ms``. If it cannot be renamed the log stays, closed, and the
        next call tries again. Raises ``OSError``.
        """
        log = self.logs.get(key)
        if log is None:
            return
        log.close(f"{log.directory}: the log was deleted")
        doomed = log.directory
        with self._reporting(log.home):
            while self.storage.is_directory(doomed):
                self._deletions += 1
                doomed = join(log.home, doomed_name(key, self._deletions))
            self.storage.rename(log.directory, doomed)
        self._take(key)
        self._gone.add(key)
        self._topic_ids.pop(key, None)
        self.doomed.add(doomed, self.now_ms(), log.config.file_delete_delay_ms)

    def syncing_names(self) -> Steps[None]:
        """Make durable which logs there are; raise OSError."""
        for directory in tuple(self.log_dirs.online):
            with self._reporting(directory):
                yield partial(self.storage.sync_directory, directory)
        yield from self.forgetting_gone()

    def forgetting_gone(self) -> Steps[None]:
        """Take deleted logs out of the checkpoints; raise OSError.

        Until then no log gets one of these names.
        """
        gone = frozenset(self._gone)
        if not gone:
            return
        for directory in tuple(self.log_dirs.online):
            with self._reporting(directory):
                yield partial(self._files.forget, directory, gone)
        self._gone -= gone

    def close_directory(self, directory: str) -> list[TopicPartition]:
        """Close the logs of a directory that is offline; return whose they are."""
        lost = [key for key, log in self.logs.items() if log.home == directory]
        for key in lost:
            log = self._take(key)
            log.close(f"{directory} is offline: {self.log_dirs.offline[directory]}")
        return lost

    def set_aside(self, key: TopicPartition) -> str:
        """Rename the log of a partition so that it is no log of ours; return to what.

        Nothing of it is removed. Raises OSError.
        """
        log = self._take(key)
        self._gone.add(key)
        self._topic_ids.pop(key, None)
        home = log.home
        kept_as = join(home, stray_name(key, self.storage.names(home)))
        log.close(f"{log.directory}: the log was set aside")
        self.storage.rename(log.directory, kept_as)
        self.storage.sync_directory(home)
        return kept_as

    def configure(self, topic: str) -> Steps[None]:
        """Give the logs of a topic its settings anew, those of the moment."""
        for number, index in enumerate(tuple(self._indexes.get(topic, ())), 1):
            log = self.logs.get(TopicPartition(topic, index))
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

        A directory that cannot is passed over; its error is raised at the end.
        """
        refused: OSError | None = None
        view = self._files.view()
        files = yield from gather(self.logs, high_watermark)
        for directory in self.log_dirs.online:
            content = files.get(directory, no_files())
            try:
                with self._reporting(directory):
                    yield self._files.writing(directory, content, view)
            except OSError as error:
                refused = error
        if refused is not None:
            raise refused
        yield from self.forgetting_gone()

    def keeping_starts(self, keys: Iterable[TopicPartition]) -> dict[str, BlockingCall]:
        """Return the calls, by directory, that write where these logs start.

        So that no kill brings back what lies before. An OSError of theirs is to be
        reported. Cost: a small file and its fsync.
        """
        logs = {key: self.logs[key] for key in keys}
        looks = looks_by_home(logs, attrgetter("log_start_offset"))
        add, name = self._files.add, checkpoints.LOG_START_OFFSETS
        return {home: partial(add, home, name, look) for home, look in looks.items()}

    def lowering(self, ends: Mapping[TopicPartition, int]) -> Steps[None]:
        """Lower recovery points and cleaner offsets before logs are truncated to ends.

        On disk too: otherwise a start after a kill would trust batches written after
        the truncation, or take them for compacted. Raises OSError.
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
            # Ends a compaction under way, too.
            log.durability.lower(floor)
        yield from self._keeping(lowered, checkpoints.RECOVERY_POINTS)
        yield from self._keeping(uncleaned, checkpoints.CLEANER_OFFSETS)

    def _keeping(self, logs: Mapping[TopicPartition, Log], name: str) -> Steps[None]:
        looks = looks_by_home(logs, _OFFSET_OF[name])
        for home, look in looks.items():
            with self._reporting(home):
                yield partial(self._files.add, home, name, look)

    def remove(self, path: str) -> Steps[None]:
        """Remove a path that is `doomed`; raise OSError.

        Paths in an offline directory wait for the next start.
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
            self._on_gone(topic)
        self._in_directory[log.home] -= 1
        return log

    def _emptiest(self) -> str:
        """Return the directory in service with the fewest logs."""
        return min(self.log_dirs.online, key=lambda each: self._in_directory[each])
