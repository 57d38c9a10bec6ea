"""The embedded coordinator's durable state: topics, configs, epochs, features.

Every log directory has a copy of the same file (`registry_file`), so the loss of one
directory loses no state. A change increments the generation and is appended to each
copy; the newest copy is valid. Two different copies of one generation were written by
two brokers, each without the other's directory. Only an operator can decide between
them.

The registry is a file because Kafka treats every directory among its logs as a
partition. A value in memory changes only after a file has changed, except for retracted
values.

Cost: a change writes and syncs O(change) bytes in each directory; a start writes the
whole state. The blocking calls that write files are yielded as steps and run in a
thread.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from logging import getLogger

from broker.coordination.cluster_state import Change, ClusterState, write_change
from broker.coordination.features import newest_levels
from broker.coordination.registry_file import FILE_NAME, RegistryFile, line
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage, join
from broker.log.steps import Steps, run
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError

logger = getLogger(__name__)


class Registry:
    """The state, in memory and in a file per log directory."""

    def __init__(self, storage: Storage, log_dirs: LogDirs) -> None:
        self._log_dirs = log_dirs
        self._files = {each: RegistryFile(storage, each) for each in log_dirs.all}
        # Counts attempts, so that no two states are ever written under one number.
        self._generation = 0
        # The state of a new cluster. A state from before features has level 0 of each,
        # as in Kafka.
        self.state = ClusterState(features=newest_levels())

    def load(self) -> None:
        """Load the newest copy; raise `MalformedCheckpoint` or `ConfigError`.

        `ConfigError` means that two copies contradict each other. A directory that
        cannot be read is taken offline.
        """
        copies = {}
        for directory in self._log_dirs.online:
            try:
                state = self._files[directory].read()
            except OSError as error:
                self._log_dirs.take_offline(directory, error)
                continue
            if state is not None:
                copies[directory] = state
        if not copies:
            return
        newest = max(copies, key=lambda directory: copies[directory].generation)
        self.state = copies[newest]
        self._generation = self.state.generation
        for directory, state in copies.items():
            if state.generation < self._generation:
                logger.warning(
                    "a log directory held an older registry of topics",
                    extra=fields(
                        directory=directory,
                        generation=state.generation,
                        newest=self._generation,
                        newest_in=newest,
                    ),
                )
            elif state != self.state:
                found = ", ".join(join(each, FILE_NAME) for each in (newest, directory))
                expected = "copies of one registry, or one of them removed"
                raise ConfigError("log.dirs", found, expected)

    def renew(self, state: ClusterState) -> None:
        """Replace the state durably; raise OSError and change nothing.

        Called at a start: afterwards all copies are the same.
        """
        self._generation += 1
        state = replace(state, generation=self._generation)
        run(self._writing(lambda file: file.replace(state)))
        self.state = state

    def change(self, change: Change) -> None:
        """Apply a change at once, with blocking calls; see `changing`."""
        run(self.changing(change))

    def changing(self, change: Change) -> Steps[None]:
        """Apply a change durably; raise OSError and change nothing. Not reentrant.

        One copy makes the change durable. A directory whose copy cannot be written
        keeps an older copy until the next change, or goes offline.
        """
        self._generation += 1
        generation, after = self._generation, self.state.generation

        @cache
        def added() -> bytes:
            # Encoded in the writing thread, since a large change takes some time.
            return line(write_change(change, generation, after))

        def write(file: RegistryFile) -> None:
            if not file.append(added()):
                file.replace(self.state, added())

        yield from self._writing(write)
        self.state.apply(change, generation)

    def retracting(self, change: Change) -> Steps[None]:
        """Apply a change that undoes an earlier, failed change; never fail.

        If no directory can be written, the change holds in memory only, and the next
        change also writes it. A start before that finds the earlier change again.
        """
        try:
            yield from self.changing(change)
        except OSError as refused:
            logger.warning(
                "the registry is behind until its next change",
                extra=fields(fault=refused),
            )
            # The write of every file has failed, so the next change rewrites them all.
            self.state.apply(change, self._generation)

    def _writing(self, write: Callable[[RegistryFile], None]) -> Steps[None]:
        """Write every copy in one blocking call; raise OSError if none was written."""
        directories = tuple(self._log_dirs.online)
        refused: dict[str, OSError] = {}

        def write_all() -> None:
            for directory in directories:
                try:
                    write(self._files[directory])
                except OSError as error:
                    refused[directory] = error

        yield write_all
        for directory, error in refused.items():
            self._log_dirs.failed(directory, error)
        if len(refused) == len(directories):
            raise next(
                iter(refused.values()),
                OSError(errno.EIO, "no log directory is online"),
            )

    @property
    def is_long(self) -> bool:
        """Return whether `compaction` would save space."""
        return any(self._files[each].is_long for each in self._log_dirs.online)

    def compaction(self) -> Steps[None]:
        """Rewrite files that have outgrown their state; raise OSError.

        The state must not change meanwhile.
        """
        for directory in tuple(self._log_dirs.online):
            if self._files[directory].is_long:
                try:
                    yield partial(self._files[directory].compact, self.state)
                except OSError as error:
                    self._log_dirs.failed(directory, error)
                    raise
