"""Files that are there whole or not at all, whenever this process is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield where to write a file, which gets its own name when the block ends well.

    :raises OSError: with the file's name, if there is no room for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    try:
        yield partial
    except OSError as error:
        partial.unlink(missing_ok=True)
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
    os.replace(partial, path)
