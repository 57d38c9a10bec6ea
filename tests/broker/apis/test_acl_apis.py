"""CreateAcls, DescribeAcls and DeleteAcls: validation, filters, and durability."""

from __future__ import annotations

from typing import Any

import pytest

from broker.authorization.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.test_access import Guarded

ALLOW, DENY = PermissionType.ALLOW, PermissionType.DENY
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY = 1


def acl(
    name: str = "t",
    kind: int = TOPIC,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    operation: int = AclOperation.READ,
    permission: int = ALLOW,
) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def wanted(
    name: str | None = None,
    kind: int = ANY,
    pattern: int = ANY,
    principal: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": principal,
        "host_filter": None,
        "operation": operation,
        "permission_type": permission,
    }


def create(world: Guarded, *acls: dict[str, Any], version: int = 3) -> list[ErrorCode]:
    answer = world.send(ApiKey.CREATE_ACLS, version, creations=acls)
    return [row.error_code for row in answer.results]


def described(world: Guarded, **fields: Any) -> set[tuple[Any, ...]]:
    answer = world.send(ApiKey.DESCRIBE_ACLS, 3, **wanted(**fields))
    assert answer.error_code is ErrorCode.none
    return {
        (
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            each.principal,
            each.operation,
            each.permission_type,
        )
        for resource in answer.resources
        for each in resource.acls
    }


NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request


@pytest.mark.parametrize("version", [1, 2, 3])
def test_each_acl_succeeds_or_fails_alone(version: int) -> None:
    world = Guarded()
    found = create(
        world,
        acl(),
        acl(""),
        acl("other-cluster", CLUSTER, operation=AclOperation.ALTER),
        acl("kafka-cluster", CLUSTER, operation=AclOperation.ALTER),
        acl(principal="alice"),
        acl("a/b", pattern=PREFIXED),
        version=version,
    )
    assert found == [NONE, INVALID, INVALID, NONE, INVALID, NONE]
    assert {row[2] for row in described(world)} == {"t", "kafka-cluster", "a/b"}


@pytest.mark.parametrize(
    "filter_only",
    [
        acl(kind=ResourceType.ANY),
        acl(pattern=PatternType.ANY),
        acl(pattern=PatternType.MATCH),
        acl(operation=AclOperation.ANY),
        acl(permission=PermissionType.ANY),
    ],
)
def test_values_of_filters_in_an_acl_refuse_the_whole_request(
    filter_only: dict[str, Any],
) -> None:
    world = Guarded()
    failed = ErrorCode.unknown_server_error
    assert create(world, acl(), filter_only) == [failed, failed]
    assert described(world) == set()


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        (ApiKey.CREATE_ACLS, {"creations": [acl(kind=0)]}),
        (ApiKey.DELETE_ACLS, {"filters": [wanted(operation=0)]}),
        (ApiKey.DESCRIBE_ACLS, wanted(pattern=0)),
    ],
)
def test_the_code_of_unknown_closes_the_connection(
    key: ApiKey, fields: dict[str, Any]
) -> None:
    assert Guarded().start(key, 3, **fields).closed


@pytest.mark.parametrize("code", [99, -1])
def test_codes_of_no_kind_are_refused_alone_and_find_nothing(code: int) -> None:
    """Kafka reads these as UNKNOWN, but only code 0 closes the connection."""
    world = Guarded()
    invalid = ErrorCode.invalid_request
    assert create(world, acl(), acl(kind=code)) == [ErrorCode.none, invalid]
    kept = described(world)
    assert len(kept) == 1
    assert described(world, pattern=code) == set()
    filters = [wanted(operation=code), wanted(kind=code)]
    answer = world.send(ApiKey.DELETE_ACLS, 3, filters=filters)
    assert [row.error_code for row in answer.filter_results] == [invalid, invalid]
    assert described(world) == kept


def test_filters_find_and_delete_what_kafka_says_they_match() -> None:
    world = Guarded()
    everything = [
        acl("t"),
        acl("t", operation=AclOperation.WRITE, permission=DENY),
        acl("to", pattern=PREFIXED),
        acl("t", pattern=PREFIXED, principal="User:bob"),
        acl("*"),
        acl("t", GROUP),
    ]
    assert create(world, *everything, acl("t")) == [NONE] * 7
    assert len(described(world)) == 6
    by_name = described(world, name="t", kind=TOPIC, pattern=LITERAL)
    assert len(by_name) == 2
    # Entries that match the topic "topic": two prefixes and the wildcard.
    matching = described(world, name="topic", kind=TOPIC, pattern=PatternType.MATCH)
    assert {(row[1], row[2]) for row in matching} == {
        (PREFIXED, "to"),
        (PREFIXED, "t"),
        (LITERAL, "*"),
    }
    answer = world.send(
        ApiKey.DELETE_ACLS,
        3,
        filters=[
            wanted(name="t", kind=TOPIC, pattern=LITERAL),
            wanted(principal="User:alice", kind=TOPIC),
            wanted(name="nope"),
        ],
    )
    # An entry that two filters match is in the result of the first filter.
    deleted = [
        sorted(
            (it.pattern_type, it.resource_name, it.operation)
            for it in row.matching_acls
        )
        for row in answer.filter_results
    ]
    assert deleted == [
        [(LITERAL, "t", AclOperation.READ), (LITERAL, "t", AclOperation.WRITE)],
        [(LITERAL, "*", AclOperation.READ), (PREFIXED, "to", AclOperation.READ)],
        [],
    ]
    assert {(row[0], row[3]) for row in described(world)} == {
        (TOPIC, "User:bob"),
        (GROUP, "User:alice"),
    }


def test_acls_outlast_a_kill_and_a_rewritten_registry() -> None:
    world = Guarded()
    create(world, acl(), acl("p", pattern=PREFIXED), acl("gone"))
    world.send(ApiKey.DELETE_ACLS, 3, filters=[wanted(name="gone")])
    before = described(world)
    assert len(before) == 2
    for _ in range(2):
        # The first start reads the changes, the second start the rewritten state.
        world = Guarded(storage=world.storage.after_kill())
        assert described(world) == before


def test_a_disk_without_room_refuses_and_changes_nothing() -> None:
    world = Guarded()
    create(world, acl())
    world.storage.fill_up()
    assert create(world, acl("other")) == [ErrorCode.kafka_storage_error]
    assert {row[2] for row in described(world)} == {"t"}
