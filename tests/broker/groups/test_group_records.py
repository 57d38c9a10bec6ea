"""Records of ``__consumer_offsets``, compared with bytes written by hand.

Each expected string follows the public schema field by field (OffsetCommitKey,
OffsetCommitValue, GroupMetadataKey, GroupMetadataValue), one line per field.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.groups.state.group_messages import OffsetCommit
from broker.groups.state.group_records import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_group,
    read_key,
    read_offset,
)
from broker.shards.effects import Record
from broker.shards.record_fields import UnreadableRecord


def bytes_of(*fields: str) -> bytes:
    return bytes.fromhex("".join(fields))


OFFSET_KEY = bytes_of(
    "0001",  # version 1
    "0002 6772",  # group "gr"
    "0003 746f70",  # topic "top"
    "00000007",  # partition
)
OFFSET_VALUE_3 = bytes_of(
    "0003",
    "00000000000004d2",  # offset 1234
    "00000009",  # leader epoch
    "0001 6d",  # metadata "m"
    "0000018bcfe56800",  # commit timestamp 1700000000000
)
OFFSET_VALUE_1 = bytes_of(
    "0001",
    "00000000000004d2",
    "0001 6d",
    "0000018bcfe56800",
    "0000018bcfe56be8",  # expire timestamp, 1000 ms later
)
OFFSET_VALUE_4 = bytes_of(
    "0004",
    "00000000000004d2",
    "00000009",
    "02 6d",  # compact: length + 1
    "0000018bcfe56800",
    "01",  # one tagged field:
    "05 02 abcd",  # tag 5, two bytes
)
GROUP_KEY = bytes_of("0002", "0002 6772")
GROUP_VALUE_3 = bytes_of(
    "0003",
    "0008 636f6e73756d6572",  # protocol type "consumer"
    "00000005",  # generation
    "0005 72616e6765",  # protocol "range"
    "0002 6d31",  # leader "m1"
    "0000018bcfe56800",  # current state timestamp
    "00000001",  # one member:
    "0002 6d31",  # member id
    "0002 6931",  # group instance id "i1"
    "0001 63",  # client id "c"
    "0002 2f68",  # client host "/h"
    "0000ea60",  # rebalance timeout 60000
    "00002710",  # session timeout 10000
    "00000002 0102",  # subscription
    "00000001 ff",  # assignment
)
GROUP_VALUE_4 = bytes_of(
    "0004",
    "09 636f6e73756d6572",
    "00000005",
    "06 72616e6765",
    "03 6d31",
    "0000018bcfe56800",
    "02",  # one member
    "03 6d31",
    "03 6931",
    "02 63",
    "03 2f68",
    "0000ea60",
    "00002710",
    "03 0102",
    "02 ff",
    "00",  # no tagged fields in the member
    "00",  # nor in the value
)
GROUP_VALUE_0 = bytes_of(
    "0000",
    "0008 636f6e73756d6572",
    "00000005",
    "ffff",  # no protocol
    "ffff",  # no leader
    "00000001",
    "0002 6d31",
    "0001 63",
    "0002 2f68",
    "00002710",  # session timeout only
    "00000002 0102",
    "00000001 ff",
)

KEY = OffsetKey("gr", "top", 7)
COMMIT = OffsetCommit(1234, 9, "m", 1_700_000_000_000)
MEMBER = MemberValue(
    member_id="m1",
    instance_id="i1",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=60_000,
    session_timeout_ms=10_000,
    subscription=b"\1\2",
    assignment=b"\xff",
)
GROUP = GroupValue(
    protocol_type="consumer",
    generation=5,
    protocol_name="range",
    leader="m1",
    since_ms=1_700_000_000_000,
    members=(MEMBER,),
)


def test_an_offset_is_written_in_version_3() -> None:
    assert offset_record(KEY, COMMIT) == Record(OFFSET_KEY, OFFSET_VALUE_3)


def test_an_offset_with_an_expiry_is_written_in_version_1() -> None:
    commit = COMMIT._replace(expire_ms=1_700_000_001_000)
    assert offset_record(KEY, commit) == Record(OFFSET_KEY, OFFSET_VALUE_1)


def test_a_group_is_written_in_version_3() -> None:
    assert group_record("gr", GROUP) == Record(GROUP_KEY, GROUP_VALUE_3)


def test_tombstones_have_a_key_alone() -> None:
    assert offset_tombstone(KEY) == Record(OFFSET_KEY, None)
    assert group_tombstone("gr") == Record(GROUP_KEY, None)


def test_keys_are_read() -> None:
    assert read_key(OFFSET_KEY) == KEY
    assert read_key(b"\0\0" + OFFSET_KEY[2:]) == KEY
    assert read_key(GROUP_KEY) == GroupKey("gr")


@pytest.mark.parametrize("version", [3, 8, 15, 1_000])
def test_keys_of_other_group_protocols_are_passed_over(version: int) -> None:
    assert read_key(version.to_bytes(2, "big") + b"whatever") is None


def test_offsets_of_every_version_are_read() -> None:
    old = COMMIT._replace(leader_epoch=-1)
    version_0 = b"\0\0" + OFFSET_VALUE_1[2:-8]
    assert read_offset(version_0) == old
    assert read_offset(OFFSET_VALUE_1) == old._replace(expire_ms=1_700_000_001_000)
    assert read_offset(b"\0\2" + version_0[2:]) == old
    assert read_offset(OFFSET_VALUE_3) == COMMIT
    assert read_offset(OFFSET_VALUE_4) == COMMIT


def test_groups_of_old_and_new_versions_are_read() -> None:
    assert read_group(GROUP_VALUE_3) == GROUP
    assert read_group(GROUP_VALUE_4) == GROUP
    oldest = read_group(GROUP_VALUE_0)
    assert (oldest.protocol_name, oldest.leader, oldest.since_ms) == (None, None, -1)
    assert oldest.members[0].rebalance_timeout_ms == 10_000
    assert oldest.members[0].instance_id is None


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\5" + b"x" * 40, b"\xff\xff", OFFSET_VALUE_3[:-1]]
)
def test_a_value_that_makes_no_sense_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        read_offset(value)


@pytest.mark.parametrize(
    ("written", "read_ms"), [("00000000", 0), ("00000001", 1), ("ffffffff", 10_000)]
)
def test_only_a_rebalance_timeout_that_is_none_is_the_sessions(
    written: str, read_ms: int
) -> None:
    for value in (GROUP_VALUE_3, GROUP_VALUE_4):
        value = value.replace(bytes_of("0000ea60"), bytes_of(written))
        (member,) = read_group(value).members
        assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (
            read_ms,
            10_000,
        )


def test_a_compact_string_is_no_longer_than_a_classic_one_may_be() -> None:
    longest = OFFSET_VALUE_4.replace(
        bytes_of("02 6d"), bytes_of("808002") + b"m" * 32_767
    )
    assert read_offset(longest).metadata == "m" * 32_767
    longer = OFFSET_VALUE_4.replace(
        bytes_of("02 6d"), bytes_of("818002") + b"m" * 32_768
    )
    with pytest.raises(UnreadableRecord, match="32768 bytes"):
        read_offset(longer)


def test_a_varint_has_five_bytes_at_most() -> None:
    one_tag = bytes_of("01", "05 02 abcd")
    for count in ("01", "8100", "8180808000"):
        value = OFFSET_VALUE_4.replace(one_tag, bytes_of(count, "05 02 abcd"))
        assert read_offset(value) == COMMIT
    six = OFFSET_VALUE_4.replace(one_tag, bytes_of("818080808000", "05 02 abcd"))
    with pytest.raises(UnreadableRecord, match="five bytes"):
        read_offset(six)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_unreadable_and_nothing_else(data: bytes) -> None:
    for read in (read_key, read_offset, read_group):
        for prefix in (b"", b"\0\0", b"\0\1", b"\0\2", b"\0\3", b"\0\4"):
            with contextlib.suppress(UnreadableRecord):
                read(prefix + data)


TEXT = st.text(max_size=8)
MEMBERS = st.builds(
    MemberValue,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    session_timeout_ms=st.integers(0, 2**31 - 1),
    subscription=st.binary(max_size=9),
    assignment=st.binary(max_size=9),
)


@given(
    st.builds(
        GroupValue,
        protocol_type=TEXT,
        generation=st.integers(0, 2**31 - 1),
        protocol_name=st.none() | TEXT,
        leader=st.none() | TEXT,
        since_ms=st.integers(-1, 2**62),
        members=st.lists(
            MEMBERS,
            max_size=2,
            unique_by=(lambda each: each.member_id, lambda each: each.instance_id),
        ).map(tuple),
    )
)
def test_a_group_is_read_as_it_was_written(value: GroupValue) -> None:
    record = group_record("g", value)
    assert record.value is not None
    assert read_group(record.value) == value
