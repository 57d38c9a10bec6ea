"""ACLs of a ZooKeeper cluster: Kafka's broker and Doorkeeper's read each other's.

Both brokers and all clients are ``User:ANONYMOUS``, the super user, because brokers
must be allowed to send each other commands. `tests/broker/` tests decisions by ACLs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
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
from tests.kafka.java_tools import KafkaPrograms, need_kafka
from tests.kafka.mixed_cluster import VERSION, Cluster, until
from tests.kafka.peer import Peer

pytestmark = [pytest.mark.kafka, pytest.mark.live, pytest.mark.slow]

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
EVERYTHING = {
    "resource_type_filter": ResourceType.ANY,
    "pattern_type_filter": PatternType.ANY,
    "operation": AclOperation.ANY,
    "permission_type": PermissionType.ANY,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    need_kafka(VERSION)
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("acls"), stack, settings=SETTINGS)


def acl(
    kind: ResourceType,
    name: str,
    pattern: PatternType = PatternType.LITERAL,
    operation: AclOperation = AclOperation.READ,
    permission: PermissionType = PermissionType.ALLOW,
    principal: str = "User:CN=a,O=b:c",
) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "10.0.0.1",
        "operation": operation,
        "permission_type": permission,
    }


VALID = [
    acl(ResourceType.TOPIC, "orders"),
    acl(ResourceType.TOPIC, "orders", operation=AclOperation.WRITE),
    acl(
        ResourceType.TOPIC,
        "*",
        operation=AclOperation.ALTER_CONFIGS,
        permission=PermissionType.DENY,
    ),
    acl(ResourceType.GROUP, "team:", PatternType.PREFIXED, AclOperation.ALL),
    acl(ResourceType.CLUSTER, "kafka-cluster", operation=AclOperation.CLUSTER_ACTION),
    acl(ResourceType.TRANSACTIONAL_ID, "t", PatternType.PREFIXED),
    acl(ResourceType.USER, "User:x", operation=AclOperation.CREATE_TOKENS),
]
# Kafka refuses these; the error codes must be the same.
INVALID = [
    acl(ResourceType.TOPIC, ""),
    acl(ResourceType.CLUSTER, "another"),
    acl(ResourceType.TOPIC, "a/b"),
]


def create(peer: Peer, *acls: dict[str, Any]) -> list[ErrorCode]:
    answer = peer.ask(ApiKey.CREATE_ACLS, 3, creations=acls)
    return [row.error_code for row in answer.results]


def rows(resource: Any, acls: Any) -> Iterator[tuple[Any, ...]]:
    for each in acls:
        yield (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )


def described(peer: Peer, **wanted: Any) -> list[tuple[Any, ...]]:
    answer = peer.ask(ApiKey.DESCRIBE_ACLS, 3, **{**EVERYTHING, **wanted})
    return sorted(row for it in answer.resources for row in rows(it, it.acls))


def deleted(peer: Peer, *filters: dict[str, Any]) -> list[list[tuple[Any, ...]]]:
    answer = peer.ask(
        ApiKey.DELETE_ACLS, 3, filters=[{**EVERYTHING, **each} for each in filters]
    )
    return [
        sorted(row for it in found.matching_acls for row in rows(it, [it]))
        for found in answer.filter_results
    ]


ORDERS = {
    "resource_type_filter": ResourceType.TOPIC,
    "resource_name_filter": "orders",
}
MATCHING = {**ORDERS, "pattern_type_filter": PatternType.MATCH}


def test_each_broker_reads_the_acls_that_the_other_wrote(cluster: Cluster) -> None:
    expected = sorted(tuple(each.values()) for each in VALID)
    with (
        closing(Peer("kafka", cluster.ports.data)) as kafka,
        closing(Peer("ours", cluster.ours.port)) as ours,
    ):
        for writer, reader in ((kafka, ours), (ours, kafka)):
            assert set(create(writer, *VALID)) == {ErrorCode.none}
            until(lambda it=reader: len(described(it)) == len(VALID), "it knows them")
            assert described(reader) == described(writer) == expected
            assert described(reader, **MATCHING) == described(writer, **MATCHING)
            # The reader removes the ACLs of the writer.
            first, second, rest = deleted(reader, ORDERS, MATCHING, {})
            found = len(first), len(second), len(rest)
            assert found == (2, 1, len(VALID) - 3)
            until(lambda it=writer: not described(it), "the other forgets them")
        assert create(kafka, *INVALID) == create(ours, *INVALID)
        assert not described(kafka)
        # After a restart the broker reads the existing ACLs.
        assert set(create(kafka, *VALID)) == {ErrorCode.none}
    cluster.ours.kill()
    cluster.ours.start()
    with closing(Peer("ours", cluster.ours.port)) as ours:
        assert described(ours) == expected


def test_kafka_acls_adds_lists_and_removes(cluster: Cluster) -> None:
    programs = KafkaPrograms(VERSION)
    try:
        run = partial(
            programs.succeed,
            "kafka-acls",
            "--bootstrap-server",
            cluster.ours.bootstrap,
        )
        run("--add", "--allow-principal", "User:bob", "--producer", "--topic", "p")
        listed = run("--list", "--topic", "p").out
        for operation in ("WRITE", "DESCRIBE", "CREATE"):
            assert f"operation={operation}, permissionType=ALLOW" in listed
        run("--remove", "--force", "--topic", "p")
        assert "operation=" not in run("--list", "--topic", "p").out
    finally:
        programs.close()
