"""A disk of one owner: once closed, every call by path is refused.

A log refers to its files by path. When its topic is deleted and created again, the same
paths belong to another log, which work for the old one must not touch. A log, its
segments, indexes and snapshots therefore share one `ClosableStorage`, and closing it
closes all of them. Open files stay readable and writable: they belong to the old log
until the last reference is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.disk.disk_failures import LogStorageError, LogUnavailable
from broker.disk.storage import File, Storage, Volume


class ClosableStorage:
    """A `Storage` that raises `LogUnavailable` after `close`.

    ``on_failure`` receives each error of a device, with its directory.
    """

    __slots__ = ("_on_failure", "closed", "disk")

    def __init__(
        self,
        storage: Storage,
        on_failure: Callable[[LogStorageError], None] = lambda _: None,
    ) -> None:
        self.disk = storage
        self._on_failure = on_failure
        # Reason of the close; None while open.
        self.closed: str | None = None

    def close(self, reason: str) -> None:
        """Refuse every further call; the first reason is the one reported."""
        self.closed = self.closed or reason

    def failure(self, directory: str, error: OSError) -> LogStorageError:
        """Report an error of a device to ``on_failure``, and return the exception.

        All `LogStorageError` are created here, so that each one is reported.
        """
        failure = LogStorageError(directory, error)
        self._on_failure(failure)
        return failure

    def check_open(self) -> None:
        """Raise `LogUnavailable` if the storage is closed."""
        if self.closed is not None:
            raise LogUnavailable(self.closed)

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing."""
        self.check_open()
        return self.disk.open(path, create=create)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        self.check_open()
        return self.disk.names(directory)

    def is_directory(self, path: str) -> bool:
        """Return whether the path is an existing directory."""
        self.check_open()
        return self.disk.is_directory(path)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        self.check_open()
        self.disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; a file replaces its target."""
        self.check_open()
        self.disk.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.check_open()
        self.disk.remove(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        self.check_open()
        self.disk.remove_directory(path)

    def lock(self, path: str) -> object:
        """Lock a file for as long as the result is kept."""
        self.check_open()
        return self.disk.lock(path)

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self.check_open()
        self.disk.sync_directory(path)

    def volume(self, directory: str) -> Volume:
        """Return the sizes of the file system that holds a directory."""
        self.check_open()
        return self.disk.volume(directory)
