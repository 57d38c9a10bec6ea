"""Files and directories that are due for removal at a later time.

Removing a large file keeps a thread waiting while the file system frees its blocks. A
log therefore renames its files, which is quick and decisive, and a thread removes them
later. Renamed files have different names: a rename onto an existing file would remove
that one.
"""

from __future__ import annotations

import heapq
from contextlib import suppress
from itertools import count
from typing import Final, NamedTuple

from broker.disk.storage import Storage, join, remove_if_there

# A file of a log that is only to be removed; Kafka's suffix.
DELETED: Final = ".deleted"


class _Due(NamedTuple):
    due_ms: int
    path: str
    since_ms: int

    def wait_ms(self, now_ms: int) -> int:
        """Return how long it has to wait; not at all if the clock was put back."""
        return 0 if now_ms < self.since_ms else max(self.due_ms - now_ms, 0)


class PendingRemovals:
    """Paths, each with the time from which it may go. Cost: O(log n) each.

    On the wall clock, which may be put back: what then lies in the future is due.
    """

    def __init__(self) -> None:
        self._paths: list[_Due] = []
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._paths)

    def add(self, path: str, now_ms: int = 0, delay_ms: int = 0) -> None:
        """Note that a path is to be removed ``delay_ms`` from now or later."""
        heapq.heappush(self._paths, _Due(now_ms + delay_ms, path, now_ms))

    def discard(self, storage: Storage, path: str) -> None:
        """Rename a file, if it is there, so that it is only to be removed."""
        doomed = f"{path}.{next(self._numbers)}{DELETED}"
        with suppress(FileNotFoundError):
            storage.rename(path, doomed)
            self.add(doomed)

    def moved(self, old: str, new: str) -> None:
        """Learn that a directory was renamed. Cost: O(n)."""
        inside = f"{old}/"
        self._paths = [
            due._replace(path=f"{new}/{due.path.removeprefix(inside)}")
            if due.path.startswith(inside)
            else due
            for due in self._paths
        ]
        heapq.heapify(self._paths)

    def wait_ms(self, now_ms: int) -> int | None:
        """Return how long until `take` has something to give; None: nothing ever."""
        return self._paths[0].wait_ms(now_ms) if self._paths else None

    def take(self, now_ms: int) -> str | None:
        """Take the path that was due first; None if none is due."""
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
