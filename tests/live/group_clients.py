"""A group member and a producer with the same interface for three clients.

The clients are librdkafka (C, with its own threads), kafka-python (plain Python) and
aiokafka. The event loop of aiokafka runs here only during calls by the owner's thread.
Values are numbers; number n goes to partition n modulo `PARTITIONS`.

Run as a program, the module is a member that prints the numbers it has seen. A killed
process does not leave its group; a client that merely stops polling does. To run as a
program, the module imports nothing of this folder.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

PARTITIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Settings of a group member, independent of the client."""

    bootstrap: str
    topic: str
    group: str
    assignor: str = "range"
    instance_id: str | None = None
    session_ms: int = 6_000
    heartbeat_ms: int = 100


class GroupConsumer(Protocol):
    """A group member; one thread makes all calls."""

    assignments: int

    def poll(self) -> list[int]:
        """Wait a short time for numbers."""

    def commit(self) -> bool:
        """Commit the polled offsets; return False if a rebalance prevents it."""

    def assigned(self) -> set[int]:
        """Return the partitions currently assigned."""

    def close(self) -> None:
        """Leave the group; a static member only stops."""


class NumberProducer(Protocol):
    """A producer of numbers; one thread makes all calls."""

    def send(self, number: int) -> None:
        """Send one number, possibly later."""

    def close(self) -> None:
        """Wait until all numbers are acknowledged; raise an error otherwise."""


# ---- librdkafka ---------------------------------------------------------------------


class ConfluentConsumer:
    """A group member with confluent-kafka."""

    def __init__(self, told: Membership) -> None:
        from confluent_kafka import Consumer

        settings: dict[str, Any] = {
            "bootstrap.servers": told.bootstrap,
            "group.id": told.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": told.session_ms,
            "heartbeat.interval.ms": told.heartbeat_ms,
            "partition.assignment.strategy": told.assignor,
            "log_level": 0,
        }
        if told.instance_id is not None:
            settings["group.instance.id"] = told.instance_id
        self.assignments = 0
        self._consumer = Consumer(settings)
        self._consumer.subscribe([told.topic], on_assign=self._on_assign)

    def _on_assign(self, *_: Any) -> None:
        self.assignments += 1

    def poll(self) -> list[int]:
        return [
            int(message.value() or b"")
            for message in self._consumer.consume(500, 0.05)
            if not message.error()
        ]

    def commit(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException:
            return False
        return True

    def assigned(self) -> set[int]:
        return {target.partition for target in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class ConfluentProducer:
    """An idempotent producer with confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._errors: list[Any] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        )

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def send(self, number: int) -> None:
        self._producer.produce(
            self._topic,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=self._delivered,
        )
        self._producer.poll(0)

    def close(self) -> None:
        assert self._producer.flush(30) == 0
        assert self._errors == []


# ---- kafka-python -------------------------------------------------------------------


class KafkaPythonConsumer:
    """A group member with kafka-python."""

    def __init__(self, told: Membership) -> None:
        import kafka
        from kafka.coordinator.assignors import cooperative_sticky, range, roundrobin
        from kafka.coordinator.assignors.sticky import sticky_assignor

        assignors = {
            "range": range.RangePartitionAssignor,
            "roundrobin": roundrobin.RoundRobinPartitionAssignor,
            "sticky": sticky_assignor.StickyPartitionAssignor,
            "cooperative-sticky": cooperative_sticky.CooperativeStickyAssignor,
        }
        self.assignments = 0
        self._consumer = kafka.KafkaConsumer(
            told.topic,
            bootstrap_servers=told.bootstrap,
            group_id=told.group,
            group_instance_id=told.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=told.session_ms,
            heartbeat_interval_ms=told.heartbeat_ms,
            fetch_max_wait_ms=50,
            partition_assignment_strategy=[assignors[told.assignor]],
        )
        # A member that joins before it knows the topic has to rejoin afterwards, which
        # the client handles badly: see `poll`.
        self._consumer.partitions_for_topic(told.topic)
        self._consumer.subscribe(
            [told.topic], listener=_listener(kafka.ConsumerRebalanceListener, self)
        )

    def poll(self) -> list[int]:
        # If poll() returns during a rebalance (3.0.12), the client may never use its
        # new assignment nor send heartbeats again.
        batches = self._consumer.poll(timeout_ms=1_000).values()
        return [int(message.value) for messages in batches for message in messages]

    def commit(self) -> bool:
        from kafka import errors

        try:
            self._consumer.commit(timeout_ms=5_000)
        except (errors.CommitFailedError, errors.RebalanceInProgressError):
            return False
        return True

    def assigned(self) -> set[int]:
        return {target.partition for target in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonProducer:
    """An idempotent producer with kafka-python."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from kafka import KafkaProducer

        self._topic = topic
        self._sent: list[Any] = []
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        )

    def send(self, number: int) -> None:
        self._sent.append(
            self._producer.send(
                self._topic, str(number).encode(), partition=number % PARTITIONS
            )
        )

    def close(self) -> None:
        for sent in self._sent:
            sent.get(30)
        self._producer.close()


# ---- aiokafka -----------------------------------------------------------------------


class AioConsumer:
    """A group member with aiokafka, with its own event loop."""

    def __init__(self, told: Membership) -> None:
        self.assignments = 0
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._started(told))

    async def _started(self, told: Membership) -> Any:
        import aiokafka
        from aiokafka.coordinator.assignors import range, roundrobin
        from aiokafka.coordinator.assignors.sticky import sticky_assignor

        assignors = {
            "range": range.RangePartitionAssignor,
            "roundrobin": roundrobin.RoundRobinPartitionAssignor,
            "sticky": sticky_assignor.StickyPartitionAssignor,
        }
        # aiokafka's sticky assignor keeps a member's assignment in a class attribute.
        assignor = type("Assignor", (assignors[told.assignor],), {})
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=told.bootstrap,
            group_id=told.group,
            group_instance_id=told.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=told.session_ms,
            heartbeat_interval_ms=told.heartbeat_ms,
            fetch_max_wait_ms=50,
            partition_assignment_strategy=[assignor],
        )
        consumer.subscribe(
            [told.topic],
            listener=_listener(aiokafka.ConsumerRebalanceListener, self),
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[int]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=50)).values()
        return [int(message.value) for messages in found for message in messages]

    def commit(self) -> bool:
        from aiokafka import errors

        try:
            self._runner.run(self._consumer.commit())
        except (errors.CommitFailedError, errors.IllegalStateError):
            return False
        return True

    def assigned(self) -> set[int]:
        return {target.partition for target in self._consumer.assignment()}

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class AioProducer:
    """An idempotent producer with aiokafka, with its own event loop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._runner = asyncio.Runner()
        self._producer = self._runner.run(self._started(bootstrap))

    async def _started(self, bootstrap: str) -> Any:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        )
        await producer.start()
        return producer

    def send(self, number: int) -> None:
        self._runner.run(
            self._producer.send_and_wait(
                self._topic, str(number).encode(), partition=number % PARTITIONS
            )
        )

    def close(self) -> None:
        self._runner.run(self._producer.stop())
        self._runner.close()


def _listener(base: type, counted: Any) -> Any:
    """Return a listener for a Python client that counts assignments."""

    class Counting(base):  # type: ignore[misc] # Each client has its own base class.
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            counted.assignments += 1

    return Counting()


# ---- table of clients -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupClient:
    """A client library and its assignors."""

    name: str
    consumer: Callable[[Membership], GroupConsumer]
    producer: Callable[[str, str], NumberProducer]
    assignors: tuple[str, ...]


CONFLUENT = GroupClient(
    name="confluent-kafka",
    consumer=ConfluentConsumer,
    producer=ConfluentProducer,
    assignors=("range", "roundrobin", "cooperative-sticky"),
)
KAFKA_PYTHON = GroupClient(
    name="kafka-python",
    consumer=KafkaPythonConsumer,
    producer=KafkaPythonProducer,
    assignors=("range", "roundrobin", "sticky", "cooperative-sticky"),
)
AIOKAFKA = GroupClient(
    name="aiokafka",
    consumer=AioConsumer,
    producer=AioProducer,
    assignors=("range", "roundrobin", "sticky"),
)
CLIENTS: Mapping[str, GroupClient] = {
    client.name: client for client in (CONFLUENT, KAFKA_PYTHON, AIOKAFKA)
}


def main(client: str, bootstrap: str, topic: str, group: str, session_ms: str) -> None:
    """Run a member until it is killed; print each number before its commit."""
    told = Membership(
        bootstrap=bootstrap, topic=topic, group=group, session_ms=int(session_ms)
    )
    consumer = CLIENTS[client].consumer(told)
    while True:
        for number in consumer.poll():
            print(number, flush=True)
        consumer.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
