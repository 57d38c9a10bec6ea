"""Planted faults that the verifier of exactly-once runs must detect."""

from __future__ import annotations

import pytest

from tests.exactly_once.verifier import Row, Verifier

SOURCE = {0: [b"a", b"b", b"c"], 1: [b"d"]}
COPIES = [b"0 0 a", b"0 1 b", b"1 0 d", b"0 2 c"]


def faults(values: list[bytes], again: list[bytes] | None = None) -> list[str]:
    verifier = Verifier()
    rows = [Row(0, offset, value) for offset, value in enumerate(values)]
    for row in rows:
        verifier.take(row)
    second = values if again is None else again
    verifier.finish(SOURCE, [Row(0, at, value) for at, value in enumerate(second)])
    return [fault.partition(":")[0] for fault in verifier.faults]


def test_each_record_once_is_no_fault() -> None:
    assert faults(COPIES) == []
    assert faults([b"0 0 a 1", b"0 1 b 2", b"1 0 d 1", b"0 2 c 3"]) == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([*COPIES, b"0 1 b"], ["copied twice"]),
        ([COPIES[0], COPIES[2], COPIES[3]], ["lost", "partition 0"]),
        (COPIES[:3], ["partition 0"]),
        ([COPIES[1], COPIES[0], *COPIES[2:]], ["lost", "copied twice", "partition 0"]),
        ([*COPIES, b"aborted 0 3 x"], ["an aborted record was read"]),
        ([b"0 0 a 1", b"0 1 b 1", *COPIES[2:]], ["miscounted"]),
        ([b"0 0 x", *COPIES[1:]], ["partition 0"]),
    ],
)
def test_a_planted_fault_is_named(values: list[bytes], expected: list[str]) -> None:
    assert faults(values) == expected


def test_a_record_that_only_one_reading_has_is_a_fault() -> None:
    assert faults(COPIES, COPIES[:3]) == ["read once only"]
