"""The log's interface to a disk: two small protocols with two implementations.

`RealStorage` (files.py) is the operating system's; `MemoryStorage` (memory.py) is a
simulated disk that fails and loses power at chosen calls. Both pass the same contract
tests. All calls are synchronous, paths are strings, errors are ``OSError``.

The protocols include two rules of POSIX, on which recovery depends. Bytes are durable
only after ``File.sync``, and a name (created, renamed, removed) only after
``Storage.sync_directory``. A removed file stays readable through an open reference, so
that retention does not disturb a Fetch in flight. There is no ``close``: a file is
closed when its last reference is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from broker.protocol.buffer import Buffer


class File(Protocol):
    """An open file that is read and written at explicit positions."""

    def fileno(self) -> int:
        """Return the descriptor; raise ``io.UnsupportedOperation`` if there is none."""

    def size(self) -> int:
        """Return the number of bytes."""

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only where the file ends."""

    def write(self, position: int, pieces: Sequence[Buffer], size: int) -> None:
        """Write the pieces one after the other; ``size`` is the sum of their lengths.

        After an error any prefix may have been written.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""

    def sync(self) -> None:
        """Make the content durable."""


class Volume(NamedTuple):
    """The size of a file system, and the bytes that its user may still write."""

    total_bytes: int
    usable_bytes: int


class Storage(Protocol):
    """The directories and files of one disk."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; raise ``FileNotFoundError``."""

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory; raise ``FileNotFoundError``."""

    def is_directory(self, path: str) -> bool:
        """Return whether the path is an existing directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory atomically; a file replaces its target."""

    def remove(self, path: str) -> None:
        """Remove a file; raise ``FileNotFoundError``."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def lock(self, path: str) -> object:
        """Lock a file, creating it if necessary, for as long as the result is kept.

        Raises ``BlockingIOError`` if another process holds it.
        """

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def volume(self, directory: str) -> Volume:
        """Return the sizes of the file system that holds a directory."""


class FileSlice:
    """Bytes of a file that the network may send without copying (``os.sendfile``).

    A slice keeps its file open, also after the log has deleted the file.
    """

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        """Return the descriptor to send from."""
        return self.file.fileno()

    def read(self) -> bytes:
        """Return the bytes."""
        return self.file.read(self.position, self.size)

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"


def join(directory: str, name: str) -> str:
    """Return the path of a name in a directory."""
    return f"{directory}/{name}"


def read_whole(storage: Storage, path: str) -> bytes:
    """Return the content of a file; raise ``FileNotFoundError``."""
    file = storage.open(path)
    return file.read(0, file.size())


def write_atomically(
    storage: Storage, directory: str, name: str, content: bytes
) -> None:
    """Replace a small file; after a crash it has the old or the new content.

    Kafka's ``CheckpointFile`` does the same: a temporary file, synced, then renamed,
    then the directory synced.
    """
    replace_file(storage, directory, name, content)
    storage.sync_directory(directory)


def replace_file(storage: Storage, directory: str, name: str, content: bytes) -> None:
    """Replace a small file; until the directory is synced, a crash may undo it."""
    temporary = join(directory, name + ".tmp")
    file = storage.open(temporary, create=True)
    file.truncate(0)
    file.write(0, (content,), len(content))
    file.sync()
    storage.rename(temporary, join(directory, name))


def remove_if_there(storage: Storage, path: str) -> bool:
    """Remove a file; return False if there was none."""
    try:
        storage.remove(path)
    except FileNotFoundError:
        return False
    return True
