"""A small file that several threads write: older content never replaces newer."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock


class VersionedWrites:
    """Says which of the versions of a content is written; they are numbered from 1."""

    __slots__ = ("_lock", "version")

    def __init__(self) -> None:
        # Version of the file's content; 0 is the initial one.
        self.version = 0
        self._lock = Lock()

    def write(self, version: int, write: Callable[[], None]) -> None:
        """Call ``write`` unless the file has this version or a newer; it may raise."""
        with self._lock:
            if version > self.version:
                write()
                self.version = version
