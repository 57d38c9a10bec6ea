"""Exclusive use of log directories: Kafka's ``.lock`` in each of them.

Locks are acquired before the first read or write in a directory, and held until the
last write. Data read while another broker still writes would be outdated when used.
"""

from __future__ import annotations

from posixpath import dirname
from typing import Final

from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage, join
from broker.protocol.errors import ConfigError

_LOCK: Final = ".lock"


class DirectoryLocks:
    """The locks of one broker, held as long as this object exists."""

    def __init__(self, storage: Storage, log_dirs: LogDirs) -> None:
        self._storage = storage
        self._log_dirs = log_dirs
        self._held: dict[str, object] = {}

    def take(self) -> None:
        """Create the directories durably, and lock them.

        A directory that cannot be created or locked is taken offline. Raises
        `ConfigError` if another broker holds one of them, and releases the others.
        """
        for directory in self._log_dirs.online:
            try:
                _make_durably(self._storage, directory)
                self._held[directory] = self._storage.lock(join(directory, _LOCK))
            except BlockingIOError:
                self.release()
                expected = "a directory no other broker uses"
                raise ConfigError("log.dirs", directory, expected) from None
            except OSError as error:
                self._log_dirs.take_offline(directory, error)

    def release(self) -> None:
        """Release the directories."""
        self._held.clear()


def _make_durably(storage: Storage, directory: str) -> None:
    """Create a directory whose name survives a loss of power."""
    missing = []
    path = directory
    while path and not storage.is_directory(path):
        missing.append(path)
        path = dirname(path) if path != "/" else ""
    # One level at a time: `os.makedirs` recurses, which is too deep for a long path.
    for path in reversed(missing):
        storage.make_directory(path)
        storage.sync_directory(dirname(path))
