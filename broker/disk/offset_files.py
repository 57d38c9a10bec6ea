"""Checkpoints of offsets as files: an older view never replaces a newer one.

They are written by a round of upkeep, in a thread, and by a request that must be on
disk before it is answered; either may have looked at the logs before the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        # By (directory, file): the view that it holds, and its offsets.
        self._written: dict[tuple[str, str], int] = {}
        self._held: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
        # Partitions forgotten since the last view that was written, and when.
        self._forgotten: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        self._writing = Lock()
        # The offsets being written, and those forgotten, under a lock that is never
        # held while a device works.
        self._in_progress: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
        self._noting = Lock()

    def read(self, directory: str, name: str) -> Mapping[TopicPartition, int]:
        """Return what a file holds; raise `MalformedCheckpoint`."""
        offsets = checkpoints.read_offsets(self._storage, directory, name)
        self._held[directory, name] = offsets
        return offsets

    def view(self) -> int:
        """Return the number of a view that begins now."""
        return next(self._views)

    def writing(
        self,
        directory: str,
        files: Mapping[str, Mapping[TopicPartition, int]],
        view: int,
    ) -> Callable[[], None]:
        """Return the job that writes a view; it may raise OSError."""
        return partial(self._write, directory, files, view)

    def add(
        self,
        directory: str,
        name: str,
        look: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """Write a few offsets in addition to a file's content; raise OSError.

        ``look`` is called in turn, so that the later of two calls does not restore
        older offsets.
        """
        with self._writing:
            view = self.view()
            held = self._held.get((directory, name), {})
            self._put(directory, name, {**held, **look()})
            self._written[directory, name] = view

    def forget(
        self,
        directory: str,
        key: TopicPartition,
        is_gone: Callable[[TopicPartition], bool] = lambda key: False,
    ) -> None:
        """Take a partition out of the files of a directory; raise OSError.

        Called before a log of this name begins: the entries are of another log, whose
        offsets would cut off the new one after a kill. Other partitions that are gone
        are removed too, so that a topic of a thousand partitions does not write a file
        a thousand times.
        """
        view = self.view()
        with self._noting:
            files = [file for file in self._held if file[0] == directory]
            for file in files:
                # A view of before that is still to be written may know it, too.
                self._forgotten.setdefault(file, {})[key] = view
            if not any(self._says(file, key) for file in files):
                return
        with self._writing:
            self._forget_in(directory, lambda other: other == key or is_gone(other))

    def forget_gone(
        self, directory: str, is_gone: Callable[[TopicPartition], bool]
    ) -> None:
        """Take all partitions that are gone out of the files; raise OSError.

        For a thread, so that `forget` finds nothing to write when a name comes again.
        """
        view = self.view()
        with self._writing:
            for key in self._forget_in(directory, is_gone):
                with self._noting:
                    for file in self._held:
                        if file[0] == directory:
                            self._forgotten.setdefault(file, {}).setdefault(key, view)

    def _says(self, file: tuple[str, str], key: TopicPartition) -> bool:
        """Return whether a file has an entry of a partition, or will have."""
        return key in self._held[file] or key in self._in_progress.get(file, ())

    def _forget_in(
        self, directory: str, is_gone: Callable[[TopicPartition], bool]
    ) -> set[TopicPartition]:
        forgotten: set[TopicPartition] = set()
        for (home, name), offsets in list(self._held.items()):
            if home == directory:
                gone = {key for key in offsets if is_gone(key)}
                if gone:
                    self._put(directory, name, _without(offsets, gone))
                    forgotten |= gone
        return forgotten

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
                with self._noting:
                    since = self._forgotten_since(file, view).keys() & offsets
                    content = _without(offsets, since)
                    self._in_progress[file] = content
                self._put(directory, name, content)
                with self._noting:
                    self._forgotten[file] = self._forgotten_since(file, view)
                self._written[file] = view

    def _forgotten_since(
        self, file: tuple[str, str], view: int
    ) -> dict[TopicPartition, int]:
        forgotten = self._forgotten.get(file, {})
        return {key: at for key, at in forgotten.items() if at > view}

    def _put(
        self, directory: str, name: str, offsets: Mapping[TopicPartition, int]
    ) -> None:
        file = directory, name
        with self._noting:
            self._in_progress[file] = offsets
        try:
            checkpoints.write_offsets(self._storage, directory, name, offsets)
            self._held[file] = offsets
        finally:
            with self._noting:
                del self._in_progress[file]


def _without(
    offsets: Mapping[TopicPartition, int], gone: set[TopicPartition]
) -> Mapping[TopicPartition, int]:
    if not gone:
        return offsets
    return {key: offset for key, offset in offsets.items() if key not in gone}
