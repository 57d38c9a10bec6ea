"""The in-memory tree compared with a naive one, and events with the changes."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.zookeeper.in_memory.tree import Tree
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
    ZooKeeperError,
)
from tests.broker.zookeeper.drawn_ops import draw_ops

SESSIONS = (7, 8)


@dataclass
class Row:
    data: bytes
    created: int
    created_ms: int
    owner: int
    changed: int
    changed_ms: int
    family_changed: int
    version: int = 0
    births: int = 0


def is_valid(path: str) -> bool:
    """Return whether a drawn path is valid."""
    names = path[1:].split("/")
    return not ({"", ".", ".."} & set(names) or {"\0", "\x7f"} & set(path))


class NaiveTree:
    """A table of paths; a failed transaction restores a copy of the whole table."""

    def __init__(self) -> None:
        self.rows = {"/": Row(b"", 0, 0, 0, 0, 0, 0)}
        self.zxid = 0

    def transact(self, ops: list[Op], session: int, now_ms: int) -> list[OpResult]:
        self.zxid += 1
        before = copy.deepcopy(self.rows)
        results: list[OpResult] = []
        for op in ops:
            try:
                results.append(self.apply(op, session, now_ms))
            except ZooKeeperError as error:
                self.rows = before
                error.op = len(results)
                raise
        return results

    def children(self, path: str) -> list[str]:
        start = path.rstrip("/") + "/"
        inside = (it[len(start) :] for it in self.rows if it.startswith(start))
        return sorted(name for name in inside if name and "/" not in name)

    def stat(self, path: str) -> Stat | None:
        row = self.rows.get(path)
        if row is None:
            return None
        alive = len(self.children(path))
        # cversion counts creations and deletions; deletions are births - alive.
        changes = row.births + (row.births - alive)
        return Stat(
            *(row.created, row.changed, row.created_ms, row.changed_ms),
            *(row.version, changes, 0, row.owner, len(row.data), alive),
            row.family_changed,
        )

    def apply(self, op: Op, session: int, now_ms: int) -> OpResult:
        parent = op.path[: op.path.rindex("/")] or "/"
        if isinstance(op, Create | Delete) and "\0" in op.path:
            raise OtherError(op.path, -8)
        if isinstance(op, Create):
            return self.create(op, parent, session, now_ms)
        if isinstance(op, SetData | Check) and not is_valid(op.path):
            raise OtherError(op.path, -8)
        if op.path not in self.rows:
            raise NoNode(op.path)
        row = self.rows[op.path]
        if op.version != -1 and op.version != row.version:
            raise BadVersion(op.path)
        if isinstance(op, Delete):
            if self.children(op.path):
                raise NotEmpty(op.path)
            del self.rows[op.path]
            self.rows[parent].family_changed = self.zxid
        if isinstance(op, SetData):
            row.data, row.version = op.data, row.version + 1
            row.changed, row.changed_ms = self.zxid, now_ms
            return self.stat(op.path)
        return None

    def create(self, op: Create, parent: str, session: int, now_ms: int) -> str:
        if parent not in self.rows:
            raise NoNode(op.path)
        number = str(self.rows[parent].births).rjust(10, "0") if op.sequential else ""
        path = op.path + number
        if not is_valid(path):
            raise OtherError(op.path, -8)
        if path in self.rows:
            raise NodeExists(path)
        if self.rows[parent].owner:
            raise NoChildrenForEphemerals(path)
        owner = session if op.ephemeral else 0
        times = (self.zxid, now_ms, owner, self.zxid, now_ms, self.zxid)
        self.rows[path] = Row(op.data, *times)
        self.rows[parent].births += 1
        self.rows[parent].family_changed = self.zxid
        return path


def seen_between(before: NaiveTree, after: NaiveTree) -> set[WatchEvent]:
    """Return the watch events of one operation, from the difference of both tables."""
    seen = set()
    for path in before.rows.keys() | after.rows.keys():
        old, new = before.rows.get(path), after.rows.get(path)
        if old is None:
            seen.add(WatchEvent(EventKind.CREATED, path))
        elif new is None:
            seen.add(WatchEvent(EventKind.DELETED, path))
        elif old.version != new.version:
            seen.add(WatchEvent(EventKind.DATA_CHANGED, path))
        if old and new and before.children(path) != after.children(path):
            seen.add(WatchEvent(EventKind.CHILDREN_CHANGED, path))
    return seen


@settings(max_examples=50)
@given(st.randoms(use_true_random=False))
def test_the_tree_does_what_a_naive_one_does(rng: random.Random) -> None:
    tree, naive = Tree(), NaiveTree()
    for step in range(30):
        ops, session = draw_ops(rng), rng.choice(SESSIONS)
        before = copy.deepcopy(naive)
        expected: object
        try:
            expected = naive.transact(ops, session, step)
        except ZooKeeperError as error:
            expected = (type(error), error.code, error.op)
        found: object
        events: list[WatchEvent] = []
        try:
            found, events = tree.transact(ops, session=session, now_ms=step)
        except ZooKeeperError as error:
            found = (type(error), error.code, error.op)
        assert found == expected, ops
        assert tree.zxid == naive.zxid
        for path in before.rows.keys() | naive.rows.keys():
            assert tree.stat(path) == naive.stat(path), (path, ops)
        for path, row in naive.rows.items():
            assert tree.get(path).data == row.data
            assert tree.children(path) == naive.children(path)
        if len(ops) == 1:
            assert set(events) == seen_between(before, naive)
            assert len(events) == len(set(events))
        owned = [path for path, row in naive.rows.items() if row.owner == session]
        assert tree.ephemerals(session) == sorted(owned)


def test_a_version_starts_again_before_it_would_match_any() -> None:
    tree = Tree()
    tree.transact([Create("/a")], session=1, now_ms=0)
    tree._znodes["/a"].version = 0x7FFFFFFF
    tree.transact([SetData("/a", b"", 0x7FFFFFFF)], session=1, now_ms=0)
    with pytest.raises(BadVersion):
        tree.transact([Check("/a", 1)], session=1, now_ms=0)
    assert tree.get("/a").stat.version == 0
