"""The pending watches of a session, to set again on a new connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.zookeeper import zookeeper_messages as messages
from broker.zookeeper.znodes import EventKind, NoNode, WatchEvent
from broker.zookeeper.zookeeper_messages import OK, OpCode, Request

# Approximate bytes of paths in one request that sets watches again. The rest of the
# frame's limit is for the size prefixes.
_PATH_BYTES: Final = 128 << 10


class Watches:
    """Server paths with a watch on data, on creation, or on children."""

    def __init__(self) -> None:
        self._data: set[str] = set()
        self._exist: set[str] = set()
        self._child: set[str] = set()

    def answered(self, request: Request[object], code: int) -> None:
        """Record the watch that a completed request has set."""
        if not request.watch:
            return
        if code == NoNode.code and request.opcode is OpCode.EXISTS:
            self._exist.add(request.path)
        elif code == OK and request.opcode is OpCode.GET_CHILDREN:
            self._child.add(request.path)
        elif code == OK:
            self._data.add(request.path)

    def triggered(self, event: WatchEvent) -> None:
        """Remove the watches that an event has triggered."""
        if event.kind is not EventKind.CHILDREN_CHANGED:
            self._data.discard(event.path)
            self._exist.discard(event.path)
        if event.kind in (EventKind.CHILDREN_CHANGED, EventKind.DELETED):
            self._child.discard(event.path)

    def requests(self, zxid: int) -> Iterator[Request[None]]:
        """Yield requests that set all watches again, as of ``zxid``."""
        kinds = (self._data, self._exist, self._child)
        pending = [(i, path) for i in range(3) for path in sorted(kinds[i])]
        while pending:
            batch: tuple[list[str], list[str], list[str]] = ([], [], [])
            size = 0
            while pending and size < _PATH_BYTES:
                kind, path = pending.pop()
                batch[kind].append(path)
                size += len(path.encode())
            yield messages.set_watches(zxid, *batch)
