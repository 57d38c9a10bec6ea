"""The answer of any API to a request that is not served: an error, and nothing else.

Kafka writes ``AbstractRequest.getErrorResponse`` by hand for every API. Here it is one
mechanism over the schemas: a field named ``error_code`` gets the error; an array whose
rows carry errors mirrors the array of the request that it answers, row by row; the rest
has the schema's default, else what means "none" (-1, empty, null).

What the error is:

- The client should try again, so it gets a code that clients try again on. That is
  REQUEST_TIMED_OUT, but for the coordinators: group members take it for fatal, and
  Kafka's own coordinator answers COORDINATOR_NOT_AVAILABLE where its log timed out.
  OFFSET_FETCH and INIT_PRODUCER_ID get COORDINATOR_LOAD_IN_PROGRESS, the one code that
  all clients retry there.
- METADATA names its topics with LEADER_NOT_AVAILABLE, which every client takes for a
  state that passes, and tells the brokers all the same: librdkafka forgets those that
  an answer with topics leaves out, and then knows nobody to ask again. If no topic was
  named there is no place for an error, and the answer is empty: clients discard one
  without brokers and topics, and retry, where one with brokers would say that there
  are no topics.
- Over its quota it is THROTTLING_QUOTA_EXCEEDED, which only the APIs of KIP-599 know.
- A PRODUCE with acks=0 has no answer: its connection is closed, as for any error.

API_VERSIONS is never refused: its answer costs no more than a refusal, and clients
that do not get it give up the connection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.apis import metadata
from broker.apis.answer import Row
from broker.cluster.broker_state import Broker
from broker.errors import ErrorCode
from broker.request import CLOSE, Request, Response
from broker.wire.api_keys import ApiKey
from broker.wire.codec import Entity, encode, request_type, response_type
from broker.wire.introspect import FieldKind, kind_of
from planes.admission import OVER_QUOTA

# The array of the request that an array of the answer mirrors. What is not named here
# has an error of its own at the top, or says nothing of single rows.
_MIRRORED: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        ApiKey.PRODUCE: {
            "responses": ("topic_data",),
            "partition_responses": ("partition_data",),
        },
        ApiKey.FETCH: {"responses": ("topics",), "partitions": ("partitions",)},
        ApiKey.LIST_OFFSETS: {"topics": ("topics",), "partitions": ("partitions",)},
        ApiKey.OFFSET_COMMIT: {"topics": ("topics",), "partitions": ("partitions",)},
        ApiKey.DELETE_RECORDS: {"topics": ("topics",), "partitions": ("partitions",)},
        ApiKey.OFFSET_FOR_LEADER_EPOCH: {
            "topics": ("topics",),
            "partitions": ("partitions",),
        },
        ApiKey.OFFSET_FETCH: {
            "groups": ("groups",),
            "topics": ("topics",),
            "partitions": ("partition_indexes",),
        },
        ApiKey.METADATA: {"topics": ("topics",)},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": ("topics",)},
        ApiKey.CREATE_TOPICS: {"topics": ("topics",)},
        ApiKey.CREATE_PARTITIONS: {"results": ("topics",)},
        ApiKey.DELETE_TOPICS: {"responses": ("topics", "topic_names")},
        ApiKey.DESCRIBE_CONFIGS: {"results": ("resources",)},
        ApiKey.ALTER_CONFIGS: {"responses": ("resources",)},
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {"responses": ("resources",)},
        ApiKey.FIND_COORDINATOR: {"coordinators": ("coordinator_keys",)},
        ApiKey.DESCRIBE_GROUPS: {"groups": ("groups",)},
        ApiKey.DELETE_GROUPS: {"results": ("groups_names",)},
        ApiKey.ELECT_LEADERS: {
            "replica_election_results": ("topic_partitions",),
            "partition_result": ("partitions",),
        },
    }
)
# From this version on a FETCH answer's own error is enough (Kafka: FetchRequest).
_FETCH_WITHOUT_ROWS: Final = 13
# A field of the request that is called otherwise in the answer.
_RENAMED: Final = MappingProxyType({"partition_index": "partition"})
_TRY_AGAIN: Final[Mapping[int, ErrorCode]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                ApiKey.FIND_COORDINATOR,
                ApiKey.OFFSET_COMMIT,
                ApiKey.JOIN_GROUP,
                ApiKey.SYNC_GROUP,
                ApiKey.HEARTBEAT,
                ApiKey.LEAVE_GROUP,
                ApiKey.DESCRIBE_GROUPS,
                ApiKey.LIST_GROUPS,
                ApiKey.DELETE_GROUPS,
                ApiKey.OFFSET_DELETE,
            ),
            ErrorCode.coordinator_not_available,
        ),
        **dict.fromkeys(
            (ApiKey.OFFSET_FETCH, ApiKey.INIT_PRODUCER_ID),
            ErrorCode.coordinator_load_in_progress,
        ),
        ApiKey.METADATA: ErrorCode.leader_not_available,
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
    }
)


def error_of(api_key: int, refusal: str) -> ErrorCode:
    """Return the error that tells a client of a refusal."""
    if refusal == OVER_QUOTA:
        return ErrorCode.throttling_quota_exceeded
    return _TRY_AGAIN.get(api_key, ErrorCode.request_timed_out)


def may_be_refused(api_key: int) -> bool:
    """Say whether requests of this API are ever refused."""
    return api_key != ApiKey.API_VERSIONS


def refuse(request: Request, body: Entity, throttle: Any, broker: Broker) -> Response:
    """Answer a request that admission has turned away. Cost: 5 us and 1 us a row."""
    assert request.refusal is not None, request
    key, version = request.api_key, request.api_version
    error = error_of(key, request.refusal)
    request.error_code = int(error)
    if key == ApiKey.PRODUCE and body.acks == 0:
        return CLOSE
    answer = _form(key, version).row(body, error)
    answer.throttle_time = throttle
    if key == ApiKey.METADATA and body.topics:
        vars(answer).update(metadata.cluster(request, broker))
    return (encode(key, version, request.correlation_id, answer),)


class _Form(NamedTuple):
    """How a struct of an answer is made from its counterpart in the request.

    ``copied`` pairs a field with one of the counterpart; where the counterpart is a
    plain value, ``itself`` is the field that takes it. ``arrays`` are filled row by row
    from an array of the counterpart.
    """

    constants: Mapping[str, Any]
    copied: tuple[tuple[str, str], ...]
    itself: str | None
    errors: tuple[str, ...]
    messages: tuple[str, ...]
    arrays: tuple[tuple[str, str, _Form], ...]

    def row(self, asked: Any, error: ErrorCode) -> Row:
        """Return the answer to ``asked``."""
        row = Row(**self.constants)
        for name, source in self.copied:
            setattr(row, name, getattr(asked, source))
        if self.itself is not None:
            setattr(row, self.itself, asked)
        for name in self.errors:
            setattr(row, name, error)
        for name in self.messages:
            setattr(row, name, "The broker is overloaded, try again.")
        for name, source, form in self.arrays:
            items = getattr(asked, source) or ()
            setattr(row, name, [form.row(item, error) for item in items])
        return row


@cache
def _form(api_key: int, version: int) -> _Form:
    mirrored = _MIRRORED.get(api_key, {})
    if api_key == ApiKey.FETCH and version >= _FETCH_WITHOUT_ROWS:
        mirrored = {}
    answer, request = response_type(api_key, version), request_type(api_key, version)
    return _form_of(answer, request, mirrored)


def _form_of(
    answer: type[Entity],
    asked: type[Entity] | None,
    mirrored: Mapping[str, tuple[str, ...]],
) -> _Form:
    """Plan a struct; ``asked`` None means that its counterpart is a plain value."""
    there = {field.name: kind_of(field) for field in _fields(asked)}
    constants: dict[str, Any] = {}
    copied, errors, messages, arrays = [], [], [], []
    itself = None
    for field in dataclasses.fields(answer):
        name, kind = field.name, kind_of(field)
        source = next((it for it in mirrored.get(name, ()) if it in there), None)
        if kind.wire_type == "error_code":
            errors.append(name)
        elif name == "error_message":
            messages.append(name)
        elif source is not None:
            assert kind.struct is not None, name
            form = _form_of(kind.struct, there[source].struct, mirrored)
            arrays.append((name, source, form))
        elif field.default is not dataclasses.MISSING:
            constants[name] = field.default
        elif kind.is_array:
            constants[name] = None if kind.nullable else ()
        elif (origin := name if name in there else _RENAMED.get(name)) in there:
            copied.append((name, origin))
        elif asked is None and itself is None:
            itself = name
        else:
            constants[name] = _nothing(kind)
    return _Form(
        constants, tuple(copied), itself, tuple(errors), tuple(messages), tuple(arrays)
    )


def _fields(struct: type[Entity] | None) -> tuple[dataclasses.Field[Any], ...]:
    return () if struct is None else dataclasses.fields(struct)


def _nothing(kind: FieldKind) -> Any:
    """Return the value that says least."""
    return None if kind.nullable else _NONE.get(kind.wire_type or "")
