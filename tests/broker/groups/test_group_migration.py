"""Conversions of groups between the classic and the consumer protocol (KIP-848)."""

from __future__ import annotations

import pytest

from broker.groups.consumer.consumer_group import ConsumerGroup
from broker.groups.state.classic_consumer_messages import (
    assignment_bytes,
    read_assignment,
)
from broker.groups.state.group import Group
from broker.groups.state.group_messages import MemberIdentity
from broker.groups.state.group_settings import MigrationPolicy
from broker.protocol.errors import ErrorCode, KafkaError


@pytest.fixture
def world(make_world):
    """A topic t of four partitions, and no pause between assignments."""
    return started(make_world)


def started(make_world, **settings: object):
    world = make_world(consumer_assignment_interval_ms=0, **settings)
    world.topics.create("t", 4)
    return world


def form(world, count: int = 2) -> list[str]:
    """Bring a classic group that shares t to Stable; return its members."""
    waiting = [world.join(client_id=f"c{at}") for at in range(count)]
    world.advance(6_000)
    members = [one.answer().member_id for one in waiting]
    leader = waiting[0].answer().leader
    members.sort(key=lambda member_id: member_id != leader)
    assignments = {
        member_id: assignment_bytes(1, {"t": list(range(at, 4, count))})
        for at, member_id in enumerate(members)
    }
    for member_id in members[1:]:
        world.sync(member_id, 1)
    world.sync(members[0], 1, assignments=assignments)
    assert world.state == "Stable"
    return members


def partitions(world, member_id: str, generation: int) -> set[int]:
    answer = world.sync(member_id, generation).answer()
    assert answer.error is ErrorCode.none
    found = read_assignment(answer.assignment)
    assert found is not None
    return set(found.get("t", ()))


def refusal(call, *args, **fields) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*args, **fields)
    return refused.value.code


# ---- to a consumer group ------------------------------------------------------------


def test_a_member_of_the_new_protocol_upgrades_the_group(world) -> None:
    first, second = form(world)
    world.commit({("t", 0): 7}, first, 1)
    answer = world.beat("new").answer()
    group = world.consumers
    assert answer.epoch == group.epoch == 2
    assert answer.assigned == {}
    assert group.members[first].epoch == 1
    assert world.fetched() == {("t", 0): 7}
    # The classic members are told to rejoin, and revoke partitions when they do.
    assert world.heartbeat(first, 1) is ErrorCode.rebalance_in_progress
    rejoined = world.join(first).answer()
    assert rejoined.error is ErrorCode.none
    assert rejoined.protocol_name == "range"
    assert rejoined.leader == ""
    world.join(second)
    world.beat("new", 2)
    shares = [
        partitions(world, member_id, group.members[member_id].epoch)
        for member_id in (first, second)
    ]
    epochs = group.members["new"].assigned
    shares.append({index for of_topic in epochs.values() for index in of_topic})
    assert sorted(index for share in shares for index in share) == [0, 1, 2, 3]
    assert max(map(len, shares)) == 2


def test_an_upgraded_group_comes_back_from_the_log(world) -> None:
    form(world)
    world.beat("new")
    members, epoch = dict(world.consumers.members), world.consumers.epoch
    world.start()
    assert (world.consumers.members, world.consumers.epoch) == (members, epoch)


def test_an_upgrade_that_is_not_in_the_log_is_written_later(world) -> None:
    form(world)
    world.log.fail_with = ErrorCode.not_enough_replicas
    assert world.beat("new").answer().error is ErrorCode.coordinator_not_available
    world.log.fail_with = ErrorCode.none
    world.beat("new")
    world.start()
    assert "new" in world.consumers.members


@pytest.mark.parametrize(
    "policy", [MigrationPolicy.DOWNGRADE, MigrationPolicy.DISABLED]
)
def test_the_policy_may_forbid_an_upgrade(make_world, policy) -> None:
    world = started(make_world, consumer_migration_policy=policy)
    form(world)
    assert refusal(world.beat, "new") is ErrorCode.group_id_not_found
    assert world.state == "Stable"


def test_groups_of_other_protocols_stay_classic(world) -> None:
    world.join(protocol_type="connect")
    assert refusal(world.beat, "new") is ErrorCode.group_id_not_found


def test_members_that_cannot_be_read_keep_a_group_classic(
    world, make_protocols
) -> None:
    (protocol,) = make_protocols("range")
    world.join(protocols=(protocol._replace(metadata=b"\0"),))
    assert refusal(world.beat, "new") is ErrorCode.group_id_not_found


def test_requests_that_wait_in_a_classic_group_are_answered(world) -> None:
    waiting = world.join()
    world.beat("new")
    assert waiting.answer().error is ErrorCode.rebalance_in_progress
    world.advance(400_000)
    assert isinstance(world.consumers, ConsumerGroup)


def test_an_empty_classic_group_becomes_a_consumer_group(world) -> None:
    world.commit({("t", 0): 7})
    world.beat("new")
    assert world.fetched() == {("t", 0): 7}
    world.start()
    assert world.fetched() == {("t", 0): 7}
    assert "new" in world.consumers.members


def test_a_commit_under_way_survives_an_upgrade(world) -> None:
    world.log.hold = True
    waiting = world.committing({("t", 0): 7})
    world.beat("new")
    while world.log.held:
        world.log.release()
    assert waiting.answer() == {("t", 0): ErrorCode.none}
    assert world.fetched() == {("t", 0): 7}


# ---- members of the classic protocol ------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(world, make_protocols) -> None:
    world.beat("new")
    asked = world.join(requires_known_member_id=True).answer()
    assert asked.error is ErrorCode.member_id_required
    joined = world.join(asked.member_id).answer()
    assert joined.error is ErrorCode.none
    assert joined.generation == world.consumers.epoch == 3
    assert partitions(world, joined.member_id, 3) == set()
    told = world.beat("new", 2).answer()
    kept = {index for epochs in told.assigned.values() for index in epochs}
    world.beat("new", 2, owned={world.topics.ids["t"]: frozenset(kept)})
    # Partitions of "new" are free now, so the classic member is told to rejoin.
    assert world.heartbeat(joined.member_id, 3) is ErrorCode.rebalance_in_progress
    again = world.join(joined.member_id).answer()
    assert partitions(world, joined.member_id, again.generation) == {0, 1, 2, 3} - kept


def test_a_classic_member_is_checked(world, make_protocols) -> None:
    world.beat("new")
    member_id = world.join().answer().member_id
    assert world.heartbeat(member_id, 9) is ErrorCode.illegal_generation
    assert world.heartbeat("new", 3) is ErrorCode.unknown_member_id
    assert world.sync(member_id, 9).answer().error is ErrorCode.illegal_generation
    other = world.sync(member_id, 3, protocol_name="other").answer()
    assert other.error is ErrorCode.inconsistent_group_protocol
    unlike = world.join(protocols=make_protocols("other")).answer()
    assert unlike.error is ErrorCode.inconsistent_group_protocol


def test_a_classic_member_that_does_not_sync_or_join_is_fenced(world) -> None:
    world.beat("new")
    member_id = world.join(rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    member_id = member_id.answer().member_id
    world.advance(19_999)
    assert member_id in world.consumers.members
    world.advance(1)
    assert member_id not in world.consumers.members


# ---- to a classic group -------------------------------------------------------------


def test_the_group_is_classic_again_when_the_last_new_member_leaves(world) -> None:
    first, second = form(world)
    world.commit({("t", 0): 7}, first, 1)
    world.beat("new")
    world.beat("new", -1)
    group = world.group
    assert isinstance(group, Group)
    assert set(group.roster.members) == {first, second}
    assert world.state == "PreparingRebalance"
    assert world.fetched() == {("t", 0): 7}
    waiting = [world.join(first), world.join(second)]
    assert {one.answer().error for one in waiting} == {ErrorCode.none}
    world.start()
    assert world.state in ("Stable", "PreparingRebalance", "CompletingRebalance")


def test_a_downgraded_group_comes_back_from_the_log(world) -> None:
    members = form(world)
    world.beat("new")
    world.beat("new", -1)
    world.start()
    assert set(world.group.roster.members) == set(members)


def test_a_downgrade_that_is_not_in_the_log_is_written_later(world) -> None:
    members = form(world)
    world.beat("new")
    world.log.fail_with = ErrorCode.not_enough_replicas
    world.beat("new", -1)
    world.log.fail_with = ErrorCode.none
    for member_id in members:
        world.join(member_id)
    leader = world.group.roster.leader
    world.sync(leader, world.group.generation, assignments={})
    world.start()
    assert set(world.group.roster.members) == set(members)


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DISABLED])
def test_the_policy_may_forbid_a_downgrade(make_world, policy) -> None:
    world = started(make_world, consumer_migration_policy=policy)
    world.beat("new")
    member_id = world.join().answer().member_id
    world.beat("new", -1)
    assert world.consumers.members.keys() == {member_id}


def test_a_static_member_that_comes_back_classic_downgrades(world) -> None:
    world.beat("new", instance_id="i")
    member_id = world.join().answer().member_id
    world.beat("new", -2, instance_id="i")
    back = world.join(instance_id="i").answer()
    assert back.error is ErrorCode.none
    assert set(world.group.roster.members) == {member_id, back.member_id}


def test_an_empty_consumer_group_becomes_classic_when_one_joins(world) -> None:
    world.beat("new")
    world.beat("new", -1)
    world.join()
    world.advance(3_000)
    assert world.state == "CompletingRebalance"


def test_an_operator_removes_static_members_of_either_protocol(world) -> None:
    world.beat("new", instance_id="i")
    world.join(instance_id="j")
    leavers = [
        MemberIdentity("", "i"),
        MemberIdentity("", "j"),
        MemberIdentity("", "k"),
    ]
    left = world.coordinator.leave("g", leavers)
    assert [one.error for one in left] == [
        ErrorCode.none,
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert world.consumers.members == {}
