"""Crash-safe replacement of a partition's log by its copy in another directory.

The directories may be on two disks, so no rename is atomic over both, and either may be
missing at the next start. First a mark is written durably into the old log: the
directory of its replacement. Then the future log gets its final name, which is made
durable. Only then is the old log renamed for removal. A start that finds a marked log
searches for the other log:

- The other log has its final name: it may have more records, so the marked log is
  removed.
- It has not: the marked log is the partition's. The mark is removed, and copying goes
  on.
- Its directory is offline: it is unknown which log is valid. The partition is offline.

Kafka has no mark, and does not start if both logs have the final name.
"""

from __future__ import annotations

from typing import Final

from broker.disk.storage import Storage, join, read_whole, write_atomically

MARK: Final = "doorkeeper-moved-to"


def mark(storage: Storage, directory: str, home: str) -> None:
    """Record in a log's directory, durably, that a log in ``home`` replaces it.

    Raises ``OSError``. Writes and syncs, so it runs in a thread.
    """
    write_atomically(storage, directory, MARK, home.encode())


def marked(storage: Storage, directory: str) -> str | None:
    """Return the directory of a log's replacement, if the log is marked."""
    try:
        return read_whole(storage, join(directory, MARK)).decode(errors="replace")
    except FileNotFoundError:
        return None


def mark_path(directory: str) -> str:
    """Return the path of the mark in a log's directory."""
    return join(directory, MARK)
