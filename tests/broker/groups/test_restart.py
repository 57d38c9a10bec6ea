"""A restarted coordinator has all state that it had acknowledged."""

from __future__ import annotations

import random

import pytest

from broker.groups.group_coordinator import GroupCoordinator
from broker.groups.state.group_messages import MemberIdentity
from broker.groups.state.group_records import (
    GroupValue,
    MemberValue,
    group_record,
    group_tombstone,
)
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import Instant, Record
from broker.shards.group_partition import java_hash, partition_for
from tests.broker.groups.all_offsets import fetch_all

T0, T1 = ("t", 0), ("t", 1)


def test_a_stable_group_goes_on_without_a_rebalance(world) -> None:
    leader, follower = world.form(2)
    world.advance(5_000)
    world.start()
    assert world.state == "Stable"
    assert world.group.roster.leader == leader
    assert world.heartbeat(follower, 1) is ErrorCode.none
    assert world.sync(follower, 1).answer().assignment == follower.encode()
    assert world.join(follower).answer().generation == 1
    assert world.group.subscribes_to("t")
    assert not world.group.subscribes_to("u")
    loads = world.coordinator.statistics().partition_loads
    assert loads == world.config.offsets_topic_num_partitions


def test_sessions_start_anew_with_the_coordinator(world) -> None:
    (member,) = world.form(1)
    world.advance(9_999)
    world.start()
    world.advance(9_999)
    assert member in world.group.roster
    world.advance(1)
    assert world.state == "Empty"


def test_a_group_that_was_rebalancing_is_in_its_last_generation(world) -> None:
    leader, follower = world.form(2)
    world.join(leader)
    world.join(follower)
    assert world.state == "CompletingRebalance"
    world.start()
    assert (world.state, world.group.generation) == ("Stable", 1)
    assert world.heartbeat(leader, 2) is ErrorCode.illegal_generation


def test_static_members_keep_their_instance(world) -> None:
    world.join(instance_id="i")
    world.advance(3_000)
    (member,) = world.group.roster.members
    world.spread([member], 1)
    world.start()
    assert world.group.roster.static_member_id("i") == member
    new = world.join(instance_id="i").answer().member_id
    world.start()
    assert world.group.roster.static_member_id("i") == new


def test_the_leader_is_the_one_that_is_written_and_not_the_first(world) -> None:
    members = tuple(
        MemberValue(
            member_id=name,
            instance_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            subscription=b"",
            assignment=b"",
        )
        for name in ("m", "n")
    )
    value = GroupValue(
        protocol_type="consumer",
        generation=1,
        protocol_name="range",
        leader="n",
        since_ms=0,
        members=members,
    )
    partition = world.coordinator.partition_for("g")
    world.log.partitions[partition] = [group_record("g", value)]
    world.start()
    assert world.group.roster.leader == "n"


def test_an_emptied_group_keeps_its_generation(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.start()
    assert (world.state, world.group.generation) == ("Empty", 2)
    joined = world.join()
    world.advance(3_000)
    assert joined.answer().generation == 3


def test_the_time_since_a_group_is_empty_goes_on(make_world) -> None:
    world = make_world(offsets_retention_ms=3_600_000)
    (member,) = world.form(1)
    world.commit({T0: 1}, member, 1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.advance(3_599_000)
    world.start()
    assert world.fetched() == {T0: 1}
    world.advance(600_000)
    assert world.coordinator.describe("g") is None


def test_the_last_commit_is_what_is_left(world) -> None:
    world.commit({T0: 1, T1: 5})
    world.commit({T0: 2})
    world.start()
    assert world.fetched() == {T0: 2, T1: 5}
    one = world.coordinator.offsets.fetch(
        "g", [TopicPartition(*T0)], require_stable=True
    )
    assert (one[T0].leader_epoch, one[T0].metadata) == (5, "m")


def test_deleted_offsets_and_groups_stay_deleted(world) -> None:
    world.commit({T0: 1, T1: 1})
    world.coordinator.offsets.delete("g", [TopicPartition(*T0)])
    world.commit({T0: 1}, group_id="gone")
    world.coordinator.offsets.delete_group("gone")
    world.start()
    assert world.fetched() == {T1: 1}
    assert world.coordinator.describe("gone") is None


def test_offsets_of_a_group_with_members_are_there_too(world) -> None:
    (member,) = world.form(1)
    world.commit({T0: 9}, member, 1)
    world.start()
    assert world.state == "Stable"
    assert world.fetched() == {T0: 9}


def test_a_record_that_cannot_be_read_costs_nothing_else(world, caplog) -> None:
    world.commit({T0: 1})
    partition = world.coordinator.partition_for("g")
    (record,) = world.log.partitions[partition]
    world.log.partitions[partition] = [
        Record(b"\0\1\0", b""),
        Record(record.key, b"\0\7"),
        record,
        Record(b"\0\13\0\1x", b"of a share group"),
    ]
    world.start()
    assert world.fetched() == {T0: 1}
    assert len(caplog.records) == 2
    assert "__consumer_offsets" in caplog.text


def test_records_of_impossible_groups_are_skipped(world, caplog) -> None:
    """A duplicate member id, a string too long to be written, a stray group."""
    world.commit({T0: 1})
    partition = world.coordinator.partition_for("g")
    stray = next(
        name
        for name in "abcdefgh"
        if world.coordinator.partition_for(name) != partition
    )
    member = MemberValue(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        subscription=b"",
        assignment=b"",
    )
    value = GroupValue(
        protocol_type="consumer",
        generation=1,
        protocol_name="range",
        leader="m",
        since_ms=0,
        members=(member, member),
    )
    long_type = b"\0\4" + bytes([0x81, 0x80, 0x02]) + b"x" * 32_768
    world.log.partitions[partition] += [
        group_record("g", value),
        Record(group_tombstone("g").key, long_type),
        group_tombstone(stray),
    ]
    world.start()
    assert len(caplog.records) == 3
    assert world.fetched() == {T0: 1}


def test_a_partition_that_cannot_be_read_costs_no_other(world, caplog) -> None:
    partition = world.coordinator.partition_for("g")
    other = next(
        name
        for name in "abcdefgh"
        if world.coordinator.partition_for(name) != partition
    )
    world.commit({T0: 1})
    world.commit({T0: 2}, group_id=other)
    world.log.read_fails_in = partition
    world.start()
    assert "groups cannot be loaded" in caplog.text
    with pytest.raises(KafkaError) as caught:
        world.coordinator.describe("g")
    assert caught.value.code is ErrorCode.not_coordinator
    fetched = fetch_all(world.coordinator.offsets, other, require_stable=True)
    assert [commit.offset for commit in fetched.values()] == [2]


def test_generations_count_on_from_0_after_the_last_that_an_int32_holds(world) -> None:
    last = GroupValue(
        protocol_type="consumer",
        generation=2**31 - 1,
        protocol_name=None,
        leader=None,
        since_ms=0,
        members=(),
    )
    partition = world.coordinator.partition_for("g")
    world.log.partitions[partition] = [group_record("g", last)]
    world.start()
    joined = world.join()
    world.advance(3_000)
    assert joined.answer().generation == 0


def test_groups_are_spread_as_java_spreads_them() -> None:
    """Hashes from Java's documentation: s[0]*31^(n-1) + ... + s[n-1], 32 bits."""
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("ab") == 97 * 31 + 98
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("Hello World", 50) == 862545276 % 50


def test_loading_is_due_by_an_earlier_reading_of_the_clock(world) -> None:
    """The clock advances between readings; a later due time would stall the load."""
    read = 0

    def moving() -> Instant:
        nonlocal read
        read += 1
        return Instant(read, 0)

    world.commit({("t", 0): 1})
    partition = partition_for("g", world.config.offsets_topic_num_partitions)
    coordinator = GroupCoordinator(
        world.config, log=world.log, clock=moving, rng=random.Random(7)
    )
    coordinator.elect(partition)
    asked_ns = moving().ns
    due_ns = coordinator.loading.next_ns()
    assert due_ns is not None
    assert due_ns <= asked_ns


def test_an_empty_partition_is_loaded_at_once(world) -> None:
    coordinator = GroupCoordinator(
        world.config, log=world.log, clock=lambda: Instant(0, 0), rng=random.Random(7)
    )
    coordinator.elect(0)
    assert coordinator.loading.next_ns() is None
    assert coordinator.statistics().partition_loads == 1
