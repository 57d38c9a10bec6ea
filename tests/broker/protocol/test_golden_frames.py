"""Every message of every version, compared with the bytes of Kafka's own serializer.

The tables were written by Kafka 3.9.1 and, for newer versions, by Kafka 4.4.0
(golden/make_golden.py describes the procedure): two messages for each API, direction
and version. Each must decode to Kafka's input values, and encode to the same frame.
"""

import base64
import dataclasses
import datetime
import enum
import uuid

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header
from tests.broker.protocol.frames import GOLDEN, GOLDEN_OF, Golden


def json_leaves(value: object) -> list[object]:
    """Return values in the order of the schema; an array begins with its length."""
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in json_leaves(item)]
    if isinstance(value, list):
        return [len(value)] + [leaf for item in value for leaf in json_leaves(item)]
    return [value]


def entity_leaves(value: object, tagged: bool) -> list[object]:
    """Return the same for an entity; ``tagged`` includes unset tagged fields."""
    if dataclasses.is_dataclass(value):
        return [
            leaf
            for field in dataclasses.fields(value)
            if tagged or "tag" not in field.metadata
            for leaf in entity_leaves(getattr(value, field.name), tagged)
        ]
    if isinstance(value, tuple):
        return [len(value)] + [i for item in value for i in entity_leaves(item, tagged)]
    return [as_json(value)]


def as_json(value: object) -> object:
    match value:
        case enum.Enum():
            return value.value
        case datetime.timedelta():
            return value // datetime.timedelta(milliseconds=1)
        case datetime.datetime():
            return int(value.timestamp() * 1000)
        case uuid.UUID():
            return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
        case bytes():
            return base64.b64encode(value).decode()
    return value


def decode(row: Golden) -> object:
    if row.direction == "request":
        header = parse_request_header(row.frame)
        assert header[:3] == (row.api_key, row.version, 7)
        without_client = (row.api_key, row.version) == (7, 0)
        assert header.client_id == ("" if without_client else "golden")
        return codec.decode(row.api_key, row.version, row.frame, header.body_offset)
    correlation_id, entity = codec.decode_response(row.api_key, row.version, row.frame)
    assert correlation_id == 7
    return entity


def encoded(row: Golden, entity: object) -> bytes:
    if row.direction == "request":
        return codec.encode_request(row.api_key, row.version, 7, "golden", entity)
    return codec.encode(row.api_key, row.version, 7, entity)


def encoded_in_steps(row: Golden, entity: object) -> bytes:
    steps = codec.encode_in_steps(row.api_key, row.version, 7, entity)
    with pytest.raises(StopIteration) as done:
        next(steps)
    (frame,) = done.value.value
    return bytes(frame)


@pytest.mark.parametrize("api", GOLDEN_OF)
def test_frames_of_kafka_decode_to_its_values_and_encode_to_its_bytes(api: str) -> None:
    for row in GOLDEN_OF[api]:
        entity = decode(row)
        # A bare frame has no tags; the entity then holds their defaults.
        leaves = entity_leaves(entity, tagged=row.kind == "full")
        assert leaves == json_leaves(row.values), str(row)
        frame = len(row.frame).to_bytes(4, "big") + row.frame
        assert encoded(row, entity) == frame, str(row)
        if row.direction == "response":
            assert encoded_in_steps(row, entity) == frame, str(row)


def json_names(value: object) -> object:
    """Return the JSON with field names in the form that both spellings share."""
    if isinstance(value, dict):
        return {name.lower(): json_names(item) for name, item in value.items()}
    return [json_names(item) for item in value] if isinstance(value, list) else value


def entity_names(value: object, tagged: bool) -> object:
    if dataclasses.is_dataclass(value):
        return {
            field.name.replace("_", ""): entity_names(
                getattr(value, field.name), tagged
            )
            for field in dataclasses.fields(value)
            if tagged or "tag" not in field.metadata
        }
    if isinstance(value, tuple):
        return [entity_names(item, tagged) for item in value]
    return as_json(value)


def test_fields_declared_here_have_the_names_that_kafka_gives_them() -> None:
    for row in GOLDEN:
        if 4 <= row.api_key <= 7:
            named = entity_names(decode(row), tagged=row.kind == "full")
            assert named == json_names(row.values), str(row)


def test_tables_cover_every_version_that_is_served_and_that_these_kafkas_have() -> None:
    covered = {(row.api_key, row.version, row.direction) for row in GOLDEN}
    served = {
        (key, version, direction)
        for key, api in APIS.items()
        for version in api.served
        for direction in ("request", "response")
    }
    assert served <= covered
