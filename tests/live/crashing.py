"""A broker that is killed at chosen moments, and the state that it has confirmed.

Each cycle writes, begins an operation, kills the broker after a random time and
restarts it. With ``log.flush.interval.messages=1`` all confirmed records are on disk.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode_response
from tests.broker.apis.requests import (
    SECONDS_30,
    fetch_fields,
    new_topic,
    produce_fields,
)
from tests.broker.log.witness import batch, decoded
from tests.kafka.peer import Peer
from tests.live.broker_process import BrokerProcess

NONE: Final = ErrorCode.none
SETTINGS: Final = {
    "log_flush_interval_messages": "1",
    "log_initial_task_delay_ms": "1",
    # The records have old timestamps.
    "log_retention_ms": "-1",
    "log_retention_check_interval_ms": "20",
    "log_cleaner_backoff_ms": "20",
    "log_segment_delete_delay_ms": "20",
    "auto_create_topics_enable": "false",
}
STEADY, CUT, KEPT, SHORT = "steady", "cut", "kept", "short"
RETENTION_BYTES: Final = 5000
# Each batch has one value of 100 bytes; this number of them fits into the retention.
VALUE_BYTES, KEPT_AT_LEAST = 100, 20
CONFIGS: Final = {
    STEADY: {"segment.bytes": "3000"},
    CUT: {"segment.bytes": "1000"},
    KEPT: {
        "cleanup.policy": "compact",
        "segment.bytes": "1500",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    },
    SHORT: {"retention.bytes": str(RETENTION_BYTES), "segment.bytes": "1000"},
}
KEYS: Final = 8
PARTITIONS: Final = 4


class Crashing:
    """A broker, a connection to it, and the state that it has confirmed."""

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir()
        self.rng = random.Random(seed)
        self.kills = 0
        # Number of operations that were answered or finished before the kill.
        self.over: Counter[str] = Counter()
        self._written: dict[str, list[bytes]] = {name: [] for name in CONFIGS}
        self._kept: dict[bytes, bytes | None] = {}
        self._starts: dict[str, int] = dict.fromkeys(CONFIGS, 0)
        self._topics: dict[str, bool | None] = dict.fromkeys(CONFIGS, True)
        self._number = 0
        self.broker = BrokerProcess(directory, **SETTINGS)
        self._peer = Peer("ours", self.broker.port)
        self._start_s = 1.0
        for name, configs in CONFIGS.items():
            self._create(name, 1, configs)

    def cycle(self, moment: str) -> None:
        """Write, begin the operation of ``moment``, kill, restart, check the state."""
        self._write()
        begin: Callable[[], None] = getattr(self, f"_during_{moment}")
        begin()
        self._peer.close()
        began_s = time.monotonic()
        self.broker.start()
        self._start_s = time.monotonic() - began_s
        self._look()

    def close(self) -> None:
        """Stop the broker in order."""
        self._peer.close()
        self.broker.close()

    def abandon(self) -> None:
        """Kill the broker after a failure of the test."""
        self._peer.close()
        with suppress(ProcessLookupError, ValueError):
            self.broker.kill()

    # ---- moments --------------------------------------------------------------------

    def _during_creation(self) -> None:
        name = self._name()
        self._topics[name] = None
        self._begin(ApiKey.CREATE_TOPICS, 5, topics=[new_topic(name, PARTITIONS)])
        self._kill_within(0.03)
        answer = self._answered(ApiKey.CREATE_TOPICS, 5, "creation")
        if answer is not None:
            assert answer.topics[0].error_code is NONE
            self._topics[name] = True

    def _during_deletion(self) -> None:
        """Delete a topic with records, or the first records of a topic."""
        if self.rng.randrange(2):
            start = self._starts[CUT] + self.rng.randint(1, 4)
            wanted = [{"partition_index": 0, "offset": start}]
            topics = [{"name": CUT, "partitions": wanted}]
            self._begin(ApiKey.DELETE_RECORDS, 1, topics=topics)
            self._kill_within(0.02)
            if self._answered(ApiKey.DELETE_RECORDS, 1, "deletion") is not None:
                self._starts[CUT] = start
            return
        name = self._name()
        self._create(name, PARTITIONS, {})
        self._produce(name, b"doomed")
        self._topics[name] = None
        self._begin(ApiKey.DELETE_TOPICS, 5, topic_names=[name])
        self._kill_within(0.03)
        if self._answered(ApiKey.DELETE_TOPICS, 5, "deletion") is not None:
            self._topics[name] = False

    def _during_compaction(self) -> None:
        """Kill while the cleaner works or is about to; it checks every 20 ms."""
        for _ in range(20):
            self._put()
        self._kill_within(0.15)

    def _during_retention(self) -> None:
        for _ in range(20):
            self._produce(SHORT)
        end_s = time.monotonic() + self.rng.uniform(0, 0.1)
        while time.monotonic() < end_s:
            self._see_start(SHORT)
        self._kill()

    def _during_stop(self) -> None:
        os.kill(self.broker.pid, signal.SIGTERM)
        self._kill_within(0.3)

    def _during_recovery(self) -> None:
        """Kill the broker, and kill it again during its restart."""
        self._kill()
        # More than half of the start precedes the opening of the logs.
        self.broker.crash_while_starting(self.rng.uniform(0.4, 1.0) * self._start_s)
        self.kills += 1

    def _kill_within(self, seconds: float) -> None:
        time.sleep(self.rng.uniform(0, seconds))
        self._kill()

    def _kill(self) -> None:
        self.broker.kill()
        self.kills += 1

    # ---- requests -------------------------------------------------------------------

    def _begin(self, key: ApiKey, version: int, **fields: Any) -> None:
        self._peer.start(key, version, timeout=SECONDS_30, **fields)

    def _answered(self, key: ApiKey, version: int, moment: str) -> Any:
        """Return the response if it arrived before the kill."""
        frame = self._peer.receive()
        if not isinstance(frame, bytes):
            return None
        self.over[moment] += 1
        return decode_response(key, version, frame)[1]

    def _create(self, name: str, partitions: int, configs: dict[str, str]) -> None:
        topic = new_topic(name, partitions, configs=configs.items())
        fields = {"topics": [topic], "timeout": SECONDS_30}
        answer = self._peer.ask(ApiKey.CREATE_TOPICS, 5, **fields)
        assert answer.topics[0].error_code is NONE, answer
        self._topics[name] = True

    def _produce(self, name: str, value: bytes = b"", key: bytes | None = None) -> None:
        if not value:
            value = b"%s %d" % (name.encode(), len(self._written[name]))
            value = value.ljust(VALUE_BYTES, b".")
            self._written[name].append(value)
        self._send(name, value, key)

    def _send(self, name: str, value: bytes | None, key: bytes | None) -> None:
        records = batch([value], keys=[key])
        fields = produce_fields({(name, 0): records})
        answer = self._peer.ask(ApiKey.PRODUCE, 8, **fields)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code is NONE, row

    def _put(self) -> None:
        """Write a value or a tombstone of a random key."""
        self._number += 1
        key = b"key %d" % self.rng.randrange(KEYS)
        value = b"%d" % self._number if self.rng.randrange(4) else None
        self._send(KEPT, value, key)
        self._kept[key] = value

    def _write(self) -> None:
        for name in (STEADY, CUT, SHORT):
            for _ in range(5):
                self._produce(name)
        for _ in range(5):
            self._put()

    def _name(self) -> str:
        self._number += 1
        return f"topic-{self._number}"

    def _see_start(self, name: str) -> int:
        start = self._offset(name, -2)
        assert start >= self._starts[name], f"{name} begins at {start} again"
        self._starts[name] = start
        return start

    def _offset(self, name: str, timestamp: int, partition: int = 0) -> int:
        wanted = {
            "partition_index": partition,
            "current_leader_epoch": -1,
            "timestamp": timestamp,
        }
        topics = [{"name": name, "partitions": [wanted]}]
        answer = self._peer.ask(
            ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics
        )
        row = answer.topics[0].partitions[0]
        assert row.error_code is NONE, row
        offset: int = row.offset
        return offset

    # ---- checks of the confirmed state ----------------------------------------------

    def _look(self) -> None:
        self._look_for_topics()
        for name in (STEADY, CUT, SHORT):
            start, written = self._see_start(name), self._written[name]
            assert self._offset(name, -1) == len(written), name
            found = {offset: value for offset, _, value in self._read(name, start)}
            assert found == dict(enumerate(written[start:], start)), name
            if name != CUT:
                assert len(found) >= min(len(written), KEPT_AT_LEAST), name
        assert self._starts[STEADY] == 0
        last: dict[bytes, bytes | None] = {}
        for _, key, value in self._read(KEPT, self._see_start(KEPT)):
            last[key] = value
        alive = {key: value for key, value in last.items() if value is not None}
        assert alive == {k: v for k, v in self._kept.items() if v is not None}

    def _read(self, name: str, offset: int) -> list[tuple[int, Any, Any]]:
        found: list[tuple[int, Any, Any]] = []
        end = self._offset(name, -1)
        while offset < end:
            fields = fetch_fields({(name, 0): offset})
            answer = self._peer.ask(ApiKey.FETCH, 11, **fields)
            row = answer.responses[0].partitions[0]
            assert row.error_code is NONE, row
            if not row.records:
                break
            more = [
                (at, key, value)
                for at, _, key, value in decoded(row.records)
                if at >= offset
            ]
            found += more
            # Records compacted away at the end leave an empty batch.
            offset = more[-1][0] + 1 if more else end
        return found

    def _look_for_topics(self) -> None:
        answer = self._peer.ask(ApiKey.METADATA, 5, topics=None)
        found = {topic.name: topic for topic in answer.topics}
        for name, exists in self._topics.items():
            assert exists is None or (name in found) == exists, (name, exists)
            self._topics[name] = name in found
        assert found.keys() <= self._topics.keys()
        for name in self._topics.keys() - CONFIGS.keys():
            if name in found:
                assert len(found[name].partitions) == PARTITIONS, name
            else:
                # A new topic of the name begins with empty logs, whatever is left on
                # disk.
                self._create(name, PARTITIONS, {})
                assert {self._offset(name, -1, at) for at in range(PARTITIONS)} == {0}
            fields = {"topic_names": [name], "timeout": SECONDS_30}
            answer = self._peer.ask(ApiKey.DELETE_TOPICS, 5, **fields)
            assert answer.responses[0].error_code is NONE
            self._topics[name] = False
        # Deleted topics must still be gone after the next kill.
        gone = [name for name, exists in self._topics.items() if not exists]
        for name in gone[:-2]:
            del self._topics[name]
