"""Consumer groups of real clients against a real broker process.

What clients are told by the broker is compared with what was produced: nothing is lost
over rebalances, and committed offsets survive restarts and crashes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.live.broker_process import BrokerProcess
from tests.live.group_members import (
    PARTITIONS,
    Join,
    committed,
    produce,
    sizes,
    wait_until,
)

pytestmark = [
    pytest.mark.live,
    # kafka-python reads its schemas in a way that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
]

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
