"""A server's one-shot watches of znodes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeAlias, TypeVar

from broker.zookeeper.znodes import EventKind, WatchEvent

W = TypeVar("W", bound=Hashable)
_Table: TypeAlias = "dict[str, dict[W, None]]"


class WatchTable(Generic[W]):
    """Watches on data (or on creation) and on children.

    Watchers keep their order of registration, so that the order of events does not
    depend on hashes.
    """

    def __init__(self) -> None:
        self._data: _Table[W] = {}
        self._child: _Table[W] = {}
        # Each watcher's paths, in the data table and in the child table.
        self._paths: dict[W, tuple[set[str], set[str]]] = {}

    def watch_data(self, path: str, watcher: W) -> None:
        """Register a watch for the next change of a znode, but not of its children."""
        self._data.setdefault(path, {})[watcher] = None
        self._paths_of(watcher)[0].add(path)

    def watch_children(self, path: str, watcher: W) -> None:
        """Register a watch for the next change of the set of children."""
        self._child.setdefault(path, {})[watcher] = None
        self._paths_of(watcher)[1].add(path)

    def count(self, watcher: W) -> int:
        """Return the number of a watcher's watches."""
        data, child = self._paths.get(watcher, ((), ()))
        return len(data) + len(child)

    def triggered(self, event: WatchEvent) -> list[W]:
        """Remove the watches that an event triggers; return each watcher once."""
        watchers: dict[W, None] = {}
        if event.kind is not EventKind.CHILDREN_CHANGED:
            watchers |= self._data.pop(event.path, {})
        if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            watchers |= self._child.pop(event.path, {})
        for watcher in watchers:
            data, child = self._paths[watcher]
            if event.kind is not EventKind.CHILDREN_CHANGED:
                data.discard(event.path)
            if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
                child.discard(event.path)
        return list(watchers)

    def remove(self, watcher: W) -> None:
        """Remove all watches of a client whose connection has ended."""
        data, child = self._paths.pop(watcher, ((), ()))
        for table, paths in ((self._data, data), (self._child, child)):
            for path in paths:
                del table[path][watcher]
                if not table[path]:
                    del table[path]

    def _paths_of(self, watcher: W) -> tuple[set[str], set[str]]:
        return self._paths.setdefault(watcher, (set(), set()))
