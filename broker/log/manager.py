"""The logs of a broker's ``log.dirs``: found, opened, checkpointed, closed.

Kafka's ``LogManager``. A directory holds one sub-directory ``topic-partition`` per log,
the checkpoints of all of them, and, after an orderly stop, a marker that spares the
next start the recovery. The marker goes before anything else is touched. Two brokers
never share a directory: a lock is held as long as this object lives.

What runs now and then (flushes, retention, compaction) is offered as small pieces of
work, because who has the time, and on which thread, is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from posixpath import dirname
from typing import Final
from uuid import UUID

from broker.errors import ConfigError, KafkaError, UncleanStop
from broker.log import checkpoints
from broker.log.config import LogConfig
from broker.log.identity import kafka_uuid, parse_kafka_uuid
from broker.log.log import Log
from broker.log.storage import (
    Storage,
    join,
    remove_if_there,
    write_atomically,
)

Key = tuple[str, int]
_LOG_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_DELETED: Final = "-delete"
# Kafka puts a unique id before -delete; here no two are alive at once.
_DOOMED: Final = "." + 32 * "0" + _DELETED
_NAME_MAX: Final = 255
_LOCK: Final = ".lock"
_CLEAN: Final = b'{"version":0,"brokerEpoch":-1}'


class LogManager:
    """Every log of this broker, by (topic, partition).

    What touches the disk raises ``OSError``, or `KafkaError` where a log does.
    """

    def __init__(
        self,
        directories: Sequence[str],
        storage: Storage,
        *,
        config_of: Callable[[str], LogConfig],
        now_ms: Callable[[], int],
    ) -> None:
        assert directories, "log.dirs names a directory"
        self.logs: dict[Key, Log] = {}
        # High watermarks as they were written last, of the logs found at the start.
        self.high_watermarks: dict[Key, int] = {}
        self._directories = list(directories)
        self._storage = storage
        self._config_of = config_of
        self._now_ms = now_ms
        self._topic_ids: dict[Key, UUID] = {}
        self._locks: list[object] = []

    # ---- start and stop ----

    def open(self) -> None:
        """Lock the directories and open all logs in them.

        Raises `ConfigError` if another broker has one of them.
        """
        for directory in self._directories:
            if not self._storage.is_directory(directory):
                self._storage.make_directory(directory)
                self._storage.sync_directory(dirname(directory))
            try:
                self._locks.append(self._storage.lock(join(directory, _LOCK)))
            except BlockingIOError:
                raise ConfigError(
                    "log.dirs", directory, "a directory no other broker uses"
                ) from None
        for directory in self._directories:
            self._open_directory(directory)

    def _open_directory(self, directory: str) -> None:
        storage = self._storage
        clean = remove_if_there(storage, join(directory, checkpoints.CLEAN_SHUTDOWN))
        if clean:
            storage.sync_directory(directory)

        def read(name: str) -> dict[Key, int]:
            return checkpoints.read_offsets(storage, directory, name)

        recovery_points = read(checkpoints.RECOVERY_POINTS)
        start_offsets = read(checkpoints.LOG_START_OFFSETS)
        cleaner_offsets = read(checkpoints.CLEANER_OFFSETS)
        self.high_watermarks.update(read(checkpoints.HIGH_WATERMARKS))
        for name in storage.names(directory):
            path = join(directory, name)
            if not storage.is_directory(path):
                continue
            if name.endswith(_DELETED):
                self._remove_directory(path)
            elif match := _LOG_DIRECTORY.fullmatch(name):
                key = match[1], int(match[2])
                log = Log.open(
                    path,
                    self._config_of(key[0]),
                    storage,
                    self._now_ms(),
                    clean=clean,
                    recovery_point=recovery_points.get(key, 0),
                    log_start_offset=start_offsets.get(key, 0),
                )
                log.cleaner_offset = cleaner_offsets.get(key, 0)
                self.logs[key] = log
                self._read_topic_id(key, path)

    def close(self, high_watermarks: Mapping[Key, int]) -> None:
        """Close every log and leave the marker of an orderly stop.

        A directory that fails, or one of whose logs does, gets no marker; `UncleanStop`
        is raised once all others are closed.
        """
        failed: dict[str, Exception] = {}
        for log in self.logs.values():
            try:
                log.close()
            except KafkaError as error:
                failed.setdefault(self._home_of(log), error)
        for directory in self._directories:
            try:
                self._checkpoint(directory, high_watermarks)
                if directory not in failed:
                    write_atomically(
                        self._storage, directory, checkpoints.CLEAN_SHUTDOWN, _CLEAN
                    )
            except OSError as error:
                failed.setdefault(directory, error)
        self._locks.clear()
        if failed:
            raise UncleanStop("; ".join(map(str, failed.values())))

    # ---- logs come and go ----

    def open_log(self, key: Key, topic_id: UUID | None) -> Log:
        """Return the log of a partition, a new one if there is none.

        A new one goes to the directory with the fewest logs.
        """
        log = self.logs.get(key)
        if log is None:
            homes = [self._home_of(log) for log in self.logs.values()]
            home = min(self._directories, key=homes.count)
            topic, partition = key
            log = Log.open(
                join(home, f"{topic}-{partition}"),
                self._config_of(topic),
                self._storage,
                self._now_ms(),
            )
            self.logs[key] = log
        if topic_id is not None and key not in self._topic_ids:
            checkpoints.write_properties(
                self._storage,
                log.directory,
                checkpoints.PARTITION_METADATA,
                {"version": "0", "topic_id": kafka_uuid(topic_id)},
            )
            self._topic_ids[key] = topic_id
        return log

    def topic_id(self, key: Key) -> UUID | None:
        """Return the topic id that the partition's log was created under."""
        return self._topic_ids.get(key)

    def delete_log(self, key: Key) -> None:
        """Remove the log of a partition, if there is one.

        The directory is renamed first, so that a crash leaves the log or none.
        """
        log = self.logs.get(key)
        if log is None:
            return
        home, _, name = log.directory.rpartition("/")
        doomed = join(home, name[: _NAME_MAX - len(_DOOMED)] + _DOOMED)
        if self._storage.is_directory(doomed):
            self._remove_directory(doomed)
        self._storage.rename(log.directory, doomed)
        del self.logs[key]
        self._topic_ids.pop(key, None)
        self._remove_directory(doomed)

    def configure(self, topic: str) -> None:
        """Give the logs of a topic its settings anew."""
        config = self._config_of(topic)
        for (name, _), log in self.logs.items():
            if name == topic:
                log.configure(config)

    # ---- now and then ----

    def checkpoint(self, high_watermarks: Mapping[Key, int]) -> None:
        """Write recovery points, log starts, high watermarks and cleaner offsets.

        Segments that ended some time ago are flushed first, so that recovery points
        move though no flush is asked for. A log that cannot is passed over.
        """
        now_ms = self._now_ms()
        for log in self.logs.values():
            # Tried again next time, unless a sync failed: then appends are told.
            with suppress(KafkaError):
                log.flush_ended(now_ms)
        for directory in self._directories:
            self._checkpoint(directory, high_watermarks)

    def _checkpoint(self, directory: str, high_watermarks: Mapping[Key, int]) -> None:
        logs = {
            key: log
            for key, log in self.logs.items()
            if self._home_of(log) == directory
        }
        files: dict[str, dict[Key, int]] = {
            checkpoints.RECOVERY_POINTS: {
                key: log.recovery_point for key, log in logs.items()
            },
            checkpoints.LOG_START_OFFSETS: {
                key: log.log_start_offset
                for key, log in logs.items()
                if log.log_start_offset > log.segments[0].base_offset
            },
            checkpoints.HIGH_WATERMARKS: {
                key: offset for key, offset in high_watermarks.items() if key in logs
            },
            checkpoints.CLEANER_OFFSETS: {
                key: log.cleaner_offset
                for key, log in logs.items()
                if log.config.compacts
            },
        }
        for name, offsets in files.items():
            checkpoints.write_offsets(self._storage, directory, name, offsets)

    def due_for_flush(self) -> Iterator[Log]:
        """Iterate over the logs that ``flush.ms`` (or ``.messages``) wants on disk."""
        now_ms = self._now_ms()
        return (log for log in list(self.logs.values()) if log.flush_due(now_ms))

    def clean_up(self, up_to: Callable[[Key], int]) -> Iterator[None]:
        """Apply retention and compaction to every log, step by step.

        ``up_to`` gives the offset (the high watermark) below which records may go.
        """
        for key in list(self.logs):
            log = self.logs.get(key)
            if log is None:
                continue
            now_ms = self._now_ms()
            log.producers.expire(now_ms - log.config.producer_id_expiration_ms)
            log.retention(now_ms, up_to(key))
            yield
            if log.compaction_due(now_ms, up_to(key)):
                yield from log.compaction(now_ms, up_to(key))

    # ---- helpers ----

    def _home_of(self, log: Log) -> str:
        return log.directory.rpartition("/")[0]

    def _read_topic_id(self, key: Key, path: str) -> None:
        name = checkpoints.PARTITION_METADATA
        pairs = checkpoints.read_properties(self._storage, path, name)
        if pairs:
            try:
                self._topic_ids[key] = parse_kafka_uuid(pairs["topic_id"])
            except (KeyError, ValueError):
                raise checkpoints.MalformedCheckpoint(
                    join(path, name), pairs, "a topic_id"
                ) from None

    def _remove_directory(self, path: str) -> None:
        for name in self._storage.names(path):
            self._storage.remove(join(path, name))
        self._storage.remove_directory(path)
