"""Client of a differential test: requests and responses as plain fields.

In the recorded responses, values that brokers choose freely (ids, ports, texts of
messages) are replaced by names. The first topic id becomes ``topic_id 1`` in all
responses. So the comparison checks whether two fields hold the same id, but not its
value.
"""

from __future__ import annotations

import dataclasses
import datetime
import socket
import struct
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.codec import decode_response, encode_request, request_type
from tests.broker.apis.requests import entity

CLOSED = "the connection is closed"
SILENCE = "no answer within the time"
CLIENT_ID = "differential"
_NO_UUID = (None, uuid.UUID(int=0))
# Fields that hold an identity: compared by the same name, not by value.
_NAMED = frozenset(
    {
        "topic_id",
        "member_id",
        "leader",
        "producer_id",
        "session_id",
        "cluster_id",
        "port",
        "log_dir",
    }
)
_NOT_NAMED: tuple[Any, ...] = (None, "", -1, uuid.UUID(int=0))
_ANSWER_SECONDS = 15.0
_TEXTS = ("error_message", "batch_index_error_message", "documentation")


class Peer:
    """One broker, with connections by name."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.answers: list[tuple[str, Any]] = []
        self.asked: list[str] = []
        self._port = port
        self._connections: dict[str, socket.socket] = {}
        self._names: dict[str, dict[Any, str]] = {}
        self._correlation_id = 0

    def send(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request, record the response for comparison, and return it."""
        self.start(key, version, **fields)
        return self.finish(key, version, fields.pop("connection", "main"), str(fields))

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Send a request and return its response without recording it."""
        self.start(key, version, **fields)
        frame = self.receive(fields.get("connection", "main"))
        assert isinstance(frame, bytes), frame
        return decode_response(key, version, frame)[1]

    def start(
        self,
        key: ApiKey,
        version: int,
        /,
        connection: str = "main",
        client_id: str = CLIENT_ID,
        **fields: Any,
    ) -> None:
        """Send a request only; `finish` receives the response, if there is one."""
        unknown = set(fields) - _fields_of(key)
        assert not unknown, f"{key.name} has no {unknown}"
        body = entity(request_type(key, version), fields)
        self._correlation_id += 1
        frame = encode_request(key, version, self._correlation_id, client_id, body)
        self.send_bytes(frame, connection)

    def send_bytes(self, frame: bytes, connection: str = "main") -> None:
        """Send an encoded frame, size included."""
        if connection not in self._connections:
            stream = socket.create_connection(
                ("127.0.0.1", self._port), timeout=_ANSWER_SECONDS
            )
            self._connections[connection] = self._secured(stream, connection)
            self._begin(connection)
        self._connections[connection].sendall(frame)

    def _secured(self, stream: socket.socket, connection: str) -> socket.socket:
        """Return the stream to use on a new connection."""
        return stream

    def _begin(self, connection: str) -> None:
        """Hook for the first requests on a new connection."""

    def finish(
        self, key: ApiKey, version: int, connection: str = "main", asked: str = ""
    ) -> Any:
        """Wait for a response, record it, and return it."""
        what = f"{key.name} v{version}"
        frame = self.receive(connection)
        if isinstance(frame, str):
            self.note(what, frame, asked)
            return frame
        _, answer = decode_response(key, version, frame)
        self.note(what, self._plain(answer), asked)
        return answer

    def receive(self, connection: str = "main") -> bytes | str:
        """Return a frame without its size, `CLOSED`, or `SILENCE`."""
        stream = self._connections[connection]
        try:
            (size,) = struct.unpack(">i", _exactly(stream, 4))
            return _exactly(stream, size)
        except TimeoutError:
            answer = SILENCE
        except (ConnectionError, MalformedFrame):
            answer = CLOSED
        self._connections.pop(connection).close()
        return answer

    def note(self, what: str, answer: Any, asked: str = "") -> None:
        """Record a value that must be the same with both brokers."""
        self.answers.append((what, answer))
        self.asked.append(asked)

    def close(self) -> None:
        """Close all connections."""
        for stream in self._connections.values():
            stream.close()
        self._connections.clear()

    def _plain(self, value: Any, field: str = "") -> Any:
        if dataclasses.is_dataclass(value):
            return {
                each.name: self._plain(getattr(value, each.name), each.name)
                for each in dataclasses.fields(value)
            }
        if isinstance(value, tuple):
            return [self._plain(each, field) for each in value]
        if field in _NAMED and value not in _NOT_NAMED:
            known = self._names.setdefault(field, {})
            return known.setdefault(value, f"{field} {len(known) + 1}")
        if field in _TEXTS and value:
            return "a text"
        if field == "usable_bytes" and value > 0:
            return "a size"
        if field == "log_append_time" and value is not None:
            return "a time"
        return _scalar(value)


def _scalar(value: Any) -> Any:
    if value in _NO_UUID:
        return None
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return getattr(value, "name", value)


def _exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = stream.recv(size - len(data))
        if not more:
            raise MalformedFrame("the stream ends")
        data += more
    return data


@cache
def _fields_of(key: ApiKey) -> frozenset[str]:
    """Return the names of all fields of a request, in any version."""
    return frozenset(
        field.name
        for version in APIS[key].served
        for field in dataclasses.fields(request_type(key, version))
    )


Talk = Callable[[Peer], None]
