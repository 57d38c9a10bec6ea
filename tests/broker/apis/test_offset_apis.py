"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.group_client import (
    NONE,
    TOPIC_IDS,
    Client,
    commit,
    partition,
    topic,
    versions,
)
from tests.broker.groups.all_offsets import fetch_all


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit(client: Client, version: int) -> None:
    member_id = client.stable()
    answer = client.send(
        ApiKey.OFFSET_COMMIT,
        version,
        member_id=member_id,
        topics=[
            topic("t", partitions=[partition(1, 42), partition(2, 1)]),
            topic("no such", partitions=[partition(0, 1), partition(3, 1)]),
        ],
    )
    unknown = ErrorCode.unknown_topic_or_partition
    unknown_topic = ErrorCode.unknown_topic_id if version >= 10 else unknown
    assert _outcomes(answer) == {
        ("t", 1): NONE,
        ("t", 2): unknown,
        ("no such", 0): unknown_topic,
        ("no such", 3): unknown_topic,
    }
    fetched = fetch_all(client.broker.groups.offsets, "g", require_stable=True)
    assert {tuple(target): tuple(one) for target, one in fetched.items()} == {
        ("t", 1): (42, 5 if version >= 6 else -1, "m", NONE)
    }


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT))
def test_offset_commit_of_a_member_of_no_group(client: Client, version: int) -> None:
    topics = [topic("t", partitions=[partition(0, 1)])]
    answer = client.send(ApiKey.OFFSET_COMMIT, version, member_id="m", topics=topics)
    told = (
        ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    )
    assert _outcomes(answer) == {("t", 0): told}


def _outcomes(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (_name(topic), partition.partition_index): partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
    }


def _name(row: Any) -> str:
    """Return the name of a topic; from version 10 on, the row has only its id."""
    names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
    return str(row.name or names.get(row.topic_id, "no such"))


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch(client: Client, version: int) -> None:
    commit(client)
    topics = [
        topic(name, partition_indexes=indexes)
        for name, indexes in (("t", (1, 0)), ("no such", (5,)), ("u", (5,)))
    ]
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
        (_name(it), p.partition_index): (p.committed_offset, p.metadata, p.error_code)
        for it in answer.topics
        for p in it.partitions
    }
    nothing = (-1, "", NONE)
    unknown = (-1, "", ErrorCode.unknown_topic_id) if version >= 10 else nothing
    assert found == {
        ("t", 1): (42, "", NONE),
        ("t", 0): nothing,
        ("no such", 5): unknown,
        ("u", 5): nothing,
    }
    if version >= 5:
        (of_t,) = (it for it in answer.topics if _name(it) == "t")
        assert of_t.partitions[0].committed_leader_epoch == 5


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH)[1:])
def test_null_topics_fetch_all_offsets(client: Client, version: int) -> None:
    commit(client)
    fields: dict[str, Any] = {"topics": None}
    if version >= 8:
        fields = {"groups": [{"group_id": "g", "topics": None}]}
    answer = client.send(ApiKey.OFFSET_FETCH, version, **fields)
    (topic,) = (answer.groups[0] if version >= 8 else answer).topics
    assert _name(topic) == "t"
    assert [p.committed_offset for p in topic.partitions] == [42]


def test_all_offsets_by_id_leave_out_topics_without_one(client: Client) -> None:
    commit(client)
    client.broker.metadata_cache.topic = {}.get
    groups = [{"group_id": "g", "topics": None}]
    answer = client.send(ApiKey.OFFSET_FETCH, 10, groups=groups)
    assert (answer.groups[0].error_code, answer.groups[0].topics) == (NONE, ())


def test_an_offset_by_id_is_found_though_its_topic_is_deleted_meanwhile(
    client: Client,
) -> None:
    commit(client)
    client.broker.metadata_cache.topic = {}.get
    groups = [{"group_id": "g", "topics": [topic("t", partition_indexes=(1,))]}]
    answer = client.send(ApiKey.OFFSET_FETCH, 10, groups=groups)
    (found,) = answer.groups[0].topics
    assert _name(found) == "t"
    assert [p.committed_offset for p in found.partitions] == [42]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FETCH))
def test_offset_fetch_from_a_broker_that_does_not_coordinate(
    client: Client, version: int
) -> None:
    client.broker.groups.resign(0)
    topics = [
        topic(name, partition_indexes=(1,))
        for name in (("t", "no such") if version >= 10 else ("t",))
    ]
    fields: dict[str, Any] = {"topics": topics}
    if version >= 8:
        fields = {"groups": [{"group_id": "g", "topics": topics}]}
    answer = client.send(ApiKey.OFFSET_FETCH, version, **fields)
    told = ErrorCode.not_coordinator
    if version >= 8:
        assert answer.groups[0].error_code is told
        assert answer.groups[0].topics == ()
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
    assert fetch_all(client.broker.groups.offsets, "g", require_stable=True) == {}


def test_offset_delete_of_no_group(client: Client) -> None:
    topics = [{"name": "t", "partitions": [(1,)]}]
    answer = client.send(ApiKey.OFFSET_DELETE, 0, topics=topics)
    assert (answer.error_code, answer.topics) == (ErrorCode.group_id_not_found, ())
