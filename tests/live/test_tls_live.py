"""Real clients over TLS, TLS between brokers, and replaced key stores."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from broker.client.consumer.consumer import open_consumer
from broker.client.producer.producer import open_producer
from broker.protocol.errors import ConfigError, KafkaError
from broker.protocol.topic_partition import TopicPartition
from doorkeeper.testing import Broker, broker, cluster
from tests.certificates import (
    chain_pem,
    client_context,
    key_pem,
    leaf,
    pem,
    server_keys,
    trusted_pem,
)

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]
ENCRYPTED = {"listener.security.protocol.map": "PLAINTEXT:SSL"}
MUTUAL = {**ENCRYPTED, "ssl.client.auth": "required"}
VALUES = [b"%d " % number * 50_000 for number in range(20)]
ALICE = leaf("client@tests", common_name="Alice")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stores")
    (directory / "alice.key").write_text(key_pem(ALICE))
    (directory / "alice.chain").write_text(chain_pem(ALICE))
    server_keys(directory)
    return directory


@pytest.fixture(scope="module")
def secured(stores: Path) -> Iterator[Broker]:
    with broker(config={**MUTUAL, **server_keys(stores)}) as running:
        yield running


def of_librdkafka(running: Broker, stores: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": running.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(stores / "ca.pem"),
        "ssl.certificate.location": str(stores / "alice.chain"),
        "ssl.key.location": str(stores / "alice.key"),
    }


def test_librdkafka_reads_back_what_it_produced(secured: Broker, stores: Path) -> None:
    settings = of_librdkafka(secured, stores)
    topic = secured.create_topic("rd")
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": "rd", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() for message in consumer.consume(len(VALUES), timeout=20)]
    consumer.close()
    assert found == VALUES


def test_kafka_python_reads_back_what_it_produced(
    secured: Broker, stores: Path
) -> None:
    import kafka

    topic = secured.create_topic("python")
    settings = {
        "bootstrap_servers": secured.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(stores / "ca.pem"),
        "ssl_certfile": str(stores / "alice.chain"),
        "ssl_keyfile": str(stores / "alice.key"),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value).get(timeout=20)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=3000, **settings
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    assert found == VALUES


def test_aiokafka_reads_back_what_it_produced(secured: Broker) -> None:
    topic = secured.create_topic("aio")
    found = asyncio.run(
        asyncio.wait_for(_with_aiokafka(secured.bootstrap_servers, topic), 30)
    )
    assert found == VALUES


async def _with_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    import aiokafka

    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_context": client_context(ALICE),
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with aiokafka.AIOKafkaConsumer(
        topic, auto_offset_reset="earliest", **settings
    ) as consumer:
        return [(await consumer.getone()).value for _ in VALUES]


@pytest.mark.parametrize("way", ["keys", "context"])
def test_our_client_reads_back_what_it_produced(
    way: str, secured: Broker, stores: Path
) -> None:
    topic = secured.create_topic(f"trio-{way}")
    if way == "context":
        settings: dict[str, object] = {"ssl_context": client_context(ALICE)}
    else:
        settings = {
            "ssl_truststore_type": "PEM",
            "ssl_truststore_location": str(stores / "ca.pem"),
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": key_pem(ALICE),
            "ssl_keystore_certificate_chain": chain_pem(ALICE),
        }

    async def run() -> list[bytes | None]:
        where, found = secured.bootstrap_servers, []
        with trio.fail_after(20):
            async with open_producer(
                where, security_protocol="SSL", **settings
            ) as producer:
                for value in VALUES:
                    await (await producer.send(topic, value)).wait()
            async with open_consumer(
                where,
                security_protocol="SSL",
                auto_offset_reset="earliest",
                **settings,
            ) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == len(VALUES):
                        break
        return found

    assert trio.run(run) == VALUES


def test_our_client_does_not_talk_to_another_host(stores: Path) -> None:
    elsewhere = stores / "elsewhere"
    elsewhere.mkdir()
    keys = server_keys(elsewhere, leaf("elsewhere.test"))
    config = {**ENCRYPTED, **keys}

    async def partitions(where: str, **settings: object) -> None:
        async with open_producer(
            where,
            security_protocol="SSL",
            ssl_truststore_type="PEM",
            ssl_truststore_certificates=trusted_pem(),
            max_block_ms=1500,
            **settings,
        ) as producer:
            await (await producer.send("any", b"x")).wait()

    with broker(config=config) as running:
        where = running.bootstrap_servers
        with pytest.raises(KafkaError):
            trio.run(partitions, where)
        trio.run(lambda: partitions(where, ssl_endpoint_identification_algorithm=""))


def test_a_context_demands_the_protocol() -> None:
    async def run() -> None:
        async with open_producer("h:1", ssl_context=client_context()):
            pass

    with pytest.raises(ConfigError, match=r"security\.protocol"):
        trio.run(run)


def test_sasl_is_served_over_tls(stores: Path) -> None:
    """The password determines the principal, not the certificate."""
    config = {
        **server_keys(stores),
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_alice="secret";'
        ),
    }
    with broker(config=config) as running:
        settings = {
            "bootstrap.servers": running.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(stores / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
        }
        producer = Producer({**settings, "sasl.password": "secret"})
        for value in VALUES:
            producer.produce("sasl", value)
        assert producer.flush(20) == 0
        assert [it.value for it in running.records("sasl", at_least=20)] == VALUES
        stranger = AdminClient({**settings, "sasl.password": "guessed"})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=2)


def test_brokers_reach_each_other_over_tls(stores: Path) -> None:
    """With mutual TLS between brokers, a record with acks=all is on all of them."""
    keys = {**MUTUAL, **server_keys(stores)}
    with cluster(3, config=keys) as running:
        topic = running.create_topic("replicated", replicas=3)
        producer = Producer(
            {**of_librdkafka(running.brokers[0], stores), "acks": "all"}
        )
        for value in VALUES:
            producer.produce(topic, value)
        assert producer.flush(20) == 0
        leader = running.leader(topic)
        leader.stop()
        assert [it.value for it in running.records(topic, at_least=20)] == VALUES


def test_an_altered_key_store_is_used_for_new_connections(stores: Path) -> None:
    """Existing connections continue; an invalid store is refused."""
    directory = stores / "altered"
    directory.mkdir()
    second = directory / "second.pem"
    second.write_text(pem(leaf(common_name="second")))
    key = "listener.name.plaintext.ssl.keystore.location"
    config = {**MUTUAL, **server_keys(directory)}
    with broker(config=config) as running:
        admin = AdminClient(of_librdkafka(running, stores))

        def alter(value: str) -> None:
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(
                ResourceType.BROKER, "0", incremental_configs=[entry]
            )
            (future,) = admin.incremental_alter_configs([resource]).values()
            future.result(10)

        assert _common_name(running) == "broker"
        with pytest.raises(Exception, match=r"a file that can be read"):
            alter(str(directory / "missing.pem"))
        assert _common_name(running) == "broker"
        alter(str(second))
        deadline_s = time.monotonic() + 10
        while _common_name(running) != "second":
            assert time.monotonic() < deadline_s
        resource = ConfigResource(ResourceType.BROKER, "0")
        (future,) = admin.describe_configs([resource]).values()
        described = future.result(10)
        assert described[key].value == str(second)
        assert described["ssl.keystore.password"].is_sensitive
        assert described["ssl.keystore.key"].value is None


def _common_name(running: Broker) -> str:
    """Return the common name in the certificate of a new connection."""
    context = client_context(ALICE)
    with (
        socket.create_connection(("127.0.0.1", running.port)) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        found = secured.getpeercert()
        assert found is not None
        subject: tuple[tuple[tuple[str, str], ...], ...] = found["subject"]
    return dict(pair for (pair,) in subject)["commonName"]


def test_tls_at_a_plaintext_listener_ends_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        broker() as running,
        socket.create_connection(("127.0.0.1", running.port)) as plain,
    ):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            client_context().wrap_socket(plain, server_hostname="127.0.0.1")
        lines = [record.getMessage() for record in caplog.records]
        assert lines == [
            "bytes of TLS at a listener without it; their connection is closed"
        ]
