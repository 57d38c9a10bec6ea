"""One broker at a time: Kafka's ``.lock`` in each log directory.

Locks are taken before anything else in a directory is read or written, and held until
the last write. Data read from a directory that another broker still writes to would be
outdated when used.
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
        """Make the directories, durably, and lock them.

        One that cannot be made or locked is offline from then on. Raises `ConfigError`
        if another broker has one of them; the others are let go of.
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
    """Create a directory, and see that its name survives a loss of power."""
    missing = []
    path = directory
    while path and not storage.is_directory(path):
        missing.append(path)
        path = dirname(path) if path != "/" else ""
    # One by one: `os.makedirs` descends a long path by recursion.
    for path in reversed(missing):
        storage.make_directory(path)
        storage.sync_directory(dirname(path))
