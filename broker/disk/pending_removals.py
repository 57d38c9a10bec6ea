"""Files and directories that are due for removal at a later time.

Removing a large file blocks a thread while the file system frees its blocks. A log
therefore renames its files, which is fast and final, and a thread removes them later.
The new names are unique, since a rename onto an existing file would remove that file.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from broker.disk.storage import Storage, join, remove_if_there

# Kafka's suffix of files that are pending removal.
DELETED: Final = ".deleted"


class _Due(NamedTuple):
    due_ms: int
    path: str
    since_ms: int

    def wait_ms(self, now_ms: int) -> int:
        """Return the remaining wait; 0 if the clock has been set back."""
        return 0 if now_ms < self.since_ms else max(self.due_ms - now_ms, 0)


class PendingRemovals:
    """Paths, each with the time of its removal. Cost: O(log n) per path.

    Times are by the wall clock; after the clock has been set back, all paths added
    before are due.
    """

    def __init__(self) -> None:
        self._paths: list[_Due] = []
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str, now_ms: int = 0, delay_ms: int = 0) -> None:
        """Schedule the removal of a path after ``delay_ms``."""
        heapq.heappush(self._paths, _Due(now_ms + delay_ms, path, now_ms))

    def discard(self, storage: Storage, path: str) -> None:
        """Rename a file, if it exists, and schedule its removal."""
        doomed = f"{path}.{next(self._numbers)}{DELETED}"
        with suppress(FileNotFoundError):
            storage.rename(path, doomed)
            self.add(doomed)

    def moved(self, old: str, new: str) -> None:
        """Update paths after a rename of their directory. Cost: O(n)."""
        inside = f"{old}/"
        self._paths = [
            due._replace(path=f"{new}/{due.path.removeprefix(inside)}")
            if due.path.startswith(inside)
            else due
            for due in self._paths
        ]
        heapq.heapify(self._paths)

    def wait_ms(self, now_ms: int) -> int | None:
        """Return the time until the next removal is due; None: no path is pending."""
        return self._paths[0].wait_ms(now_ms) if self._paths else None

    def take(self, now_ms: int) -> str | None:
        """Remove and return the path that was due first; None if none is due."""
        if self.wait_ms(now_ms) == 0:
            return heapq.heappop(self._paths).path
        return None


def remove_all(storage: Storage, path: str) -> None:
    """Remove a file, or a directory of files; missing ones are no error."""
    if not storage.is_directory(path):
        remove_if_there(storage, path)
        return
    for name in storage.names(path):
        remove_if_there(storage, join(path, name))
    storage.remove_directory(path)
