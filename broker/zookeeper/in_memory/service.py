"""Decisions of a ZooKeeper service, frame by frame: sessions, the tree, watches.

Several servers may share one service, like an ensemble without delays: a write at one
server is visible at all, and sessions move between servers. The service outlives its
servers, as files would. Nothing here waits; peers are notified by synchronous calls.

With a journal, every transaction is appended to it, and the state is recovered from it.
The server delays responses until the journal is on disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from broker.protocol.errors import MalformedFrame
from broker.zookeeper.in_memory import server_messages
from broker.zookeeper.in_memory.tree import Tree
from broker.zookeeper.in_memory.watch_table import WatchTable
from broker.zookeeper.in_memory.zookeeper_journal import (
    Journal,
    JournalError,
    Recovered,
)
from broker.zookeeper.in_memory.zookeeper_sessions import Session, Sessions
from broker.zookeeper.in_memory.zookeeper_transactions import (
    Refused,
    SessionEnded,
    SessionOpened,
    Transaction,
    Written,
    packed_transaction,
    read_transaction,
)
from broker.zookeeper.jute import Reader, packed_stat
from broker.zookeeper.znodes import (
    Create,
    Delete,
    EventKind,
    Op,
    OtherError,
    Stat,
    WatchEvent,
    ZooKeeperError,
)
from broker.zookeeper.zookeeper_messages import (
    BAD_ARGUMENTS,
    OK,
    PING_XID,
    Greeting,
    OpCode,
)

_EXPIRED: Final = Greeting(0, 0, bytes(16))
_NS_PER_MS: Final = 1_000_000
_READS: Final = (
    *(OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_ACL),
    *(OpCode.GET_CHILDREN, OpCode.GET_CHILDREN_2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the memory that clients can occupy apart from znodes."""

    sessions: int = 10_000
    watches_per_connection: int = 100_000
    ephemerals_per_session: int = 10_000


class Peer(Protocol):
    """The server's end of a client's connection, compared by identity."""

    def __hash__(self) -> int: ...

    def send(self, frame: bytes) -> None:
        """Send a frame after those already queued."""

    def hang_up(self) -> None:
        """Send the queued frames and close the connection."""


class ZooKeeperService:
    """The state of a ZooKeeper ensemble, and its responses."""

    def __init__(
        self,
        *,
        now_ns: Callable[[], int],
        rng: random.Random,
        tick_ms: int = 2000,
        start_ms: int,
        journal: Journal | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Begin with the content of ``journal``.

        :raises JournalError: if the content is not the state of a service.
        """
        self._now_ns = now_ns
        # The wall clock time at ``now_ns`` 0, for the times of znodes.
        self._start_ms = start_ms
        self.tree = Tree()
        self.sessions: Sessions[Peer] = Sessions(tick_ms, rng)
        self._watches: WatchTable[Peer] = WatchTable()
        self._servers = 0
        self._of_peer: dict[Peer, Session[Peer]] = {}
        self._limits = limits
        self.journal = journal
        if journal is not None:
            self._recover(journal.recovered)

    # ---- the journal ----------------------------------------------------------------

    def packed(self) -> bytes:
        """Return the complete state as bytes, for a snapshot."""
        return self.tree.packed() + self.sessions.packed()

    def _record(self, transaction: Transaction) -> None:
        """Append the transaction with the last used number to the journal."""
        if self.journal is not None:
            self.journal.append(packed_transaction(self.tree.zxid, transaction))

    def _recover(self, recovered: Recovered) -> None:
        try:
            if recovered.snapshot is not None:
                reader = Reader(recovered.snapshot)
                self.tree = Tree.read(reader)
                self.sessions.add_all(reader)
            for record in recovered.records:
                self._replay(*read_transaction(record))
        except (MalformedFrame, ZooKeeperError) as error:
            raise JournalError(f"a log that was not written here: {error}") from error

    def _replay(self, zxid: int, transaction: Transaction) -> None:
        if zxid != self.tree.zxid + 1:
            expected = self.tree.zxid + 1
            raise MalformedFrame(f"transaction {zxid} in place of {expected}")
        match transaction:
            case SessionOpened(session_id, password, timeout_ms):
                self.tree.skip()
                self.sessions.add(session_id, password, timeout_ms)
            case SessionEnded(session_id, now_ms):
                self.sessions.remove(self.sessions[session_id])
                self._delete_ephemerals(session_id, now_ms)
            case Written(session_id, now_ms, ops):
                self.tree.transact(ops, session=session_id, now_ms=now_ms)
            case Refused():
                self.tree.skip()

    # ---- connections ----------------------------------------------------------------

    def connect(self, peer: Peer, frame: bytes) -> None:
        """Open or resume a client's session; raises `MalformedFrame`."""
        request = server_messages.read_connect(frame)
        if request.last_zxid > self.tree.zxid:
            raise MalformedFrame(f"the client has seen transaction {request.last_zxid}")
        if request.session_id == 0:
            if len(self.sessions) >= self._limits.sessions:
                raise MalformedFrame(f"more than {self._limits.sessions} sessions")
            self.tree.skip()
            session = self.sessions.open(request.timeout_ms, self._now_ms(), peer)
            opened = SessionOpened(session.id, session.password, session.timeout_ms)
            self._record(opened)
        else:
            found = self.sessions.find(request.session_id, request.password)
            if found is None:
                peer.send(server_messages.greeting_frame(_EXPIRED))
                peer.hang_up()
                return
            session = found
            self._move(session, peer)
        self._of_peer[peer] = session
        greeting = Greeting(session.timeout_ms, session.id, session.password)
        peer.send(server_messages.greeting_frame(greeting))

    def _move(self, session: Session[Peer], peer: Peer) -> None:
        if session.peer is not None:
            before = session.peer
            self.disconnect(before)
            before.hang_up()
        session.peer = peer
        self.sessions.touch(session, self._now_ms())

    def disconnect(self, peer: Peer) -> None:
        """Remove a connection with its watches; the session continues."""
        self._watches.remove(peer)
        session = self._of_peer.pop(peer, None)
        if session is not None:
            session.peer = None

    # ---- expiry ---------------------------------------------------------------------

    def until_tick_ns(self) -> int:
        """Return the time until the next check for expired sessions."""
        tick_ns = self.sessions.tick_ms * _NS_PER_MS
        return tick_ns - self._now_ns() % tick_ns

    def expire(self) -> None:
        """End the sessions whose clients were silent for the time-out."""
        for session in self.sessions.expired(self._now_ms()):
            self._end(session)

    def expire_now(self, session_id: int) -> None:
        """End a session at once, even if its client is active."""
        self._end(self.sessions[session_id])

    def started(self) -> None:
        """Add a server; the first one restarts the time-outs of all sessions."""
        if self._servers == 0:
            self.sessions.touch_all(self._now_ms())
        self._servers += 1

    def stopped(self) -> None:
        """Remove a server."""
        self._servers -= 1

    def _end(self, session: Session[Peer]) -> None:
        self.sessions.remove(session)
        now_ms = self._wall_clock_ms()
        events = self._delete_ephemerals(session.id, now_ms)
        self._record(SessionEnded(session.id, now_ms))
        self._send_events(events)
        if session.peer is not None:
            peer = session.peer
            self.disconnect(peer)
            peer.hang_up()

    def _delete_ephemerals(self, session_id: int, now_ms: int) -> list[WatchEvent]:
        ops = [Delete(path) for path in self.tree.ephemerals(session_id)]
        _, events = self.tree.transact(ops, session=0, now_ms=now_ms)
        return events

    # ---- requests -------------------------------------------------------------------

    def take(self, peer: Peer, frame: bytes) -> None:
        """Handle a request; raises `MalformedFrame`."""
        session = self._of_peer.get(peer)
        if session is None:
            # The session has just ended, and the connection with it.
            return
        self.sessions.touch(session, self._now_ms())
        reader = Reader(frame)
        xid, opcode = reader.read_int(), reader.read_int()
        if opcode == OpCode.PING:
            peer.send(server_messages.answer_frame(PING_XID, self.tree.zxid, OK))
        elif opcode == OpCode.CLOSE_SESSION:
            session.peer = None
            self._end(session)
            peer.send(server_messages.answer_frame(xid, self.tree.zxid, OK))
            self.disconnect(peer)
            peer.hang_up()
        elif opcode == OpCode.AUTH:
            # Authentication is unsupported, so credentials are rejected.
            peer.send(server_messages.answer_frame(xid, 0, server_messages.AUTH_FAILED))
            peer.hang_up()
        else:
            self._answer(peer, session, xid, opcode, reader)

    def _answer(
        self, peer: Peer, session: Session[Peer], xid: int, opcode: int, reader: Reader
    ) -> None:
        code, body = OK, b""
        try:
            if opcode in server_messages.WRITES:
                body = self._write(session, opcode, reader)
            else:
                body = self._read(peer, opcode, reader)
        except ZooKeeperError as error:
            code = error.code
        peer.send(server_messages.answer_frame(xid, self.tree.zxid, code, body))

    def _write(self, session: Session[Peer], opcode: int, reader: Reader) -> bytes:
        ops = server_messages.read_ops(opcode, reader)
        self._expect_room(session, ops)
        now_ms = self._wall_clock_ms()
        try:
            results, events = self.tree.transact(ops, session=session.id, now_ms=now_ms)
        except ZooKeeperError as error:
            self._record(Refused())
            if opcode != OpCode.MULTI or error.op is None:
                raise
            return server_messages.failed_multi_body(len(ops), error.op, error.code)
        self._record(Written(session.id, now_ms, ops))
        self._send_events(events)
        body = server_messages.write_body(opcode, ops, results)
        if opcode == OpCode.CREATE_2:
            (path,) = results
            assert isinstance(path, str)
            body += server_messages.stat_body(self.tree.get(path).stat)
        return body

    def _expect_room(self, session: Session[Peer], ops: Sequence[Op]) -> None:
        created = sum(isinstance(it, Create) and it.ephemeral for it in ops)
        count = self.tree.count_ephemerals(session.id) + created
        if created and count > self._limits.ephemerals_per_session:
            raise OtherError(ops[0].path, server_messages.QUOTA_EXCEEDED)

    def _read(self, peer: Peer, opcode: int, reader: Reader) -> bytes:
        if opcode == OpCode.SET_WATCHES:
            self._set_watches(peer, reader)
            return b""
        if opcode == OpCode.SYNC:
            return server_messages.path_body(reader.read_text())
        if opcode not in _READS:
            raise OtherError("", server_messages.UNIMPLEMENTED)
        path = reader.read_text()
        watch = opcode != OpCode.GET_ACL and reader.read_bool()
        if opcode == OpCode.EXISTS:
            return server_messages.stat_body(self._exists(peer, path, watch))
        data, stat = self.tree.get(path)
        if opcode == OpCode.GET_ACL:
            return server_messages.acl_body(stat)
        if opcode == OpCode.GET_DATA:
            if watch:
                self._watch_data(path, peer)
            return server_messages.data_body(data, stat)
        if watch:
            self._watch_children(path, peer)
        body = server_messages.children_body(self.tree.children(path))
        return body if opcode == OpCode.GET_CHILDREN else body + packed_stat(stat)

    def _exists(self, peer: Peer, path: str, watch: bool) -> Stat:
        if "\0" in path:
            raise OtherError(path, BAD_ARGUMENTS)
        if watch:
            # This watch also triggers when the znode is created.
            self._watch_data(path, peer)
        return self.tree.get(path).stat

    # ---- watches --------------------------------------------------------------------

    def _send_events(self, events: Sequence[WatchEvent]) -> None:
        for event in events:
            for peer in self._watches.triggered(event):
                peer.send(server_messages.event_frame(self.tree.zxid, event))

    def _watch_data(self, path: str, peer: Peer) -> None:
        self._expect_few_watches(peer)
        self._watches.watch_data(path, peer)

    def _watch_children(self, path: str, peer: Peer) -> None:
        self._expect_few_watches(peer)
        self._watches.watch_children(path, peer)

    def _expect_few_watches(self, peer: Peer) -> None:
        limit = self._limits.watches_per_connection
        if self._watches.count(peer) >= limit:
            raise MalformedFrame(f"more than {limit} watches")

    def _set_watches(self, peer: Peer, reader: Reader) -> None:
        """Set watches again; send the events missed since the client's transaction."""
        zxid = reader.read_long()
        kinds = (
            (reader.read_texts(), _missed_data, self._watch_data),
            (reader.read_texts(), _missed_birth, self._watch_data),
            (reader.read_texts(), _missed_children, self._watch_children),
        )
        for paths, missed, watch in kinds:
            for path in paths:
                kind = missed(self.tree.stat(path), zxid)
                if kind is None:
                    watch(path, peer)
                else:
                    event = WatchEvent(kind, path)
                    peer.send(server_messages.event_frame(self.tree.zxid, event))

    def _now_ms(self) -> int:
        return self._now_ns() // _NS_PER_MS

    def _wall_clock_ms(self) -> int:
        return self._start_ms + self._now_ms()


def _missed_data(stat: Stat | None, zxid: int) -> EventKind | None:
    if stat is None:
        return EventKind.DELETED
    return EventKind.DATA_CHANGED if stat.mzxid > zxid else None


def _missed_birth(stat: Stat | None, zxid: int) -> EventKind | None:
    return None if stat is None else EventKind.CREATED


def _missed_children(stat: Stat | None, zxid: int) -> EventKind | None:
    if stat is None:
        return EventKind.DELETED
    return EventKind.CHILDREN_CHANGED if stat.pzxid > zxid else None
