"""Message classes: up to date, with the fields of all versions, used by handlers."""

from __future__ import annotations

import ast
import dataclasses
import importlib
from datetime import timedelta
from types import FunctionType, ModuleType
from typing import Any, cast

import pytest
from kio.static.primitive import i32Timedelta

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.messages.fetch import FetchRequest, ReplicaState
from broker.protocol.messages.message import RequestMessage
from broker.protocol.schemas.message import Versioned
from broker.protocol.wire.codec import (
    decode,
    encode_request,
    request_type,
    response_type,
)
from broker.protocol.wire.header import parse_request_header
from broker.protocol.wire.introspect import kind_of
from tests.messages import FOLDER, generated, module_of


@pytest.mark.parametrize("name", generated())
def test_the_module_is_as_generated(name: str) -> None:
    written = (FOLDER / f"{name}.py").read_text()
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(module_of(name)))


@pytest.mark.parametrize("key", sorted(APIS))
def test_a_handler_names_the_request_of_its_key(key: int) -> None:
    handle = cast(FunctionType, APIS[key].handle)
    body = handle.__globals__[handle.__annotations__["body"]]
    if issubclass(body, RequestMessage):
        assert body.api_key == key
        assert body.__name__ == request_type(key, APIS[key].versions[1]).__name__
    else:
        assert issubclass(request_type(key, APIS[key].versions[1]), body)


@pytest.mark.parametrize("key", sorted(APIS), ids=lambda key: key.name)
def test_decoded_messages_have_the_fields_of_all_versions(key: ApiKey) -> None:
    for version in APIS[key].served:
        for entity in (request_type(key, version), response_type(key, version)):
            if not issubclass(entity, Versioned):
                name = key.name.lower()
                messages = importlib.import_module(f"broker.protocol.messages.{name}")
                side = entity.__name__.removeprefix(key.api_name)
                check_fields(entity, messages, side)


def check_fields(entity: type[Any], messages: ModuleType, side: str) -> None:
    known = vars(messages)
    message = known.get(entity.__name__) or known[f"{side}{entity.__name__}"]
    for name in vars(message).get("__annotations__", ()):
        assert hasattr(entity, name), f"{entity.__name__}.{name}"
    for field in dataclasses.fields(entity):
        struct = kind_of(field).struct
        if struct is not None:
            check_fields(struct, messages, side)


def test_a_field_that_a_version_lacks_has_kafkas_default() -> None:
    asked = FetchRequest(max_wait=timedelta(0), min_bytes=0, topics=[], replica_id=7)
    frames = {
        version: encode_request(ApiKey.FETCH, version, 1, "c", asked)[4:]
        for version in (4, 12)
    }
    old, new = (
        decode(ApiKey.FETCH, version, frame, parse_request_header(frame).body_offset)
        for version, frame in frames.items()
    )
    assert (old.replica_id, old.session_epoch, old.rack_id) == (7, -1, "")
    assert (new.replica_id, new.replica_state.replica_id) == (7, -1)


def test_a_tagged_struct_at_its_default_is_not_sent() -> None:
    """Holds for our message class and for kio's."""
    asked = FetchRequest(max_wait=timedelta(0), min_bytes=0, topics=[])
    theirs = request_type(ApiKey.FETCH, 15)(
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=0,
        topics=(),
        forgotten_topics_data=(),
    )
    frame = encode_request(ApiKey.FETCH, 15, 1, "c", theirs)
    assert encode_request(ApiKey.FETCH, 15, 1, "c", asked) == frame
    asked.replica_state = ReplicaState(replica_id=3)
    assert len(encode_request(ApiKey.FETCH, 15, 1, "c", asked)) == len(frame) + 15
