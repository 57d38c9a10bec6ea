"""Every API that is advertised answers every version that it serves."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from tests.broker.apis.broker_world import World
from tests.broker.apis.requests import (
    ACL_KINDS,
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)

CONTROLLER = {"controller_id": 9, "controller_epoch": 1, "broker_epoch": -1}
NAMED = [{"name": "t", "partitions": [{"partition_index": 0}]}]
INDEXES = [{"name": "t", "partition_indexes": [0]}]
TOPIC = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
# Fields that give each API something to answer, in all versions together.
FIELDS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.PRODUCE: produce_fields({("t", 0): batch(b"a"), ("nope", 3): batch(b"b")}),
    ApiKey.LIST_OFFSETS: {"replica_id": -1, "topics": NAMED},
    ApiKey.METADATA: {"topics": [{"name": "t"}], "allow_auto_topic_creation": True},
    ApiKey.LEADER_AND_ISR: CONTROLLER,
    ApiKey.STOP_REPLICA: CONTROLLER,
    ApiKey.UPDATE_METADATA: CONTROLLER,
    ApiKey.FIND_COORDINATOR: {"key": "g", "coordinator_keys": ["g", "h"]},
    ApiKey.API_VERSIONS: {"client_software_name": "a", "client_software_version": "1"},
    ApiKey.CREATE_TOPICS: {"topics": [new_topic("new"), new_topic("..")]},
    ApiKey.DELETE_TOPICS: {
        "topic_names": ["t", "nope"],
        "topics": [{"name": "t"}, {"name": "nope"}],
    },
    ApiKey.DELETE_RECORDS: {"topics": NAMED},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {
        "topics": [{"topic": "t", "partitions": [{"partition": 0}, {"partition": 7}]}]
    },
    ApiKey.DESCRIBE_CONFIGS: {
        "resources": [
            TOPIC,
            {**TOPIC, "resource_type": 4, "resource_name": "0"},
            {**TOPIC, "resource_type": 16, "resource_name": "m"},
            {**TOPIC, "resource_type": 32, "resource_name": "g"},
        ],
        "include_synonyms": True,
        "include_documentation": True,
    },
    ApiKey.ALTER_CONFIGS: {"resources": [TOPIC]},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {**TOPIC, "configs": [{"name": "retention.ms", "value": "5000"}]}
        ],
    },
    ApiKey.CREATE_PARTITIONS: {"topics": [{"name": "t", "count": 3}]},
    ApiKey.ELECT_LEADERS: {"topic_partitions": [{"topic": "t", "partitions": [0, 9]}]},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {
        "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}
        ]
    },
    ApiKey.DESCRIBE_ACLS: ACL_KINDS,
    ApiKey.CREATE_ACLS: {"creations": [{"resource_name": "t", **ACL_KINDS}]},
    ApiKey.DELETE_ACLS: {"filters": [{"resource_name_filter": "t", **ACL_KINDS}]},
    ApiKey.OFFSET_COMMIT: {"group_id": "g", "member_id": ""},
    ApiKey.OFFSET_FETCH: {"group_id": "g", "groups": [{"group_id": "g"}]},
    ApiKey.WRITE_TXN_MARKERS: {"markers": [{"producer_id": 1, "topics": INDEXES}]},
    ApiKey.TXN_OFFSET_COMMIT: {
        "transactional_id": "x",
        "group_id": "g",
        "topics": NAMED,
    },
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {
        "deletions": [{"name": "alice", "mechanism": 1}]
    },
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {
        "components": [{"entity_type": "user", "match_type": 2, "match": None}]
    },
    ApiKey.ALTER_CLIENT_QUOTAS: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "u"}],
                "ops": [{"key": "request_percentage", "value": 5.0}],
            }
        ]
    },
    ApiKey.DESCRIBE_PRODUCERS: {"topics": INDEXES},
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g"]},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {
        "group_id": "g",
        "member_id": "m",
        "rebalance_timeout": SECONDS_30,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: {"group_ids": ["g"]},
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "v3_and_below_topics": [{"name": "t", "partitions": [0, 9]}],
        "transactions": [{"transactional_id": "x", "topics": [{"name": "t"}]}],
    },
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [{"topics": [{"name": "t", "partition_indexes": [0, 9]}]}]
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "group_id": "g",
        "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}],
    },
    ApiKey.DESCRIBE_PRODUCERS: {"topics": [{"name": "t", "partition_indexes": [0, 9]}]},
    ApiKey.DESCRIBE_TRANSACTIONS: {"transactional_ids": ["x"]},
    ApiKey.LIST_CONFIG_RESOURCES: {"resource_types": [2, 4, 16, 32]},
    ApiKey.DESCRIBE_QUORUM: {
        "topics": [
            {"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}
        ]
    },
    ApiKey.DESCRIBE_CLUSTER: {"endpoint_type": 1},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"response_partition_limit": 10},
}
KEYS = sorted(map(ApiKey, APIS))


UNKNOWN_ID = UUID(int=5)


def fields_of(key: ApiKey, version: int, topic_id: UUID = UNKNOWN_ID) -> dict[str, Any]:
    """Return the fields of a request, with a topic id in the versions that have ids."""
    named = topic_id if version >= 13 else "t"
    if key is ApiKey.FETCH:
        return fetch_fields({(named, 0): 0})
    if key is ApiKey.PRODUCE and version >= 13:
        return produce_fields({(named, 0): batch(b"a"), (UUID(int=9), 3): batch(b"b")})
    return dict(FIELDS.get(key, {}))


@pytest.mark.parametrize("key", KEYS)
def test_each_version_that_is_served_is_answered(key: ApiKey) -> None:
    for version in APIS[key].served:
        world = World()
        topic_id = world.create("t", 2)
        world.produce("t", b"x")
        fields = fields_of(key, version, topic_id)
        call = world.start(key, version, **{"timeout": SECONDS_30, **fields})
        assert call.done, version
        assert not call.closed, version
        answer = call.answer
        if key is ApiKey.FETCH:
            assert answer.responses[0].partitions[0].records, version
        if key is ApiKey.METADATA:
            assert [topic.name for topic in answer.topics] == ["t"], version
        if key is ApiKey.DESCRIBE_CONFIGS:
            assert all(result.configs for result in answer.results), version
        world.check()


def test_a_version_that_is_not_served_closes_the_connection() -> None:
    for key in set(KEYS) - {ApiKey.API_VERSIONS}:
        header = bytes([0, key, 0, APIS[key].versions[1] + 1, 0, 0, 0, 7, 0, 0, 0])
        with pytest.raises(MalformedFrame, match="expected"):
            World().start_frame(header)


# Requests without a body.
WITHOUT_BODY = {
    (key, version)
    for key in (ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS)
    for version in range(3)
}


@pytest.mark.parametrize("key", KEYS)
def test_a_body_cut_short_closes_the_connection(key: ApiKey) -> None:
    for version in APIS[key].served:
        if (key, version) not in WITHOUT_BODY:
            world = World()
            fields = fields_of(key, version)
            frame = world.frame(key, version, **{"timeout": SECONDS_30, **fields})
            assert world.start_frame(frame[:-1]).closed, version
