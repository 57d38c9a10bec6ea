"""A client's messages: encoding of requests, and decoding of responses.

Numbers and the order of fields are from ZooKeeper's jute file and ``ZooDefs``. Paths
are the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from broker.protocol.errors import MalformedFrame
from broker.zookeeper.jute import (
    Reader,
    packed_bool,
    packed_buffer,
    packed_int,
    packed_long,
    packed_text,
    packed_texts,
)
from broker.zookeeper.znodes import (
    BadVersion,
    Check,
    ConnectionLoss,
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
    SessionExpired,
    SetData,
    Stat,
    WatchEvent,
    Znode,
    ZooKeeperError,
)

T = TypeVar("T")


class OpCode(IntEnum):
    """The operation of a request; `ERROR` occurs only in the response to a multi."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    CHECK = 13
    MULTI = 14
    CREATE_2 = 15
    AUTH = 100
    SET_WATCHES = 101
    CLOSE_SESSION = -11
    ERROR = -1


OK: Final = 0
BAD_ARGUMENTS: Final = -8
EVENT_XID: Final = -1
PING_XID: Final = -2
PERSISTENT, EPHEMERAL, SEQUENTIAL = 0, 1, 2
# One entry, all permissions: world, anyone.
OPEN_ACL: Final = (
    packed_int(1) + packed_int(31) + packed_text("world") + packed_text("anyone")
)

_ERRORS: Final[tuple[type[ZooKeeperError], ...]] = (
    *(ConnectionLoss, NoNode, BadVersion, NoChildrenForEphemerals),
    *(NodeExists, NotEmpty, SessionExpired),
)
_BY_CODE: Final = {error.code: error for error in _ERRORS}


def error_of(code: int, path: str, *, op: int | None = None) -> ZooKeeperError:
    """Return the exception for an error code."""
    known = _BY_CODE.get(code)
    return OtherError(path, code, op=op) if known is None else known(path, op=op)


class Greeting(NamedTuple):
    """A server's response to a connect request; a time-out of 0 means expired."""

    timeout_ms: int
    session_id: int
    password: bytes


def connect_request(
    last_zxid: int, timeout_ms: int, session_id: int, password: bytes
) -> bytes:
    """Return the first message of a connection; session 0 requests a new one."""
    return b"".join(
        (
            packed_int(0),
            packed_long(last_zxid),
            packed_int(timeout_ms),
            packed_long(session_id),
            packed_buffer(password),
            packed_bool(False),
        )
    )


def read_greeting(frame: bytes) -> Greeting:
    """Decode the response to a connect request; the remaining fields are ignored."""
    reader = Reader(frame)
    reader.read_int()
    timeout_ms, session_id = reader.read_int(), reader.read_long()
    return Greeting(timeout_ms, session_id, reader.read_buffer())


def read_event(reader: Reader) -> WatchEvent:
    """Decode the body of an event, after its header."""
    number, _state, path = reader.read_int(), reader.read_int(), reader.read_text()
    try:
        return WatchEvent(EventKind(number), path)
    except ValueError as error:
        raise MalformedFrame(str(error)) from error


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """A request: its path, whether it sets a watch, and the decoder of its response."""

    opcode: OpCode
    path: str
    body: bytes
    read: Callable[[Reader], T]
    watch: bool = False


def create(op: Create) -> Request[str]:
    """Create a znode; the response is its path."""
    return Request(OpCode.CREATE, op.path, _create(op), Reader.read_text)


def get(path: str, *, watch: bool) -> Request[Znode]:
    """Read a znode's data and stat."""
    body = packed_text(path) + packed_bool(watch)
    return Request(OpCode.GET_DATA, path, body, _data_and_stat, watch)


def set_data(op: SetData) -> Request[Stat]:
    """Replace a znode's data; the response is its new stat."""
    return Request(OpCode.SET_DATA, op.path, _set_data(op), Reader.read_stat)


def delete(op: Delete) -> Request[None]:
    """Delete a znode."""
    return Request(OpCode.DELETE, op.path, _path_and_version(op), _nothing)


def exists(path: str, *, watch: bool) -> Request[Stat]:
    """Read a znode's stat."""
    body = packed_text(path) + packed_bool(watch)
    return Request(OpCode.EXISTS, path, body, Reader.read_stat, watch)


def children(path: str, *, watch: bool) -> Request[list[str]]:
    """Read the names of a znode's children, unordered."""
    body = packed_text(path) + packed_bool(watch)
    return Request(OpCode.GET_CHILDREN, path, body, Reader.read_texts, watch)


def set_watches(
    zxid: int, data: Sequence[str], exist: Sequence[str], child: Sequence[str]
) -> Request[None]:
    """Set watches again; those with an event after ``zxid`` trigger at once."""
    body = packed_long(zxid) + b"".join(map(packed_texts, (data, exist, child)))
    return Request(OpCode.SET_WATCHES, "/", body, _nothing)


def close_session() -> Request[None]:
    """End the session."""
    return Request(OpCode.CLOSE_SESSION, "/", b"", _nothing)


# ---- multi --------------------------------------------------------------------------


class OpFailed(NamedTuple):
    """The error code and the index of the failed operation of a multi."""

    code: int
    op: int


def multi(ops: Sequence[Op]) -> Request[tuple[OpResult, ...] | OpFailed]:
    """Execute all operations or none."""
    body = b"".join(_op_header(opcode_of(op)) + _op_body(op) for op in ops)
    path = ops[0].path if ops else "/"
    return Request(OpCode.MULTI, path, body + _op_end(), _results)


def opcode_of(op: Op) -> OpCode:
    """Return the code of an operation within a multi."""
    match op:
        case Create():
            return OpCode.CREATE
        case SetData():
            return OpCode.SET_DATA
        case Delete():
            return OpCode.DELETE
        case Check():
            return OpCode.CHECK


def _op_body(op: Op) -> bytes:
    match op:
        case Create():
            return _create(op)
        case SetData():
            return _set_data(op)
        case Delete() | Check():
            return _path_and_version(op)


def _op_header(opcode: int) -> bytes:
    return packed_int(opcode) + packed_bool(False) + packed_int(-1)


def _op_end() -> bytes:
    return packed_int(-1) + packed_bool(True) + packed_int(-1)


def _results(reader: Reader) -> tuple[OpResult, ...] | OpFailed:
    results: list[OpResult] = []
    while True:
        opcode, done, _ = reader.read_int(), reader.read_bool(), reader.read_int()
        if done:
            return tuple(results)
        if opcode == OpCode.ERROR:
            # Operations before the failed one have OK, later ones a code for not tried.
            code = reader.read_int()
            if code != OK:
                return OpFailed(code, len(results))
            results.append(None)
        else:
            results.append(_result(opcode, reader))


def _result(opcode: int, reader: Reader) -> OpResult:
    match opcode:
        case OpCode.CREATE:
            return reader.read_text()
        case OpCode.SET_DATA:
            return reader.read_stat()
        case OpCode.DELETE | OpCode.CHECK:
            return None
    raise MalformedFrame(f"the result of an operation {opcode}")


# ---- bodies -------------------------------------------------------------------------


def _create(op: Create) -> bytes:
    flags = (EPHEMERAL if op.ephemeral else 0) | (SEQUENTIAL if op.sequential else 0)
    return b"".join(
        (packed_text(op.path), packed_buffer(op.data), OPEN_ACL, packed_int(flags))
    )


def _set_data(op: SetData) -> bytes:
    return packed_text(op.path) + packed_buffer(op.data) + packed_int(op.version)


def _path_and_version(op: Delete | Check) -> bytes:
    return packed_text(op.path) + packed_int(op.version)


def _data_and_stat(reader: Reader) -> Znode:
    return Znode(reader.read_buffer(), reader.read_stat())


def _nothing(reader: Reader) -> None:
    """Decode a response without a body."""
