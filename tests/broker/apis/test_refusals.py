"""Requests that admission rejects are answered with errors, in every version.

The answer has a row with a retriable error for each item of the request. Kafka's
clients define the retriable errors.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from planes.admission import EXPIRED, OVER_QUOTA
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)

TIMED_OUT = ErrorCode.request_timed_out
NO_COORDINATOR = ErrorCode.coordinator_not_available
LOADING = ErrorCode.coordinator_load_in_progress
NO_LEADER = ErrorCode.leader_not_available
OVER = ErrorCode.throttling_quota_exceeded

# Ids of the topics, for newer versions.
IDS = {"t": UUID(int=1), "u": UUID(int=2)}
NAMES = {topic_id: name for name, topic_id in IDS.items()}
T, U = ({"name": name, "topic_id": topic_id} for name, topic_id in IDS.items())
TWO = [
    {**T, "partitions": [{"partition_index": 0}, {"partition_index": 7}]},
    {**U, "partitions": [{"partition_index": 1}]},
]
RESOURCE = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
ROWS = (("t", 0), ("t", 7), ("u", 1))


def by_partition(topics: Any, name: str, rows: str, index: str) -> Any:
    return tuple(
        (
            getattr(topic, name) or NAMES[topic.topic_id],
            getattr(row, index),
            row.error_code,
        )
        for topic in topics
        for row in getattr(topic, rows)
    )


def partitions_of(answer: Any) -> Any:
    return by_partition(answer.topics, "name", "partitions", "partition_index")


def failed(error: ErrorCode) -> Any:
    return tuple((*row, error) for row in ROWS)


def names_of(rows: Any, name: str) -> Any:
    return [(getattr(row, name), row.error_code) for row in rows]


def offset_fetch(version: int) -> dict[str, Any]:
    topics = [
        {**T, "partition_indexes": [0, 7]},
        {**U, "partition_indexes": [1]},
    ]
    return {"group_id": "g", "topics": topics} | {
        "groups": [{"group_id": "g", "topics": topics}]
    }


# By API: the fields of a request, the rows of its answer, and the expected rows.
CASES: dict[ApiKey, tuple[Any, Any, Any]] = {
    ApiKey.PRODUCE: (
        lambda version: produce_fields(
            {
                (IDS[topic] if version >= 13 else topic, index): batch(b"x")
                for topic, index in ROWS
            }
        ),
        lambda answer: by_partition(
            answer.responses, "name", "partition_responses", "index"
        ),
        failed(TIMED_OUT),
    ),
    ApiKey.LIST_OFFSETS: (
        lambda version: {"topics": TWO},
        partitions_of,
        failed(TIMED_OUT),
    ),
    ApiKey.OFFSET_COMMIT: (
        lambda version: {"topics": TWO},
        partitions_of,
        failed(NO_COORDINATOR),
    ),
    ApiKey.DELETE_RECORDS: (
        lambda version: {"topics": TWO},
        partitions_of,
        failed(TIMED_OUT),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        lambda version: {
            "topics": [
                {"topic": "t", "partitions": [{"partition": 0}, {"partition": 7}]},
                {"topic": "u", "partitions": [{"partition": 1}]},
            ]
        },
        lambda answer: by_partition(answer.topics, "topic", "partitions", "partition"),
        failed(TIMED_OUT),
    ),
    ApiKey.OFFSET_FETCH: (
        offset_fetch,
        lambda answer: partitions_of(answer.groups[0] if answer.groups else answer),
        failed(LOADING),
    ),
    ApiKey.METADATA: (
        lambda version: {"topics": [{"name": "t"}, {"name": "u"}]},
        lambda answer: names_of(answer.topics, "name"),
        [("t", NO_LEADER), ("u", NO_LEADER)],
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        lambda version: {"topics": [{"name": "t"}, {"name": "u"}]},
        lambda answer: names_of(answer.topics, "name"),
        [("t", TIMED_OUT), ("u", TIMED_OUT)],
    ),
    ApiKey.CREATE_TOPICS: (
        lambda version: {"topics": [new_topic("a"), new_topic("b")]},
        lambda answer: names_of(answer.topics, "name"),
        [("a", TIMED_OUT), ("b", TIMED_OUT)],
    ),
    ApiKey.CREATE_PARTITIONS: (
        lambda version: {"topics": [{"name": "t", "count": 3}]},
        lambda answer: names_of(answer.results, "name"),
        [("t", TIMED_OUT)],
    ),
    ApiKey.DELETE_TOPICS: (
        lambda version: {
            "topic_names": ["t", "u"],
            "topics": [{"name": "t"}, {"name": "u"}],
        },
        lambda answer: names_of(answer.responses, "name"),
        [("t", TIMED_OUT), ("u", TIMED_OUT)],
    ),
    ApiKey.DESCRIBE_CONFIGS: (
        lambda version: {"resources": [RESOURCE]},
        lambda answer: names_of(answer.results, "resource_name"),
        [("t", TIMED_OUT)],
    ),
    ApiKey.ALTER_CONFIGS: (
        lambda version: {"resources": [RESOURCE]},
        lambda answer: names_of(answer.responses, "resource_name"),
        [("t", TIMED_OUT)],
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        lambda version: {"resources": [RESOURCE]},
        lambda answer: names_of(answer.responses, "resource_name"),
        [("t", TIMED_OUT)],
    ),
    ApiKey.FIND_COORDINATOR: (
        lambda version: {"key": "g", "coordinator_keys": ["g", "h"]},
        lambda answer: (
            names_of(answer.coordinators, "key")
            if answer.coordinators
            else [("g", answer.error_code), ("h", answer.error_code)]
        ),
        [("g", NO_COORDINATOR), ("h", NO_COORDINATOR)],
    ),
    ApiKey.DESCRIBE_GROUPS: (
        lambda version: {"groups": ["g", "h"]},
        lambda answer: names_of(answer.groups, "group_id"),
        [("g", NO_COORDINATOR), ("h", NO_COORDINATOR)],
    ),
    ApiKey.DELETE_GROUPS: (
        lambda version: {"groups_names": ["g", "h"]},
        lambda answer: names_of(answer.results, "group_id"),
        [("g", NO_COORDINATOR), ("h", NO_COORDINATOR)],
    ),
    ApiKey.CREATE_ACLS: (
        lambda version: {"creations": [{"resource_name": "t"}] * 2},
        lambda answer: [row.error_code for row in answer.results],
        [TIMED_OUT] * 2,
    ),
    ApiKey.DELETE_ACLS: (
        lambda version: {"filters": [{"resource_name_filter": "t"}] * 2},
        lambda answer: [row.error_code for row in answer.filter_results],
        [TIMED_OUT] * 2,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        lambda version: {
            "dirs": [
                {"path": "/a", "topics": [{"name": "t", "partitions": [0, 7]}]},
                {"path": "/b", "topics": [{"name": "u", "partitions": [1]}]},
            ]
        },
        lambda answer: by_partition(
            answer.results, "topic_name", "partitions", "partition_index"
        ),
        failed(TIMED_OUT),
    ),
    ApiKey.ELECT_LEADERS: (
        lambda version: {
            "topic_partitions": [
                {"topic": "t", "partitions": [0, 7]},
                {"topic": "u", "partitions": [1]},
            ]
        },
        lambda answer: by_partition(
            answer.replica_election_results, "topic", "partition_result", "partition_id"
        ),
        failed(TIMED_OUT),
    ),
}
# Before version 3 these answers have no error field, and Kafka's are empty as well.
SILENT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}


def refused(
    key: ApiKey, version: int, /, *, refusal: str = EXPIRED, **fields: Any
) -> Any:
    world = World()
    return world.start(key, version, noted={"refusal": refusal}, **fields)


@pytest.mark.parametrize("key", sorted(set(map(ApiKey, APIS)) - {ApiKey.API_VERSIONS}))
def test_every_version_of_every_api_can_be_refused(key: ApiKey) -> None:
    for version in APIS[key].served:
        check_refused(key, version)


def check_refused(key: ApiKey, version: int) -> None:
    asked, found, expected = CASES.get(key, (None, None, None))
    if key is ApiKey.FETCH:
        named = {("t", 0): 0, ("t", 7): 0} if version < 13 else {}
        call = refused(key, version, **fetch_fields(named))
    else:
        fields = asked(version) if asked else {}
        call = refused(key, version, **{"timeout": SECONDS_30, **fields})
    assert call.done, version
    assert not call.closed, version
    if key is ApiKey.FETCH and version < 13:
        rows = by_partition(
            call.answer.responses, "topic", "partitions", "partition_index"
        )
        assert rows == (("t", 0, TIMED_OUT), ("t", 7, TIMED_OUT))
    elif expected is not None:
        assert found(call.answer) == expected, version
    if "error_code" in {field.name for field in dataclasses.fields(call.answer)}:
        assert call.answer.error_code is not ErrorCode.none, version
    elif (key, version) in SILENT:
        assert dataclasses.astuple(call.answer)[1:] == ((),), version
    assert call.request.error_code != 0, version


def test_clients_retry_on_the_reported_errors() -> None:
    """Kafka's documentation of its protocol, which kio includes, lists the errors."""
    for code in (TIMED_OUT, NO_COORDINATOR, LOADING, NO_LEADER, OVER):
        assert code.retriable, code


def test_the_handshake_is_never_refused() -> None:
    name = {"client_software_name": "a", "client_software_version": "1"}
    for version in range(5):
        call = refused(ApiKey.API_VERSIONS, version, **name)
        assert call.answer.error_code is ErrorCode.none, version
        assert call.answer.api_keys, version


def test_refused_metadata_still_names_the_brokers() -> None:
    """librdkafka removes brokers that an answer with topics omits."""
    topics = [{"name": "t"}]
    for version in range(13):
        served = World().start(ApiKey.METADATA, version, topics=topics).answer
        call = refused(ApiKey.METADATA, version, topics=topics)
        assert len(call.answer.brokers) == 1, version
        for name in ("brokers", "cluster_id", "controller_id"):
            expected = getattr(served, name, None)
            assert getattr(call.answer, name, None) == expected, version


def test_refused_metadata_of_all_topics_is_what_clients_discard() -> None:
    """An answer with brokers would mean that there are no topics."""
    for version in range(13):
        call = refused(ApiKey.METADATA, version, topics=None if version else [])
        assert not call.answer.brokers, version
        assert not call.answer.topics, version


def test_a_produce_that_wants_no_answer_is_refused_by_closing() -> None:
    fields = produce_fields({("t", 0): batch(b"x")}) | {"acks": 0}
    call = refused(ApiKey.PRODUCE, 11, **fields)
    assert call.closed
    assert call.request.error_code == int(TIMED_OUT)


@pytest.mark.parametrize(
    ("key", "first"),
    [
        (ApiKey.CREATE_TOPICS, 6),
        (ApiKey.DELETE_TOPICS, 5),
        (ApiKey.CREATE_PARTITIONS, 3),
    ],
)
def test_only_what_knows_the_error_is_refused_for_its_quota(
    key: ApiKey, first: int
) -> None:
    """The versions are those of KIP-599."""
    asked, found, _ = CASES[key]
    for version in APIS[key].served:
        fields = {"timeout": SECONDS_30, **asked(version)}
        call = refused(key, version, refusal=OVER_QUOTA, **fields)
        assert call.request.task.can_be_refused == (version >= first)
        assert {error for _, error in found(call.answer)} == {OVER}
