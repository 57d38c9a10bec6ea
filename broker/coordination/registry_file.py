"""The registry's file in one directory: the state in its first line, then changes.

``doorkeeper-cluster.json``: each line is the CRC-32 of a JSON object in eight hex
digits, a space, and the object. A change contains the generation that it follows, so a
missing change is detected. A torn last line, left by a kill, was never acknowledged and
is ignored. A bad line before a good line is reported as damage. Older files, which hold
one object without a checksum, are also read.

A change costs one write and one sync. When the changes have outgrown the state, the
file is rewritten under another name, and renamed. Only one thread at a time may write.
"""

from __future__ import annotations

import json
from logging import getLogger
from typing import Any, Final
from zlib import crc32

from broker.coordination.cluster_state import (
    VERSION,
    ClusterState,
    read_change,
    read_state,
    write_state,
)
from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.storage import (
    Storage,
    join,
    read_whole,
    write_atomically,
)
from broker.observation.logs import fields

logger = getLogger(__name__)

FILE_NAME: Final = "doorkeeper-cluster.json"
_OLD_VERSIONS: Final = (1, 2)
# Bytes of changes below which a file is not compacted.
_CHANGES_MIN: Final = 1 << 18
_DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError)


def line(written: str) -> bytes:
    """Return a line of the file."""
    content = written.encode()
    return b"%08x %s\n" % (crc32(content), content)


class RegistryFile:
    """A copy of the registry; the caller handles `OSError`."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self._path = join(directory, FILE_NAME)
        # Bytes of a complete file; None until `replace`, and after an error.
        self._size: int | None = None
        self._state_size = 0

    def read(self) -> ClusterState | None:
        """Return the state, None if there is no file; raise `MalformedCheckpoint`."""
        try:
            content = read_whole(self._storage, self._path)
        except FileNotFoundError:
            return None
        try:
            if content.startswith(b"{"):
                return read_state(_OLD_VERSIONS, json.loads(content))
            return self._folded(content)
        except _DAMAGE as error:
            expected = "the cluster state that this broker wrote"
            raise MalformedCheckpoint(self._path, repr(error), expected) from error

    def _folded(self, content: bytes) -> ClusterState:
        first, *changes = content.split(b"\n")
        found = _parsed(first)
        if found is None:
            raise ValueError("its first line does not have its checksum")
        state = read_state((VERSION,), found)
        torn: bytes | None = None
        for each in changes:
            found = _parsed(each)
            if found is None:
                torn = torn or each
                continue
            written = read_change(found)
            if torn or written.after != state.generation:
                raise ValueError(
                    f"no change of {state.generation}, but of {written.after}: "
                    f"{each[:80]!r}"
                )
            state.apply(written.change, written.generation)
        if torn:
            logger.warning(
                "a change that was cut short is left out of the registry",
                extra=fields(file=self._path, generation=state.generation),
            )
        return state

    def replace(self, state: ClusterState, changes: bytes = b"") -> None:
        """Write the whole file: a state, followed by lines of changes."""
        self._size = None
        content = line(write_state(state))
        write_atomically(self._storage, self._directory, FILE_NAME, content + changes)
        self._note(len(content), len(content) + len(changes))

    def append(self, change: bytes) -> bool:
        """Append a line; False if the file has another size: use `replace` then."""
        size, self._size = self._size, None
        try:
            file = self._storage.open(self._path)
        except FileNotFoundError:
            return False
        if size is None or file.size() != size:
            return False
        file.write(size, (change,), len(change))
        file.sync()
        self._size = size + len(change)
        return True

    @property
    def is_long(self) -> bool:
        """Return whether `compact` makes the file much shorter."""
        if self._size is None:
            return False
        return self._size - self._state_size > max(self._state_size, _CHANGES_MIN)

    def compact(self, state: ClusterState) -> None:
        """Rewrite the file; raise OSError, after which the old file is used further.

        After a failure, for example on a full disk, the file counts as long again only
        at twice its length.
        """
        size = self._size
        assert size is not None
        try:
            self.replace(state)
        except OSError:
            # Either the old or the new file is in place; `append` checks its size.
            self._size = self._state_size = size
            raise

    def _note(self, state_size: int, size: int) -> None:
        self._state_size = state_size
        self._size = size


def _parsed(written: bytes) -> dict[str, Any] | None:
    """Return a line's object; None if its checksum is wrong."""
    checksum, _, content = written.partition(b" ")
    if checksum != b"%08x" % crc32(content):
        return None
    found: dict[str, Any] = json.loads(content)
    return found
