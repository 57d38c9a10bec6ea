"""Mending: return to service without a restart of a log whose flush met a full disk.

After a failed ``fsync`` Linux marks the pages clean, and the next ``fsync`` reports
success although nothing was written (Rebello et al., "Can Applications Recover from
fsync Failures?", USENIX ATC 2020). Repeating the sync is therefore not enough. The data
can still be read: every batch that is perhaps not durable is checked, rewritten in
place, and synced. If a batch has changed, or the disk is still full, the log stays out
of service.

Mending is done only after a full disk. After an error of the device, later writes
cannot be trusted, and a restart has to recover the log. Kafka takes the whole directory
offline in both cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.log.flushing import due_syncs, flush_in_steps
from broker.log.log import Log
from broker.log.operation import in_steps
from broker.log.segments.repair import checked, recover
from broker.log.segments.segment import Segment
from broker.log.steps import Steps
from broker.protocol.errors import ErrorCode, KafkaError

_CHUNK_BYTES: Final = 1 << 20


@in_steps
def mend(log: Log) -> Steps[bool]:
    """Return a log to service after a full disk; return whether it was mended.

    Raises KAFKA_STORAGE_ERROR if mending fails. Reads and writes the undurable part:
    the active segment, and segments that ended since the last flush. A log that is
    truncated meanwhile stays out of service until the next attempt.
    """
    durability = log.durability
    if not durability.mendable:
        return False
    generation = durability.generation
    work = _Mending(log, [*durability.unflushed, log.segments.active])
    yield work.run
    if durability.generation != generation:
        work.tear()
        return False
    if work.damage is not None:
        raise work.damage
    work.take_over_indexes()
    durability.take_up()
    # If this flush fails, the log is out of service again.
    yield from flush_in_steps(log, due_syncs(log))
    return True


class _Mending:
    """Segments that are rewritten, and their rebuilt indexes.

    Readers use the former indexes meanwhile.
    """

    def __init__(self, log: Log, segments: Sequence[Segment]) -> None:
        self.damage: KafkaError | None = None
        self._segments = segments
        self._again = partial(
            Segment, log.storage, log.directory, config=log.config, created_ms=0
        )
        self._indexed: list[Segment] = []

    def run(self) -> None:
        """Check all segments, then rewrite them; raise OSError. Runs in a thread."""
        try:
            for segment in self._segments:
                _check(segment)
            for segment in self._segments:
                _write_again(segment)
                segment.cut()
                self._indexed.append(self._with_new_indexes(segment))
        except KafkaError as damage:
            self.damage = damage

    def _with_new_indexes(self, segment: Segment) -> Segment:
        again: Segment = self._again(segment.base_offset)
        again.size = segment.size
        recover(again, lambda _: None)
        return again

    def take_over_indexes(self) -> None:
        """Use the new indexes from now on."""
        for segment, again in zip(self._segments, self._indexed, strict=True):
            segment.take_over_indexes(again)

    def tear(self) -> None:
        """Record that bytes may have been written after the ends of segments."""
        for segment in self._segments:
            segment.tear()


def _check(segment: Segment) -> None:
    """Raise CORRUPT_MESSAGE unless every batch can still be read unchanged."""
    end = 0
    for position, header, _ in checked(segment):
        end = position + header.size
    if end != segment.size:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{segment!r}: only {end} bytes are left of a write that was not synced",
        )


def _write_again(segment: Segment) -> None:
    """Rewrite the bytes of a segment in place."""
    position, end = 0, segment.size
    while position < end:
        data = segment.file.read(position, min(_CHUNK_BYTES, end - position))
        if not data:
            # The segment was truncated meanwhile.
            return
        segment.file.write(position, (data,), len(data))
        position += len(data)
