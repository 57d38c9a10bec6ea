"""A producer and a group consumer that remember what the broker promised them.

Both go on over any number of crashes of their broker. The producer sends numbers to one
partition, idempotently; the consumer commits what it has read, and holds every record
against the one before it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

TOPIC: Final = "t"
GROUP: Final = "g"


class Quiet:
    """A logger for librdkafka, which tells of each lost connection."""

    def log(self, *_: Any) -> None:
        """Discard the message."""

    handle = log


# A client that finds its broker gone comes back soon.
PATIENT: Final = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 50,
    "socket.timeout.ms": 5_000,
    "logger": Quiet(),
}


class VerifyingProducer:
    """Produces numbers one after the other, and remembers which were acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, int] = {}
        self.failures: list[Any] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                **PATIENT,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Produce no more, and wait until all is acknowledged."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(20) == 0
        assert self.failures == []

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(
                TOPIC, str(number).encode(), partition=0, on_delivery=self._delivered
            )
            self._producer.poll(0.001)
            number += 1

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged[int(message.value())] = message.offset()


class VerifyingConsumer:
    """Reads as a member of a group, commits, and checks the order of all it reads.

    ``committed`` is the largest offset whose commit was acknowledged. A record may be
    read again only from the last such commit on, and must then be the same.
    """

    def __init__(self, bootstrap: str) -> None:
        self.committed = 0
        self.values: dict[int, int] = {}
        self.faults: list[str] = []
        self._next = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 20_000,
                **PATIENT,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[Any]) -> None:
        """Take the assignment; the group's own offset says where it goes on."""
        found = consumer.committed(partitions, 20)[0].offset
        if 0 <= found < self.committed or (found < 0 and self.committed):
            self.faults.append(f"committed {self.committed}, the group is at {found}")
        self._next = max(found, 0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(500, timeout=0.05)
            read = [message for message in messages if self._is_record(message)]
            for message in read:
                self._check(message.offset(), int(message.value()))
            if read:
                self._commit()

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return True
        # Of a broker that is away; an offset out of range is a record that is lost.
        if error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            self.faults.append(str(error))
        return False

    def _check(self, offset: int, value: int) -> None:
        if offset != self._next:
            self.faults.append(f"offset {offset} where {self._next} was to come")
        if self.values.setdefault(offset, value) != value:
            self.faults.append(f"offset {offset}: {self.values[offset]}, then {value}")
        self._next = offset + 1

    def _commit(self) -> None:
        try:
            for each in self._consumer.commit(asynchronous=False):
                if each.error is None:
                    self.committed = max(self.committed, each.offset)
        except KafkaException as failure:
            # Not acknowledged: the next commit covers it, if only it can come.
            if failure.args[0].fatal():
                self.faults.append(str(failure))
