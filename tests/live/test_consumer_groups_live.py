"""Consumer groups (KIP-848) with members of librdkafka, of both protocols."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.live.broker_process import BrokerProcess

pytestmark = pytest.mark.live

PARTITIONS = 4
_SECONDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path_factory.mktemp("consumers"),
        group_consumer_heartbeat_interval_ms="200",
        group_consumer_min_heartbeat_interval_ms="200",
        group_consumer_assignment_interval_ms="0",
    )
    yield process
    process.close()


def produce(broker: BrokerProcess, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        created.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def member(broker: BrokerProcess, group: str, topic: str, **config: str) -> Consumer:
    settings = {"group.protocol": "consumer"} | config
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    return consumer


def read(consumer: Consumer, count: int) -> list[str]:
    """Read ``count`` values."""
    end = time.monotonic() + _SECONDS
    values: list[str] = []
    while len(values) < count:
        assert time.monotonic() < end, values
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append((message.value() or b"").decode())
    return values


def poll_until(consumers: list[Consumer], is_done: Callable[[], bool]) -> None:
    """Poll all members until the condition holds."""
    end = time.monotonic() + _SECONDS
    while not is_done():
        assert time.monotonic() < end, [it.assignment() for it in consumers]
        for consumer in consumers:
            consumer.poll(0.05)


def shared(consumers: list[Consumer]) -> Callable[[], bool]:
    """Return whether each partition has one member, and each member a partition."""

    def is_shared() -> bool:
        each = [[it.partition for it in one.assignment()] for one in consumers]
        flat = sorted(partition for share in each for partition in share)
        return flat == list(range(PARTITIONS)) and all(each)

    return is_shared


def test_members_share_commit_and_take_over(broker: BrokerProcess) -> None:
    produce(broker, "shared", 40)
    first = member(broker, "shared", "shared")
    values = read(first, 40)
    assert sorted(map(int, values)) == list(range(40))
    first.commit(asynchronous=False)
    targets = [TopicPartition("shared", index) for index in range(PARTITIONS)]
    assert [it.offset for it in first.committed(targets, 10)] == [10] * PARTITIONS
    second = member(broker, "shared", "shared", group_instance_id="i")
    poll_until([first, second], shared([first, second]))
    first.close()
    poll_until([second], shared([second]))
    second.close()


def test_a_regular_expression_finds_topics(broker: BrokerProcess) -> None:
    produce(broker, "found-1", 4)
    consumer = member(broker, "regex", "^found-.*")
    values = read(consumer, 4)
    consumer.close()
    assert sorted(values) == ["0", "1", "2", "3"]


def test_a_group_is_upgraded_and_downgraded_under_its_members(
    broker: BrokerProcess,
) -> None:
    produce(broker, "online", 8)
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": "200"}
    old = member(broker, "online", "online", **classic)
    poll_until([old], shared([old]))
    new = member(broker, "online", "online")
    poll_until([old, new], shared([old, new]))
    new.close()
    poll_until([old], shared([old]))
    old.close()
