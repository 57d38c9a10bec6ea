"""Snapshot and log of a ZooKeeper service on a disk.

``snapshot.N`` holds the state after transaction N, ``log.N`` the transactions after it.
A record is its size, a CRC-32 of size and content, and the content. A snapshot is
written atomically and before its log. Therefore the newest snapshot is always complete,
and older files are removed.

A crash leaves a prefix of the unsynced bytes, or garbage in their place. Recovery
therefore cuts the log before the first record that fails its check. No response depends
on the removed records, because responses wait for `sync`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from posixpath import dirname
from typing import Final, NamedTuple

from broker.disk.storage import (
    File,
    Storage,
    join,
    read_whole,
    remove_if_there,
    write_atomically,
)

# A snapshot replaces a log that exceeds this size, and this multiple of the last
# snapshot's size.
_LOG_BYTES_MIN: Final = 4 << 20
_LOG_PER_SNAPSHOT: Final = 2
_HEADER: Final = struct.Struct(">II")
_SNAPSHOT, _LOG = "snapshot.", "log."
_DIGITS: Final = frozenset("0123456789abcdef")
_LOCK: Final = ".lock"
# The data folder of Java's ZooKeeper, which has other formats.
_OF_JAVA: Final = "version-2"


class JournalError(Exception):
    """An unusable data directory; the message is one sentence."""


class Recovered(NamedTuple):
    """The state found on disk: a snapshot, if any, and the records after it."""

    snapshot: bytes | None
    records: list[bytes]
    # The number of bytes cut from the torn end of the log.
    cut_bytes: int


class Journal:
    """The files of a service, locked by one process at a time.

    The service reads ``recovered`` once, before it appends.
    """

    def __init__(
        self, storage: Storage, directory: str, *, log_bytes_min: int = _LOG_BYTES_MIN
    ) -> None:
        """Recover the files of ``directory``.

        :raises JournalError: if another process has the lock, or a snapshot is damaged.
        """
        self._storage = storage
        self._directory = directory
        self._log_bytes_min = log_bytes_min
        storage.make_directory(directory)
        storage.sync_directory(dirname(directory))
        try:
            self._lock = storage.lock(join(directory, _LOCK))
        except BlockingIOError:
            raise JournalError(f"another process has its data in {directory}") from None
        names = storage.names(directory)
        if _OF_JAVA in names:
            raise JournalError(f"{directory} holds the data of a Java ZooKeeper")
        snapshot = None
        self._zxid = max((_number(it) for it in names if _is(it, _SNAPSHOT)), default=0)
        if _name(_SNAPSHOT, self._zxid) in names:
            snapshot = self._read_snapshot()
        self._remove_all_but(self._zxid)
        self._snapshot_bytes = len(snapshot or b"")
        self._log: File = storage.open(
            join(directory, _name(_LOG, self._zxid)), create=True
        )
        storage.sync_directory(directory)
        content = self._log.read(0, self._log.size())
        records = list(_whole_records(content))
        self._size = sum(_HEADER.size + len(it) for it in records)
        self.recovered = Recovered(snapshot, records, len(content) - self._size)
        if self.recovered.cut_bytes:
            self._log.truncate(self._size)
            self._log.sync()
        self._unwritten: list[bytes] = []
        # The numbers of appended records, and of durable ones.
        self.appended = 0
        self.synced = 0

    def append(self, record: bytes) -> None:
        """Add a record to the next write."""
        sized = len(record).to_bytes(4, "big")
        check = zlib.crc32(record, zlib.crc32(sized))
        self._unwritten += (_HEADER.pack(len(record), check), record)
        self.appended += 1

    def write(self) -> int:
        """Write the appended records; return the total appended, for `synced`."""
        pieces, self._unwritten = self._unwritten, []
        if pieces:
            written = b"".join(pieces)
            self._log.write(self._size, (written,), len(written))
            self._size += len(written)
        return self.appended

    def sync(self) -> None:
        """Make the written records durable."""
        self._log.sync()

    @property
    def is_long(self) -> bool:
        """Return whether a snapshot should replace the log."""
        least = max(self._log_bytes_min, _LOG_PER_SNAPSHOT * self._snapshot_bytes)
        return self._size >= least

    def replace(self, zxid: int, snapshot: bytes) -> None:
        """Write a snapshot of all appended records, and begin a new log."""
        check = zlib.crc32(snapshot).to_bytes(4, "big")
        name = _name(_SNAPSHOT, zxid)
        write_atomically(self._storage, self._directory, name, check + snapshot)
        log = join(self._directory, _name(_LOG, zxid))
        self._log = self._storage.open(log, create=True)
        self._storage.sync_directory(self._directory)
        self._remove_all_but(zxid)
        self._zxid, self._size, self._snapshot_bytes = zxid, 0, len(snapshot)
        self._unwritten = []
        self.synced = self.appended

    def _read_snapshot(self) -> bytes:
        path = join(self._directory, _name(_SNAPSHOT, self._zxid))
        content = read_whole(self._storage, path)
        if zlib.crc32(content[4:]).to_bytes(4, "big") != content[:4]:
            raise JournalError(f"{path} is damaged: its checksum does not match")
        return content[4:]

    def _remove_all_but(self, zxid: int) -> None:
        kept = (_name(_SNAPSHOT, zxid), _name(_LOG, zxid))
        for name in self._storage.names(self._directory):
            if name.startswith((_SNAPSHOT, _LOG)) and name not in kept:
                remove_if_there(self._storage, join(self._directory, name))


def _whole_records(content: bytes) -> Iterator[bytes]:
    """Yield the records before the first that fails its check."""
    at = 0
    while at + _HEADER.size <= len(content):
        size, check = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        record = content[at : at + size]
        at += size
        sized = size.to_bytes(4, "big")
        if not record or zlib.crc32(record, zlib.crc32(sized)) != check:
            return
        yield record


def _name(kind: str, zxid: int) -> str:
    return f"{kind}{zxid:016x}"


def _is(name: str, kind: str) -> bool:
    number = name.removeprefix(kind)
    return name.startswith(kind) and len(number) == 16 and set(number) <= _DIGITS


def _number(name: str) -> int:
    return int(name.rpartition(".")[2], 16)
