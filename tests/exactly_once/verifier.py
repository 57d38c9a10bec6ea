"""Verifier: each record of the source is in the target once, in order.

A copy is ``PARTITION OFFSET VALUE``, with the record's position in the source. A
program that counts in a store appends the count. Offsets of the source are contiguous,
so each copy has one valid successor. Records of deliberately aborted transactions begin
with ``aborted``; a reader of committed records must not see them.
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
    """Verifies the rows of the target one by one, in the order of each partition."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.faults: list[str] = []
        # Values by partition of the source; the next offset is their count.
        self.copied: dict[int, list[bytes]] = defaultdict(list)

    def take(self, row: Row) -> None:
        """Verify a row."""
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
        """Compare the copies with the source and with a second read of the target."""
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
