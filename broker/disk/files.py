"""The operating system's files behind the ``Storage`` protocol.

Positioned reads and writes (``pread``, ``pwritev``) use no shared file offset, so a
failed append is overwritten by the next, and readers are independent. A descriptor is
closed when its last reference is dropped, at once in CPython: the number cannot be
reused while a ``FileSlice`` is being sent.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from stat import S_ISDIR

from broker.disk.storage import Volume
from broker.protocol.buffer import Buffer

_PERMISSIONS = 0o644
# Errors for paths that are no directory; others, as EIO and ENAMETOOLONG, are faults.
_NO_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class RealFile:
    """One descriptor, closed when the last reference is dropped."""

    __slots__ = ("_fd",)

    def __init__(self, path: str, *, create: bool) -> None:
        self._fd = -1
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, _PERMISSIONS)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def size(self) -> int:
        """Return the number of bytes."""
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only where the file ends."""
        data = os.pread(self._fd, size, position)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, position: int, pieces: Sequence[Buffer], size: int) -> None:
        """Write the pieces, usually in one system call."""
        written = os.pwritev(self._fd, pieces, position)
        if written != size:
            rest = memoryview(b"".join(pieces))
            assert len(rest) == size, f"{len(rest)} bytes, {size} announced"
            while written < size:
                written += os.pwrite(self._fd, rest[written:], position + written)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make content and size durable (``fdatasync``, which writes both)."""
        os.fdatasync(self._fd)


class RealStorage:
    """The file system."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open a file for reading and writing."""
        return RealFile(path, create=create)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        return sorted(os.listdir(directory))

    def is_directory(self, path: str) -> bool:
        """Return whether the path is an existing directory."""
        try:
            return S_ISDIR(os.stat(path).st_mode)
        except OSError as error:
            if error.errno in _NO_DIRECTORY:
                return False
            raise

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename atomically."""
        os.rename(old, new)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def lock(self, path: str) -> RealFile:
        """Lock a file for as long as the result is kept (``flock``)."""
        file = RealFile(path, create=True)
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def volume(self, directory: str) -> Volume:
        """Return the sizes of the file system that holds a directory."""
        found = os.statvfs(directory)
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
