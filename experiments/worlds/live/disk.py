"""A small disk of a process, which can be filled: in memory, and gone with the process.

The disk is mounted in a mount namespace, which needs no privilege if user namespaces
are allowed, and is accessed through ``/proc``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from experiments.processes.children import Child
from experiments.worlds.world import WorldError

_DISK_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 4096
_FILLER: Final = "filler"
_UNSHARE: Final = ("unshare", "--user", "--map-root-user", "--mount", "--")


def small_disk(at: Path) -> list[str]:
    """Return a command prefix that mounts an empty small disk at ``at``.

    :raises WorldError: if this is not possible.
    """
    at.mkdir(exist_ok=True)
    mount = f'mount -t tmpfs -o size={_DISK_BYTES} none "$0" && exec "$@"'
    within = [*_UNSHARE, "sh", "-c", mount, str(at)]
    tried = shutil.which("unshare") is not None and subprocess.run(
        [*within, "true"], capture_output=True, check=False
    )
    if not tried or tried.returncode:
        raise WorldError("faults: 'fill' needs a machine with user namespaces")
    return within


def fill(child: Child, at: Path) -> None:
    """Fill the disk at ``at`` of a process."""
    with _reached(child, at).open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(_PIECE_BYTES))
        except OSError:
            # The disk is full, as intended.
            return


def free(child: Child, at: Path) -> None:
    """Free space again on the disk at ``at`` of a process."""
    _reached(child, at).unlink(missing_ok=True)


def _reached(child: Child, at: Path) -> Path:
    """Return the path of the filler file for other processes."""
    root = Path(f"/proc/{child.pid}/root")
    return root / os.path.relpath(at, "/") / _FILLER
