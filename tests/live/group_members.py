"""Group members and producers in threads, and the offsets that the broker stores.

A member commits the offsets of its numbers, and retries after a rebalance.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
)
from confluent_kafka import TopicPartition as Target
from confluent_kafka.admin import AdminClient

from tests.live import group_clients
from tests.live.broker_process import BrokerProcess
from tests.live.group_clients import (
    CONFLUENT,
    PARTITIONS,
    GroupClient,
    GroupConsumer,
    Membership,
)


def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    """Produce numbers over all partitions, and wait for the acknowledgements."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert producer.flush(20) == 0


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.02)


class Member:
    """A group member in its own thread."""

    def __init__(
        self,
        broker: BrokerProcess,
        topic: str,
        client: GroupClient = CONFLUENT,
        *,
        group: str = "group",
        **options: Any,
    ) -> None:
        """``options`` are those of `Membership`."""
        self.seen: list[int] = []
        self.assigned: set[int] = set()
        self.assignments = 0
        self._told = Membership(
            bootstrap=broker.bootstrap, topic=topic, group=group, **options
        )
        self._client = client
        self._running = True
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Begin to leave the group."""
        self._running = False

    def close(self) -> None:
        """Leave the group (a static member only stops); idempotent."""
        self.stop()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            consumer = self._client.consumer(self._told)
            try:
                self._consume(consumer)
            finally:
                consumer.close()
        except BaseException as failure:
            # Raised again in the test's thread.
            self._failure = failure

    def _consume(self, consumer: GroupConsumer) -> None:
        uncommitted = False
        while self._running:
            found = consumer.poll()
            self.seen += found
            uncommitted |= bool(found)
            self.assignments = consumer.assignments
            self.assigned = consumer.assigned()
            if uncommitted:
                uncommitted = not consumer.commit()


class MortalMember:
    """A group member in its own process, which can be killed."""

    def __init__(
        self,
        broker: BrokerProcess,
        topic: str,
        client: GroupClient,
        *,
        group: str,
        session_ms: int,
    ) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", str(Path(group_clients.__file__))),
                *(client.name, broker.bootstrap, topic, group, str(session_ms)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_for_a_number(self) -> int:
        """Wait for the member's first number and return it."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def kill(self) -> list[int]:
        """Kill the member (no LeaveGroup); return the numbers it has seen since."""
        self._process.kill()
        said, _ = self._process.communicate()
        # The last line may be incomplete; its number was then not committed.
        whole = said[: said.rfind("\n") + 1]
        return [int(line) for line in whole.splitlines()]


Join = Callable[..., Member]


class Producing:
    """A producer in a thread, which sends consecutive numbers until its end."""

    def __init__(self, broker: BrokerProcess, topic: str, client: GroupClient) -> None:
        self.sent = 0
        self._running = True
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(broker.bootstrap, topic, client), daemon=True
        )
        self._thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until ``more`` numbers have been sent."""
        until = self.sent + more
        wait_until(lambda: self.sent >= until or self._failure is not None)

    def end(self) -> int:
        """Stop when all numbers are acknowledged; return their count. Idempotent."""
        self._running = False
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.sent

    def _run(self, bootstrap: str, topic: str, client: GroupClient) -> None:
        try:
            producer = client.producer(bootstrap, topic)
            while self._running:
                producer.send(self.sent)
                self.sent += 1
                time.sleep(0.002)
            producer.close()
        except BaseException as failure:
            # Raised again in the test's thread.
            self._failure = failure


Produce = Callable[[GroupClient], Producing]


def committed(broker: BrokerProcess, topic: str, group: str = "group") -> list[int]:
    """Return the committed offset of each partition, -1 for none.

    The list is empty while the coordinator is created or loads.
    """
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = ConsumerGroupTopicPartitions(
        group, [Target(topic, partition) for partition in range(PARTITIONS)]
    )
    (future,) = admin.list_consumer_group_offsets([wanted]).values()
    try:
        targets = future.result(10).topic_partitions
    except KafkaException as refused:
        code = refused.args[0].code()
        assert code in (
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
        )
        return []
    return [max(target.offset, -1) for target in targets]


def sizes(count: int) -> list[int]:
    """Return how many of the first ``count`` numbers each partition has."""
    return [len(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)]
