"""The embedded coordinator's durable state: topics, configs, epochs, features.

The same file in every log directory (registry_file.py), so that the loss of any one of
them loses none of it. A change counts the generation up and is added to each copy; the
newest copy is the one that holds. Two copies that differ under one generation were
written by two brokers, each without the other's directory; which of them is right only
an operator can say.

It is a file and not a directory because Kafka takes every directory among its logs for
a partition. A value in memory changes only after a file has, but for values taken back.

Cost: a change writes and syncs O(change) bytes in each directory; a start writes all.
Files are written by blocking calls of steps, which a thread makes.
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
    """The state, in memory and in every directory alike."""

    def __init__(self, storage: Storage, log_dirs: LogDirs) -> None:
        self._log_dirs = log_dirs
        self._files = {each: RegistryFile(storage, each) for each in log_dirs.all}
        # Counts attempts, so that no two states are ever written under one number.
        self._generation = 0
        # Of a new cluster. One from before features has level 0 of each, as in Kafka.
        self.state = ClusterState(features=newest_levels())

    def load(self) -> None:
        """Take the newest copy; raise `MalformedCheckpoint` or `ConfigError`.

        The latter means that two copies contradict each other. A directory that cannot
        be read is offline from then on.
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
        """Take another state, durably; raise OSError and change nothing.

        At a start: all copies are the same afterwards, whatever they were.
        """
        self._generation += 1
        state = replace(state, generation=self._generation)
        run(self._writing(lambda file: file.replace(state)))
        self.state = state

    def change(self, change: Change) -> None:
        """Make a change here and now; see `changing`."""
        run(self.changing(change))

    def changing(self, change: Change) -> Steps[None]:
        """Make a change, durably; raise OSError and change nothing.

        One copy makes it durable. A directory that does not take its copy has an older
        one until the next change, or goes offline. One change at a time.
        """
        self._generation += 1
        generation, after = self._generation, self.state.generation

        @cache
        def added() -> bytes:
            # Encoded where it is written, since a large change takes some time.
            return line(write_change(change, generation, after))

        def write(file: RegistryFile) -> None:
            if not file.append(added()):
                file.replace(self.state, added())

        yield from self._writing(write)
        self.state.apply(change, generation)

    def retracting(self, change: Change) -> Steps[None]:
        """Take back what could not be carried out: make a change, and never fail.

        Where no directory takes it, it holds in memory, and the next change writes it,
        too. A start before that finds all that was to be taken back.
        """
        try:
            yield from self.changing(change)
        except OSError as refused:
            logger.warning(
                "the registry is behind until its next change",
                extra=fields(fault=refused),
            )
            # No file is as it was left, or this would have been written.
            self.state.apply(change, self._generation)

    def _writing(self, write: Callable[[RegistryFile], None]) -> Steps[None]:
        """Write every copy, in one call; raise OSError if none was written."""
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
        """Return whether `compaction` has something to do."""
        return any(self._files[each].is_long for each in self._log_dirs.online)

    def compaction(self) -> Steps[None]:
        """Rewrite files that have outgrown their state; raise OSError.

        No change may be made meanwhile.
        """
        for directory in tuple(self._log_dirs.online):
            if self._files[directory].is_long:
                try:
                    yield partial(self._files[directory].compact, self.state)
                except OSError as error:
                    self._log_dirs.failed(directory, error)
                    raise
