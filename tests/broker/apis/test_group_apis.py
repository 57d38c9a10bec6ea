"""The group APIs over the wire format: every version, from frame to frame.

Requests are encoded by kio from the fields that their version has, decoded and handled
as the broker does it, and the answers are decoded by kio again. The coordinator behind
them is the real one over a log in memory.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from broker.apis import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from broker.errors import ErrorCode
from broker.groups.config import GroupConfig
from broker.groups.coordinator import GroupCoordinator
from broker.groups.messages import Instant, Record
from broker.wire.api_keys import SUPPORTED, ApiKey
from broker.wire.codec import (
    decode,
    decode_response,
    encode,
    encode_request,
    request_type,
)
from broker.wire.header import parse_request_header
from planes.slices import Park

HANDLERS = {
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.JOIN_GROUP: join_group.handle,
    ApiKey.HEARTBEAT: heartbeat.handle,
    ApiKey.LEAVE_GROUP: leave_group.handle,
    ApiKey.SYNC_GROUP: sync_group.handle,
    ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
    ApiKey.LIST_GROUPS: list_groups.handle,
    ApiKey.DELETE_GROUPS: delete_groups.handle,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
}
NONE = ErrorCode.none
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
    served = SUPPORTED[key]
    return range(served.implemented_min, served.max + 1)


class InstantLog:
    """A log on which every append succeeds at once."""

    def append(
        self, partition: int, records: Sequence[Record], done: Callable[..., None]
    ) -> None:
        done(NONE)

    def replay(self, partition: int) -> Iterator[Sequence[Record]]:
        return iter(())


class Client:
    """One broker with topics t and u, and a client that speaks any version."""

    def __init__(self) -> None:
        self.now_ns = 0
        groups = GroupCoordinator(
            GroupConfig(
                offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0
            ),
            log=InstantLog(),
            clock=lambda: Instant(self.now_ns, 1_700_000_000_000),
            rng=random.Random(3),
        )
        groups.elect(0)
        groups.load_all()
        topics = {"t": SimpleNamespace(partitions={0: 0, 1: 1}), "u": None}
        self.broker: Any = SimpleNamespace(
            groups=groups, metadata_cache=SimpleNamespace(topic=topics.get)
        )

    def start(self, key: ApiKey, version: int, **fields: Any) -> _Call:
        """Send a request; fields that its version does not have are left out."""
        entity = _entity(request_type(key, version), {**FIELDS, **fields})
        frame = encode_request(key, version, 7, "app", entity)[4:]
        header = parse_request_header(frame)
        body = decode(key, version, frame, header.body_offset)
        request: Any = SimpleNamespace(
            api_key=key,
            api_version=version,
            correlation_id=7,
            client_id="app",
            peer=SimpleNamespace(host="10.0.0.1"),
        )
        return _Call(key, version, HANDLERS[key](request, body, self.broker))

    def send(self, key: ApiKey, version: int, **fields: Any) -> Any:
        """Send a request that is answered at once."""
        call = self.start(key, version, **fields)
        assert call.answer is not None, "still parked"
        return call.answer

    def join(self, **fields: Any) -> Any:
        """Join with the newest version, taking the id that is handed out."""
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
    """A handler, stepped as a plane does it: preemptions ignored, parking obeyed."""

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
    """Build an entity from names to values; items of arrays are tuples of fields."""
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


def _item_type(cls: type[Any], name: str) -> type[Any] | None:
    """Return the class of an array's items, if they are entities."""
    import sys
    import typing

    hints = typing.get_type_hints(cls, vars(sys.modules[cls.__module__]))
    for part in (hints[name], *typing.get_args(hints[name])):
        for item in typing.get_args(part):
            if dataclasses.is_dataclass(item):
                return typing.cast("type[Any]", item)
    return None


@pytest.fixture
def client() -> Client:
    return Client()


# ---- members ------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group(client: Client, version: int) -> None:
    answer = client.send(ApiKey.JOIN_GROUP, version)
    if version >= 4:
        assert answer.error_code is ErrorCode.member_id_required
        assert answer.protocol_name == (None if version >= 7 else "")
        member_id = answer.member_id
        answer = client.send(ApiKey.JOIN_GROUP, version, member_id=member_id)
    assert answer.error_code is NONE
    assert answer.member_id == answer.leader
    assert answer.member_id.startswith("app-")
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    (member,) = answer.members
    assert member.metadata == b"\0\0\0\0\0\1\0\1t"
    kept = client.broker.groups.describe("g").roster.members[answer.member_id]
    assert kept.client_host == "/10.0.0.1"
    assert kept.rebalance_timeout_ms == (10_000 if version == 0 else 60_000)
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_join_group_refused(client: Client, version: int) -> None:
    answer = client.send(ApiKey.JOIN_GROUP, version, session_timeout=timedelta(0))
    assert answer.error_code is ErrorCode.invalid_session_timeout
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", ())
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(("version", "skips"), [(8, False), (9, True)])
def test_a_static_leader_that_comes_back_skips_the_assignment(
    client: Client, version: int, skips: bool
) -> None:
    static = {"group_instance_id": "i"}
    first = client.send(ApiKey.JOIN_GROUP, version, **static)
    client.send(
        ApiKey.SYNC_GROUP,
        5,
        member_id=first.member_id,
        assignments=[(first.member_id, b"a")],
        **static,
    )
    again = client.send(ApiKey.JOIN_GROUP, version, **static)
    assert getattr(again, "skip_assignment", False) == skips
    assert (again.leader == again.member_id) == skips


def test_a_join_is_parked_until_everyone_has_joined(client: Client) -> None:
    member_id = client.stable()
    other = client.join()
    assert other.answer is None
    beat = client.send(ApiKey.HEARTBEAT, 4, member_id=member_id)
    assert beat.error_code is ErrorCode.rebalance_in_progress
    mine = client.send(ApiKey.JOIN_GROUP, 9, member_id=member_id)
    assert other.answer.generation_id == mine.generation_id == 2
    assert len(mine.members) == 2


@pytest.mark.parametrize("version", versions(ApiKey.SYNC_GROUP))
def test_sync_group(client: Client, version: int) -> None:
    first = client.join()
    second = client.join()
    rejoined = client.send(
        ApiKey.JOIN_GROUP,
        9,
        member_id=first.answer.member_id,
        protocols=[("range", b"changed")],
    )
    leader, follower = rejoined.member_id, second.answer.member_id
    parked = client.start(
        ApiKey.SYNC_GROUP, version, member_id=follower, generation_id=2, assignments=()
    )
    assert parked.answer is None
    own = client.send(
        ApiKey.SYNC_GROUP,
        version,
        member_id=leader,
        generation_id=2,
        assignments=[(leader, b"L"), (follower, b"F")],
    )
    assert (own.error_code, own.assignment) == (NONE, b"L")
    assert (parked.answer.error_code, parked.answer.assignment) == (NONE, b"F")
    if version >= 5:
        assert (own.protocol_type, own.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_the_protocol_is_mandatory_in_sync_group_v5(
    client: Client, missing: str
) -> None:
    fields = {missing: None, "member_id": client.stable(), "assignments": ()}
    answer = client.send(ApiKey.SYNC_GROUP, 5, **fields)
    assert answer.error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize("version", versions(ApiKey.HEARTBEAT))
def test_heartbeat(client: Client, version: int) -> None:
    member_id = client.stable()
    assert (
        client.send(ApiKey.HEARTBEAT, version, member_id=member_id).error_code is NONE
    )
    refused = client.send(ApiKey.HEARTBEAT, version, member_id="stranger")
    assert refused.error_code is ErrorCode.unknown_member_id


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group(client: Client, version: int) -> None:
    member_id = client.stable()
    members = [("stranger",), (member_id,)]
    unknown = ErrorCode.unknown_member_id
    if version < 3:
        refused = client.send(ApiKey.LEAVE_GROUP, version, member_id="stranger")
        assert refused.error_code is unknown
        answer = client.send(ApiKey.LEAVE_GROUP, version, member_id=member_id)
    else:
        answer = client.send(ApiKey.LEAVE_GROUP, version, members=members)
        found = [(m.member_id, m.error_code) for m in answer.members]
        assert found == [("stranger", unknown), (member_id, NONE)]
    assert answer.error_code is NONE
    assert len(client.broker.groups.describe("g").roster) == 0


@pytest.mark.parametrize("version", versions(ApiKey.LEAVE_GROUP))
def test_leave_group_of_no_name(client: Client, version: int) -> None:
    answer = client.send(ApiKey.LEAVE_GROUP, version, group_id="", members=[("m",)])
    assert answer.error_code is ErrorCode.invalid_group_id


# ---- offsets ------------------------------------------------------------------------


def partition(index: int, offset: int, metadata: str | None = "m") -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": 5,
        "committed_metadata": metadata,
    }


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit(client: Client, version: int) -> None:
    member_id = client.stable()
    answer = client.send(
        ApiKey.OFFSET_COMMIT,
        version,
        member_id=member_id,
        topics=[
            {"name": "t", "partitions": [partition(1, 42), partition(2, 1)]},
            {"name": "no such", "partitions": [partition(0, 1)]},
        ],
    )
    unknown = ErrorCode.unknown_topic_or_partition
    assert _outcomes(answer) == {
        ("t", 1): NONE,
        ("t", 2): unknown,
        ("no such", 0): unknown,
    }
    fetched = client.broker.groups.offsets.fetch_all("g", require_stable=True)
    assert {tuple(target): tuple(one) for target, one in fetched.items()} == {
        ("t", 1): (42, 5 if version >= 6 else -1, "m", NONE)
    }


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit_of_a_member_of_no_group(client: Client, version: int) -> None:
    topics = [{"name": "t", "partitions": [partition(0, 1)]}]
    answer = client.send(ApiKey.OFFSET_COMMIT, version, member_id="m", topics=topics)
    told = (
        ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    )
    assert _outcomes(answer) == {("t", 0): told}


def _outcomes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def commit(client: Client, group_id: str = "g", **fields: Any) -> None:
    """Commit offset 42 of t-1 as nobody's member."""
    client.send(
        ApiKey.OFFSET_COMMIT,
        9,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[{"name": "t", "partitions": [partition(1, 42, None)]}],
        **fields,
    )


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch(client: Client, version: int) -> None:
    commit(client)
    topics = [("t", (1, 0)), ("u", (5,))]
    fields: dict[str, Any] = {"topics": topics}
    if version >= 8:
        fields = {
            "groups": [
                {"group_id": "g", "topics": topics},
                {"group_id": "other", "topics": None},
            ]
        }
    answer = client.send(ApiKey.OFFSET_FETCH, version, **fields)
    if version >= 8:
        answer, other = answer.groups
        assert (other.group_id, other.topics, other.error_code) == ("other", (), NONE)
    found = {
        (topic.name, p.partition_index): (p.committed_offset, p.metadata, p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    }
    nothing = (-1, "", NONE)
    assert found == {("t", 1): (42, "", NONE), ("t", 0): nothing, ("u", 5): nothing}
    if version >= 5:
        assert answer.topics[0].partitions[0].committed_leader_epoch == 5


@pytest.mark.parametrize("version", range(2, 8))
def test_null_topics_fetch_all_offsets(client: Client, version: int) -> None:
    commit(client)
    answer = client.send(ApiKey.OFFSET_FETCH, version, topics=None)
    (topic,) = answer.topics
    assert [p.committed_offset for p in topic.partitions] == [42]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch_from_a_broker_that_does_not_coordinate(
    client: Client, version: int
) -> None:
    client.broker.groups.resign(0)
    topics = [("t", (1,))]
    fields: dict[str, Any] = {"topics": topics}
    if version >= 8:
        fields = {"groups": [{"group_id": "g", "topics": topics}]}
    answer = client.send(ApiKey.OFFSET_FETCH, version, **fields)
    told = ErrorCode.not_coordinator
    if version >= 8:
        assert answer.groups[0].error_code is told
    elif version >= 2:
        assert answer.error_code is told
    else:
        assert answer.topics[0].partitions[0].error_code is told


def test_offset_delete(client: Client) -> None:
    commit(client)
    answer = client.send(
        ApiKey.OFFSET_DELETE,
        0,
        topics=[
            {"name": "t", "partitions": [(1,), (7,)]},
            {"name": "no such", "partitions": [(0,)]},
        ],
    )
    unknown = ErrorCode.unknown_topic_or_partition
    assert answer.error_code is NONE
    assert _outcomes(answer) == {
        ("t", 1): NONE,
        ("t", 7): unknown,
        ("no such", 0): unknown,
    }
    assert client.broker.groups.offsets.fetch_all("g", require_stable=True) == {}


def test_offset_delete_of_no_group(client: Client) -> None:
    topics = [{"name": "t", "partitions": [(1,)]}]
    answer = client.send(ApiKey.OFFSET_DELETE, 0, topics=topics)
    assert (answer.error_code, answer.topics) == (ErrorCode.group_id_not_found, ())


# ---- groups -------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_describe_groups(client: Client, version: int) -> None:
    member_id = client.stable()
    commit(client, "simple")
    named = ("g", "simple", "no such")
    answer = client.send(ApiKey.DESCRIBE_GROUPS, version, groups=named)
    stable, simple, missing = answer.groups
    assert (stable.group_state, stable.protocol_type) == ("Stable", "consumer")
    assert stable.protocol_data == "range"
    (member,) = stable.members
    assert (member.member_id, member.client_id) == (member_id, "app")
    assert (member.client_host, member.member_assignment) == ("/10.0.0.1", b"mine")
    assert member.member_metadata == b"\0\0\0\0\0\1\0\1t"
    assert (simple.group_state, simple.protocol_type) == ("Empty", "")
    assert (missing.group_state, missing.error_code) == ("Dead", NONE)
    assert missing.members == ()


def test_describe_groups_tells_the_allowed_operations_when_asked(
    client: Client,
) -> None:
    client.stable()
    for asked, told in ((False, -(2**31)), (True, 0b110101001000)):
        answer = client.send(
            ApiKey.DESCRIBE_GROUPS,
            5,
            groups=("g",),
            include_authorized_operations=asked,
        )
        assert answer.groups[0].authorized_operations == told


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_list_groups(client: Client, version: int) -> None:
    client.stable()
    commit(client, "simple")
    answer = client.send(ApiKey.LIST_GROUPS, version)
    found = {(group.group_id, group.protocol_type) for group in answer.groups}
    assert found == {("g", "consumer"), ("simple", "")}
    if version >= 5:
        assert {group.group_type for group in answer.groups} == {"classic"}
    if version >= 4:
        filtered = client.send(ApiKey.LIST_GROUPS, version, states_filter=("Empty",))
        (group,) = filtered.groups
        assert (group.group_id, group.group_state) == ("simple", "Empty")


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_delete_groups(client: Client, version: int) -> None:
    client.stable()
    commit(client, "simple")
    named = ("g", "simple", "no such", "simple")
    answer = client.send(ApiKey.DELETE_GROUPS, version, groups_names=named)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        ("g", ErrorCode.non_empty_group),
        ("simple", NONE),
        ("no such", ErrorCode.group_id_not_found),
    ]
