"""ACLs created with librdkafka's admin client, and clients restricted by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live

SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_admin="a" user_alice="b";'
    ),
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}
PASSWORDS = {"admin": "a", "alice": "b"}
ALICES = [
    (ResourceType.TOPIC, "orders-", ResourcePatternType.PREFIXED, AclOperation.WRITE),
    (ResourceType.TOPIC, "orders-1", ResourcePatternType.LITERAL, AclOperation.READ),
    (ResourceType.GROUP, "readers", ResourcePatternType.LITERAL, AclOperation.READ),
]
ANY = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, **SETTINGS)
    yield process
    process.close()


def client(broker: BrokerProcess, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORDS[user],
        **more,
    }


def outcome(future: Any) -> int:
    """Return the error code of an admin call."""
    try:
        future.result(20)
    except KafkaException as refused:
        return int(refused.args[0].code())
    return KafkaError.NO_ERROR


def delivery(producer: Producer, topic: str) -> int:
    """Return the error code of a record's delivery.

    The client raises it at once if earlier metadata contains the refusal.
    """
    found: list[int] = []

    def told(error: KafkaError | None, _: object) -> None:
        found.append(KafkaError.NO_ERROR if error is None else error.code())

    try:
        producer.produce(topic, b"value", on_delivery=told)
    except KafkaException as refused:
        return int(refused.args[0].code())
    assert producer.flush(20) == 0
    return found[0]


def first_of(consumer: Consumer) -> int | bytes:
    """Return the first record's value, or the error code that ends the wait."""
    message = consumer.poll(20)
    assert message is not None
    error = message.error()
    return message.value() if error is None else int(error.code())


def test_clients_may_do_what_acls_say_also_after_a_kill(
    guarded: BrokerProcess,
) -> None:
    admin = AdminClient(client(guarded, "admin"))
    created = admin.create_topics([NewTopic(name, 1, 1) for name in ("orders-1", "u")])
    assert {outcome(future) for future in created.values()} == {KafkaError.NO_ERROR}
    producer = Producer(client(guarded, "alice"))
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert delivery(producer, "orders-1") == denied

    bindings = [
        AclBinding(
            kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for kind, name, pattern, operation in ALICES
    ]
    made = admin.create_acls(bindings)
    assert {outcome(future) for future in made.values()} == {KafkaError.NO_ERROR}
    assert sorted(map(str, admin.describe_acls(ANY).result(20))) == sorted(
        map(str, bindings)
    )

    alice = AdminClient(client(guarded, "alice"))
    refused = alice.create_acls(bindings[:1])
    (code,) = {outcome(future) for future in refused.values()}
    assert code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert set(alice.list_topics(timeout=20).topics) == {"orders-1"}
    # A producer learns of a permission at its next metadata refresh.
    producer = Producer(client(guarded, "alice", **{"enable.idempotence": True}))
    assert delivery(producer, "orders-1") == KafkaError.NO_ERROR
    assert delivery(producer, "u") == denied
    for group, expected in (
        ("readers", b"value"),
        ("others", KafkaError.GROUP_AUTHORIZATION_FAILED),
    ):
        earliest = {"group.id": group, "auto.offset.reset": "earliest"}
        consumer = Consumer(client(guarded, "alice", **earliest))
        consumer.subscribe(["orders-1"])
        assert first_of(consumer) == expected
        consumer.close()

    guarded.kill()
    guarded.start()
    assert len(admin.describe_acls(ANY).result(20)) == len(ALICES)
    only_topics = AclBindingFilter(
        ResourceType.TOPIC,
        None,
        ResourcePatternType.ANY,
        "User:alice",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    (deleted,) = admin.delete_acls([only_topics]).values()
    assert len(deleted.result(20)) == 2
    producer = Producer(client(guarded, "alice"))
    assert delivery(producer, "orders-1") == denied
