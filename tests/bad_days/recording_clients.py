"""Producers and group members on librdkafka that record their results."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from broker.protocol.topic_partition import TopicPartition as Partition
from simulation.histories import (
    UNKNOWN_OFFSET,
    Commit,
    Committed,
    FinalLog,
    History,
    Outcome,
    Read,
    Send,
)
from tests.bad_days.live_cluster import PARTITIONS, TOPIC
from tests.live.verifying import PATIENT

GROUP: Final = "g"
_SEND_EVERY_S: Final = 0.01
_ABOUT_CONNECTIONS: Final = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


@dataclass(frozen=True, slots=True)
class _Sent:
    number: int
    partition: int
    value: bytes
    invoked_ns: int


class RecordingProducer:
    """Sends a record at intervals, idempotently, to a random partition."""

    def __init__(self, bootstrap: str, history: History, name: str, seed: int) -> None:
        self.errors: list[str] = []
        self._history = history
        self._name = name
        self._rng = random.Random(f"{seed}/{name}")
        self._open: dict[int, _Sent] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "topic.metadata.refresh.fast.interval.ms": 100,
                **PATIENT,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self, patience_s: float) -> None:
        """Stop sending, and wait for all results; a missing one is unknown."""
        self._stopping.set()
        self._thread.join()
        self._producer.flush(patience_s)
        for sent in list(self._open.values()):
            self.errors.append(f"{sent.value!r} was not answered")
            self._settle(sent, "unknown", UNKNOWN_OFFSET)

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            number += 1
            partition = self._rng.randrange(PARTITIONS)
            value = f"{self._name}-{number}".encode()
            sent = _Sent(number, partition, value, time.monotonic_ns())
            self._open[number] = sent
            try:
                self._producer.produce(
                    TOPIC,
                    value,
                    partition=partition,
                    on_delivery=self._delivery_of(sent),
                )
            except KafkaException as refused:
                # The client has not accepted the record.
                self.errors.append(f"{value!r}: {refused}")
                self._settle(sent, "fail", UNKNOWN_OFFSET)
            self._producer.poll(_SEND_EVERY_S)

    def _delivery_of(self, sent: _Sent) -> Any:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                # A duplicate of a stored record is acknowledged without an offset.
                known = message.offset()
                self._settle(sent, "ok", UNKNOWN_OFFSET if known is None else known)
            else:
                self.errors.append(f"{sent.value!r}: {error}")
                self._settle(sent, "unknown", UNKNOWN_OFFSET)

        return delivered

    def _settle(self, sent: _Sent, outcome: Outcome, offset: int) -> None:
        del self._open[sent.number]
        self._history.sends.append(
            Send(
                producer=self._name,
                number=sent.number,
                partition=Partition(TOPIC, sent.partition),
                value=sent.value,
                acks=-1,
                idempotent=True,
                invoked_ns=sent.invoked_ns,
                answered_ns=time.monotonic_ns(),
                outcome=outcome,
                offset=offset,
            )
        )


class RecordingMember:
    """Reads as a member of the group, and commits its position."""

    def __init__(self, bootstrap: str, history: History, name: str) -> None:
        self.errors: list[str] = []
        self._history = history
        self._name = name
        self._session = self._poll = 0
        self._consumer = _consumer(bootstrap, name)
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._session += 1

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages = self._consumer.consume(500, timeout=0.1)
            self._poll += 1
            reads = [self._read(it) for it in messages if self._is_record(it)]
            self._history.reads += reads
            if reads:
                self._commit(reads)

    def _is_record(self, message: Any) -> bool:
        error = message.error()
        if error is not None and error.code() not in _ABOUT_CONNECTIONS:
            self.errors.append(str(error))
        return error is None

    def _read(self, message: Any) -> Read:
        return Read(
            consumer=self._name,
            session=self._session,
            poll=self._poll,
            partition=Partition(message.topic(), message.partition()),
            offset=message.offset(),
            value=message.value(),
            at_ns=time.monotonic_ns(),
        )

    def _commit(self, reads: list[Read]) -> None:
        ends = {read.partition.partition: read.offset + 1 for read in reads}
        invoked_ns = time.monotonic_ns()
        asked = [TopicPartition(TOPIC, index, end) for index, end in ends.items()]
        outcomes: dict[int, Outcome] = dict.fromkeys(ends, "unknown")
        try:
            for each in self._consumer.commit(offsets=asked, asynchronous=False):
                if each.error is None:
                    outcomes[each.partition] = "ok"
        except KafkaException as failure:
            # Refused by a new generation, or lost in transit: the outcome is unknown.
            if failure.args[0].fatal():
                self.errors.append(str(failure))
        answered_ns = time.monotonic_ns()
        self._history.commits += [
            Commit(
                group=GROUP,
                partition=Partition(TOPIC, index),
                offset=end,
                invoked_ns=invoked_ns,
                answered_ns=answered_ns,
                outcome=outcomes[index],
            )
            for index, end in ends.items()
        ]


def note_the_end(bootstrap: str, history: History, patience_s: float) -> None:
    """Record all partitions' records, and the offsets that the coordinator has."""
    consumer = _consumer(bootstrap, "the-end")
    everything = [TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)]
    invoked_ns = time.monotonic_ns()
    for each in consumer.committed(everything, patience_s):
        assert each.error is None, each.error
        history.committed.append(
            Committed(
                group=GROUP,
                partition=Partition(TOPIC, each.partition),
                offset=-1 if each.offset == OFFSET_INVALID else each.offset,
                invoked_ns=invoked_ns,
                answered_ns=time.monotonic_ns(),
            )
        )
    for each in everything:
        history.finals.append(_final_log(consumer, each, patience_s))
    consumer.close()


def _final_log(
    consumer: Consumer, partition: TopicPartition, patience_s: float
) -> FinalLog:
    start, end = consumer.get_watermark_offsets(partition, patience_s)
    records: list[tuple[int, bytes]] = []
    consumer.assign([TopicPartition(TOPIC, partition.partition, start)])
    until_s = time.monotonic() + patience_s
    while start < end and (not records or records[-1][0] < end - 1):
        assert time.monotonic() < until_s, f"{partition}: {len(records)} of {end}"
        for message in consumer.consume(5000, timeout=0.2):
            if message.error() is None:
                records.append((message.offset(), message.value()))
    return FinalLog(
        partition=Partition(TOPIC, partition.partition),
        log_start_offset=start,
        records=tuple(records),
    )


def _consumer(bootstrap: str, name: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "topic.metadata.refresh.fast.interval.ms": 100,
            **PATIENT,
        }
    )
