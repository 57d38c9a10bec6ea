"""OffsetCommit, OffsetFetch and OffsetDelete, in every version."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.group_client import NONE, Client, commit, partition, versions
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
    fetched = fetch_all(client.broker.groups.offsets, "g", require_stable=True)
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
    assert fetch_all(client.broker.groups.offsets, "g", require_stable=True) == {}


def test_offset_delete_of_no_group(client: Client) -> None:
    topics = [{"name": "t", "partitions": [(1,)]}]
    answer = client.send(ApiKey.OFFSET_DELETE, 0, topics=topics)
    assert (answer.error_code, answer.topics) == (ErrorCode.group_id_not_found, ())
