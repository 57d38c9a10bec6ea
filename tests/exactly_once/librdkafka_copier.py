"""Copy a topic in transactions with librdkafka; see `tests.exactly_once.clients`.

Usage: librdkafka_copier.py BOOTSTRAP NAME DIRECTORY SEED
"""

from __future__ import annotations

import faulthandler
import random
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

CALL_S = 10.0
# `send_offsets_to_transaction` may hang if its coordinator went away (issues 5456 and
# 5511 of librdkafka), so a program without progress exits.
STILL_S = 25.0


class Copier:
    """One member of the group, with its transactional producer."""

    def __init__(self, bootstrap: str, name: str, seed: str) -> None:
        self._rng = random.Random(seed)
        shared = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.fast.interval.ms": 100,
        }
        self._producer = Producer(
            {**shared, "transactional.id": name, "transaction.timeout.ms": 10_000}
        )
        self._consumer = Consumer(
            {
                **shared,
                "group.id": "copiers",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 3_000,
                "heartbeat.interval.ms": 500,
            }
        )

    def run(self) -> None:
        """Copy until a fatal error, which is raised."""
        faulthandler.dump_traceback_later(STILL_S, exit=True)
        self._repeat(self._producer.init_transactions)
        self._consumer.subscribe(["source"])
        while True:
            faulthandler.dump_traceback_later(STILL_S, exit=True)
            messages = self._consumer.consume(20, timeout=0.2)
            records = [each for each in messages if each.error() is None]
            if records:
                self._transact(records)

    def _transact(self, records: list[Message]) -> None:
        is_aborted = self._rng.random() < 0.1
        self._producer.begin_transaction()
        try:
            for each in records:
                place = b"%d %d %s" % (each.partition(), each.offset(), each.value())
                value = b"aborted " + place if is_aborted else place
                self._producer.produce("target", value, partition=each.partition())
            offsets = {each.partition(): each.offset() + 1 for each in records}
            self._repeat(
                self._producer.send_offsets_to_transaction,
                [TopicPartition("source", *each) for each in offsets.items()],
                self._consumer.consumer_group_metadata(),
            )
            if is_aborted:
                self._producer.flush(CALL_S)
                self._abort()
            else:
                self._repeat(self._producer.commit_transaction)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            print(f"aborted: {error}", file=sys.stderr, flush=True)
            self._abort()

    def _abort(self) -> None:
        """Abort, and seek back to the committed offsets."""
        self._repeat(self._producer.abort_transaction)
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, CALL_S):
            each.offset = OFFSET_BEGINNING if each.offset < 0 else each.offset
            self._consumer.seek(each)

    def _repeat(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Retry a call, as librdkafka requires, until an error is not retriable."""
        while True:
            try:
                call(*arguments, CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


if __name__ == "__main__":
    _, given_bootstrap, given_name, _, given_seed = sys.argv
    Copier(given_bootstrap, given_name, given_seed).run()
