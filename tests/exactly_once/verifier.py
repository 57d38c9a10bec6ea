"""Each record of the source is in the target, once, in order: exactly once.

A copy is ``PARTITION OFFSET VALUE``, of the record's place in the source. A program
that counts in a store appends the count. Offsets of the source are contiguous, so each
copy has one successor. Records of transactions that a program aborts on purpose begin
with ``aborted``, and a reader of committed records gets none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

ABORTED = b"aborted"


class Row(NamedTuple):
    """A record of the target."""

    partition: int
    offset: int
    value: bytes


class Verifier:
    """Judges the rows of the target one by one, in the order of each partition."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.faults: list[str] = []
        # Values by partition of the source; their number is the next offset.
        self.copied: dict[int, list[bytes]] = defaultdict(list)

    def take(self, row: Row) -> None:
        """Judge a row."""
        self.rows.append(row)
        if row.value.startswith(ABORTED):
            self.faults.append(f"an aborted record was read: {row}")
            return
        partition, offset, value, *count = row.value.split(b" ")
        copied = self.copied[int(partition)]
        expected = len(copied)
        if int(offset) < expected:
            self.faults.append(f"copied twice: {row}")
            return
        if int(offset) > expected:
            self.faults.append(f"lost: {partition!r} {expected} before {row}")
            copied += [b""] * (int(offset) - expected)
        copied.append(value)
        if count and int(count[0]) != len(copied):
            self.faults.append(f"miscounted: {len(copied)} in {row}")

    def finish(
        self, source: Mapping[int, Sequence[bytes]], again: Sequence[Row]
    ) -> None:
        """Compare with the source, and with a second reading of the target."""
        for partition, values in source.items():
            copied = self.copied[partition]
            if copied != list(values):
                self.faults.append(
                    f"partition {partition}: {len(copied)} copies of {len(values)}"
                )
        if sorted(self.rows) != sorted(again):
            first, second = set(self.rows), set(again)
            self.faults.append(
                f"read once only: {sorted(first - second)[:5]}, then "
                f"{sorted(second - first)[:5]}"
            )
