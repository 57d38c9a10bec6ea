"""Checkpoint files of offsets: an older view never replaces a newer one.

A view is a reading of the logs' offsets. Upkeep takes a view and writes it in a thread;
a request that must be durable before its response writes, too. Writes may therefore
finish in another order than their views were taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import partial
from itertools import count
from threading import Lock

from broker.disk import checkpoints
from broker.disk.storage import Storage
from broker.protocol.topic_partition import TopicPartition


class OffsetFiles:
    """The checkpoints of all directories."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._views = count(1)
        # By (directory, file): the number of the written view, and the offsets.
        self._written: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
        # Partitions forgotten since the last written view, with the view at that time.
        self._removed: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        # Held during writes and syncs, so only threads may wait for it, except at a
        # start and a stop.
        self._writing = Lock()

    def read(self, directory: str, name: str) -> Mapping[TopicPartition, int]:
        """Return the offsets in a file; raise `MalformedCheckpoint`."""
        offsets = checkpoints.read_offsets(self._storage, directory, name)
        self._held[directory, name] = offsets
        return offsets

    def view(self) -> int:
        """Return the number of a view that is taken now."""
        return next(self._views)

    def writing(
        self,
        directory: str,
        files: Mapping[str, Mapping[TopicPartition, int]],
        view: int,
    ) -> Callable[[], None]:
        """Return a function that writes a view; it may raise OSError."""
        return partial(self._write, directory, files, view)

    def add(
        self,
        directory: str,
        name: str,
        read: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """Write a few offsets in addition to a file's content; raise OSError.

        ``read`` is called under the lock, so that the later of two calls does not
        restore older offsets.
        """
        with self._writing:
            view = self.view()
            held = self._held.get((directory, name), {})
            self._put(directory, name, {**held, **read()})
            self._written[directory, name] = view

    def remove(
        self,
        directory: str,
        removed: Set[TopicPartition],
        still: Set[TopicPartition] | None = None,
    ) -> None:
        """Remove partitions from the files of a directory; raise OSError.

        Partitions that are not in ``still`` once the lock is acquired are skipped.
        Called before new logs of these names are created: the files describe earlier
        logs, by whose offsets recovery would truncate the new logs. Called in a thread,
        because of writes and syncs.
        """
        with self._writing:
            if still is not None:
                removed = removed & still
            view = self.view()
            for file, offsets in list(self._held.items()):
                if file[0] != directory:
                    continue
                # An earlier view that is not yet written may contain them, too.
                since = self._removed.setdefault(file, {})
                since.update(dict.fromkeys(removed, view))
                if not removed.isdisjoint(offsets):
                    self._put(*file, _without(offsets, removed))

    def known(self, directory: str) -> set[TopicPartition]:
        """Return the partitions in the files of a directory."""
        return {
            key
            for (home, _), offsets in self._held.items()
            if home == directory
            for key in offsets
        }

    def _write(
        self,
        directory: str,
        files: Mapping[str, Mapping[TopicPartition, int]],
        view: int,
    ) -> None:
        with self._writing:
            for name, offsets in files.items():
                if view <= self._written.get((directory, name), 0):
                    continue
                file = directory, name
                since = self._forgotten_since(file, view)
                self._put(directory, name, _without(offsets, since.keys()))
                self._removed[file] = since
                self._written[file] = view

    def _forgotten_since(
        self, file: tuple[str, str], view: int
    ) -> dict[TopicPartition, int]:
        forgotten = self._removed.get(file, {})
        return {key: at for key, at in forgotten.items() if at > view}

    def _put(
        self, directory: str, name: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        checkpoints.write_offsets(self._storage, directory, name, offsets)
        self._held[directory, name] = offsets


def _without(
    offsets: Mapping[TopicPartition, int], removed: Set[TopicPartition]
) -> Mapping[TopicPartition, int]:
    if not removed:
        return offsets
    return {key: offset for key, offset in offsets.items() if key not in removed}
