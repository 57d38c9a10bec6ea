"""Denied requests of every API: Apache Kafka's answers and ours.

A client has every subset of the operations that an API checks, and then all of them
with one denied. Its requests also name topics, groups and transactional ids without
ACLs, so that a check by only one of the brokers is found, too.

Requests that change the broker, or whose successful answers differ between brokers, are
not sent with all operations allowed (`Asked.whole`); other tests compare those answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

import pytest

from broker.apis.common.access import Check
from broker.authorization.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.broker.apis.test_access import AUTHORIZATION, CLUSTER, PUBLIC, declared
from tests.broker.apis.test_access import errors as errors_in
from tests.kafka.conftest import SETTINGS, Both, beside_kafka
from tests.kafka.differences import Allowance
from tests.kafka.guarded import ACLS, SASL, UserPeer
from tests.kafka.java_tools import NEWEST, VERSIONS, KafkaPrograms
from tests.kafka.peer import CLOSED, Peer
from tests.kafka.requests import LAST_IN_3_9, settle, topic_id, wait_for_leaders
from tests.kafka.test_same_groups import ready
from tests.kafka.test_same_transactions import MINUTE, begun
from tests.kafka.test_same_whole import CONTROLLERS, OF_KAFKA_4

pytestmark = pytest.mark.kafka

ALICE, EVERYBODY = "User:alice", "User:*"
K, Op = ApiKey, AclOperation
# A producer id that no coordinator has assigned.
NO_PRODUCER: Final = {"producer_id": 10**9, "producer_epoch": 0}
TOPIC_TYPE, BROKER_TYPE = 2, 4
BROKER: Final = "1"


@dataclass(frozen=True, slots=True)
class Names:
    """Resources of one request: with ACLs, existing or not, and without ACLs."""

    prefix: str
    ids: Mapping[str, Any]

    @property
    def topics(self) -> tuple[str, str, str]:
        """Return an existing topic with ACLs; an existing and a missing one without."""
        return f"{self.prefix}-t", f"{self.prefix}-u", f"{self.prefix}-nowhere"

    @property
    def new(self) -> str:
        """Return a missing topic with ACLs."""
        return f"{self.prefix}-new"

    @property
    def groups(self) -> tuple[str, str]:
        """Return a group with ACLs, and one without."""
        return f"{self.prefix}-g", f"{self.prefix}-h"

    @property
    def transactions(self) -> tuple[str, str]:
        """Return a transactional id with ACLs, and one without."""
        return f"{self.prefix}-x", f"{self.prefix}-y"

    def granted(self, kind: ResourceType) -> tuple[str, ...]:
        """Return the resources of a type that have ACLs."""
        return {
            ResourceType.TOPIC: (self.topics[0], self.new),
            ResourceType.GROUP: self.groups[:1],
            ResourceType.CLUSTER: (CLUSTER,),
            ResourceType.TRANSACTIONAL_ID: self.transactions[:1],
        }[kind]

    def partitions(self, **fields: Any) -> list[dict[str, Any]]:
        """Return partition 0 of each topic, in the form of most requests."""
        row = {"partition_index": 0, **fields}
        return [{"name": name, "partitions": [row]} for name in self.topics]

    def indexes(self) -> list[dict[str, Any]]:
        """Return partition 0 of each topic as a list of indexes."""
        return [{"name": name, "partition_indexes": [0]} for name in self.topics]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request; ``fields`` returns its fields in a version.

    ``whole``: also send it with all checked operations allowed. ``versions`` replaces
    the default, the first and the last. The operation ``never`` is never allowed.
    """

    key: ApiKey
    fields: Callable[[Names, int], Mapping[str, Any]]
    whole: bool = True
    versions: tuple[int, ...] = ()
    never: AclOperation | None = None


def asked(
    key: ApiKey,
    fields: Callable[[Names], Mapping[str, Any]] = lambda _: MappingProxyType({}),
    *,
    whole: bool = True,
    versions: Sequence[int] = (),
    never: AclOperation | None = None,
) -> Asked:
    """Return a request with the same fields in all versions."""
    return Asked(
        key=key,
        fields=lambda names, _: fields(names),
        whole=whole,
        versions=tuple(versions),
        never=never,
    )


def produced(names: Names, version: int) -> dict[str, Any]:
    records = batch(b"a")
    return produce_fields({(it, 0): records for it in keys(names, version, 13)})


def keys(names: Names, version: int, first_with_ids: int) -> list[Any]:
    """Return the topics, by id in versions that use ids."""
    if version < first_with_ids:
        return list(names.topics)
    return [names.ids[name] for name in names.topics[:2]]


def fetched(names: Names, version: int) -> dict[str, Any]:
    return fetch_fields({(it, 0): 0 for it in keys(names, version, 13)})


def as_replica(names: Names, version: int) -> dict[str, Any]:
    state = {"replica_id": 2, "replica_epoch": -1}
    return {**fetched(names, version), "replica_id": 2, "replica_state": state}


def offset_rows(
    names: Names, version: int, first_with_ids: int
) -> list[dict[str, Any]]:
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    field = "name" if version < first_with_ids else "topic_id"
    topics = keys(names, version, first_with_ids)
    return [{field: it, "partitions": [row]} for it in topics]


def committed(names: Names, version: int) -> dict[str, Any]:
    return {
        "group_id": names.groups[0],
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": offset_rows(names, version, 10),
    }


def committed_in_transaction(names: Names, version: int) -> dict[str, Any]:
    return {
        **in_transaction(names),
        "group_id": names.groups[0],
        "member_id": "",
        "generation_id": -1,
        "topics": offset_rows(names, version, 6),
    }


def offsets(names: Names, version: int) -> dict[str, Any]:
    field = "name" if version < 10 else "topic_id"
    topics = [{field: it, "partition_indexes": [0]} for it in keys(names, version, 10)]
    groups = [
        {"group_id": group, "topics": each, "member_id": None, "member_epoch": -1}
        for group in names.groups
        for each in (topics,)
    ]
    return {"group_id": names.groups[0], "topics": topics, "groups": groups}


def all_offsets(names: Names, version: int) -> dict[str, Any]:
    groups = [
        {"group_id": group, "topics": None, "member_id": None, "member_epoch": -1}
        for group in names.groups
    ]
    return {"group_id": names.groups[0], "topics": None, "groups": groups}


def deleted(names: Names, version: int) -> dict[str, Any]:
    named = [{"name": name} for name in names.topics]
    return {"topic_names": names.topics, "topics": named, "timeout": SECONDS_30}


def deleted_by_id(names: Names, version: int) -> dict[str, Any]:
    # A single topic: rows without names would be compared in their order.
    wanted = {"name": None, "topic_id": names.ids[names.topics[0]]}
    return {"topics": [wanted], "timeout": SECONDS_30}


def coordinators(kind: int) -> Callable[[Names], dict[str, Any]]:
    def fields(names: Names) -> dict[str, Any]:
        wanted = (names.groups, names.transactions)[kind]
        return {"key": wanted[0], "coordinator_keys": wanted, "key_type": kind}

    return fields


def in_transaction(names: Names) -> dict[str, Any]:
    return {"transactional_id": names.transactions[0], **NO_PRODUCER}


def added(names: Names, version: int) -> dict[str, Any]:
    topics = [{"name": name, "partitions": [0]} for name in names.topics]
    fields = {**in_transaction(names), "topics": topics}
    return {f"v3_and_below_{name}": value for name, value in fields.items()}


def added_by_broker(names: Names, version: int) -> dict[str, Any]:
    topics = [{"name": name, "partitions": [0]} for name in names.topics]
    row = {**in_transaction(names), "verify_only": True, "topics": topics}
    return {"transactions": [row]}


def opened(names: Names) -> dict[str, Any]:
    return {
        "transactional_id": names.transactions[0],
        "transaction_timeout": MINUTE,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def of_configs(names: Names, **fields: Any) -> list[dict[str, Any]]:
    resources = [(TOPIC_TYPE, name) for name in names.topics]
    return [
        {"resource_type": kind, "resource_name": name, **fields}
        for kind, name in (*resources, (BROKER_TYPE, BROKER))
    ]


def altered(names: Names) -> dict[str, Any]:
    row = {"name": "retention.ms", "config_operation": 0, "value": "5000"}
    resources = of_configs(names, configs=[row])[:-1]
    return {"resources": resources, "validate_only": True}


def altered_broker(names: Names) -> dict[str, Any]:
    row = {"name": "log.retention.ms", "config_operation": 0, "value": "5000"}
    resources = of_configs(names, configs=[row])[-1:]
    return {"resources": resources, "validate_only": True}


ACL_FILTER: Final = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": "never-granted",
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": AclOperation.ANY,
    "permission_type": PermissionType.ANY,
}


def entry(
    check: Check, name: str, principal: str, permission: PermissionType
) -> dict[str, Any]:
    return {
        "resource_type": check.resource_type,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": principal,
        "host": "*",
        "operation": check.operation,
        "permission_type": permission,
    }


def created_acls(names: Names) -> dict[str, Any]:
    check = Check(Op.READ, ResourceType.GROUP)
    row = entry(check, "nobodys", "User:nobody", PermissionType.ALLOW)
    return {"creations": [row, row]}


def beat(names: Names) -> dict[str, Any]:
    return {
        "group_id": f"{names.groups[0]}",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": SECONDS_30,
        "subscribed_topic_names": names.topics[:2],
        "topic_partitions": [],
    }


def member(names: Names) -> dict[str, Any]:
    return {"group_id": names.groups[0], "member_id": "m"}


REQUESTS: Final = [
    Asked(key=K.PRODUCE, fields=produced),
    asked(
        K.PRODUCE,
        lambda it: {
            **produce_fields(
                {
                    (name, 0): batch(b"a", producer=(10**9, 0, 0), attributes=16)
                    for name in it.topics
                },
                acks=-1,
            ),
            "transactional_id": it.transactions[0],
        },
        whole=False,
        versions=(9,),
    ),
    Asked(key=K.FETCH, fields=fetched),
    Asked(key=K.FETCH, fields=as_replica, whole=False, versions=(12,)),
    asked(
        K.LIST_OFFSETS,
        lambda it: {
            "replica_id": -1,
            "topics": it.partitions(timestamp=-1, current_leader_epoch=-1),
        },
    ),
    asked(
        K.METADATA,
        lambda it: {
            "topics": [{"name": name} for name in it.topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        },
        versions=(4, 8, 12, 13),
    ),
    asked(
        K.METADATA,
        lambda it: {"topics": [{"name": it.new}], "allow_auto_topic_creation": True},
        # With this operation the topic would be created a moment later.
        never=Op.CREATE,
        versions=(4, 12),
    ),
    Asked(key=K.OFFSET_COMMIT, fields=committed),
    Asked(key=K.OFFSET_FETCH, fields=offsets),
    Asked(key=K.OFFSET_FETCH, fields=all_offsets, versions=(2, 8, 9, 10)),
    asked(K.FIND_COORDINATOR, coordinators(0)),
    asked(K.FIND_COORDINATOR, coordinators(1), versions=(1, 4)),
    asked(
        K.JOIN_GROUP,
        lambda it: {
            "group_id": it.groups[0],
            "protocol_type": "consumer",
            "session_timeout": SECONDS_30,
        },
    ),
    asked(K.HEARTBEAT, lambda it: {**member(it), "generation_id": 1}),
    asked(
        K.SYNC_GROUP,
        lambda it: {
            **member(it),
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
    ),
    asked(K.LEAVE_GROUP, lambda it: {**member(it), "members": [{"member_id": "m"}]}),
    asked(
        K.DESCRIBE_GROUPS,
        lambda it: {"groups": it.groups, "include_authorized_operations": True},
    ),
    asked(K.LIST_GROUPS),
    asked(
        K.CREATE_TOPICS,
        lambda it: {
            "topics": [new_topic(name) for name in (it.new, f"{it.new}er")],
            "validate_only": True,
            "timeout": SECONDS_30,
        },
    ),
    Asked(key=K.DELETE_TOPICS, fields=deleted),
    Asked(key=K.DELETE_TOPICS, fields=deleted_by_id, whole=False, versions=(6,)),
    asked(
        K.DELETE_RECORDS,
        lambda it: {"topics": it.partitions(offset=0), "timeout": SECONDS_30},
    ),
    asked(K.INIT_PRODUCER_ID, lambda it: {**opened(it), "transactional_id": None}),
    asked(K.INIT_PRODUCER_ID, opened),
    asked(
        K.OFFSET_FOR_LEADER_EPOCH,
        lambda it: {
            "replica_id": -1,
            "topics": [
                {
                    "topic": name,
                    "partitions": [
                        {
                            "partition": 0,
                            "leader_epoch": 0,
                            "current_leader_epoch": -1,
                        }
                    ],
                }
                for name in it.topics
            ],
        },
        versions=(3, 4),
    ),
    asked(K.DESCRIBE_ACLS, lambda _: ACL_FILTER),
    asked(K.CREATE_ACLS, created_acls),
    asked(K.DELETE_ACLS, lambda _: {"filters": [ACL_FILTER, ACL_FILTER]}),
    asked(
        K.DESCRIBE_CONFIGS,
        lambda it: {
            "resources": of_configs(
                it, configuration_keys=["retention.ms", "log.retention.ms"]
            )
        },
    ),
    asked(K.ALTER_CONFIGS, altered),
    asked(K.ALTER_CONFIGS, altered_broker),
    asked(K.INCREMENTAL_ALTER_CONFIGS, altered),
    asked(K.INCREMENTAL_ALTER_CONFIGS, altered_broker),
    asked(
        K.ADD_OFFSETS_TO_TXN,
        lambda it: {**in_transaction(it), "group_id": it.groups[0]},
    ),
    Asked(key=K.ADD_PARTITIONS_TO_TXN, fields=added, versions=(0, 3)),
    Asked(key=K.ADD_PARTITIONS_TO_TXN, fields=added_by_broker, versions=(4,)),
    asked(K.END_TXN, in_transaction, versions=(0, 4)),
    Asked(
        key=K.TXN_OFFSET_COMMIT,
        fields=committed_in_transaction,
        versions=(0, 4, 6),
    ),
    asked(
        K.DESCRIBE_TRANSACTIONS,
        lambda it: {"transactional_ids": [*it.transactions, "never-seen"]},
    ),
    asked(K.LIST_TRANSACTIONS, lambda _: {"duration_filter": -1}),
    asked(
        K.WRITE_TXN_MARKERS,
        lambda it: {
            "markers": [
                {
                    **NO_PRODUCER,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": it.indexes(),
                }
            ]
        },
        whole=False,
        versions=(1,),
    ),
    asked(K.DESCRIBE_PRODUCERS, lambda it: {"topics": it.indexes()}),
    asked(K.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda _: {"users": [{"name": "nobody"}]}),
    asked(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        lambda _: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": ()},
    ),
    asked(
        K.DESCRIBE_CLIENT_QUOTAS,
        lambda _: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "u"}]
        },
    ),
    asked(
        K.ALTER_CLIENT_QUOTAS,
        lambda _: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6}],
                }
            ],
            "validate_only": True,
        },
    ),
    asked(
        K.ALTER_REPLICA_LOG_DIRS,
        lambda it: {
            "dirs": [
                {
                    "path": "/nowhere",
                    "topics": [{"name": name, "partitions": [0]} for name in it.topics],
                }
            ]
        },
    ),
    asked(
        K.DESCRIBE_LOG_DIRS,
        lambda it: {
            "topics": [{"topic": name, "partitions": [0]} for name in it.topics]
        },
        whole=False,
    ),
    asked(
        K.CREATE_PARTITIONS,
        lambda it: {
            "topics": [{"name": name, "count": 3} for name in it.topics],
            "validate_only": True,
            "timeout": SECONDS_30,
        },
    ),
    asked(K.DELETE_GROUPS, lambda it: {"groups_names": (*it.groups, "never-seen")}),
    asked(
        K.ELECT_LEADERS,
        lambda it: {
            "topic_partitions": [
                {"topic": name, "partitions": [0]} for name in it.topics
            ],
            "timeout": SECONDS_30,
        },
    ),
    asked(
        K.UPDATE_FEATURES,
        lambda _: {
            "feature_updates": [
                {
                    "feature": "transaction.version",
                    "max_version_level": 2,
                    "upgrade_type": 1,
                }
            ],
            "validate_only": True,
        },
        versions=(1, 2),
    ),
    asked(
        K.ALTER_PARTITION_REASSIGNMENTS,
        lambda it: {
            "topics": it.partitions(replicas=None),
            "timeout": SECONDS_30,
        },
    ),
    asked(
        K.LIST_PARTITION_REASSIGNMENTS,
        lambda it: {"topics": it.indexes(), "timeout": SECONDS_30},
    ),
    asked(K.LIST_CONFIG_RESOURCES, whole=False),
    asked(
        K.DESCRIBE_QUORUM,
        lambda _: {
            "topics": [
                {
                    "topic_name": "__cluster_metadata",
                    "partitions": [{"partition_index": 0}],
                }
            ]
        },
        whole=False,
    ),
    asked(
        K.OFFSET_DELETE,
        lambda it: {"group_id": it.groups[0], "topics": it.partitions()},
    ),
    asked(
        K.DESCRIBE_CLUSTER,
        lambda _: {"endpoint_type": 1, "include_cluster_authorized_operations": True},
    ),
    asked(
        K.DESCRIBE_TOPIC_PARTITIONS,
        lambda it: {
            "topics": [{"name": name} for name in it.topics],
            "response_partition_limit": 10,
        },
    ),
    asked(K.DESCRIBE_TOPIC_PARTITIONS, lambda _: {"response_partition_limit": 10}),
    asked(K.CONSUMER_GROUP_HEARTBEAT, beat, whole=False),
    asked(
        K.CONSUMER_GROUP_DESCRIBE,
        lambda it: {"group_ids": it.groups, "include_authorized_operations": True},
    ),
]
# Differences allowed in these tests only.
ALLOWED: Final = tuple(
    Allowance(api=api, field=field, kafka=kafka, ours=ours)
    for api, field, kafka, ours in (
        # Doorkeeper does not decode a denied claim of a role, so it has no rows.
        ("FETCH", "error_code", "none", "cluster_authorization_failed"),
        ("FETCH", "responses", "*topic_authorization_failed*", "[[][]]"),
        ("WRITE_TXN_MARKERS", "", "*cluster_authorization_failed*", CLOSED),
        # A topic that is only validated has no id; Kafka generates one.
        ("CREATE_TOPICS", "*.topic_id", "topic_id *", "None"),
        # Other tests compare the defaults of configs.
        ("CREATE_TOPICS", "*.configs[[]*", "*", "*"),
        # Doorkeeper adds no rows to an error of the whole request or to no user.
        ("*_PARTITION_REASSIGNMENTS", "*[[]*[]]", "{*", "absent"),
        ("DESCRIBE_USER_SCRAM_CREDENTIALS", "results", "*'user': ''*", "[[][]]"),
        # Kafka 3.9 answers version 1 without rows, and thus without an error.
        ("OFFSET_FETCH", "topics[[]*[]]", "absent", "*group_authorization_failed*"),
        # Equivalent for clients, or a text in addition to Kafka's error code.
        ("DESCRIBE_*", "error_message", "None", "a text"),
        ("CONSUMER_GROUP_*", "*error_message", "None", "a text"),
        ("FIND_COORDINATOR", "*error_message", "", "a text"),
        ("*", "*error_message", "", "None"),
    )
)

CHECKS: Final = {
    key: sorted(check for each, check in declared() if each is key)
    for key in map(ApiKey, APIS)
}


def label(number: int) -> str:
    return f"{REQUESTS[number].key.name}-{number}"


@pytest.fixture(scope="module", params=[VERSIONS[0], NEWEST])
def guarded(
    request: pytest.FixtureRequest,
    programs_of: Callable[[str], KafkaPrograms],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Both]]:
    """Yield a version of Kafka, and Doorkeeper, both with an authorizer."""
    version = request.param
    directory = tmp_path_factory.mktemp(f"guarded-{version}")
    settings = {
        **SETTINGS,
        "auto_create_topics_enable": "true",
        **SASL,
        **ACLS,
    }
    with beside_kafka(
        programs_of(version), directory, peer=UserPeer, **settings
    ) as both:
        both.allowed += ALLOWED
        yield version, both


def versions_of(request: Asked, kafka: str) -> list[int]:
    """Return the versions to send, as far as this Kafka has them."""
    served = APIS[request.key].served
    last = served.stop - 1
    if kafka < "4":
        last = LAST_IN_3_9.get(request.key, last)
    wanted = request.versions or (served.start, last)
    return sorted({it for it in wanted if it <= last})


def grants(request: Asked) -> Iterator[tuple[list[Check], Check | None]]:
    """Yield (allowed checks, denied check or None) for all cases of a request."""
    checks = [it for it in CHECKS[request.key] if it.operation is not request.never]
    for size in range(len(checks) + request.whole):
        for granted in combinations(checks, size):
            yield list(granted), None
    for check in checks:
        yield checks, check


@pytest.mark.parametrize("number", range(len(REQUESTS)), ids=label)
def test_denied_answers_are_the_same(guarded: tuple[str, Both], number: int) -> None:
    kafka, both = guarded
    request = REQUESTS[number]
    if kafka < "4" and request.key in OF_KAFKA_4:
        pytest.skip("Kafka 3.9 serves it only where it is enabled")
    versions = versions_of(request, kafka)
    if not versions:
        pytest.skip(f"Kafka {kafka} does not serve these versions")

    def talk(peer: Peer) -> None:
        names = furnished(peer, f"d{number}", request.key)
        for granted, prohibited in grants(request):
            grant(peer, names, granted, prohibited)
            for version in versions:
                fields = request.fields(names, version)
                answer = peer.send(request.key, version, connection="alice", **fields)
                if not granted and answer != CLOSED:
                    seen = set(errors_in(answer))
                    assert seen & AUTHORIZATION or request.key in FILTERED, answer

    both.compare(talk)


# APIs that leave out unauthorized resources instead of returning an error.
FILTERED: Final = {
    K.METADATA,
    K.LIST_GROUPS,
    K.LIST_TRANSACTIONS,
    # Version 1 has errors in rows only.
    K.OFFSET_FETCH,
    K.DESCRIBE_CLUSTER,
    K.DESCRIBE_LOG_DIRS,
    K.DESCRIBE_TOPIC_PARTITIONS,
}


def furnished(peer: Peer, prefix: str, key: ApiKey) -> Names:
    """Create the resources of an API as the super user."""
    names = Names(prefix, {})
    there = names.topics[:2]
    peer.ask(K.CREATE_TOPICS, 4, topics=[*map(new_topic, there)], timeout=SECONDS_30)
    for name in there:
        wait_for_leaders(peer, name, 1)
    settle(peer)
    names = Names(prefix, {name: topic_id(peer, name) for name in there})
    kinds = {check.resource_type for check in CHECKS[key]}
    if ResourceType.GROUP in kinds:
        for group in names.groups:
            ready(peer, group)
            fields = {**committed(names, 8), "group_id": group}
            fields["topics"] = fields["topics"][:2]
            answer = peer.ask(K.OFFSET_COMMIT, 8, **fields)
            assert set(errors_in(answer)) == {ErrorCode.none}, answer
    if ResourceType.TRANSACTIONAL_ID in kinds:
        for transactional_id in names.transactions:
            begun(peer, transactional_id)
    return names


def grant(
    peer: Peer, names: Names, granted: Sequence[Check], prohibited: Check | None
) -> None:
    """Allow the client these operations and no others; wait until ACLs are in force."""
    of_others = {**ACL_FILTER, "resource_type_filter": ResourceType.ANY}
    filters = [
        {**of_others, "resource_name_filter": None, "principal_filter": principal}
        for principal in (ALICE, EVERYBODY)
    ]
    gone = peer.ask(K.DELETE_ACLS, 3, filters=filters)
    rows = [
        entry(check, name, ALICE, PermissionType.ALLOW)
        for check in granted
        for name in names.granted(check.resource_type)
    ]
    if prohibited is not None:
        rows += [
            entry(prohibited, name, EVERYBODY, PermissionType.DENY)
            for name in names.granted(prohibited.resource_type)
        ]
    made = peer.ask(K.CREATE_ACLS, 3, creations=rows)
    assert {*errors_in(gone), *errors_in(made)} <= {ErrorCode.none}, (gone, made)
    settle(peer)


def test_every_api_is_asked() -> None:
    asked_for = {each.key for each in REQUESTS}
    brokers_only = CONTROLLERS - {K.WRITE_TXN_MARKERS}
    assert set(map(ApiKey, APIS)) - asked_for == PUBLIC | brokers_only
