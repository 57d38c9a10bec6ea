"""The log of a partition gives way to its copy in another directory, crash-safe.

Two directories may be of two disks, so no rename is atomic over both, and either may be
missing at the next start. A mark decides, written durably into the old log beforehand:
the directory of the log that is to take its place. Then the future log gets its final
name, which is made durable, and only then is the old log renamed for removal. A start
that finds a marked log looks for the other one:

- It has its final name: it may hold more, so the marked log is removed.
- It has not: the marked log is the partition's. The mark goes, and the copy goes on.
- Its directory is offline: which one counts is unknown. The partition is offline, too.

Kafka has no mark, and does not start where both logs have the final name.
"""

from __future__ import annotations

from typing import Final

from broker.disk.storage import Storage, join, read_whole, write_atomically

MARK: Final = "doorkeeper-moved-to"


def mark(storage: Storage, directory: str, home: str) -> None:
    """Note in a log's directory, durably, that a log in ``home`` takes its place.

    Raises ``OSError``. For a thread: writes and syncs.
    """
    write_atomically(storage, directory, MARK, home.encode())


def marked(storage: Storage, directory: str) -> str | None:
    """Return where the log is that takes the place of one, if that is noted."""
    try:
        return read_whole(storage, join(directory, MARK)).decode(errors="replace")
    except FileNotFoundError:
        return None


def mark_path(directory: str) -> str:
    """Return the path of the mark in a log's directory."""
    return join(directory, MARK)
