"""Transactions of a ZooKeeper service as records of its log.

A service's state is a function of its transactions, in the order of their numbers
(zxid). Each number has one record: a session's start or end, executed operations, or a
failed write. A failed write changes nothing, but its client has seen its number.
Therefore this number must survive a crash, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from broker.protocol.errors import MalformedFrame
from broker.zookeeper import zookeeper_messages as client_messages
from broker.zookeeper.in_memory.server_messages import read_ops
from broker.zookeeper.jute import Reader, packed_buffer, packed_int, packed_long
from broker.zookeeper.znodes import Op
from broker.zookeeper.zookeeper_messages import OpCode

_OPENED: Final = 1
_ENDED: Final = 2
_WRITTEN: Final = 3
_REFUSED: Final = 4


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The opening of a session."""

    id: int
    password: bytes
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The close or expiry of a session, with deletion of its ephemeral znodes."""

    id: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class Written:
    """The executed operations of one request."""

    session: int
    now_ms: int
    ops: Sequence[Op]


@dataclass(frozen=True, slots=True)
class Refused:
    """A failed write."""


Transaction: TypeAlias = "SessionOpened | SessionEnded | Written | Refused"


def packed_transaction(zxid: int, transaction: Transaction) -> bytes:
    """Encode a transaction as a record."""
    match transaction:
        case SessionOpened(session_id, password, timeout_ms):
            kind = _OPENED
            body = packed_long(session_id) + packed_buffer(password)
            body += packed_int(timeout_ms)
        case SessionEnded(session_id, now_ms):
            kind, body = _ENDED, packed_long(session_id) + packed_long(now_ms)
        case Written(session_id, now_ms, ops):
            kind, body = _WRITTEN, packed_long(session_id) + packed_long(now_ms)
            body += client_messages.multi(ops).body
        case Refused():
            kind, body = _REFUSED, b""
    return packed_long(zxid) + packed_int(kind) + body


def read_transaction(record: bytes) -> tuple[int, Transaction]:
    """Decode a record's number and transaction; raises `MalformedFrame`."""
    reader = Reader(record)
    zxid, kind = reader.read_long(), reader.read_int()
    if kind == _REFUSED:
        return zxid, Refused()
    session_id = reader.read_long()
    if kind == _OPENED:
        password = reader.read_buffer()
        return zxid, SessionOpened(session_id, password, reader.read_int())
    now_ms = reader.read_long()
    if kind == _ENDED:
        return zxid, SessionEnded(session_id, now_ms)
    if kind != _WRITTEN:
        raise MalformedFrame(f"a transaction of kind {kind}")
    return zxid, Written(session_id, now_ms, read_ops(OpCode.MULTI, reader))
