"""The logs of a log directory at a start: found, then opened, with one call each.

Each call accesses only its own log, so threads can make the calls in parallel. Errors
are raised when the results are collected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from broker.disk import checkpoints
from broker.disk.disk_failures import LogStorageError
from broker.disk.offset_files import OffsetFiles
from broker.disk.pending_removals import PendingRemovals
from broker.disk.storage import Storage, join, remove_if_there
from broker.log.log import Log
from broker.log.segments.log_config import LogConfig
from broker.log.steps import BlockingCall
from broker.log.upkeep.directory_names import (
    future_key,
    holds_a_log,
    is_doomed,
    log_key,
)
from broker.log.upkeep.recovery import Report, open_log
from broker.log.upkeep.takeover import MARK
from broker.protocol.errors import ConfigError
from broker.protocol.topic_partition import TopicPartition


class Opening:
    """The logs found in one directory; raises ``OSError``.

    The constructor removes the marker of an orderly stop. ``high_watermarks`` are those
    of the checkpoint.
    """

    def __init__(
        self,
        directory: str,
        storage: Storage,
        files: OffsetFiles,
        doomed: PendingRemovals,
    ) -> None:
        self.directory = directory
        self._storage = storage
        self._doomed = doomed
        marker = join(directory, checkpoints.CLEAN_SHUTDOWN)
        self._clean = remove_if_there(storage, marker)
        if self._clean:
            storage.sync_directory(directory)
        read = partial(files.read, directory)
        self._recovery_points = read(checkpoints.RECOVERY_POINTS)
        self._start_offsets = read(checkpoints.LOG_START_OFFSETS)
        self._cleaner_offsets = read(checkpoints.CLEANER_OFFSETS)
        self.high_watermarks = read(checkpoints.HIGH_WATERMARKS)
        # The directory of each partition, and marked partitions (takeover.py).
        self.paths: dict[TopicPartition, str] = {}
        self.marked: list[TopicPartition] = []
        # Partitions whose valid log may be in another, offline directory.
        self.unknown: set[TopicPartition] = set()
        # Directories of copies that were found, and for each the one to open.
        self.found_futures: dict[TopicPartition, list[str]] = {}
        self.futures: dict[TopicPartition, str] = {}
        self._logs: dict[TopicPartition, Log] = {}
        self._failed: Exception | None = None
        for name in storage.names(directory):
            self._find(name)

    def _find(self, name: str) -> None:
        path = join(self.directory, name)
        if not self._storage.is_directory(path):
            return
        key, of_future = log_key(name), future_key(name)
        if is_doomed(name):
            self._doomed.add(path)
        elif of_future is not None and holds_a_log(self._storage.names(path)):
            self.found_futures.setdefault(of_future, []).append(path)
        elif key is not None and holds_a_log(names := self._storage.names(path)):
            _check_only_one(key, path, self.paths)
            self.paths[key] = path
            if MARK in names:
                self.marked.append(key)

    def calls(
        self,
        config_of: Callable[[str], LogConfig],
        now_ms: int,
        report: Report,
        on_failure: Callable[[LogStorageError], None],
    ) -> Iterator[BlockingCall]:
        """Iterate over the calls that open the logs; see `open_log`."""
        for key, path in (*self.paths.items(), *self.futures.items()):
            yield partial(
                self._open, key, path, config_of(key.topic), now_ms, report, on_failure
            )

    def _open(
        self,
        key: TopicPartition,
        path: str,
        config: LogConfig,
        now_ms: int,
        report: Report,
        on_failure: Callable[[LogStorageError], None],
    ) -> None:
        if self._failed is not None:
            return
        try:
            log = open_log(
                path,
                config,
                self._storage,
                now_ms,
                clean=self._clean,
                recovery_point=self._recovery_points.get(key, 0),
                log_start_offset=self._start_offsets.get(key, 0),
                cleaner_offset=self._cleaner_offsets.get(key, 0),
                doomed=self._doomed,
                report=report,
                on_failure=on_failure,
            )
        except Exception as error:
            self._failed = error
        else:
            self._logs[key] = log

    def opened(self) -> dict[TopicPartition, Log]:
        """Return the logs in order of their names; raise the error of a failed call."""
        if self._failed is not None:
            raise self._failed
        return {key: self._logs[key] for key in self.paths}

    def opened_futures(self) -> dict[TopicPartition, Log]:
        """Return the copies."""
        return {key: self._logs[key] for key in self.futures}

    def kept(self) -> set[TopicPartition]:
        """Return the partitions with a log in this directory, opened or not."""
        return {*self.paths, *self.unknown, *self.futures}

    def cut_short(self) -> dict[TopicPartition, Log]:
        """Return the logs that end before their checkpointed recovery points."""
        return {
            key: log
            for key, log in self._logs.items()
            if log.recovery_point < self._recovery_points.get(key, 0)
        }


def check_each_only_once(openings: Iterable[Opening]) -> None:
    """Raise `ConfigError` if two directories hold the same partition."""
    known: dict[TopicPartition, str] = {}
    for opening in openings:
        for key, path in opening.paths.items():
            _check_only_one(key, path, known)
            known[key] = path


def _check_only_one(
    key: TopicPartition, path: str, known: Mapping[TopicPartition, str]
) -> None:
    if key in known:
        # It is unknown which log is valid.
        raise ConfigError(
            "log.dirs",
            f"{known[key]}, {path}",
            "one log of a partition; move one of the two away",
        )
