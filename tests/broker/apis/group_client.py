"""A client of the group APIs in any version, without sockets.

kio encodes requests from the fields of their version and decodes the answers. The
broker's own code decodes and handles the requests. The group coordinator is the real
one, with a log in memory.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import typing
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from broker.groups.consumer.subscribed_topics import KnownTopic
from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.state.group_settings import GroupConfig
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import (
    decode,
    decode_response,
    encode,
    encode_request,
    request_type,
)
from broker.protocol.wire.header import parse_request_header
from broker.shards.effects import Instant, Record
from planes.slices import Park

NONE = ErrorCode.none
TOPIC_IDS: dict[str, UUID] = {"t": UUID(int=1), "u": UUID(int=2)}
FIELDS: dict[str, Any] = {
    "group_id": "g",
    "member_id": "",
    "group_instance_id": None,
    "session_timeout": timedelta(seconds=10),
    "rebalance_timeout": timedelta(seconds=60),
    "protocol_type": "consumer",
    "protocol_name": "range",
    "protocols": [("range", b"\0\0\0\0\0\1\0\1t")],
    "reason": "because",
    "generation_id": 1,
    "generation_id_or_member_epoch": 1,
    "retention_time": timedelta(milliseconds=-1),
    "require_stable": True,
    "include_authorized_operations": False,
    "states_filter": (),
    "types_filter": (),
}


def versions(key: ApiKey) -> range:
    return APIS[key].served


class InstantLog:
    """A log on which every append succeeds at once."""

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[..., None],
        transaction: object = None,
    ) -> None:
        done(NONE)

    def is_empty(self, partition: int) -> bool:
        return True

    def replay(self, partition: int) -> Iterator[Record | None]:
        return iter(())


class _Topics:
    """The topics of the cluster, for consumer groups."""

    version = 0

    def find(self, name: str) -> KnownTopic | None:
        topic_id = TOPIC_IDS.get(name)
        return None if topic_id is None else KnownTopic(topic_id, 2, topic_id.int)

    def name(self, topic_id: UUID) -> str | None:
        return {of: name for name, of in TOPIC_IDS.items()}.get(topic_id)

    def names(self) -> Iterator[str]:
        return iter(TOPIC_IDS)


class Client:
    """A client of any version, and a broker with topics t and u."""

    def __init__(self) -> None:
        self.now_ns = 0
        groups = GroupCoordinator(
            GroupConfig(
                offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
            ),
            log=InstantLog(),
            clock=lambda: Instant(self.now_ns, 1_700_000_000_000),
            rng=random.Random(3),
            topics=_Topics(),
        )
        groups.elect(0)
        groups.load_all()
        topics = {
            "t": SimpleNamespace(partitions={0: 0, 1: 1}, topic_id=TOPIC_IDS["t"])
        }
        names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
        self.broker: Any = SimpleNamespace(
            groups=groups,
            metadata_cache=SimpleNamespace(topic=topics.get, name=names.get),
            authorizer=None,
            coordinator=SimpleNamespace(
                admin=SimpleNamespace(
                    finalized_features=SimpleNamespace(group_version=1)
                )
            ),
        )

    def start(self, key: ApiKey, version: int, **fields: Any) -> _Call:
        """Send a request without the fields that its version lacks."""
        entity = _entity(request_type(key, version), {**FIELDS, **fields})
        frame = encode_request(key, version, 7, "app", entity)[4:]
        header = parse_request_header(frame)
        body = decode(key, version, frame, header.body_offset)
        request: Any = SimpleNamespace(
            api_key=key,
            api_version=version,
            correlation_id=7,
            client_id="app",
            peer=SimpleNamespace(host="10.0.0.1", has_hung_up=False),
            is_orphaned=False,
            end_wait=None,
        )
        return _Call(key, version, APIS[key].handle(request, body, self.broker))

    def send(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request that is answered at once."""
        call = self.start(key, version, **fields)
        assert call.answer is not None, "still parked"
        return call.answer

    def join(self, **fields: Any) -> Any:
        """Join in version 9 with the member id that the first answer assigns."""
        known = {"member_id": self.send(ApiKey.JOIN_GROUP, 9, **fields).member_id}
        return self.start(ApiKey.JOIN_GROUP, 9, **{**fields, **known})

    def stable(self) -> str:
        """Form a group of one and return its member's id."""
        member_id: str = self.join().answer.member_id
        assignments = [(member_id, b"mine")]
        synced = self.send(
            ApiKey.SYNC_GROUP, 5, member_id=member_id, assignments=assignments
        )
        assert synced.error_code is NONE
        return member_id


class _Call:
    """A handler that is stepped as a plane does; preemption points are ignored."""

    def __init__(
        self, key: ApiKey, version: int, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        self.key, self.version, self.coroutine = key, version, coroutine
        self.answer: Any = None
        self.step()

    def step(self) -> None:
        try:
            while True:
                trap = self.coroutine.send(None)
                if isinstance(trap, Park) and trap.register(self.step):
                    return
        except StopIteration as stop:
            frame = encode(self.key, self.version, 7, stop.value)[4:]
            correlation_id, self.answer = decode_response(self.key, self.version, frame)
            assert correlation_id == 7


def _entity(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Build an entity from fields by name; items of arrays are tuples of fields."""
    built = {}
    for field in dataclasses.fields(cls):
        if field.name not in fields:
            continue
        value = fields[field.name]
        item = _item_type(cls, field.name)
        if item is not None and value is not None:
            value = tuple(_item(item, entry) for entry in value)
        built[field.name] = value
    return cls(**built)


def _item(item: type[Any], entry: Any) -> Any:
    if isinstance(entry, dict):
        return _entity(item, entry)
    names = [field.name for field in dataclasses.fields(item)]
    return _entity(item, dict(zip(names, entry, strict=False)))


@cache
def _item_type(cls: type[Any], name: str) -> type[Any] | None:
    """Return the class of an array's items, if they are entities."""
    hints = typing.get_type_hints(cls, vars(sys.modules[cls.__module__]))
    for part in (hints[name], *typing.get_args(hints[name])):
        for item in typing.get_args(part):
            if dataclasses.is_dataclass(item):
                return typing.cast("type[Any]", item)
    return None


def topic(name: str, **fields: Any) -> dict[str, Any]:
    """Return a topic by name, and by id for the versions that have ids."""
    return {"name": name, "topic_id": TOPIC_IDS.get(name, UUID(int=77)), **fields}


def partition(index: int, offset: int, metadata: str | None = "m") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 5,
        "committed_metadata": metadata,
    }


def commit(client: Client, group_id: str = "g", **fields: Any) -> None:
    """Commit offset 42 of t-1 without a member."""
    client.send(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": [partition(1, 42, None)]}],
        **fields,
    )
