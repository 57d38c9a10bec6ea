"""Legal but unusual requests, with the answers observed of Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode
from broker.protocol.wire.header import parse_request_header
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    ACL_KINDS,
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)

ACLS = {
    ApiKey.DESCRIBE_ACLS: ("", ("resource_type_filter", "pattern_type_filter")),
    ApiKey.CREATE_ACLS: ("creations", ("resource_type", "resource_pattern_type")),
    ApiKey.DELETE_ACLS: ("filters", ("resource_type_filter", "pattern_type_filter")),
}


@pytest.mark.parametrize("key", ACLS)
def test_an_acl_of_unknown_kind_ends_the_connection(key: ApiKey) -> None:
    array, kinds = ACLS[key]
    for kind in (*kinds, "operation", "permission_type"):
        acl = {**ACL_KINDS, kind: 0}
        asked = {array: [ACL_KINDS, acl]} if array else acl
        assert World().start(key, 3, **asked).closed


@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_isolation_level_that_there_is_not_is_refused(version: int) -> None:
    world = World()
    world.create("t")
    for level in (-1, 2, 127):
        # Without a readable partition, only unknown partitions are reported.
        asked = fetch_fields({("nope", 0): 0}, isolation_level=level)
        (row,) = world.send(ApiKey.FETCH, version, **asked).responses[0].partitions
        assert row.error_code is ErrorCode.unknown_topic_or_partition
        asked = fetch_fields({("nope", 0): 0, ("t", 0): 0}, isolation_level=level)
        answer = world.send(ApiKey.FETCH, version, **asked)
        rows = [row for each in answer.responses for row in each.partitions]
        told = {answer.error_code, *(row.error_code for row in rows)}
        assert told - {ErrorCode.none} == {ErrorCode.invalid_request}
        assert len(rows) == (2 if version < 7 else 0)


def test_of_nothing_any_isolation_level_may_be_asked() -> None:
    answer = World().send(ApiKey.FETCH, 12, **fetch_fields({}, isolation_level=9))
    assert (answer.error_code, answer.responses) == (ErrorCode.none, ())


@pytest.mark.parametrize(
    ("replica", "told"), [(-1, "invalid_request"), (-2, "none"), (1, "none")]
)
def test_offsets_under_an_isolation_level_that_there_is_not(
    replica: int, told: str
) -> None:
    world = World()
    world.create("t")
    asked = {"name": "t", "partitions": [{"current_leader_epoch": -1}]}
    answer = world.send(
        ApiKey.LIST_OFFSETS, 5, replica_id=replica, isolation_level=7, topics=[asked]
    )
    assert answer.topics[0].partitions[0].error_code is ErrorCode[told]


def test_a_time_that_cannot_be_asked_for_is_reported_first() -> None:
    wanted = {"timestamp": -9, "current_leader_epoch": -1}
    topics = [{"name": "t", "partitions": [wanted]}]
    answer = World().send(
        ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=7, topics=topics
    )
    told = answer.topics[0].partitions[0].error_code
    assert told is ErrorCode.unsupported_version


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_no_id(version: int) -> None:
    answer = World().send(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id="",
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code is ErrorCode.invalid_request


def test_acks_are_looked_at_after_the_partition_and_the_batchs_frame() -> None:
    world = World()
    world.create("t")
    good = batch(b"a")
    for name, records, told in (
        ("nope", good, ErrorCode.unknown_topic_or_partition),
        ("t", good[:60], ErrorCode.invalid_record),
        ("t", good + good, ErrorCode.invalid_record),
        ("t", good[:16] + b"\5" + good[17:], ErrorCode.corrupt_message),
        ("t", good, ErrorCode.invalid_required_acks),
    ):
        asked = produce_fields({(name, 0): records}, 5)
        answer = world.send(ApiKey.PRODUCE, 9, **asked)
        assert answer.responses[0].partition_responses[0].error_code is told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"configs": [("nope", "1")]}, ErrorCode.invalid_config),
        ({"configs": [("retention.ms", "x")]}, ErrorCode.invalid_config),
        ({}, ErrorCode.invalid_replication_factor),
        ({"replication_factor": 1}, ErrorCode.invalid_partitions),
    ],
)
def test_of_a_new_topics_faults_the_configs_are_reported_first(
    fields: dict[str, Any], told: ErrorCode
) -> None:
    topic = new_topic("new", 0, configs=fields.get("configs", ()))
    topic["replication_factor"] = fields.get("replication_factor", 0)
    answer = World().send(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=SECONDS_30)
    assert answer.topics[0].error_code is told


@pytest.mark.parametrize("version", [1, 2])
def test_an_election_of_a_type_that_there_is_not(version: int) -> None:
    world = World()
    world.create("t")
    refused = ErrorCode.invalid_request
    one = [{"topic": "t", "partitions": [0]}]
    for wanted, told in ((None, refused), ([], ErrorCode.none), (one, refused)):
        answer = world.send(
            ApiKey.ELECT_LEADERS, version, election_type=5, topic_partitions=wanted
        )
        assert answer.error_code is told
        rows = [
            row
            for each in answer.replica_election_results
            for row in each.partition_result
        ]
        assert [row.error_code for row in rows] == [refused] * len(wanted or ())


def test_a_tagged_field_may_say_null() -> None:
    """KIP-482 permits null here, but kio's own reader rejects it."""
    world = World()
    plain = world.frame(ApiKey.FETCH, 12, **fetch_fields({}))
    assert plain.endswith(b"\0")
    for tags in (b"\1\0\1\0", b"\2\0\1\0\7\1x"):
        frame = plain[:-1] + tags
        body = decode(1, 12, frame, parse_request_header(frame).body_offset)
        assert body.cluster_id is None
        assert not world.start_frame(frame).closed
