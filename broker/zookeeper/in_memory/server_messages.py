"""A server's messages: decoding of requests, encoding of responses.

The counterpart of ``broker.zookeeper.zookeeper_messages``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from broker.protocol.errors import MalformedFrame
from broker.zookeeper.jute import (
    Reader,
    framed,
    packed_bool,
    packed_buffer,
    packed_int,
    packed_long,
    packed_stat,
    packed_text,
    packed_texts,
)
from broker.zookeeper.znodes import (
    Check,
    Create,
    Delete,
    Op,
    OpResult,
    OtherError,
    SetData,
    Stat,
    WatchEvent,
)
from broker.zookeeper.zookeeper_messages import (
    EPHEMERAL,
    EVENT_XID,
    OK,
    OPEN_ACL,
    SEQUENTIAL,
    Greeting,
    OpCode,
    opcode_of,
)

UNIMPLEMENTED: Final = -6
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115
QUOTA_EXCEEDED: Final = -125
# The code of multi operations after the failed operation.
_NOT_TRIED: Final = -2
_CONNECTED: Final = 3
# The only supported access list entry: all permissions for all clients.
_OPEN: Final = (31, "world", "anyone")
WRITES: Final = (
    *(OpCode.CREATE, OpCode.CREATE_2, OpCode.SET_DATA, OpCode.DELETE, OpCode.MULTI),
)


class Connect(NamedTuple):
    """The first message of a connection."""

    last_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes


def read_connect(frame: bytes) -> Connect:
    """Decode the first message; raises `MalformedFrame`."""
    reader = Reader(frame)
    reader.read_int()
    last_zxid, timeout_ms = reader.read_long(), reader.read_int()
    return Connect(last_zxid, timeout_ms, reader.read_long(), reader.read_buffer())


def greeting_frame(greeting: Greeting) -> bytes:
    """Return the response to the first message."""
    return framed(
        packed_int(0)
        + packed_int(greeting.timeout_ms)
        + packed_long(greeting.session_id)
        + packed_buffer(greeting.password)
        + packed_bool(False)
    )


def read_ops(opcode: int, reader: Reader) -> list[Op]:
    """Decode the operations of a write; raises `MalformedFrame`, or `OtherError`."""
    if opcode != OpCode.MULTI:
        # The two forms of create differ only in their responses.
        opcode = OpCode.CREATE if opcode == OpCode.CREATE_2 else opcode
        return [_read_op(opcode, reader)]
    ops: list[Op] = []
    while True:
        each, done, _ = reader.read_int(), reader.read_bool(), reader.read_int()
        if done:
            return ops
        ops.append(_read_op(each, reader))


def _read_op(opcode: int, reader: Reader) -> Op:
    path = reader.read_text()
    match opcode:
        case OpCode.CREATE:
            return _read_create(path, reader)
        case OpCode.SET_DATA:
            return SetData(path, reader.read_buffer(), reader.read_int())
        case OpCode.DELETE:
            return Delete(path, reader.read_int())
        case OpCode.CHECK:
            return Check(path, reader.read_int())
    raise MalformedFrame(f"a multi with an operation {opcode}")


def _read_create(path: str, reader: Reader) -> Create:
    data = reader.read_buffer()
    acl = [
        (reader.read_int(), reader.read_text(), reader.read_text())
        for _ in range(reader.read_count())
    ]
    flags = reader.read_int()
    if flags & ~(EPHEMERAL | SEQUENTIAL):
        # Containers, and znodes with a time to live.
        raise OtherError(path, UNIMPLEMENTED)
    if acl != [_OPEN]:
        # Other access lists would not be enforced.
        raise OtherError(path, INVALID_ACL)
    return Create(path, data, bool(flags & EPHEMERAL), bool(flags & SEQUENTIAL))


def answer_frame(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """Return a response: its header, and its body unless ``code`` is an error."""
    header = packed_int(xid) + packed_long(zxid) + packed_int(code)
    return framed(header + (body if code == OK else b""))


def event_frame(zxid: int, event: WatchEvent) -> bytes:
    """Return the notification of a watch."""
    body = packed_int(event.kind) + packed_int(_CONNECTED) + packed_text(event.path)
    return answer_frame(EVENT_XID, zxid, OK, body)


def write_body(opcode: int, ops: Sequence[Op], results: Sequence[OpResult]) -> bytes:
    """Return the body of the response to a successful write."""
    if opcode != OpCode.MULTI:
        return _result(results[0])
    pieces = []
    for op, result in zip(ops, results, strict=True):
        pieces += [_op_header(opcode_of(op), OK), _result(result)]
    return b"".join([*pieces, _op_end()])


def failed_multi_body(count: int, failed: int, code: int) -> bytes:
    """Return the body for a multi of ``count`` operations, one of which failed."""
    codes = [OK] * failed + [code] + [_NOT_TRIED] * (count - failed - 1)
    pieces = (_op_header(OpCode.ERROR, it) + packed_int(it) for it in codes)
    return b"".join(pieces) + _op_end()


def data_body(data: bytes, stat: Stat) -> bytes:
    """Return the body of a response with a znode's data."""
    return packed_buffer(data) + packed_stat(stat)


def children_body(names: Sequence[str]) -> bytes:
    """Return the body of a response with a znode's children."""
    return packed_texts(names)


def acl_body(stat: Stat) -> bytes:
    """Return the body of a response with a znode's access list."""
    return OPEN_ACL + packed_stat(stat)


def path_body(path: str) -> bytes:
    """Return the body of a response with the request's path."""
    return packed_text(path)


def stat_body(stat: Stat) -> bytes:
    """Return the body of a response with a znode's stat."""
    return packed_stat(stat)


def _result(result: OpResult) -> bytes:
    if isinstance(result, str):
        return packed_text(result)
    return b"" if result is None else packed_stat(result)


def _op_header(opcode: int, code: int) -> bytes:
    return packed_int(opcode) + packed_bool(False) + packed_int(code)


def _op_end() -> bytes:
    return packed_int(-1) + packed_bool(True) + packed_int(-1)
