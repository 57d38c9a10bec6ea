"""A disk in memory that fails, and loses power, at chosen calls.

It is used by simulations and tests. Every call that changes or syncs something is
counted; `Faults` selects the failing one, so a test can fail each call in turn until a
run ends without a failure. Unsynced data is kept separately. `after_kill` returns the
disk after a kill of the process, with all writes. `after_power_loss` returns a possible
disk at the next boot. Each file has its synced bytes and a random part of the others,
torn or zeroed. Of the names, the synced changes and a random number of the next ones
are kept, in order, as in a journalling file system.
"""

from __future__ import annotations

import errno
import io
import os
import random
from collections.abc import Callable, Sequence
from posixpath import dirname
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from broker.disk.storage import Volume
from broker.protocol.buffer import Buffer

_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class Crashed(BaseException):
    """The machine of this disk has stopped.

    A BaseException, so that code which contains faults does not catch it.
    """


class Faults:
    """Selects the call that fails, counted from 1; with 0 all calls succeed.

    ``short`` bytes of a failing write reach the file. With ``crash`` the machine stops
    at that call, and all later calls fail, too. With ``reads``, reads and openings of
    existing files are counted. If ``error`` is a shortage of descriptors, only calls
    that need a descriptor are counted.
    """

    def __init__(
        self,
        fail_at: int = 0,
        *,
        error: int = errno.EIO,
        short: int = 0,
        crash: bool = False,
        reads: bool = False,
    ) -> None:
        self.calls = 0
        self.fail_at = fail_at
        self.short = short
        self.reads = reads
        self._error = error
        self._crash = crash
        self._opens = False

    @property
    def reached(self) -> bool:
        """Return whether the selected call has been made."""
        return 0 < self.fail_at <= self.calls

    def count_opening(self, call: str) -> None:
        """Count a call that needs a descriptor; raise if it is the selected one."""
        self._opens = True
        try:
            self.count(call)
        finally:
            self._opens = False

    def count(self, call: str) -> None:
        """Count a call; raise if it is the selected one."""
        if self._error in _DESCRIPTORS and not self._opens:
            return
        self.calls += 1
        if self.reached and self._crash:
            raise Crashed(call)
        if self.calls == self.fail_at:
            raise OSError(self._error, os.strerror(self._error), call)


class _Node:
    """A file's bytes, and the durable part of them."""

    __slots__ = ("data", "dropped", "durable", "synced_size")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        # The first ``synced_size`` bytes are durable. If they have changed since the
        # sync, ``durable`` holds the bytes on disk.
        self.synced_size = len(data)
        self.durable: bytes | None = None
        # Bytes dropped by a failed sync: still readable, never written by a later sync.
        self.dropped = range(0)

    def change_from(self, position: int) -> None:
        """Keep the durable bytes before a change from ``position`` on."""
        if position < self.synced_size and self.durable is None:
            self.durable = bytes(self.data[: self.synced_size])

    def put(self, position: int, written: bytes) -> None:
        self.change_from(position)
        if position > len(self.data):
            self.data += bytes(position - len(self.data))
        end = position + len(written)
        self.data[position:end] = written
        if position <= self.dropped.start < end:
            self.dropped = range(end, self.dropped.stop)

    def cut(self, size: int) -> None:
        self.change_from(size)
        del self.data[size:]
        self.data += bytes(size - len(self.data))
        self.dropped = range(self.dropped.start, min(self.dropped.stop, size))

    def drop(self) -> None:
        """Drop the unsynced bytes, as Linux does after an error."""
        start = self.synced_size if self.durable is None else 0
        if self.dropped:
            start = min(start, self.dropped.start)
        self.dropped = range(start, len(self.data))

    def sync(self) -> None:
        if self.dropped:
            return
        self.synced_size = len(self.data)
        self.durable = None

    def after_power_loss(self, rng: random.Random) -> bytes:
        """Return a possible content of the file after a loss of power."""
        if self.durable is not None:
            return rng.choice((self.durable, bytes(self.data)))
        kept = rng.randint(self.synced_size, len(self.data))
        left = bytearray(self.data[:kept])
        if rng.random() < 0.3:
            hole = rng.randint(self.synced_size, kept)
            left[hole : hole + 512] = bytes(len(left[hole : hole + 512]))
        return bytes(left)


_Names = dict[str, "_Node | None"]


class _Change(NamedTuple):
    """A change of names: of a file, or of a directory, whose ``node`` is None.

    ``old`` is None for a creation, ``new`` is None for a removal.
    """

    old: str | None
    new: str | None
    node: _Node | None

    def inside(self, before: str, after: str) -> _Change:
        """Return the change with its paths after a rename of a directory."""
        old = None if self.old is None else _renamed(self.old, before, after)
        new = None if self.new is None else _renamed(self.new, before, after)
        return _Change(old, new, self.node)


def _renamed(path: str, before: str, after: str) -> str:
    if path == before or path.startswith(f"{before}/"):
        return after + path[len(before) :]
    return path


def _apply(names: _Names, change: _Change) -> None:
    old, new, node = change
    if old is None:
        assert new is not None
        names[new] = node
    elif new is None:
        names.pop(old, None)
    else:
        inside = old + "/"
        for path in [path for path in names if path == old or path.startswith(inside)]:
            names[new + path[len(old) :]] = names.pop(path)


class MemoryFile:
    """An open file of a `MemoryStorage`."""

    __slots__ = ("__weakref__", "_node", "_path", "_storage")

    def __init__(self, storage: MemoryStorage, path: str, node: _Node) -> None:
        self._storage = storage
        self._path = path
        self._node = node

    def fileno(self) -> int:
        """Raise ``io.UnsupportedOperation``: there is no descriptor."""
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def size(self) -> int:
        """Return the number of bytes."""
        return len(self._node.data)

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer only where the file ends."""
        faults = self._storage.faults
        if faults.reads:
            faults.count(f"read {self._path}")
        return bytes(self._node.data[position : position + size])

    def write(self, position: int, pieces: Sequence[Buffer], size: int) -> None:
        """Write the pieces; a selected failure writes only a few bytes of them."""
        written = b"".join(pieces)
        assert len(written) == size, f"{len(written)} bytes, {size} announced"
        self._storage.check_room(position + size - len(self._node.data))
        try:
            self._storage.faults.count(f"write {self._path}")
        except (OSError, Crashed):
            self._node.put(position, written[: self._storage.faults.short])
            raise
        self._node.put(position, written)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._storage.check_room(size - len(self._node.data))
        self._storage.faults.count(f"truncate {self._path}")
        self._node.cut(size)

    def sync(self) -> None:
        """Make the content durable."""
        try:
            self._storage.faults.count(f"sync {self._path}")
        except OSError:
            self._node.drop()
            raise
        self._node.sync()


_UNBOUNDED: Final = 1 << 40


class MemoryStorage:
    """Directories and files in memory, with faults and losses of power."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self._names: _Names = {"": None}
        self._durable: _Names = {"": None}
        # Unsynced changes, each with the directories whose sync makes it durable.
        self._pending: list[tuple[frozenset[str], _Change]] = []
        # Directories on disks of their own: each loses its unsynced changes separately.
        self.disks: tuple[str, ...] = ()
        # Capacity for the bytes of all files; None: unlimited.
        self.capacity_bytes: int | None = None
        self._locks: WeakValueDictionary[str, MemoryFile] = WeakValueDictionary()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        """Open a file for reading and writing."""
        node = self._names.get(path)
        if node is None:
            if path in self._names:
                raise IsADirectoryError(errno.EISDIR, "is a directory", path)
            if not create or not self.is_directory(dirname(path)):
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.faults.count_opening(f"create {path}")
            node = _Node()
            self._change(_Change(None, path, node))
        elif self.faults.reads:
            self.faults.count_opening(f"open {path}")
        return MemoryFile(self, path, node)

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory."""
        if not self.is_directory(directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        inside = directory + "/"
        return sorted(
            path[len(inside) :]
            for path in self._names
            if path.startswith(inside) and "/" not in path[len(inside) :]
        )

    def is_directory(self, path: str) -> bool:
        """Return whether the path is an existing directory."""
        return path in self._names and self._names[path] is None

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless they exist."""
        if self.is_directory(path):
            return
        if path in self._names:
            raise FileExistsError(errno.EEXIST, "is a file", path)
        self.make_directory(dirname(path) if path != "/" else "")
        self.faults.count(f"mkdir {path}")
        self._change(_Change(None, path, None))

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; a file replaces its target."""
        self._must_exist(old)
        # Calls that also remove a file have another name, for tests that select calls.
        replaces = new in self._names
        self.faults.count(f"replace {new}" if replaces else f"rename {old}")
        self._change(_Change(old, new, None))
        if self.is_directory(new):
            # From now on, a sync of the new path syncs the names in the directory.
            self._pending = [
                (frozenset(_renamed(each, old, new) for each in directories), change)
                for directories, change in self._pending
            ]

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._must_exist(path)
        if self._names[path] is None:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        self.faults.count(f"remove {path}")
        self._change(_Change(path, None, None))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        if self.names(path):
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.faults.count(f"rmdir {path}")
        self._change(_Change(path, None, None))

    def lock(self, path: str) -> object:
        """Lock a file for as long as the result is kept."""
        if path in self._locks:
            raise BlockingIOError(errno.EAGAIN, "is locked", path)
        file = self._locks[path] = self.open(path, create=True)
        return file

    def fill_up(self) -> None:
        """Set the capacity to the space in use."""
        self.capacity_bytes = self._used_bytes()

    def _used_bytes(self) -> int:
        return sum(len(node.data) for node in self._names.values() if node is not None)

    def check_room(self, growth_bytes: int) -> None:
        """Raise ENOSPC if the growth would exceed the capacity."""
        if self.capacity_bytes is None or growth_bytes <= 0:
            return
        if self._used_bytes() + growth_bytes > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def volume(self, directory: str) -> Volume:
        """Return the capacity (1 TiB if unlimited) and the free bytes."""
        self._must_exist(directory)
        total_bytes = _UNBOUNDED if self.capacity_bytes is None else self.capacity_bytes
        return Volume(total_bytes, max(total_bytes - self._used_bytes(), 0))

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        self._must_exist(path)
        self.faults.count_opening(f"sync {path}")
        rest: list[tuple[frozenset[str], _Change]] = []
        for directories, change in self._pending:
            if path not in directories:
                rest.append((directories, change))
                continue
            _apply(self._durable, change)
            old, new = change.old, change.new
            if old is not None and new is not None and self._durable.get(new) is None:
                rest = [(each, it.inside(old, new)) for each, it in rest]
        self._pending = rest

    # ---- disks after a stop ----

    def after_kill(self, faults: Faults | None = None) -> MemoryStorage:
        """Return the disk after the process, but not the machine, has stopped."""
        left = MemoryStorage(faults)
        left._hold(self._names, lambda node: bytes(node.data))
        return left

    def after_power_loss(
        self, rng: random.Random, faults: Faults | None = None
    ) -> MemoryStorage:
        """Return a possible state of the disk after the machine has stopped."""
        names = dict(self._durable)
        for disk in (*self.disks, None):
            changes = [it for _, it in self._pending if self._disk_of(it) == disk]
            for change in changes[: rng.randint(0, len(changes))]:
                _apply(names, change)
        left = MemoryStorage(faults)
        left._hold(names, lambda node: node.after_power_loss(rng))
        return left

    def _disk_of(self, change: _Change) -> str | None:
        path = change.old or change.new or ""
        return next((it for it in self.disks if path.startswith(f"{it}/")), None)

    def _hold(self, names: _Names, content: Callable[[_Node], bytes]) -> None:
        for path, node in names.items():
            parent = dirname(path)
            if parent in names or path == "":
                kept = None if node is None else _Node(content(node))
                self._names[path] = self._durable[path] = kept

    def _change(self, change: _Change) -> None:
        _apply(self._names, change)
        touched = (name for name in (change.old, change.new) if name is not None)
        self._pending.append((frozenset(map(dirname, touched)), change))

    def _must_exist(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
