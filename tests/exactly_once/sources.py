"""Records to copy, written continuously to a topic, or to files for Kafka Connect."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Producer

from tests.exactly_once.readers import read_all
from tests.live.verifying import PATIENT

PARTITIONS: Final = 2
_EVERY_S: Final = 0.02
# A transaction of some hundred records would rarely escape a deliberate abort.
_AHEAD_MAX: Final = 100


class Source(Protocol):
    """Records by partition, each written once."""

    def write(self, partition: int, value: bytes) -> None:
        """Write a record."""

    def close(self) -> None:
        """Wait until all records are written."""

    def values(self) -> dict[int, list[bytes]]:
        """Return the records of each partition, in order."""


class TopicSource:
    """The topic ``source``, which is read again at the end as the reference."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._acknowledged: dict[int, set[bytes]] = {}
        self._failures: list[Any] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, **PATIENT}
        )

    def write(self, partition: int, value: bytes) -> None:
        """Produce a record."""
        self._producer.produce(
            "source", value, partition=partition, on_delivery=self._delivered
        )
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            values = self._acknowledged.setdefault(message.partition(), set())
            values.add(message.value())

    def close(self) -> None:
        """Wait for all acknowledgements."""
        assert self._producer.flush(120) == 0
        assert self._failures == []

    def values(self) -> dict[int, list[bytes]]:
        """Read the topic; check that it has each acknowledged record."""
        found: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        for row in read_all(self._bootstrap, "source", "read_uncommitted"):
            assert row.offset == len(found[row.partition]), row
            found[row.partition].append(row.value)
        for partition, values in self._acknowledged.items():
            assert values <= set(found[partition]), partition
        return found


class FileSource:
    """A file per partition, with a line per record."""

    def __init__(self, directory: Path) -> None:
        self.files = [directory / f"source-{each}" for each in range(PARTITIONS)]
        self._values: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        for file in self.files:
            file.touch()

    def write(self, partition: int, value: bytes) -> None:
        """Append a line."""
        values = self._values[partition]
        with self.files[partition].open("ab") as file:
            file.write(b"%d %d %s\n" % (partition, len(values), value))
        values.append(value)

    def close(self) -> None:
        """Do nothing, since lines are written immediately."""

    def values(self) -> dict[int, list[bytes]]:
        """Return the lines' values."""
        return self._values


class Feed:
    """Thread that writes numbers to a source until closed.

    It pauses while the source has `_AHEAD_MAX` records more than there are ``copies``.
    """

    def __init__(
        self, source: Source, rng: random.Random, copies: Callable[[], int]
    ) -> None:
        self._source = source
        self._rng = rng
        self._copies = copies
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(_EVERY_S):
            if number >= self._copies() + _AHEAD_MAX:
                continue
            self._source.write(self._rng.randrange(PARTITIONS), b"%d" % number)
            number += 1

    def close(self) -> None:
        """Stop, and wait until all records are written."""
        self._stopping.set()
        self._thread.join()
        self._source.close()
