"""Records of consumer groups, compared with the bytes that Kafka 4.4.0 writes.

The expected bytes are those of ``GroupCoordinatorRecordHelpers`` and
``GroupCoordinatorRecordSerde``, run from Kafka's own jars.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.consumer.consumer_records import (
    ConsumerKey,
    EpochValue,
    Kind,
    ResolvedRegex,
    TargetEpochValue,
    current_record,
    epoch_record,
    member_record,
    read_consumer_key,
    read_current,
    read_epoch,
    read_member,
    read_regex,
    read_target,
    read_target_epoch,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.groups.consumer.members import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
)
from broker.groups.state.group_messages import GroupProtocol
from broker.shards.effects import Record
from broker.shards.record_fields import UnreadableRecord

FIRST = UUID(int=(1 << 64) + 2)
SECOND = UUID(int=(3 << 64) + 4)
MEMBER = ConsumerMember(
    member_id="m",
    epoch=9,
    previous_epoch=8,
    state=MemberState.UNREVOKED_PARTITIONS,
    instance_id="i",
    client_id="c",
    client_host="/1.2.3.4",
    rebalance_timeout_ms=300_000,
    topics=frozenset({"t"}),
    regex="x.*",
    assignor="range",
    assigned={FIRST: {0: 9, 1: 8}},
    revoking={SECOND: {5: 3}},
)
CLASSIC = ConsumerMember(
    member_id="c",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=5,
    classic=ClassicProtocols(
        session_timeout_ms=45_000,
        protocols=(GroupProtocol("range", b"\1\2\3"),),
    ),
)

WRITTEN = [
    (
        epoch_record("g", EpochValue(7, -5)),
        "0003000167",
        "000000000007010008fffffffffffffffb",
    ),
    (epoch_record("g", EpochValue(7, 0)), "0003000167", "00000000000700"),
    (
        target_epoch_record("g", TargetEpochValue(7, 1_234_567)),
        "0006000167",
        "000000000007010008000000000012d687",
    ),
    (
        target_epoch_record("g", TargetEpochValue(7, 0)),
        "0006000167",
        "00000000000700",
    ),
    (
        target_record("g", "m", {FIRST: frozenset({0, 1, 300})}),
        "000700016700016d",
        "000002000000000000000100000000000000020400000000000000010000012c0000",
    ),
    (
        member_record("g", MEMBER),
        "000500016700016d",
        "00000269000263092f312e322e332e3402027404782e2a000493e00672616e676501000100",
    ),
    (
        current_record("g", MEMBER),
        "000800016700016d",
        "00000000000900000008010200000000000000010000000000000002030000000000000001"
        "01000903000000090000000802000000000000000300000000000000040200000005010005"
        "020000000300",
    ),
    (
        member_record("g", CLASSIC),
        "0005000167000163",
        "000000000263032f6801010000000500010012010000afc8020672616e6765040102030000",
    ),
    (
        current_record("g", CLASSIC),
        "0008000167000163",
        "000000000000ffffffff00010100",
    ),
    (
        regex_record("g", "x.*", ResolvedRegex(frozenset({"xa"}), 10, 12_345)),
        "00100001670003782e2a",
        "000002037861000000000000000a000000000000303900",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), WRITTEN)
def test_records_are_kafkas(record: Record, key: str, value: str) -> None:
    assert record.value is not None
    assert (record.key.hex(), record.value.hex()) == (key, value)


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (tombstone(Kind.EPOCH, "g"), "0003000167"),
        (tombstone(Kind.TOPICS, "g"), "0004000167"),
        (tombstone(Kind.TARGET, "g", "m"), "000700016700016d"),
        (tombstone(Kind.MEMBER, "g", "m"), "000500016700016d"),
        (tombstone(Kind.CURRENT, "g", "m"), "000800016700016d"),
        (tombstone(Kind.REGEX, "g", "x.*"), "00100001670003782e2a"),
    ],
)
def test_tombstones_are_kafkas(record: Record, key: str) -> None:
    assert (record.key.hex(), record.value) == (key, None)


def test_values_come_back() -> None:
    values = [record.value or b"" for record, _, _ in WRITTEN]
    assert read_epoch(values[0]) == (7, -5)
    assert read_epoch(values[1]) == (7, 0)
    assert read_target_epoch(values[2]) == (7, 1_234_567)
    assert read_target_epoch(values[3]) == (7, 0)
    assert read_target(values[4]) == {FIRST: frozenset({0, 1, 300})}
    assert read_member("m", values[5]).subscription() == MEMBER.subscription()
    assert tuple(read_current(values[6])) == MEMBER.position()
    assert read_member("c", values[7]).subscription() == CLASSIC.subscription()
    assert read_regex(values[9]) == (frozenset({"xa"}), 10, 12_345)


def test_keys_come_back() -> None:
    keys = [read_consumer_key(record.key) for record, _, _ in WRITTEN]
    assert keys[4] == ConsumerKey(Kind.TARGET, "g", "m")
    assert keys[0] == ConsumerKey(Kind.EPOCH, "g")
    assert read_consumer_key(bytes.fromhex("000b000167")) is None


def test_partitions_without_epochs_are_of_the_members() -> None:
    """Kafka before 4.4 (KIP-1251) writes no epochs of partitions."""
    value = bytes.fromhex(
        "0000"
        "00000009 00000008 00"
        "02" + FIRST.bytes.hex() + "03 00000000 00000001 00"
        "01 00"
    )
    assert read_current(value).assigned == {FIRST: {0: 9, 1: 9}}


def test_states_of_a_later_version_are_unknown() -> None:
    value = bytes.fromhex("0000 00000009 00000008 07 01 01 00")
    assert read_current(value).state is MemberState.UNKNOWN


READERS = [
    read_epoch,
    read_target_epoch,
    read_target,
    read_current,
    read_regex,
    lambda data: read_member("m", data),
]


@given(st.binary(max_size=60), st.sampled_from(READERS))
def test_nonsense_is_refused(data: bytes, read: Callable[[bytes], object]) -> None:
    with suppress(UnreadableRecord):
        read(data)
