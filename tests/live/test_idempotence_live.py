"""Idempotent producers of three clients continue across kills of their broker.

A producer retries a batch whose response was lost with the broker. The restarted broker
recognises the batch from its log.
"""

from __future__ import annotations

import gc
import time

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.live.broker_process import BrokerProcess
from tests.live.group_clients import CLIENTS, PARTITIONS, GroupClient
from tests.live.group_members import Producing

pytestmark = [
    pytest.mark.live,
    # kafka-python uses a function that Python 3.11 deprecates.
    pytest.mark.filterwarnings("ignore:(read|open)_text is dep:DeprecationWarning"),
    # asyncio does not close a socket whose connection was refused.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KILLS = 2


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS.keys())
def test_every_number_is_there_once_and_in_order(
    broker: BrokerProcess, topic: str, client: GroupClient
) -> None:
    producing = Producing(broker, topic, client)
    for _ in range(KILLS):
        producing.wait_for(50)
        broker.kill()
        broker.start()
    producing.wait_for(50)
    count = producing.end()
    # Report leaked resources here and not in the middle of another test.
    gc.collect()
    for partition, numbers in read(broker, topic).items():
        assert numbers == list(range(partition, count, PARTITIONS))


def read(broker: BrokerProcess, topic: str) -> dict[int, list[int]]:
    """Read all partitions from beginning to end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: dict[int, list[int]] = {each: [] for each in range(PARTITIONS)}
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only {ended} were read to their ends"
        for message in consumer.consume(1000, 1.0):
            partition = message.partition()
            assert partition is not None
            if message.error():
                ended.add(partition)
            else:
                found[partition].append(int(message.value() or b""))
    consumer.close()
    return found
