"""Conversion between frames and messages, for handlers and clients.

kio has a dataclass per message and version and decodes in native code; encoders are
generated from those classes (`broker.protocol.wire.writer`). Handlers and clients use
one class for all versions (`broker.protocol.messages`), whose fields also exist on
objects of kio's classes. The controller's requests, which Kafka 4 removed and kio
therefore lacks, are declared in `broker.protocol.schemas`. The two most frequent
responses have encoders of their own in `broker.protocol.wire.hot`.

A decoded frame is *without* its four-byte size, which the network strips; an encoded
frame is *with* its size. As in Kafka, bytes after the body are ignored.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final, TypeAlias

from kio.serial._parse import entity_reader
from kio.serial.errors import SerialError
from kio.static.constants import EntityType

from broker.protocol import schemas
from broker.protocol.api_keys import FIRST_FLEXIBLE, ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.messages.message import defaults_of
from broker.protocol.schemas.kio_modules import Kind, entity_class, read_module
from broker.protocol.schemas.message import ControllerMessage, entity_type
from broker.protocol.wire.frame_bounds import (
    Check,
    CheckInSteps,
    Walk,
    bounds_check,
    bounds_check_in_steps,
)
from broker.protocol.wire.header import skip_tagged_fields
from broker.protocol.wire.introspect import kind_of
from broker.protocol.wire.stepping import (
    STEP_BYTES,
    Pace,
    SteppingReader,
    stepping_reader,
)
from broker.protocol.wire.writer import (
    Write,
    WriteInSteps,
    compile_stepping_writer,
    compile_writer,
)

Reader: TypeAlias = Callable[[bytes, int], tuple[Any, int]]

_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhi")
# Exceptions of reading a truncated or malformed frame.
_UNREADABLE: Final = (SerialError, ValueError, OverflowError, IndexError, struct.error)
# Largest number of items in the arrays of a request, for clients and for the cluster's
# own requests. The former admits a Fetch of 10,000 topics with one partition each, the
# latter an UpdateMetadata of 200,000 partitions, the limit of a ZooKeeper cluster.
CLIENT_ITEMS_MAX: Final = 20_000
CLUSTER_ITEMS_MAX: Final = 250_000
# Plain numbers that count as one item in the cluster's requests, where they are mostly
# replicas. In clients' requests they are partitions, each of which becomes an object.
CLUSTER_NUMBERS: Final = 16
# A larger request is decoded in steps, unless it has few items.
ONE_STEP_BYTES: Final = STEP_BYTES
_ONE_STEP_ITEMS: Final = 256
# A response of at most this many bytes is one piece.
_ONE_PIECE_BYTES: Final = 1 << 16
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)


def request_type(api_key: int, version: int) -> type[Any]:
    """Return the entity class of a request; raise `MalformedFrame` if it is unknown."""
    return _load(schemas.REQUESTS, EntityType.request, api_key, version)


def response_type(api_key: int, version: int) -> type[Any]:
    """Return the entity class of a response.

    Raise `MalformedFrame` if it is unknown.
    """
    return _load(schemas.RESPONSES, EntityType.response, api_key, version)


def load_schemas(api_key: int, versions: tuple[int, int]) -> None:
    """Read all code that is needed to serve a range of versions of an API.

    No module is imported later: an import opens files, which fails when descriptors
    have run out.
    """
    if api_key in schemas.REQUESTS:
        return
    first, last = versions
    for version in range(first, last + 1):
        read_module(api_key, version, EntityType.request)
        read_module(api_key, version, EntityType.response)
    _messages_module(api_key)


def decode(
    api_key: int,
    version: int,
    frame: bytes,
    body_offset: int,
    items_max: int = CLUSTER_ITEMS_MAX,
    numbers: int = CLUSTER_NUMBERS,
) -> Any:
    """Return the request in ``frame``, whose body starts at ``body_offset``.

    Raises `MalformedFrame` on bytes that are not such a request, on a version without a
    schema, and on more than ``items_max`` items in its arrays. ``numbers`` plain
    numbers count as one item. Cost: O(items).
    """
    check, read = _request_reader(api_key, version)
    try:
        if check is not None:
            walk = Walk(items_max, numbers)
            check(frame, body_offset, len(frame), walk)
            if walk.edits:
                frame = walk.edited(frame)
        return read(frame, body_offset)[0]
    except _UNREADABLE as error:
        raise MalformedFrame(f"{_name(api_key)} v{version}: {error!r}") from error


def decode_in_steps(
    api_key: int,
    version: int,
    frame: bytes,
    body_offset: int,
    items_max: int,
    numbers: int,
) -> Generator[None, None, Any]:
    """Decode as `decode` does, and yield between pieces of the work."""
    check, read = _stepping_request_reader(api_key, version)
    try:
        walk = Walk(items_max, numbers)
        yield from check(frame, body_offset, len(frame), walk)
        if walk.edits:
            frame = walk.edited(frame)
        if items_max - walk.left <= _ONE_STEP_ITEMS:
            return _request_reader(api_key, version)[1](frame, body_offset)[0]
        yield
        entity, _ = yield from read(frame, body_offset, Pace(body_offset))
        return entity
    except _UNREADABLE as error:
        raise MalformedFrame(f"{_name(api_key)} v{version}: {error!r}") from error


def encode(api_key: int, version: int, correlation_id: int, message: object) -> bytes:
    """Return the whole frame of a response, its size included.

    ``message`` is a `ResponseMessage`, or any object with the fields of the version.
    """
    pieces = _response_head(api_key, version, correlation_id)
    _response_writer(api_key, version)(message, pieces.append)
    return _with_size(pieces)


def encode_in_steps(
    api_key: int, version: int, correlation_id: int, message: object
) -> Generator[None, None, tuple[bytes, ...]]:
    """Encode as `encode` does, and yield between pieces of the work.

    A large frame is returned in several pieces: joining them would be one long step.
    """
    pieces = _response_head(api_key, version, correlation_id)
    steps = []
    for _ in _stepping_response_writer(api_key, version)(message, pieces.append):
        steps.append(b"".join(pieces))
        pieces.clear()
        yield
    steps.append(b"".join(pieces))
    size = sum(map(len, steps)) - 4
    steps[0] = _I32.pack(size) + steps[0][4:]
    return tuple(steps) if size > _ONE_PIECE_BYTES else (b"".join(steps),)


def _response_head(api_key: int, version: int, correlation_id: int) -> list[bytes]:
    pieces = [_SIZE_AND_CORRELATION.pack(0, correlation_id)]
    if version >= FIRST_FLEXIBLE[api_key] and api_key != _API_VERSIONS:
        # ApiVersions always has header v0, as its reader may not know the version yet.
        pieces.append(b"\0")
    return pieces


def encode_request(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: object,
) -> bytes:
    """Return the whole frame of a request, its size included.

    ``message`` is a `RequestMessage`, or any object with the fields of the version.
    """
    body: list[bytes] = []
    _request_writer(api_key, version)(message, body.append)
    return request_frame(api_key, version, correlation_id, client_id, body)


def encode_body_in_steps(
    api_key: int, version: int, message: object
) -> Generator[None, None, bytes]:
    """Return the body of a request, and yield between pieces of the work."""
    pieces: list[bytes] = []
    yield from _stepping_request_writer(api_key, version)(message, pieces.append)
    return b"".join(pieces)


def request_frame(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    body: Iterable[bytes],
) -> bytes:
    """Return the whole frame of a request with this body, its size included."""
    pieces = [b"\0\0\0\0", _REQUEST_HEADER.pack(api_key, version, correlation_id)]
    if (api_key, version) != (ApiKey.CONTROLLED_SHUTDOWN, 0):
        encoded = b"" if client_id is None else client_id.encode()
        pieces.append(_I16.pack(-1 if client_id is None else len(encoded)))
        pieces.append(encoded)
    if version >= FIRST_FLEXIBLE[api_key]:
        pieces.append(b"\0")
    pieces += body
    return _with_size(pieces)


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Return the correlation id and the response in ``frame``, given without its size.

    Raises `MalformedFrame` on bytes that are not such a response.
    """
    correlation_id, offset = _response_body(api_key, version, frame)
    check, read = _response_reader(api_key, version)
    try:
        if check is not None:
            walk = Walk(sys.maxsize)
            check(frame, offset, len(frame), walk)
            if walk.edits:
                frame = walk.edited(frame)
        return correlation_id, read(frame, offset)[0]
    except _UNREADABLE as error:
        raise MalformedFrame(f"{_name(api_key)} v{version}: {error!r}") from error


def decode_response_in_steps(
    api_key: int, version: int, frame: bytes
) -> Generator[None, None, tuple[int, Any]]:
    """Decode as `decode_response` does, and yield between pieces of the work."""
    correlation_id, offset = _response_body(api_key, version, frame)
    check, read = _stepping_response_reader(api_key, version)
    try:
        walk = Walk(sys.maxsize)
        yield from check(frame, offset, len(frame), walk)
        if walk.edits:
            frame = walk.edited(frame)
        if sys.maxsize - walk.left <= _ONE_STEP_ITEMS:
            return correlation_id, _response_reader(api_key, version)[1](frame, offset)[
                0
            ]
        yield
        entity, _ = yield from read(frame, offset, Pace(offset))
        return correlation_id, entity
    except _UNREADABLE as error:
        raise MalformedFrame(f"{_name(api_key)} v{version}: {error!r}") from error


def _response_body(api_key: int, version: int, frame: bytes) -> tuple[int, int]:
    """Return the correlation id of a response, and the offset of its body."""
    if len(frame) < 4:
        raise MalformedFrame(f"response of {len(frame)} bytes, expected at least 4")
    correlation_id = int.from_bytes(frame[:4], "big", signed=True)
    offset = 4
    if version >= FIRST_FLEXIBLE[api_key] and api_key != _API_VERSIONS:
        offset = skip_tagged_fields(frame, offset)
    return correlation_id, offset


@cache
def _request_reader(api_key: int, version: int) -> tuple[Check | None, Reader]:
    entity = request_type(api_key, version)
    return bounds_check(entity), entity_reader(entity)


@cache
def _stepping_request_reader(
    api_key: int, version: int
) -> tuple[CheckInSteps, SteppingReader]:
    entity = request_type(api_key, version)
    return bounds_check_in_steps(entity), stepping_reader(entity)


@cache
def _response_reader(api_key: int, version: int) -> tuple[Check | None, Reader]:
    entity = response_type(api_key, version)
    return bounds_check(entity), entity_reader(entity)


@cache
def _stepping_response_reader(
    api_key: int, version: int
) -> tuple[CheckInSteps, SteppingReader]:
    entity = response_type(api_key, version)
    return bounds_check_in_steps(entity), stepping_reader(entity)


@cache
def _stepping_request_writer(api_key: int, version: int) -> WriteInSteps:
    return compile_stepping_writer(request_type(api_key, version))


@cache
def _request_writer(api_key: int, version: int) -> Write:
    return compile_writer(request_type(api_key, version))


@cache
def _response_writer(api_key: int, version: int) -> Write:
    return compile_writer(response_type(api_key, version))


@cache
def _stepping_response_writer(api_key: int, version: int) -> WriteInSteps:
    return compile_stepping_writer(response_type(api_key, version))


def _load(
    messages: Mapping[int, type[ControllerMessage]],
    kind: Kind,
    api_key: int,
    version: int,
) -> type[Any]:
    message = messages.get(api_key)
    if message is not None and 0 <= version <= message.last_version:
        return entity_type(message, version)  # type: ignore[arg-type] # is hashable
    try:
        entity = entity_class(api_key, version, kind)
    except KeyError:
        raise MalformedFrame(f"{_name(api_key)} v{version}: no such schema") from None
    module = _messages_module(api_key)
    if module is not None:
        _complete(
            entity, module, "Request" if kind is EntityType.request else "Response"
        )
    return entity


@cache
def _messages_module(api_key: int) -> ModuleType | None:
    """Return the module of an API's messages; None if it is neither served nor sent."""
    name = f"broker.protocol.messages.{ApiKey(api_key).name.lower()}"
    return import_module(name) if find_spec(name) is not None else None


def _complete(entity: type[Any], messages: ModuleType, side: str) -> None:
    """Add the fields of other versions to a class of kio, with their defaults.

    The class itself is changed: a derived class, or a copy of each message, would cost
    time for every message read.
    """
    known = vars(messages)
    message = known.get(entity.__name__) or known[f"{side}{entity.__name__}"]
    fields = dataclasses.fields(entity)
    present = {field.name for field in fields}
    for name, default in defaults_of(message).items():
        if name not in present:
            setattr(entity, name, default)
    for field in fields:
        kind = kind_of(field)
        if kind.wire_type == "datetime_i64" and not kind.nullable:
            # Kafka writes -1 for a missing time; kio declares it for some fields.
            stated: Any = field.type
            field.type = stated | None
        if kind.struct is not None:
            _complete(kind.struct, messages, side)


def _with_size(pieces: list[bytes]) -> bytes:
    """Join the pieces of a frame; the first piece begins with space for the size."""
    size = sum(map(len, pieces)) - 4
    pieces[0] = _I32.pack(size) + pieces[0][4:]
    return b"".join(pieces)


def _name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"api key {api_key}"
