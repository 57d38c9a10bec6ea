"""Where the brokers of a run have their files: in memory, if there is room.

Or below ``TMPDIR``, if that is set.

What is compared are schedulers, and a disk is one more neighbour: a LeaderAndIsr, for
which Apache Kafka writes and flushes a checkpoint, was at work for 2 to 12 ms where the
files lay on a disk that others use, too, and for a fraction of that in memory. Files
and calls are the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

_MEMORY: Final = Path("/dev/shm")
# What a run may need. A container's may be smaller, and a full disk is another story.
_ROOM_BYTES: Final = 2 << 30


def scratch(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Make a directory that is gone afterwards, in memory or where others are made."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_in_memory())


def environment() -> dict[str, Any]:
    """Say where the files of runs are, as the manifest has it."""
    return {"files": "disk" if _in_memory() is None else "memory"}


def _in_memory() -> Path | None:
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize >= _ROOM_BYTES else None
