"""The directory of a run's broker files: in memory, if there is room.

``TMPDIR`` has precedence if it is set.

Experiments compare schedulers, and a disk adds noise. A LeaderAndIsr, for which Apache
Kafka writes and flushes a checkpoint, took 2 to 12 ms with files on a shared disk, and
a fraction of that in memory. The file operations are the same.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

_MEMORY: Final = Path("/dev/shm")
# Space that a run may need. A container may have less, and a full disk would be a
# different experiment.
_ROOM_BYTES: Final = 2 << 30


def scratch(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """Create a temporary directory, in memory if possible."""
    return tempfile.TemporaryDirectory(prefix=prefix, dir=_in_memory())


def environment() -> dict[str, Any]:
    """Return the location of runs' files, for the manifest."""
    return {"files": "disk" if _in_memory() is None else "memory"}


def _in_memory() -> Path | None:
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize >= _ROOM_BYTES else None
