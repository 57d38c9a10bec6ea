"""The error response of any API to a request that is not served.

Kafka implements ``AbstractRequest.getErrorResponse`` separately for every API. Here one
mechanism derives the response from the schemas. A field named ``error_code`` gets the
error. An array whose rows carry errors mirrors the request's array, row by row. All
other fields have the schema's default, or the value that means "none" (-1, empty,
null).

An API declares its exceptions (`ErrorAnswer`). The error code of a rejection:

- A rejected client should retry, so it gets a retriable code. By default the code is
  REQUEST_TIMED_OUT. Group members treat this code as fatal, so requests to coordinators
  get COORDINATOR_NOT_AVAILABLE, as in Kafka when the coordinator's log times out.
- OFFSET_FETCH and INIT_PRODUCER_ID get COORDINATOR_LOAD_IN_PROGRESS, the only code that
  all clients retry there. METADATA returns its topics with LEADER_NOT_AVAILABLE, which
  every client treats as transient.
- A request over its quota gets THROTTLING_QUOTA_EXCEEDED, which only the APIs of
  KIP-599 support.
- A PRODUCE with acks=0 has no response: its connection is closed, as for any error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.apis.common.access import MESSAGES
from broker.apis.common.api import Api
from broker.log.steps import Steps
from broker.node.broker import Broker
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.message import NO_TIME, Message
from broker.protocol.wire.codec import (
    encode_in_steps,
    request_type,
    response_type,
)
from broker.protocol.wire.introspect import FieldKind, kind_of
from broker.requests.request import CLOSE, Request, Response
from broker.requests.throttling import throttle_time
from planes.admission import OVER_QUOTA

# Fields of the request that have another name in the response.
_RENAMED: Final = MappingProxyType(
    {"partition_index": "partition", "topic_name": "name", "user": "name"}
)
_STEP_ROWS: Final = 128
_OVERLOADED: Final = "The broker is overloaded, try again."
_MESSAGES: Final = MappingProxyType(
    {
        ErrorCode.unknown_server_error: "The broker has failed on this request.",
        **MESSAGES,
    }
)
_NONE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "bool": False,
        "string": "",
        "bytes": b"",
        "records": b"",
        "int8": -1,
        "int16": -1,
        "int32": -1,
        "int64": -1,
        "timedelta_i32": NO_TIME,
        "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
    }
)


def error_of(api: Api, refusal: str) -> ErrorCode:
    """Return the error code of a rejection."""
    if refusal == OVER_QUOTA:
        return ErrorCode.throttling_quota_exceeded
    return api.error_answer.try_again


def refuse(api: Api, request: Request, body: object, broker: Broker) -> Steps[Response]:
    """Build the response to a request rejected by admission. Cost: O(rows)."""
    reason = request.task.refusal
    assert reason is not None, request
    return error_answer(api, request, body, error_of(api, reason), broker)


def error_answer(
    api: Api, request: Request, body: object, error: ErrorCode, broker: Broker
) -> Steps[Response]:
    """Build a response with ``error`` in each row of the request ``body``."""
    request.error_code = int(error)
    if not api.error_answer.is_answered(body):
        return CLOSE
    answer = yield from _form(api, request.api_version).row(body, error)
    api.error_answer.complete(request, body, answer, broker)
    return (yield from _encoded(request, answer, broker))


def bare_error(
    api: Api, request: Request, error: ErrorCode, broker: Broker
) -> Steps[Response]:
    """Build a response with ``error`` that repeats nothing of the request."""
    request.error_code = int(error)
    form = _bare_form(api, request.api_version)
    answer = yield from form.row(None, error)
    return (yield from _encoded(request, answer, broker))


def whole_error(
    api: Api, request: Request, error: ErrorCode, broker: Broker
) -> Steps[Response]:
    """Build a response with ``error`` for the whole request, without its rows.

    Closes the connection if responses of this version have errors in their rows only: a
    response without rows would hide the error.
    """
    if not _bare_form(api, request.api_version).errors:
        request.error_code = int(error)
        return CLOSE
    return (yield from bare_error(api, request, error, broker))


def _encoded(request: Request, answer: Message, broker: Broker) -> Steps[Response]:
    if broker.client_quotas.is_active:
        broker.client_quotas.count_request(request)
    vars(answer).update(throttle_time=throttle_time(request, broker.now_ns()))
    key, version = request.api_key, request.api_version
    return (yield from encode_in_steps(key, version, request.correlation_id, answer))


class _Form(NamedTuple):
    """The construction of a struct of the response from its counterpart in the request.

    ``copied`` pairs a field with a field of the counterpart. If the counterpart is a
    plain value, it is assigned to the field ``itself``. ``arrays`` are filled row by
    row from an array of the counterpart.
    """

    constants: Mapping[str, Any]
    copied: tuple[tuple[str, str], ...]
    itself: str | None
    errors: tuple[str, ...]
    messages: tuple[str, ...]
    arrays: tuple[tuple[str, str, _Form], ...]

    def row(self, requested: Any, error: ErrorCode) -> Steps[Message]:
        """Return the response row for the request row ``requested``, in steps."""
        row = Message(**self.constants)
        for name, source in self.copied:
            setattr(row, name, getattr(requested, source))
        if self.itself is not None:
            setattr(row, self.itself, requested)
        for name in self.errors:
            setattr(row, name, error)
        for name in self.messages:
            setattr(row, name, _MESSAGES.get(error, _OVERLOADED))
        for name, _, _ in self.arrays:
            setattr(row, name, [])
        for name, source, form in self.arrays:
            rows: list[Message] = getattr(row, name)
            for number, item in enumerate(_items(requested, source), 1):
                rows.append((yield from form.row(item, error)))
                if not number % _STEP_ROWS:
                    yield None
        return row


def _items(requested: Any, source: str) -> Iterator[Any]:
    """Iterate over an array of the request, or over inner arrays ("dirs.topics")."""
    outer, _, inner = source.partition(".")
    for item in getattr(requested, outer) or ():
        if inner:
            yield from _items(item, inner)
        else:
            yield item


@cache
def _form(api: Api, version: int) -> _Form:
    mirrored = api.error_answer.rows if version <= api.error_answer.rows_last else {}
    answer, request = response_type(api.key, version), request_type(api.key, version)
    return _form_of(answer, request, mirrored)


@cache
def _bare_form(api: Api, version: int) -> _Form:
    return _form_of(response_type(api.key, version), _Nothing, {})


@dataclasses.dataclass(frozen=True)
class _Nothing:
    """A counterpart without fields."""


def _form_of(
    answer: type[Any],
    requested: type[Any] | None,
    mirrored: Mapping[str, tuple[str, ...]],
) -> _Form:
    """Plan a struct of the response.

    ``requested`` None: its counterpart is a plain value.
    """
    there = {field.name: kind_of(field) for field in _fields(requested)}
    constants: dict[str, Any] = {}
    copied, errors, messages, arrays = [], [], [], []
    itself = None
    for field in dataclasses.fields(answer):
        name, kind = field.name, kind_of(field)
        sources = [it for it in mirrored.get(name, ()) if it.partition(".")[0] in there]
        if kind.wire_type == "error_code":
            errors.append(name)
        elif name == "error_message":
            messages.append(name)
        elif sources:
            assert kind.struct is not None, name
            for source in sources:
                form = _form_of(kind.struct, _struct(there, source), mirrored)
                arrays.append((name, source, form))
        elif field.default is not dataclasses.MISSING:
            constants[name] = field.default
        elif kind.is_array:
            constants[name] = None if kind.nullable else ()
        elif (origin := name if name in there else _RENAMED.get(name)) in there:
            copied.append((name, origin))
        elif requested is None and itself is None:
            itself = name
        else:
            constants[name] = _nothing(kind)
    return _Form(
        constants, tuple(copied), itself, tuple(errors), tuple(messages), tuple(arrays)
    )


def _struct(there: Mapping[str, FieldKind], source: str) -> type[Any] | None:
    """Return the struct of an array's items; None for plain values."""
    outer, _, inner = source.partition(".")
    struct = there[outer].struct
    if not inner:
        return struct
    return _struct({it.name: kind_of(it) for it in _fields(struct)}, inner)


def _fields(struct: type[Any] | None) -> tuple[dataclasses.Field[Any], ...]:
    return () if struct is None else dataclasses.fields(struct)


def _nothing(kind: FieldKind) -> Any:
    """Return the value of a field that means "none"."""
    return None if kind.nullable else _NONE.get(kind.wire_type or "")
