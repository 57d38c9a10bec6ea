"""The directory of a run's broker files: in memory, if there is room.

Or below ``TMPDIR``, if that is set.

Schedulers are compared, and a disk is one more source of noise. A LeaderAndIsr, for
which Apache Kafka writes and flushes a checkpoint, took 2 to 12 ms with files on a
shared disk, and a fraction of that in memory. Files and calls are the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

_MEMORY: Final = Path("/dev/shm")
# Space that a run may need. A container's may be smaller, and a full disk is a
# different test.
_ROOM_BYTES: Final = 2 << 30


def scratch(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Make a directory that is gone afterwards, in memory or where others are made."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_in_memory())


def environment() -> dict[str, Any]:
    """Return the place of runs' files, for the manifest."""
    return {"files": "disk" if _in_memory() is None else "memory"}


def _in_memory() -> Path | None:
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize >= _ROOM_BYTES else None
