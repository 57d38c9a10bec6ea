"""Consumer groups of real clients against a real broker process.

What clients are told by the broker is compared with what was produced: nothing is lost
over rebalances, committed offsets survive restarts and crashes, and the tools of an
operator see what is there.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Target
from confluent_kafka.admin import AdminClient, NewTopic

from tests.live.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.live,
    # kafka-python reads its schemas in a way that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

PARTITIONS = 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path)
    yield process
    process.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """A topic of six partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1)]).values():
        future.result(10)
    return name


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    """Produce numbers, spread over the partitions, and wait until all are there."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 25) -> None:
    """Look again and again until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.05)


class Member:
    """A consumer of librdkafka in a thread; commits what it has seen."""

    def __init__(self, broker: BrokerProcess, topic: str, **settings: Any) -> None:
        self.seen: list[int] = []
        self.assigned: set[int] = set()
        self.assignments = 0
        self._running = True
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "group",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 300,
                "log_level": 0,
                **settings,
            }
        )
        self._cooperative = (
            settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self._consumer.subscribe(
            [topic], on_assign=self._on_assign, on_revoke=self._on_revoke
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the group (a static member only stops); once is enough."""
        if self._running:
            self._running = False
            self._thread.join()
            self._consumer.close()

    def _on_assign(self, consumer: Consumer, targets: list[Target]) -> None:
        self.assignments += 1
        numbers = {target.partition for target in targets}
        self.assigned = self.assigned | numbers if self._cooperative else numbers

    def _on_revoke(self, consumer: Consumer, targets: list[Target]) -> None:
        self.assigned = self.assigned - {target.partition for target in targets}

    def _run(self) -> None:
        while self._running:
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.seen.append(int(message.value()))
            try:
                self._consumer.commit(message, asynchronous=True)
            except KafkaException:
                continue  # During a rebalance; a later one covers it.


Join = Callable[..., Member]


@pytest.fixture
def join(broker: BrokerProcess, topic: str) -> Iterator[Join]:
    """Start members; those that are left at the end leave."""
    members: list[Member] = []

    def start(**settings: Any) -> Member:
        members.append(Member(broker, topic, **settings))
        return members[-1]

    yield start
    for member in members:
        member.close()


def committed(broker: BrokerProcess, topic: str, group: str = "group") -> list[int]:
    """Return the committed offset of each partition, -1 for none."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(
        group, [Target(topic, partition) for partition in range(PARTITIONS)]
    )
    (future,) = admin.list_consumer_group_offsets([wanted]).values()
    targets = future.result(10).topic_partitions
    return [max(target.offset, -1) for target in targets]


def sizes(count: int) -> list[int]:
    """Return how many of the first ``count`` numbers each partition has."""
    return [len(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)]


# ---- librdkafka ---------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_nothing_is_lost_over_rebalances_while_producing(
    broker: BrokerProcess, topic: str, join: Join, strategy: str
) -> None:
    settings = {"partition.assignment.strategy": strategy}
    members = [join(**settings)]
    produce(broker, topic, range(300))
    wait_until(lambda: members[0].assigned == set(range(PARTITIONS)))
    members.append(join(**settings))
    produce(broker, topic, range(300, 600))
    wait_until(lambda: len(members[1].assigned) == PARTITIONS // 2)
    members.append(join(**settings))
    produce(broker, topic, range(600, 900))
    wait_until(lambda: {len(member.assigned) for member in members} == {2})
    members[0].close()
    produce(broker, topic, range(900, 1_200))
    wait_until(
        lambda: set().union(*(member.seen for member in members)) == set(range(1_200))
    )
    wait_until(lambda: committed(broker, topic) == sizes(1_200))


def test_a_static_member_comes_back_without_disturbing_the_others(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    other = join(**{"group.instance.id": "other"})
    first = join(**{"group.instance.id": "same"})
    wait_until(lambda: len(first.assigned) == len(other.assigned) == 3)
    before, assignments = first.assigned, other.assignments
    first.close()
    second = join(**{"group.instance.id": "same"})
    wait_until(lambda: second.assigned == before)
    produce(broker, topic, range(60))
    wait_until(lambda: {*second.seen, *other.seen} == set(range(60)))
    assert other.assignments == assignments


def test_a_member_that_dies_is_replaced_after_its_session(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    silent = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "group",
            "session.timeout.ms": 6_000,
            "max.poll.interval.ms": 6_000,
        }
    )
    silent.subscribe([topic])
    wait_until(lambda: silent.poll(0.1) is None and bool(silent.assignment()))
    member = join()
    # Whoever does not poll is left out by its own client after max.poll.interval.ms.
    wait_until(lambda: member.assigned == set(range(PARTITIONS)))
    silent.close()


# ---- offsets over restarts ----------------------------------------------------------


@pytest.mark.parametrize("crash", [False, True])
def test_committed_offsets_survive_a_restart(
    broker: BrokerProcess, topic: str, join: Join, crash: bool
) -> None:
    produce(broker, topic, range(120))
    member = join()
    wait_until(lambda: len(member.seen) == 120)
    wait_until(lambda: committed(broker, topic) == sizes(120))
    member.close()
    broker.kill() if crash else broker.stop()
    broker.start()
    assert committed(broker, topic) == sizes(120)
    produce(broker, topic, range(120, 180))
    again = join()
    wait_until(lambda: len(again.seen) == 60)
    assert sorted(again.seen) == list(range(120, 180))


def test_a_group_goes_on_over_a_restart_of_the_broker(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    members = [join(), join()]
    wait_until(lambda: {len(member.assigned) for member in members} == {3})
    produce(broker, topic, range(60))
    broker.stop()
    broker.start()
    produce(broker, topic, range(60, 120))
    wait_until(lambda: {*members[0].seen, *members[1].seen} == set(range(120)))
    wait_until(lambda: committed(broker, topic) == sizes(120))


# ---- the operator -------------------------------------------------------------------


def test_an_operator_sees_moves_and_deletes_groups(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    produce(broker, topic, range(60))
    member = join()
    wait_until(lambda: committed(broker, topic) == sizes(60))
    listed = admin.list_consumer_groups().result(10)
    assert [(one.group_id, one.state.name) for one in listed.valid] == [
        ("group", "STABLE")
    ]
    described = admin.describe_consumer_groups(["group"])["group"].result(10)
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assigned = {target.partition for target in seen.assignment.topic_partitions}
    assert (seen.client_id, assigned) == ("rdkafka", set(range(PARTITIONS)))
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["group"])["group"].result(10)
    member.close()
    moved = ConsumerGroupTopicPartitions("group", [Target(topic, 0, 3)])
    for future in admin.alter_consumer_group_offsets([moved]).values():
        future.result(10)
    assert committed(broker, topic)[0] == 3
    admin.delete_consumer_groups(["group"])["group"].result(10)
    assert committed(broker, topic) == [-1] * PARTITIONS


# ---- the Python clients -------------------------------------------------------------


def kafka_python_consumer(broker: BrokerProcess, topic: str) -> Any:
    from kafka import KafkaConsumer

    return KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id="group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=300,
    )


def test_kafka_python_shares_a_group(broker: BrokerProcess, topic: str) -> None:
    consumers = [kafka_python_consumer(broker, topic) for _ in range(2)]
    produce(broker, topic, range(60))
    seen: set[int] = set()
    threads = [
        threading.Thread(target=_poll_until, args=(consumer, seen, set(range(120))))
        for consumer in consumers
    ]
    for thread in threads:
        thread.start()
    produce(broker, topic, range(60, 120))
    for thread in threads:
        thread.join()
    assert seen == set(range(120))
    assert committed(broker, topic) == sizes(120)
    for consumer in consumers:
        consumer.close()


def _poll_until(consumer: Any, seen: set[int], wanted: set[int]) -> None:
    """Poll and commit until everyone together has seen all."""
    end = time.monotonic() + 30
    while seen != wanted and time.monotonic() < end:
        for messages in consumer.poll(timeout_ms=200).values():
            seen.update(int(message.value) for message in messages)
            consumer.commit()


def test_aiokafka_shares_a_group(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, range(60))
    seen = asyncio.run(_consume_with_aiokafka(broker, topic, set(range(60))))
    assert seen == set(range(60))
    assert committed(broker, topic) == sizes(60)


async def _consume_with_aiokafka(
    broker: BrokerProcess, topic: str, wanted: set[int]
) -> set[int]:
    from aiokafka import AIOKafkaConsumer

    consumers = [
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id="group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=300,
        )
        for _ in range(2)
    ]
    await asyncio.gather(*(consumer.start() for consumer in consumers))
    seen: set[int] = set()

    async def consume(consumer: AIOKafkaConsumer) -> None:
        while seen != wanted:
            batches = await consumer.getmany(timeout_ms=200)
            for messages in batches.values():
                seen.update(int(message.value) for message in messages)
            if batches:
                await consumer.commit()

    try:
        await asyncio.wait_for(asyncio.gather(*map(consume, consumers)), 30)
    finally:
        await asyncio.gather(*(consumer.stop() for consumer in consumers))
    return seen


def test_different_clients_share_one_group(
    broker: BrokerProcess, topic: str, join: Join
) -> None:
    """The consumer protocol is the clients': the broker only passes it on."""
    member = join(**{"partition.assignment.strategy": "range"})
    wait_until(lambda: member.assigned == set(range(PARTITIONS)))
    other = kafka_python_consumer(broker, topic)
    seen: set[int] = set()

    def both() -> bool:
        for messages in other.poll(timeout_ms=100).values():
            seen.update(int(message.value) for message in messages)
        return len(member.assigned) == len(other.assignment()) == PARTITIONS // 2

    wait_until(both)
    produce(broker, topic, range(60))
    wait_until(lambda: both() and seen | set(member.seen) == set(range(60)))
    other.close()


def test_offsets_go_with_their_topic(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    committing = ConsumerGroupTopicPartitions("group", [Target(topic, 0, 3)])
    for future in admin.alter_consumer_group_offsets([committing]).values():
        future.result(10)
    assert committed(broker, topic)[0] == 3
    admin.delete_topics([topic])[topic].result(10)
    assert committed(broker, topic) == [-1] * PARTITIONS


def test_the_log_tells_the_story_of_a_group(tmp_path: Path) -> None:
    broker = BrokerProcess(
        tmp_path, doorkeeper_log_level="info", doorkeeper_log_format="json"
    )
    produce(broker, "topic", range(6))
    member = Member(broker, "topic")
    wait_until(lambda: bool(member.seen))
    member.close()
    broker.stop()
    events = [json.loads(line) for line in broker.errors().splitlines()]
    assert events[0]["event"] == "started"
    story = [
        (event["event"], event.get("generation"), event.get("members"))
        for event in events
        if event.get("group") == "group"
    ]
    assert story == [
        ("group prepares to rebalance", 0, 1),
        ("group begins a generation", 1, 1),
        ("group is stable", 1, None),
        ("group loses a member", None, None),
        ("group prepares to rebalance", 1, 0),
        ("group begins a generation", 2, 0),
    ]
    assert [event["event"] for event in events[-2:]] == ["stopping", "stopped"]
