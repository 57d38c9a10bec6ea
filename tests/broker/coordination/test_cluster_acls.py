"""Access control lists in ZooKeeper: Kafka's znodes, and notifications of changes."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from broker.authorization.acls import (
    AclEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from broker.coordination.zookeeper.cluster_acls import ClusterAcls
from broker.coordination.zookeeper.layout.acl_records import (
    LITERAL_CHANGES,
    acl_path,
    read_acl_change,
    write_acl_change,
)
from broker.coordination.zookeeper.layout.json_text import MalformedZnode
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.protocol.errors import ErrorCode, KafkaError
from simulation.virtual_time.apis import START_MS
from tests.broker.zookeeper.zoo import Zoo, with_zoo

TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "p:a", PatternType.PREFIXED)
READS = AclEntry("User:alice", "*", AclOperation.READ, PermissionType.ALLOW)
ACTS = AclEntry(
    "User:CN=b", "10.0.0.1", AclOperation.CLUSTER_ACTION, PermissionType.DENY
)
QUARTER_HOUR_MS = 15 * 60 * 1000


def add(*entries: AclEntry) -> partial[frozenset[AclEntry]]:
    return partial(frozenset.union, frozenset(entries))


async def two(zoo: Zoo) -> tuple[ClusterAcls, ClusterAcls, RetryingZnodes]:
    session = await zoo.opened("zoo:2181")
    znodes = RetryingZnodes(session)
    theirs, ours = ClusterAcls(), ClusterAcls()
    await theirs.read_all(znodes)
    await ours.read_all(znodes)
    return theirs, ours, znodes


def test_znodes_are_those_of_kafka() -> None:
    """The bytes are those that Kafka 3.9's ``ZkData`` writes for the same entries."""

    async def scenario(zoo: Zoo) -> None:
        ours, _, znodes = await two(zoo)
        await ours.alter(TOPIC, add(READS), znodes)
        await ours.alter(PREFIX, add(ACTS), znodes)
        literal = await znodes.get("/kafka-acl/Topic/orders")
        prefixed = await znodes.get("/kafka-acl-extended/prefixed/TransactionalId/p:a")
        assert json.loads(literal.data) == {
            "version": 1,
            "acls": [
                {
                    "principal": "User:alice",
                    "permissionType": "Allow",
                    "operation": "Read",
                    "host": "*",
                }
            ],
        }
        assert json.loads(prefixed.data)["acls"][0]["operation"] == "ClusterAction"
        first = await znodes.get("/kafka-acl-changes/acl_changes_0000000000")
        assert first.data == b"TOPIC:orders"
        second = await znodes.get("/kafka-acl-extended-changes/acl_changes_0000000000")
        assert json.loads(second.data) == {
            "version": 1,
            "resourceType": "TRANSACTIONAL_ID",
            "name": "p:a",
            "patternType": "PREFIXED",
        }

    with_zoo(scenario)


def test_a_change_is_learned_once_and_by_a_later_start() -> None:
    async def scenario(zoo: Zoo) -> None:
        theirs, ours, znodes = await two(zoo)
        await theirs.alter(TOPIC, add(READS), znodes)
        await theirs.alter(PREFIX, add(ACTS), znodes)
        assert await ours.read_changes(znodes, START_MS) == [TOPIC, PREFIX]
        assert ours.entries == {TOPIC: {READS}, PREFIX: {ACTS}}
        assert await ours.read_changes(znodes, START_MS) == []
        # The znode is deleted with its last entry.
        await theirs.alter(TOPIC, lambda _: frozenset(), znodes)
        assert await ours.read_changes(znodes, START_MS) == [TOPIC]
        assert await znodes.find(acl_path(TOPIC)) is None
        later = ClusterAcls()
        await later.read_all(znodes)
        assert later.entries == ours.entries == {PREFIX: {ACTS}}
        # An alteration without a change writes no notification.
        await theirs.alter(PREFIX, add(ACTS), znodes)
        assert await ours.read_changes(znodes, START_MS) == []
        # Old notifications are removed by any broker that sees them.
        await ours.read_changes(znodes, START_MS + QUARTER_HOUR_MS * 2)
        assert await znodes.children(LITERAL_CHANGES) == ()

    with_zoo(scenario)


def test_two_writers_of_one_pattern_lose_nothing() -> None:
    async def scenario(zoo: Zoo) -> None:
        theirs, ours, znodes = await two(zoo)
        entries = [READS._replace(principal=f"User:{n}") for n in range(20)]
        async with trio.open_nursery() as nursery:
            for number, entry in enumerate(entries):
                writer = (theirs, ours)[number % 2]
                nursery.start_soon(writer.alter, TOPIC, add(entry), znodes)
        for each in (theirs, ours):
            await each.read_changes(znodes, START_MS)
            assert each.entries == {TOPIC: frozenset(entries)}

    with_zoo(scenario)


def test_entries_that_cannot_be_read_deny_everything() -> None:
    async def scenario(zoo: Zoo) -> None:
        theirs, ours, znodes = await two(zoo)
        await theirs.alter(TOPIC, add(READS), znodes)
        await znodes.set(acl_path(TOPIC), b'{"version":7}')
        await ours.read_changes(znodes, START_MS)
        (entry,) = ours.entries[TOPIC]
        assert entry.permission is PermissionType.DENY
        assert (entry.principal, entry.operation) == ("User:*", AclOperation.ALL)
        with pytest.raises(KafkaError) as refused:
            await ours.alter(TOPIC, add(READS), znodes)
        assert refused.value.code is ErrorCode.unknown_server_error

    with_zoo(scenario)


def test_a_name_that_no_znode_can_have_is_refused() -> None:
    async def scenario(zoo: Zoo) -> None:
        ours, _, znodes = await two(zoo)
        with pytest.raises(KafkaError) as refused:
            await ours.alter(TOPIC._replace(name="a/b"), add(READS), znodes)
        assert refused.value.code is ErrorCode.invalid_request

    with_zoo(scenario)


@pytest.mark.parametrize("pattern", [TOPIC, PREFIX, TOPIC._replace(name="a:b")])
def test_a_notification_names_its_pattern(pattern: ResourcePattern) -> None:
    parent = LITERAL_CHANGES if pattern is not PREFIX else "/kafka-acl-extended-changes"
    path = f"{parent}/acl_changes_0000000000"
    assert read_acl_change(path, write_acl_change(pattern)) == pattern
    with pytest.raises(MalformedZnode):
        read_acl_change(path, b"Nonsense")
