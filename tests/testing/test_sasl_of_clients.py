"""All supported clients against a broker and a cluster with SASL."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from doorkeeper.testing import broker, cluster

JAAS = "listener.name.plaintext.{}.sasl.jaas.config"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    JAAS.format("plain"): 'PlainLoginModule required user_alice="a,secret";',
    JAAS.format("scram-sha-256"): 'ScramLoginModule required user_bob="b=secret";',
    JAAS.format("scram-sha-512"): 'ScramLoginModule required user_bob="b=secret";',
    "connections.max.reauth.ms": "3000",
}
USERS = {
    "PLAIN": ("alice", "a,secret"),
    "SCRAM-SHA-256": ("bob", "b=secret"),
    "SCRAM-SHA-512": ("bob", "b=secret"),
}


@pytest.fixture(scope="module")
def bootstrap() -> Any:
    """A broker with a topic for each client."""
    with broker(config=SETTINGS) as running:
        for topic in ("confluent", "kafka-python", "aiokafka"):
            running.create_topic(topic)
        yield running.bootstrap_servers


def librdkafka(bootstrap: str, mechanism: str) -> dict[str, Any]:
    name, password = USERS[mechanism]
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def others(bootstrap: str, mechanism: str) -> dict[str, Any]:
    name, password = USERS[mechanism]
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", USERS)
def test_confluent_kafka(bootstrap: str, mechanism: str) -> None:
    given = librdkafka(bootstrap, mechanism)
    producer = Producer(given)
    producer.produce("confluent", mechanism)
    assert producer.flush(20) == 0
    consumer = Consumer(
        {**given, "group.id": mechanism, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    values: list[Any] = []
    while mechanism.encode() not in values:
        (message,) = consumer.consume(1, 20)
        assert message.error() is None
        values.append(message.value())
    consumer.close()


@pytest.mark.filterwarnings("ignore:.* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("mechanism", USERS)
def test_kafka_python(bootstrap: str, mechanism: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    given = others(bootstrap, mechanism)
    producer = KafkaProducer(**given)
    producer.send("kafka-python", mechanism.encode()).get(20)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python", auto_offset_reset="earliest", group_id=None, **given
    )
    assert mechanism.encode() in iter(record.value for record in consumer)
    consumer.close()


@pytest.mark.parametrize("mechanism", USERS)
def test_aiokafka(bootstrap: str, mechanism: str) -> None:
    async def round_trip() -> None:
        given = others(bootstrap, mechanism)
        async with AIOKafkaProducer(**given) as producer:
            await producer.send_and_wait("aiokafka", mechanism.encode())
        async with AIOKafkaConsumer(
            "aiokafka", auto_offset_reset="earliest", **given
        ) as consumer:
            async for record in consumer:
                if record.value == mechanism.encode():
                    break

    asyncio.run(asyncio.wait_for(round_trip(), 20))


def test_librdkafka_alters_users(bootstrap: str) -> None:
    admin = AdminClient(librdkafka(bootstrap, "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    change = UserScramCredentialUpsertion("carol", info, b"c-secret")
    (done,) = admin.alter_user_scram_credentials([change]).values()
    done.result(20)
    (found,) = admin.describe_user_scram_credentials(["carol"]).values()
    (credential,) = found.result(20).scram_credential_infos
    assert credential.iterations == 8192
    given = {
        **librdkafka(bootstrap, "SCRAM-SHA-512"),
        "sasl.username": "carol",
        "sasl.password": "c-secret",
    }
    assert AdminClient(given).list_topics(timeout=20).brokers


def test_a_cluster_by_bearer_tokens() -> None:
    """Brokers authenticate to each other; librdkafka makes unsigned tokens."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        JAAS.format("oauthbearer"): (
            'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    with cluster(brokers=2, config=settings) as running:
        running.create_topic("t", replicas=2)
        producer = Producer(
            {
                "bootstrap.servers": running.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "enable.sasl.oauthbearer.unsecure.jwt": True,
                "sasl.oauthbearer.config": "principal=carol",
                "acks": "all",
            }
        )
        producer.produce("t", b"value")
        assert producer.flush(20) == 0
