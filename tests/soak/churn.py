"""Clients that connect and disconnect until stdin ends, one thread per kind.

``python -m tests.soak.churn PORT SEED ROUND`` prints its counts every second.

confluent-kafka (librdkafka) is used for records, groups and administration, and bare
sockets for malformed requests. Each client pauses between its steps, so the broker is
busy but not overloaded.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.fuzzing.extremes import Words
from tests.fuzzing.frames import OF_CLIENTS, request

STEADY, COMPACTED = "steady", "compacted"
PARTITIONS = 3
_SMALL = {"segment.bytes": "262144"}
_LASTING = {
    STEADY: {"retention.bytes": "1000000", **_SMALL},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "5000",
        **_SMALL,
    },
}
_PER_ROUND = 1_000_000_000
# Errors caused by other churn clients: the topic or group is already deleted.
_EXPECTED = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_ALREADY_EXISTS,
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError._PARTITION_EOF,
)


class Churn:
    """The clients of one broker, and counts of their operations."""

    def __init__(self, port: int, seed: int, number: int) -> None:
        self.port = port
        self.seed = seed
        self.bootstrap = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 3}
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self.admin = AdminClient(self.bootstrap)
        self._stop = threading.Event()
        # Higher than all numbers of previous rounds.
        self._sent = [number * _PER_ROUND] * PARTITIONS
        self._threads: list[threading.Thread] = []
        self._round = number

    # ---- start and stop -----------------------------------------------------------

    def start(self) -> None:
        """Start a thread for each kind of client."""
        kinds = (self.topics, self.groups, self.sockets, self.producer, self.reader)
        self._threads = [
            threading.Thread(target=self._run, args=(kind,), name=kind.__name__)
            for kind in kinds
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop all clients."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.faults.append(f"{thread.name} does not end")

    def _run(self, kind: Callable[[random.Random], None]) -> None:
        rng = random.Random(f"{self.seed} {self._round} {kind.__name__}")
        try:
            while not self._stop.is_set():
                kind(rng)
        except Exception as error:
            self.faults.append(f"{kind.__name__}: {error!r}")

    def _pause(self, seconds: float) -> None:
        self._stop.wait(seconds)

    # ---- kinds of clients ---------------------------------------------------------

    def topics(self, rng: random.Random) -> None:
        """Create, use, extend, alter and delete some topics."""
        names = [f"churn-{rng.getrandbits(40):x}" for _ in range(rng.randint(1, 4))]
        policies = ("delete", "compact", "compact,delete")
        settled(
            self.admin.create_topics(
                [
                    NewTopic(
                        name,
                        rng.randint(1, 6),
                        1,
                        config={"cleanup.policy": rng.choice(policies), **_SMALL},
                    )
                    for name in names
                ]
            )
        )
        producer = Producer({**self.bootstrap, "linger.ms": 5})
        for number in range(rng.randint(0, 300)):
            producer.produce(rng.choice(names), b"v" * 500, key=b"%d" % (number % 9))
        producer.flush(20)
        settled(self.admin.create_partitions([NewPartitions(names[0], 8)]))
        self._pause(rng.random())
        settled(self.admin.delete_topics(names))
        self.done["topics"] += len(names)

    def groups(self, rng: random.Random) -> None:
        """Run a group of a few members that leave, or disappear without leaving."""
        group = f"churn-{rng.getrandbits(3)}-{rng.getrandbits(20):x}"
        settings = {
            **self.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
        members = [Consumer(settings) for _ in range(rng.randint(1, 3))]
        for member in members:
            member.subscribe([STEADY, COMPACTED])
        for _ in range(rng.randint(2, 12)):
            for member in members:
                member.consume(50, 0.1)
        for member in members:
            with contextlib.suppress(KafkaException):
                member.commit(asynchronous=False)
            member.close()
        if rng.random() < 0.7:
            settled(self.admin.delete_consumer_groups([group]))
        self.done["group members"] += len(members)

    def sockets(self, rng: random.Random) -> None:
        """Open connections, send arbitrary bytes, and close them in several ways."""
        words = Words(topics=[b"churn-x", b"churn-y"], groups=[b"churn-z"])
        # Requests that create topics and groups of arbitrary names would leave them
        # behind.
        keys = [key for key in OF_CLIENTS if key.name.startswith(("FETCH", "LIST"))]
        streams = []
        for number in range(rng.randint(1, 15)):
            stream = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            streams.append(stream)
            frame = request(rng, words, keys, number).frame
            with contextlib.suppress(OSError):
                stream.sendall(frame[: rng.choice((len(frame), len(frame), 3, 20))])
        self._pause(rng.random() / 2)
        for stream in streams:
            if rng.random() < 0.5:
                linger = struct.pack("ii", 1, 0)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            stream.close()
        self.done["connections"] += len(streams)

    def producer(self, rng: random.Random) -> None:
        """Produce numbered records as an idempotent producer."""
        producer = Producer({**self.bootstrap, "enable.idempotence": True})
        for _ in range(rng.randint(5, 40)):
            for _ in range(rng.randint(1, 100)):
                partition = rng.randrange(PARTITIONS)
                number = self._sent[partition] = self._sent[partition] + 1
                value = b"%d " % number + b"x" * rng.randint(1, 600)
                producer.produce(STEADY, value, partition=partition)
                key = b"%d" % rng.randrange(50)
                producer.produce(COMPACTED, value, key=key, partition=partition)
                self.done["records"] += 2
            if producer.flush(20):
                self.faults.append("records are not acknowledged within 20 s")
            self._pause(0.1)

    def reader(self, rng: random.Random) -> None:
        """Read from a random offset; numbers of a partition must increase."""
        consumer = Consumer({**self.bootstrap, "group.id": "reads-without-committing"})
        topic = rng.choice((STEADY, COMPACTED))
        partition = rng.randrange(PARTITIONS)
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 20)
        start = rng.randint(low, high)
        consumer.assign([TopicPartition(topic, partition, start)])
        last = 0
        ends = time.monotonic() + 3
        while time.monotonic() < ends and not self._stop.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    number = int(message.value().split(b" ")[0])
                    if number <= last:
                        where = f"{topic}-{partition} at {message.offset()}"
                        self.faults.append(f"{number} after {last} in {where}")
                    last = number
                    self.done["records read"] += 1
        consumer.close()


def settled(futures: dict[Any, Future[Any]]) -> None:
    """Wait for administrative calls; raise errors that churn does not explain."""
    for future in futures.values():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() not in _EXPECTED:
                raise


def prepare(admin: AdminClient) -> None:
    """Create the permanent topics."""
    new = [
        NewTopic(name, PARTITIONS, 1, config=config)
        for name, config in _LASTING.items()
    ]
    settled(admin.create_topics(new))


def main(port: int, seed: int, number: int) -> None:
    """Run the clients until stdin ends."""
    churn = Churn(port, seed, number)
    told = 0
    left = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        left.set()

    def say() -> None:
        nonlocal told
        faults = churn.faults[told:]
        told += len(faults)
        print(json.dumps({"done": dict(churn.done), "faults": faults}), flush=True)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    churn.start()
    while not left.wait(1):
        say()
    churn.stop()
    say()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
