"""The public API of `doorkeeper.testing`: real clients, faults, and a movable clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from broker.protocol.messages.fetch import FetchRequest
from broker.protocol.messages.produce import ProduceRequest
from doorkeeper.client import open_consumer, open_producer
from doorkeeper.testing import (
    ApiKey,
    Broker,
    Cluster,
    ClusterError,
    ConfigError,
    ErrorCode,
    KafkaError,
    broker,
    cluster,
)

pytestmark = pytest.mark.live
TOPIC = "orders"


@pytest.fixture
def kafka() -> Iterator[Broker]:
    with broker() as running:
        running.create_topic(TOPIC)
        yield running


def produce(
    kafka: Broker | Cluster, *values: str, topic: str = TOPIC, **settings: object
) -> list[str | None]:
    """Send each value in its own request; return the names of their errors."""
    quiet = {"log_level": 0, "bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer(quiet | {it.replace("_", "."): settings[it] for it in settings})
    outcomes: list[str | None] = []
    for value in values:
        producer.produce(
            topic,
            value,
            on_delivery=lambda error, _: outcomes.append(error and error.name()),
        )
        assert producer.flush(30) == 0
    return outcomes


def values_of(
    kafka: Broker | Cluster, topic: str = TOPIC, *, at_least: int = 0
) -> list[str]:
    records = kafka.records(topic, at_least=at_least)
    return [(it.value or b"").decode() for it in records]


# ---- running ------------------------------------------------------------------------

in_thread_and_process = pytest.mark.parametrize(
    ("process", "scheduler"),
    [(False, "planes"), (True, "fifo")],
    ids=["thread", "process"],
)


@in_thread_and_process
def test_a_record_is_read_with_all_its_fields(process: bool, scheduler: str) -> None:
    with broker(scheduler=scheduler, process=process) as kafka:
        kafka.create_topic(TOPIC, partitions=2, config={"retention.ms": 60_000})
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(TOPIC, "v", "k", partition=1, headers={"h": b"x"})
        (record,) = kafka.records(TOPIC, at_least=1)
        assert producer.flush(10) == 0
        assert record[:3] == (TOPIC, 1, 0)
        assert record[4:] == (b"k", b"v", (("h", b"x"),))
        assert kafka.records(TOPIC, 0) == []


def test_brokers_side_by_side_have_ports_and_topics_of_their_own(kafka: Broker) -> None:
    with broker() as other:
        assert other.port != kafka.port
        with pytest.raises(KafkaError, match=r"orders: not among the topics \(\)"):
            other.records(TOPIC)


def test_data_on_disk_outlives_its_broker(tmp_path: Path) -> None:
    with broker(data=tmp_path) as kafka:
        kafka.create_topic(TOPIC)
        produce(kafka, "a")
        with pytest.raises(ValueError, match="on disk"):
            kafka.kill()
    with broker(data=tmp_path) as kafka:
        assert values_of(kafka) == ["a"]


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_a_broker_starts_again_on_its_port_and_data(kafka: Broker, end) -> None:
    produce(kafka, "a")
    end(kafka)
    with pytest.raises(RuntimeError, match="no broker is running"):
        kafka.records(TOPIC)
    assert produce(kafka, "lost", message_timeout_ms=300) == ["_MSG_TIMED_OUT"]
    kafka.start()
    produce(kafka, "b")
    assert values_of(kafka) == ["a", "b"]


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_a_setting_that_does_not_fit_is_named(process: bool) -> None:
    with (
        pytest.raises(ConfigError, match=r"num\.io\.threads: found '0'"),
        broker(config={"num.io.threads": 0}, process=process),
    ):
        pass


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_a_closed_broker_is_named_in_the_error(process: bool) -> None:
    with broker(process=process) as kafka:
        pass
    with pytest.raises(RuntimeError, match="has been closed"):
        kafka.requests()


def test_records_that_do_not_come_are_counted(kafka: Broker) -> None:
    produce(kafka, "a")
    with pytest.raises(TimeoutError, match=r"has 1 records after .* at least 2"):
        kafka.records(TOPIC, at_least=2, timeout=0.1)


# ---- programs of all kinds ----------------------------------------------------------


async def test_a_trio_program_uses_it() -> None:
    with broker() as kafka:
        kafka.create_topic(TOPIC)
        with trio.fail_after(10):
            async with open_producer(kafka.bootstrap_servers) as producer:
                await producer.send(TOPIC, b"a")
            async with open_consumer(
                kafka.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer:
                consumer.subscribe([TOPIC])
                async for record in consumer:
                    assert record.value == b"a"
                    break
        assert values_of(kafka) == ["a"]


def test_an_asyncio_program_uses_it() -> None:
    async def main() -> None:
        with broker() as kafka:
            kafka.create_topic(TOPIC)
            producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
            async with producer:
                await producer.send_and_wait(TOPIC, b"a")
            consumer = AIOKafkaConsumer(
                TOPIC,
                bootstrap_servers=kafka.bootstrap_servers,
                auto_offset_reset="earliest",
            )
            async with consumer:
                assert (await consumer.getone()).value == b"a"
            assert values_of(kafka) == ["a"]

    asyncio.run(main())


# ---- received requests --------------------------------------------------------------


def test_requests_are_filtered_by_api_topic_and_client(kafka: Broker) -> None:
    kafka.create_topic("other")
    produce(kafka, "a", "b", client_id="app", acks=1)
    produce(kafka, "c", topic="other")
    produced = kafka.requests(ApiKey.PRODUCE, topic=TOPIC)
    assert [(it.client_id, it.topics) for it in produced] == [("app", (TOPIC,))] * 2
    assert [it.body_as(ProduceRequest).acks for it in produced] == [1, 1]
    with pytest.raises(TypeError, match="PRODUCE is no FetchRequest"):
        produced[0].body_as(FetchRequest)
    assert len(kafka.requests(ApiKey.PRODUCE)) == 3
    assert {it.api for it in kafka.requests(client_id="app")} >= {ApiKey.METADATA}
    assert kafka.requests(ApiKey.CREATE_TOPICS) == []


def test_fetches_of_a_session_have_the_topics_of_the_session(kafka: Broker) -> None:
    """Later fetches of a session name topics by id, or not at all."""

    async def main() -> None:
        consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=kafka.bootstrap_servers)
        async with consumer:
            await consumer.getmany(timeout_ms=100)

    asyncio.run(main())
    fetches = kafka.requests(ApiKey.FETCH)
    assert fetches
    assert {it.topics for it in fetches} == {(TOPIC,)}


# ---- faults -------------------------------------------------------------------------


def test_an_error_is_answered_as_often_as_wanted(kafka: Broker) -> None:
    error = ErrorCode.not_leader_or_follower
    fault = kafka.fail(ApiKey.PRODUCE, error, times=2)
    assert produce(kafka, "a") == [None]
    assert (fault.hits, len(kafka.requests(ApiKey.PRODUCE))) == (2, 3)
    kafka.fail(ApiKey.PRODUCE, ErrorCode.topic_authorization_failed)
    assert produce(kafka, "b") == ["TOPIC_AUTHORIZATION_FAILED"]
    kafka.clear_faults()
    assert produce(kafka, "c") == [None]
    assert values_of(kafka) == ["a", "c"]


def test_a_fault_meets_its_topic_and_its_client_only(kafka: Broker) -> None:
    kafka.create_topic("other")
    denied = ErrorCode.topic_authorization_failed
    with (
        kafka.fail(None, denied, topic="other", client_id="app") as fault,
        kafka.fail(ApiKey.PRODUCE, denied, client_id="nobody") as unmet,
    ):
        assert produce(kafka, "a", client_id="app") == [None]
        assert produce(kafka, "b", topic="other") == [None]
        refused = produce(kafka, "c", topic="other", client_id="app")
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
        assert fault.hits > 0
        assert unmet.hits == 0
    assert produce(kafka, "d", topic="other", client_id="app") == [None]


def test_a_delay_is_on_the_clock_of_the_broker(kafka: Broker) -> None:
    fault = kafka.delay(ApiKey.PRODUCE, 3_600, times=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(TOPIC, "a")
    while not fault.hits:
        assert producer.flush(0.01) == 1
    assert values_of(kafka) == []
    kafka.advance(3_600)
    assert producer.flush(10) == 0
    assert values_of(kafka) == ["a"]


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("fault", [Broker.disconnect, Broker.drop])
def test_a_lost_answer_is_not_a_lost_record(kafka: Broker, fault, handled) -> None:
    """An idempotent producer retries; no record is duplicated."""
    lost = fault(kafka, ApiKey.PRODUCE, times=1, handled=handled)
    outcomes = produce(kafka, "a", "b", enable_idempotence=True, socket_timeout_ms=300)
    assert outcomes == [None, None]
    assert values_of(kafka) == ["a", "b"]
    # The request with the fault, its retry, and the other record's request.
    assert (lost.hits, len(kafka.requests(ApiKey.PRODUCE))) == (1, 3)


def test_a_fault_of_metadata_leaves_the_client_without_topics(kafka: Broker) -> None:
    kafka.disconnect(ApiKey.METADATA)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)


# ---- the clock ----------------------------------------------------------------------


def test_retention_deletes_when_its_time_has_come(kafka: Broker) -> None:
    kafka.create_topic("kept", config={"retention.ms": -1})
    produce(kafka, "a")
    produce(kafka, "a", topic="kept")
    kafka.advance(6 * 24 * 3600)
    assert values_of(kafka) == ["a"]
    kafka.advance(2 * 24 * 3600)
    assert values_of(kafka) == []
    assert values_of(kafka, "kept") == ["a"]


def test_a_member_whose_session_ends_leaves_its_group(kafka: Broker) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}
    # Prevents a heartbeat in between.
    patient = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 40_000}
    consumer = Consumer(settings | patient)
    consumer.subscribe([TOPIC])
    while not consumer.assignment():
        consumer.poll(0.05)
    assert members(kafka) == 1
    kafka.advance(46)
    assert members(kafka) == 0
    consumer.close()


def members(kafka: Broker) -> int:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    described = admin.describe_consumer_groups(["g"])["g"].result(10)
    return len(described.members)


# ---- clusters -----------------------------------------------------------------------


@in_thread_and_process
def test_a_cluster_outlives_the_leader_of_a_partition(process, scheduler) -> None:
    with cluster(scheduler=scheduler, process=process) as kafka:
        kafka.create_topic(TOPIC, partitions=3)
        assert produce(kafka, "a") == [None]
        leader = kafka.leader(TOPIC)
        leader.kill()
        assert produce(kafka, "b", "c", "d") == [None] * 3
        assert kafka.leader(TOPIC) is not leader
        leader.start()
        # A new leader learns the high watermark from its followers' next fetches.
        assert sorted(values_of(kafka, at_least=4)) == ["a", "b", "c", "d"]


def test_a_cluster_refuses_what_is_each_brokers_own() -> None:
    with (
        pytest.raises(ClusterError, match=r"broker\.id is each"),
        cluster(1, config={"broker.id": 5}),
    ):
        pass
    with (
        cluster(1) as kafka,
        pytest.raises(ValueError, match="have the machine's clock"),
    ):
        kafka.brokers[0].advance(1)
