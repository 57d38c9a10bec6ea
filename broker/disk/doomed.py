"""Files and directories that are only to be removed, when their time has come.

Removing a large file keeps a thread waiting while the file system frees its blocks. So
what a log lets go of is renamed, which is quick and decides, and removed later by
whoever has a thread for it.
"""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from broker.disk.storage import Storage, join, remove_if_there

# A file of a log that is only to be removed; Kafka's suffix.
DELETED: Final = ".deleted"


class _Due(NamedTuple):
    due_ms: int
    path: str


class Doomed:
    """Paths, each with the time from which it may go. Cost: O(log n) each."""

    def __init__(self) -> None:
        self._paths: list[_Due] = []

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str, due_ms: int = 0) -> None:
        """Note that a path is to be removed at ``due_ms`` or later."""
        heapq.heappush(self._paths, _Due(due_ms, path))

    def next_ms(self) -> int | None:
        """Return when `take` has something to give."""
        return self._paths[0].due_ms if self._paths else None

    def take(self, now_ms: int) -> str | None:
        """Take the path that was due first; None if none is due."""
        if self._paths and self._paths[0].due_ms <= now_ms:
            return heapq.heappop(self._paths).path
        return None


def remove_all(storage: Storage, path: str) -> None:
    """Remove a file, or a directory of files; what is gone already is no error."""
    if not storage.is_directory(path):
        remove_if_there(storage, path)
        return
    for name in storage.names(path):
        remove_if_there(storage, join(path, name))
    storage.remove_directory(path)
