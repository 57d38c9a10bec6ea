"""``__consumer_offsets`` as the coordinator writes and reads it.

The coordinator is a client of the broker's own replicas: a batch is appended as a
producer's with acks=all is, and waits in the produce purgatory for the in-sync replicas
no longer than ``offsets.commit.timeout.ms``. Reading goes to the log's end, not to the
high watermark: a new leader may hold acknowledged commits that it does not know yet to
be replicated. What ``flush.messages`` or ``flush.ms`` wants flushed is flushed at once,
and nothing else is done meanwhile.

Offsets that a transaction committed (Kafka writes them; this broker does not yet) count
from the transaction's commit marker on, and never if it was aborted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from broker.cluster.delayed_produce import DelayedProduce
from broker.cluster.partition import ALL_REPLICAS, Key, Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.topics import GROUP_METADATA_TOPIC
from broker.errors import ErrorCode, KafkaError
from broker.groups.config import NS_PER_MS
from broker.groups.messages import Instant, Record
from broker.log.batch import CONTROL, TRANSACTIONAL, BatchHeader, split_batches
from broker.log.records import new_batch, read_records

# The type in a control record's key: version int16, type int16.
_COMMIT_MARKER: Final = b"\0\1"


class OffsetsTopic:
    """The coordinator's `GroupLog` over the replicas of this broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Callable[[], Instant],
        *,
        codec: int,
        timeout_ms: int,
        load_bytes: int,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._codec = codec
        self._timeout_ns = timeout_ms * NS_PER_MS
        self._load_bytes = load_bytes

    def append(
        self,
        partition: int,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append one batch; ``done`` hears when all in-sync replicas have it."""
        key = (GROUP_METADATA_TOPIC, partition)
        now = self._clock()
        stamped = [(now.wall_ms, record.key, record.value) for record in records]
        try:
            led = self._replicas.leader(key)
            batch = new_batch(stamped, codec=self._codec)
            appended = led.append(batch, ALL_REPLICAS, now.wall_ms)
            if led.log.flush_due(now.wall_ms):
                led.log.flush(now.wall_ms)
        except KafkaError as refused:
            done(refused.code)
            return
        self._replicas.note_append(led)
        self._wait(key, led, appended.last_offset + 1, now, done)

    def _wait(
        self,
        key: Key,
        led: Partition,
        required_offset: int,
        now: Instant,
        done: Callable[[ErrorCode], None],
    ) -> None:
        delayed = DelayedProduce({key: led}, {key: required_offset})

        def settle() -> None:
            done(delayed.errors[key])

        deadline_ns = now.ns + self._timeout_ns
        purgatory = self._replicas.produce_purgatory
        if purgatory.watch(delayed, [key], deadline_ns, settle) is None:
            settle()

    def replay(self, partition: int) -> Iterator[Sequence[Record]]:
        """Iterate over the partition's records, a read of the log at a time."""
        key = (GROUP_METADATA_TOPIC, partition)
        led = self._replicas.get(key)
        end = led.log.log_end_offset
        offset = led.log.log_start_offset
        open_transactions: dict[int, list[Record]] = {}
        while offset < end:
            piece = led.log.read(offset, self._load_bytes, end)
            if piece is None:
                return
            found: list[Record] = []
            for header, batch in split_batches(piece.read()):
                found += _committed(header, batch, open_transactions)
                offset = header.last_offset + 1
            yield found


def _committed(
    header: BatchHeader, batch: memoryview, open_transactions: dict[int, list[Record]]
) -> list[Record]:
    """Return the records that count from this batch on."""
    records = read_records(header, batch)
    if header.attributes & CONTROL:
        ended = open_transactions.pop(header.producer_id, [])
        marker = records[0].key or b""
        return ended if marker[2:4] == _COMMIT_MARKER else []
    found = [
        Record(record.key, record.value) for record in records if record.key is not None
    ]
    if header.attributes & TRANSACTIONAL:
        open_transactions.setdefault(header.producer_id, []).extend(found)
        return []
    return found
