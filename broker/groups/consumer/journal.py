"""Records of a group that are not yet in the log.

The state in memory is ahead of the log. A record is added when the state changes, and
written before the next response, which is sent once the record is in the log. A record
whose write failed is written again with the next one, unless a newer record has its
key. The log thus catches up with memory, and clients see only states in the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.protocol.errors import ErrorCode
from broker.shards.effects import Effects, Instant, Record, Write

# Adds effects after the outcome of a write.
Then = Callable[[ErrorCode, Effects], None]


class Journal:
    """The records of one group that are not known to be in the log."""

    __slots__ = ("_in_flight", "_latest", "_number", "_then", "_unwritten", "is_used")

    def __init__(self) -> None:
        self._unwritten: dict[bytes, Record] = {}
        self._in_flight: dict[int, tuple[Record, ...]] = {}
        # The last write in flight of each key.
        self._latest: dict[bytes, int] = {}
        self._then: dict[int, list[Then]] = {}
        self._number = 0
        # Whether the log may contain records of the group.
        self.is_used = False

    def __len__(self) -> int:
        return len(self._unwritten) + len(self._in_flight)

    def note(self, *records: Record) -> None:
        """Add records; each replaces an unwritten one of the same key."""
        for record in records:
            self._unwritten.pop(record.key, None)
            self._unwritten[record.key] = record

    def take(self) -> tuple[Record, ...]:
        """Remove and return the unwritten records."""
        records = tuple(self._unwritten.values())
        self._unwritten.clear()
        return records

    def write(self, effects: Effects, then: Then) -> None:
        """Write all unwritten records, and call ``then`` with the outcome.

        Without unwritten records, ``then`` is called after all writes in flight.
        """
        if self._unwritten:
            records = self.take()
            self._number += 1
            self.is_used = True
            self._in_flight[self._number] = records
            self._latest |= dict.fromkeys(
                [record.key for record in records], self._number
            )
            self._then[self._number] = [then]
            effects.writes.append(Write(records, partial(self._ended, self._number)))
        elif self._in_flight:
            self._then[max(self._in_flight)].append(then)
        else:
            then(ErrorCode.none, effects)

    def _ended(self, number: int, error: ErrorCode, now: Instant) -> Effects:
        for record in self._in_flight.pop(number):
            if self._latest[record.key] != number:
                continue
            del self._latest[record.key]
            if error is not ErrorCode.none and record.key not in self._unwritten:
                self._unwritten[record.key] = record
        effects = Effects()
        for then in self._then.pop(number):
            then(error, effects)
        return effects
