"""ZooKeeper's tree of znodes: transactions in, results and events out.

Java: ``DataTree`` and the checks of ``PrepRequestProcessor``; here all synchronous.
Each write is a transaction with its own number (zxid), even if it fails. A transaction
of several operations is atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from broker.zookeeper.jute import (
    Reader,
    packed_buffer,
    packed_int,
    packed_long,
    packed_text,
)
from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    OtherError,
    SetData,
    Stat,
    WatchEvent,
    Znode,
    ZooKeeperError,
)
from broker.zookeeper.zookeeper_messages import BAD_ARGUMENTS

_INT_MAX: Final = 0x7FFFFFFF


@dataclass(slots=True)
class _Znode:
    data: bytes
    czxid: int
    ctime_ms: int
    owner: int
    mzxid: int
    mtime_ms: int
    pzxid: int
    version: int = 0
    # The number of child creations, and the suffix of the next sequential child.
    births: int = 0
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            # Creations plus deletions; the latter are births minus present children.
            cversion=2 * self.births - len(self.children),
            aversion=0,
            ephemeral_owner=self.owner,
            data_length=len(self.data),
            num_children=len(self.children),
            pzxid=self.pzxid,
        )

    def packed(self) -> bytes:
        """Return the znode without its children."""
        created = (self.czxid, self.ctime_ms, self.owner)
        longs = (*created, self.mzxid, self.mtime_ms, self.pzxid)
        numbers = packed_int(self.version) + packed_int(self.births)
        return packed_buffer(self.data) + b"".join(map(packed_long, longs)) + numbers

    @classmethod
    def read(cls, reader: Reader) -> _Znode:
        data = reader.read_buffer()
        czxid, ctime_ms, owner = (reader.read_long() for _ in range(3))
        mzxid, mtime_ms, pzxid = (reader.read_long() for _ in range(3))
        version, births = reader.read_int(), reader.read_int()
        return cls(
            *(data, czxid, ctime_ms, owner, mzxid, mtime_ms, pzxid, version, births)
        )


class Tree:
    """Znodes by path, and the number of the last transaction."""

    def __init__(self) -> None:
        self.zxid = 0
        self._znodes = {"/": _Znode(b"", 0, 0, 0, 0, 0, 0)}
        # The paths of each session's ephemeral znodes.
        self._owned: dict[int, set[str]] = {}
        self._session = 0
        self._now_ms = 0
        self._events: list[WatchEvent] = []
        # The present transaction's znodes before their change; None: did not exist.
        self._before: dict[str, _Znode | None] = {}

    def transact(
        self, ops: Sequence[Op], *, session: int, now_ms: int
    ) -> tuple[list[OpResult], list[WatchEvent]]:
        """Execute all operations; return their results, and the events for watches.

        :raises ZooKeeperError: for the first failure, with its index; all are undone.
        """
        self.zxid += 1
        self._session, self._now_ms = session, now_ms
        self._events, self._before = [], {}
        results: list[OpResult] = []
        try:
            for op in ops:
                results.append(self._apply(op))
        except ZooKeeperError as error:
            error.op = len(results)
            self._undo()
            raise
        return results, self._events

    def packed(self) -> bytes:
        """Return the complete tree as bytes, for `read`."""
        pieces = [packed_long(self.zxid), packed_int(len(self._znodes))]
        for path, znode in sorted(self._znodes.items()):
            pieces += (packed_text(path), znode.packed())
        return b"".join(pieces)

    @classmethod
    def read(cls, reader: Reader) -> Tree:
        """Decode the tree of a snapshot; raises `MalformedFrame`."""
        tree = cls()
        tree.zxid = reader.read_long()
        # Paths are sorted, so a parent precedes its children.
        for _ in range(reader.read_count()):
            path = reader.read_text()
            tree._put(path, _Znode.read(reader))
            parent, _, name = path.rpartition("/")
            if name:
                tree._znodes[parent or "/"].children.add(name)
        return tree

    def skip(self) -> None:
        """Consume a number for a transaction that leaves the tree unchanged."""
        self.zxid += 1

    def get(self, path: str) -> Znode:
        """Return a znode; raises `NoNode`."""
        znode = self._znode(path)
        return Znode(znode.data, znode.stat())

    def stat(self, path: str) -> Stat | None:
        """Return a znode's stat, if it exists."""
        znode = self._znodes.get(path)
        return None if znode is None else znode.stat()

    def children(self, path: str) -> list[str]:
        """Return the names of a znode's children, sorted; raises `NoNode`."""
        return sorted(self._znode(path).children)

    def ephemerals(self, session: int) -> list[str]:
        """Return the paths of a session's ephemeral znodes, sorted."""
        return sorted(self._owned.get(session, ()))

    def count_ephemerals(self, session: int) -> int:
        """Return the number of a session's ephemeral znodes."""
        return len(self._owned.get(session, ()))

    # ---- operations -----------------------------------------------------------------

    def _apply(self, op: Op) -> OpResult:
        match op:
            case Create():
                return self._create(op)
            case SetData():
                return self._set(op)
            case Delete():
                self._delete(op)
            case Check():
                _expect_valid(op.path)
                _expect_version(op.path, op.version, self._znode(op.path))
        return None

    def _create(self, op: Create) -> str:
        parent_path = _parent_of(op.path)
        parent = self._znode(parent_path)
        number = f"{parent.births:010d}" if op.sequential else ""
        path = op.path + number
        _expect_valid(path)
        if path in self._znodes:
            raise NodeExists(path)
        if parent.owner:
            raise NoChildrenForEphemerals(path)
        parent = self._changed(parent_path)
        self._before.setdefault(path, None)
        owner = self._session if op.ephemeral else 0
        zxid, now_ms = self.zxid, self._now_ms
        self._put(path, _Znode(op.data, zxid, now_ms, owner, zxid, now_ms, zxid))
        parent.children.add(path.rpartition("/")[2])
        parent.births += 1
        parent.pzxid = zxid
        self._happened(EventKind.CREATED, path)
        self._happened(EventKind.CHILDREN_CHANGED, parent_path)
        return path

    def _set(self, op: SetData) -> Stat:
        _expect_valid(op.path)
        _expect_version(op.path, op.version, self._znode(op.path))
        znode = self._changed(op.path)
        znode.data = op.data
        # As in Java, versions wrap around to 0: -1 matches any version.
        znode.version = 0 if znode.version == _INT_MAX else znode.version + 1
        znode.mzxid, znode.mtime_ms = self.zxid, self._now_ms
        self._happened(EventKind.DATA_CHANGED, op.path)
        return znode.stat()

    def _delete(self, op: Delete) -> None:
        parent_path = _parent_of(op.path)
        if op.path == "/":
            raise OtherError(op.path, BAD_ARGUMENTS)
        _expect_version(op.path, op.version, self._znode(op.path))
        if self._znode(op.path).children:
            raise NotEmpty(op.path)
        self._changed(op.path)
        parent = self._changed(parent_path)
        self._drop(op.path)
        parent.children.remove(op.path.rpartition("/")[2])
        parent.pzxid = self.zxid
        self._happened(EventKind.DELETED, op.path)
        self._happened(EventKind.CHILDREN_CHANGED, parent_path)

    # ---- parts of operations --------------------------------------------------------

    def _znode(self, path: str) -> _Znode:
        try:
            return self._znodes[path]
        except KeyError:
            raise NoNode(path) from None

    def _changed(self, path: str) -> _Znode:
        znode = self._znodes[path]
        if path not in self._before:
            self._before[path] = replace(znode, children=set(znode.children))
        return znode

    def _happened(self, kind: EventKind, path: str) -> None:
        self._events.append(WatchEvent(kind, path))

    def _undo(self) -> None:
        for path, znode in self._before.items():
            if path in self._znodes:
                self._drop(path)
            if znode is not None:
                self._put(path, znode)

    def _put(self, path: str, znode: _Znode) -> None:
        self._znodes[path] = znode
        if znode.owner:
            self._owned.setdefault(znode.owner, set()).add(path)

    def _drop(self, path: str) -> None:
        owner = self._znodes.pop(path).owner
        if owner:
            self._owned[owner].remove(path)
            if not self._owned[owner]:
                del self._owned[owner]


def _parent_of(path: str) -> str:
    """Return the path of the parent; the root is its own parent."""
    parent, slash, _ = path.rpartition("/")
    if not slash or "\0" in path:
        raise OtherError(path, BAD_ARGUMENTS)
    return parent or "/"


def _expect_valid(path: str) -> None:
    """Raise an error for a path that ``PathUtils.validatePath`` rejects."""
    start, *names = path.split("/")
    if start or not (names == [""] or all(map(_is_name, names))):
        raise OtherError(path, BAD_ARGUMENTS)


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and not any(map(_is_forbidden, name))


def _is_forbidden(char: str) -> bool:
    code = ord(char)
    return (
        code <= 0x1F
        or 0x7F <= code <= 0x9F
        or 0xD800 <= code <= 0xF8FF
        or 0xFFF0 <= code <= 0xFFFF
    )


def _expect_version(path: str, version: int, znode: _Znode) -> None:
    if version not in (-1, znode.version):
        raise BadVersion(path)
