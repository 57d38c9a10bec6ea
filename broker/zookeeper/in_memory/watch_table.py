"""One-shot watches of znodes, as a server keeps them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from broker.zookeeper.znodes import EventKind, WatchEvent

W = TypeVar("W", bound=Hashable)


class WatchTable(Generic[W]):
    """Watches on data (or on coming into being) and on children.

    Watchers are kept in the order in which they came, so that events go out in an
    order that does not depend on hashes.
    """

    def __init__(self) -> None:
        self._data: dict[str, dict[W, None]] = {}
        self._child: dict[str, dict[W, None]] = {}

    def watch_data(self, path: str, watcher: W) -> None:
        """Register a watch for the next change of a znode, but not of its children."""
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        """Register a watch for the next change of the set of children."""
        self._child.setdefault(path, {})[watcher] = None

    def gone_off(self, event: WatchEvent) -> list[W]:
        """Return who hears of an event, once each; their watches are gone."""
        heard: dict[W, None] = {}
        if event.kind is not EventKind.CHILDREN_CHANGED:
            heard |= self._data.pop(event.path, {})
        if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            heard |= self._child.pop(event.path, {})
        return list(heard)

    def forget(self, watcher: W) -> None:
        """Drop all watches of one whose connection has ended. Cost: all paths."""
        for table in (self._data, self._child):
            for path in [path for path, them in table.items() if watcher in them]:
                del table[path][watcher]
                if not table[path]:
                    del table[path]
