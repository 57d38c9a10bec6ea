"""What a coordinator knows after a new start: all that it had acknowledged."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.groups.messages import MemberIdentity, Record
from broker.groups.offset_store import TopicPartition
from broker.groups.partitioner import java_hash, partition_for

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
    loads = world.coordinator.statistics().counters.partition_loads
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
        Record(b"\0\3\0\1x", b"of another protocol"),
    ]
    world.start()
    assert world.fetched() == {T0: 1}
    assert len(caplog.records) == 2
    assert "__consumer_offsets" in caplog.text


def test_groups_are_spread_as_java_spreads_them() -> None:
    """Hashes from Java's documentation: s[0]*31^(n-1) + ... + s[n-1], 32 bits."""
    assert java_hash("") == 0
    assert java_hash("a") == 97
    assert java_hash("ab") == 97 * 31 + 98
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00
    assert java_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("Hello World", 50) == 862545276 % 50
