"""A small file that several threads write: older content never replaces newer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class VersionedWrites:
    """Writes of numbered versions of a file's content, counted from 1."""

    __slots__ = ("_lock", "version")

    def __init__(self) -> None:
        # Version of the file's content; 0 before the first write.
        self.version = 0
        self._lock = Lock()

    def write(self, version: int, write: Callable[[], None]) -> None:
        """Call ``write`` (may raise) unless the file has this or a newer version."""
        with self._lock:
            if version > self.version:
                write()
                self.version = version
