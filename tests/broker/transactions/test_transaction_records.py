"""Records of ``__transaction_state``, compared with bytes of Kafka's schemas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol.topic_partition import TopicPartition
from broker.shards.record_fields import UnreadableRecord
from broker.transactions.transaction import TransactionValue
from broker.transactions.transaction_records import (
    read_name,
    read_value,
    transaction_record,
    transaction_tombstone,
)
from broker.transactions.transaction_state import IDLE, PREPARED, TransactionState

KEY = bytes.fromhex("0000 0002 7478")
ONGOING = {
    "producer_id": 5,
    "epoch": 3,
    "timeout_ms": 60_000,
    "state": TransactionState.ONGOING,
    "partitions": frozenset({TopicPartition("t", 1), TopicPartition("t", 4)}),
    "updated_ms": 256,
    "started_ms": 255,
}
FIXED = "0000000000000005 0003 0000ea60 01"
VERSION_0 = bytes.fromhex(
    f"0000 {FIXED} 00000001 0001 74 00000002 00000001 00000004"
    "0000000000000100 00000000000000ff"
)
# Three tagged fields: previous producer id, next producer id, client version.
VERSION_1 = bytes.fromhex(
    f"0001 {FIXED} 02 02 74 03 00000001 00000004 00"
    "0000000000000100 00000000000000ff"
    "03 00 08 0000000000000004 01 08 0000000000000006 02 02 0002"
)


def test_version_0_is_kafkas() -> None:
    value = TransactionValue(**ONGOING)  # type: ignore[arg-type]
    assert transaction_record("tx", value, 0) == (KEY, VERSION_0)
    assert (read_name(KEY), read_value(VERSION_0)) == ("tx", value)
    assert transaction_tombstone("tx") == (KEY, None)


def test_version_1_is_kafkas() -> None:
    value = TransactionValue(  # type: ignore[arg-type]
        **ONGOING, previous_producer_id=4, next_producer_id=6, client_version=2
    )
    for level in (1, 2):
        assert transaction_record("tx", value, level) == (KEY, VERSION_1)
    assert read_value(VERSION_1) == value
    # The older format lacks these fields.
    assert transaction_record("tx", value, 0) == (KEY, VERSION_0)


def test_an_empty_state_has_no_partitions() -> None:
    value = TransactionValue(producer_id=1, epoch=0, timeout_ms=1, updated_ms=2)
    _, data = transaction_record("tx", value, 0)
    assert data is not None
    assert data[17:21] == b"\xff" * 4
    assert read_value(data) == value


@given(
    st.builds(
        TransactionValue,
        producer_id=st.integers(0, 2**63 - 1),
        epoch=st.integers(0, 32_767),
        timeout_ms=st.integers(1, 2**31 - 1),
        state=st.sampled_from(sorted(PREPARED, key=str)),
        partitions=st.frozensets(
            st.builds(TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1)),
            max_size=200,
        ),
        updated_ms=st.integers(0, 2**62),
        started_ms=st.integers(-1, 2**62),
        previous_producer_id=st.integers(-1, 2**63 - 1),
        next_producer_id=st.integers(-1, 2**63 - 1),
        client_version=st.integers(0, 2),
    ),
    st.integers(0, 2),
)
def test_any_value_is_read_as_it_was_written(
    value: TransactionValue, level: int
) -> None:
    _, data = transaction_record("tx", value, level)
    assert data is not None
    if level == 0:
        value = replace(
            value, previous_producer_id=-1, next_producer_id=-1, client_version=0
        )
    assert read_value(data) == value


@pytest.mark.parametrize("number", [6, 7, 8, 255])
def test_states_that_are_never_written_are_unreadable(number: int) -> None:
    data = VERSION_0[:16] + bytes([number]) + VERSION_0[17:]
    with pytest.raises(UnreadableRecord):
        read_value(data)


@given(st.binary(max_size=60), st.booleans())
def test_arbitrary_bytes_are_read_or_unreadable_and_nothing_else(
    data: bytes, flexible: bool
) -> None:
    try:
        value = read_value(bytes([0, flexible]) + data)
    except UnreadableRecord:
        return
    assert value.state in IDLE | PREPARED | {TransactionState.ONGOING}
