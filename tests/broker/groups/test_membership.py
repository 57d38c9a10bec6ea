"""SyncGroup, Heartbeat, LeaveGroup and their deadlines."""

from __future__ import annotations

import pytest

from broker.groups.state.group_messages import LeftMember, MemberIdentity, SyncAnswer
from broker.protocol.errors import ErrorCode


def joined(world, count: int, **fields) -> list[str]:
    """Bring a group to CompletingRebalance; return ids, the leader first."""
    waiting = [world.join(**fields) for _ in range(count)]
    world.advance(6_000)
    leader = waiting[0].answer().leader
    members = [one.answer().member_id for one in waiting]
    return sorted(members, key=lambda member_id: member_id != leader)


# ---- SyncGroup ----------------------------------------------------------------------


def test_followers_wait_for_the_assignment_that_the_leader_brings(world) -> None:
    leader, follower = joined(world, 2)
    waiting = world.sync(follower, 1)
    assert not waiting.answered
    own = world.sync(leader, 1, assignments={leader: b"L", follower: b"F"})
    assert own.answer().assignment == b"L"
    assert waiting.answer() == SyncAnswer(
        protocol_type="consumer", protocol_name="range", assignment=b"F"
    )
    assert world.state == "Stable"
    assert world.coordinator.statistics().completed_rebalances == 1


def test_a_member_that_syncs_late_gets_its_assignment_at_once(world) -> None:
    leader, follower = joined(world, 2)
    world.sync(leader, 1, assignments={leader: b"L", follower: b"F"})
    assert world.sync(follower, 1).answer().assignment == b"F"
    assert world.sync(follower, 1).answer().assignment == b"F"


def test_a_member_without_an_assignment_gets_an_empty_one(world) -> None:
    leader, follower = joined(world, 2)
    world.sync(leader, 1, assignments={"somebody else": b"x"})
    assert world.sync(follower, 1).answer().assignment == b""


def test_only_the_leaders_assignment_counts(world) -> None:
    leader, follower = joined(world, 2)
    waiting = world.sync(follower, 1, assignments={follower: b"mine"})
    assert not waiting.answered
    world.sync(leader, 1, assignments={follower: b"theirs"})
    assert waiting.answer().assignment == b"theirs"


@pytest.mark.parametrize(
    ("member", "generation", "fields", "error"),
    [
        ("stranger", 1, {}, ErrorCode.unknown_member_id),
        (None, 0, {}, ErrorCode.illegal_generation),
        (None, 2, {}, ErrorCode.illegal_generation),
        (None, 1, {"instance_id": "i"}, ErrorCode.unknown_member_id),
        (None, 1, {"group_id": "no such"}, ErrorCode.unknown_member_id),
        (None, 1, {"group_id": ""}, ErrorCode.invalid_group_id),
        (
            None,
            1,
            {"protocol_type": "connect"},
            ErrorCode.inconsistent_group_protocol,
        ),
        (None, 1, {"protocol_name": "sticky"}, ErrorCode.inconsistent_group_protocol),
        (None, 1, {"protocol_type": "consumer", "protocol_name": "range"}, None),
    ],
)
def test_a_sync_is_checked(world, member, generation, fields, error) -> None:
    _, follower = joined(world, 2)
    waiting = world.sync(member or follower, generation, **fields)
    if error is None:
        assert not waiting.answered
    else:
        assert waiting.answer().error is error


def test_a_sync_during_the_join_phase_is_told_to_join(world) -> None:
    leader, follower = world.form(2)
    world.join(leader)
    answer = world.sync(follower, 1).answer()
    assert answer.error is ErrorCode.rebalance_in_progress


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("stranger", 1, ErrorCode.unknown_member_id),
        (None, 0, ErrorCode.illegal_generation),
    ],
)
def test_a_sync_of_nobody_is_no_reason_to_join(
    world, member, generation, error
) -> None:
    """The member is checked before the state of the group, as in Kafka."""
    leader, follower = world.form(2)
    world.join(leader)
    assert world.state == "PreparingRebalance"
    assert world.sync(member or follower, generation).answer().error is error


def test_an_assignment_takes_effect_when_it_is_in_the_log(world) -> None:
    leader, follower = joined(world, 2)
    world.log.hold = True
    waiting = [
        world.sync(follower, 1),
        world.sync(leader, 1, assignments={follower: b"F"}),
    ]
    assert not any(one.answered for one in waiting)
    assert world.state == "CompletingRebalance"
    world.log.release()
    assert [one.answer().assignment for one in waiting] == [b"F", b""]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.request_timed_out, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.unknown_server_error),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_void(world, fault, told) -> None:
    leader, follower = joined(world, 2)
    waiting = world.sync(follower, 1)
    world.log.fail_with = fault
    own = world.sync(leader, 1, assignments={follower: b"F"})
    assert own.answer() == waiting.answer() == SyncAnswer(error=told)
    assert world.state == "PreparingRebalance"


def test_an_assignment_overtaken_by_a_rebalance_never_takes_effect(world) -> None:
    leader, follower = joined(world, 2)
    world.log.hold = True
    own = world.sync(leader, 1, assignments={follower: b"old"})
    world.coordinator.leave("g", [MemberIdentity(follower)])
    assert own.answer().error is ErrorCode.rebalance_in_progress
    again = world.join(leader)
    assert again.answer().generation == 2
    world.log.release()
    assert world.state == "CompletingRebalance"
    assert world.group.roster.members[leader].assignment == b""


def test_a_sync_sent_again_replaces_the_one_that_waits(world) -> None:
    leader, follower = joined(world, 2)
    first, second = world.sync(follower, 1), world.sync(follower, 1)
    assert first.answer().error is ErrorCode.rebalance_in_progress
    world.sync(leader, 1, assignments={follower: b"F"})
    assert second.answer().assignment == b"F"


def test_a_leader_that_leaves_while_followers_wait_starts_a_rebalance(world) -> None:
    leader, follower = joined(world, 2)
    waiting = world.sync(follower, 1)
    world.coordinator.leave("g", [MemberIdentity(leader)])
    assert waiting.answer().error is ErrorCode.rebalance_in_progress
    assert world.join(follower).answer().leader == follower


def test_a_member_that_leaves_while_it_waits_is_answered(world) -> None:
    _, follower = joined(world, 2)
    waiting = world.sync(follower, 1)
    world.coordinator.leave("g", [MemberIdentity(follower)])
    assert waiting.answer().error is ErrorCode.unknown_member_id


def test_members_that_never_sync_are_lost_after_the_rebalance_timeout(world) -> None:
    leader, follower = joined(world, 2, session_timeout_ms=500_000)
    world.sync(leader, 1, assignments={leader: b"L"})
    world.advance(59_999)
    assert world.state == "Stable"
    world.advance(1)
    assert list(world.group.roster.members) == [leader]
    assert world.state == "PreparingRebalance"
    assert world.join(follower).answer().error is ErrorCode.unknown_member_id


def test_a_leader_that_never_syncs_is_lost(world) -> None:
    _leader, follower = joined(world, 2, session_timeout_ms=500_000)
    waiting = world.sync(follower, 1)
    world.advance(60_000)
    assert waiting.answer().error is ErrorCode.rebalance_in_progress
    assert list(world.group.roster.members) == [follower]


# ---- Heartbeat and sessions ---------------------------------------------------------


def test_heartbeats_keep_a_member(world) -> None:
    (member,) = world.form(1)
    for _ in range(5):
        world.advance(9_999)
        assert world.heartbeat(member, 1) is ErrorCode.none
    world.advance(9_999)
    assert world.state == "Stable"
    world.advance(1)
    assert world.state == "Empty"
    assert world.group.generation == 2
    assert world.heartbeat(member, 1) is ErrorCode.unknown_member_id


def test_a_heartbeat_between_join_and_sync_is_a_plain_one(world) -> None:
    _, follower = joined(world, 2)
    world.advance(9_000)
    assert world.heartbeat(follower, 1) is ErrorCode.none
    world.advance(9_000)
    assert follower in world.group.roster


def test_a_heartbeat_of_another_generation_is_illegal(world) -> None:
    (member,) = world.form(1)
    assert world.heartbeat(member, 0) is ErrorCode.illegal_generation
    assert world.heartbeat(member, 2) is ErrorCode.illegal_generation


def test_a_heartbeat_to_no_group_is_an_unknown_member(world) -> None:
    assert world.heartbeat("m", 1) is ErrorCode.unknown_member_id
    assert world.coordinator.heartbeat("", "m", None, 1) is ErrorCode.invalid_group_id


def test_a_member_whose_session_ends_is_lost_and_the_others_rebalance(world) -> None:
    leader, follower = world.form(2)
    world.advance(9_000)
    world.heartbeat(leader, 1)
    world.advance(1_000)
    assert list(world.group.roster.members) == [leader]
    assert world.heartbeat(leader, 1) is ErrorCode.rebalance_in_progress
    assert world.heartbeat(follower, 1) is ErrorCode.unknown_member_id


def test_a_parked_join_stands_for_heartbeats(world) -> None:
    leader, follower = world.form(2)
    waiting = world.join(leader)
    for _ in range(5):
        world.advance(9_000)
        world.heartbeat(follower, 1)
    assert leader in world.group.roster
    world.join(follower)
    assert waiting.answer().error is ErrorCode.none
    world.advance(10_000)
    assert world.state == "Empty"


def test_a_parked_sync_stands_for_heartbeats_and_the_session_starts_anew(
    world,
) -> None:
    leader, follower = joined(world, 2)
    world.sync(follower, 1)
    world.advance(9_000)
    world.heartbeat(leader, 1)
    world.advance(5_000)
    world.sync(leader, 1, assignments={})
    world.advance(9_999)
    assert follower in world.group.roster
    world.advance(1)
    assert follower not in world.group.roster


def test_a_commit_keeps_a_member_as_a_heartbeat_does(world) -> None:
    (member,) = world.form(1)
    world.advance(9_999)
    world.commit({("t", 0): 1}, member, 1)
    world.advance(9_999)
    assert member in world.group.roster


# ---- LeaveGroup ---------------------------------------------------------------------


def test_a_member_that_leaves_is_gone_at_once(world) -> None:
    leader, follower = world.form(2)
    (left,) = world.coordinator.leave("g", [MemberIdentity(follower)])
    assert left == LeftMember(follower, None, ErrorCode.none)
    assert world.state == "PreparingRebalance"
    assert world.join(leader).answer().generation == 2


def test_the_last_member_to_leave_empties_the_group(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    assert world.state == "Empty"
    assert world.group.generation == 2
    assert world.group.protocol_name is None


def test_leaving_completes_a_join_phase_that_waited_for_the_leaver(world) -> None:
    leader, follower = world.form(2)
    waiting = world.join(leader)
    world.coordinator.leave("g", [MemberIdentity(follower)])
    assert waiting.answer().generation == 2


def test_leaving_does_not_cut_the_first_delay_short(world) -> None:
    first, second = world.join(), world.join()
    leaver = list(world.group.roster.members)[1]
    world.coordinator.leave("g", [MemberIdentity(leaver)])
    assert second.answer().error is ErrorCode.unknown_member_id
    assert not first.answered


def test_a_batch_of_leaves_is_answered_one_by_one_with_one_rebalance(world) -> None:
    leader, second, third = world.form(3)
    pending = world.join(requires_known_member_id=True).answer().member_id
    leavers = [second, "stranger", third, pending]
    left = world.coordinator.leave("g", [MemberIdentity(one) for one in leavers])
    assert [one.error for one in left] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.none,
        ErrorCode.none,
    ]
    assert world.state == "PreparingRebalance"
    assert world.join(leader).answer().generation == 2


def test_a_leave_that_nobody_may_does_nothing(world) -> None:
    world.form(1)
    world.coordinator.leave("g", [MemberIdentity("stranger")])
    assert world.state == "Stable"


def test_leaving_a_group_that_is_not_there_fails_for_each(world) -> None:
    left = world.coordinator.leave("no such", [MemberIdentity("a", "i")])
    assert left == [LeftMember("a", "i", ErrorCode.unknown_member_id)]


def test_a_pending_member_that_leaves_is_awaited_no_longer(world) -> None:
    (leader,) = world.form(1)
    pending = world.join(requires_known_member_id=True).answer().member_id
    waiting = world.join(leader)
    world.coordinator.leave("g", [MemberIdentity(pending)])
    assert waiting.answered


# ---- moves of the coordinator -------------------------------------------------------


def test_waiting_members_are_answered_when_the_coordinator_moves(world) -> None:
    leader, follower = joined(world, 2)
    waiting = world.sync(follower, 1)
    partition = world.coordinator.partition_for("g")
    world.coordinator.resign(partition)
    world.advance(0)
    assert waiting.answer().error is ErrorCode.not_coordinator
    assert world.heartbeat(leader, 1) is ErrorCode.not_coordinator
    assert world.join().answer().error is ErrorCode.not_coordinator
    world.advance(10_000_000)


def test_a_partition_that_loads_is_not_asked_yet_but_heartbeats_pass(world) -> None:
    (member,) = world.form(1)
    partition = world.coordinator.partition_for("g")
    world.coordinator.resign(partition)
    world.coordinator.elect(partition)
    loading = ErrorCode.coordinator_load_in_progress
    assert world.heartbeat(member, 1) is ErrorCode.none
    assert world.join(member).answer().error is loading
    assert world.coordinator.list_groups()[0] is loading
    world.advance(0)
    assert world.heartbeat(member, 1) is ErrorCode.none
    assert world.state == "Stable"


def test_a_late_outcome_of_a_write_cannot_disturb_a_group_that_moved_away(
    world,
) -> None:
    leader, _ = joined(world, 2)
    world.log.hold = True
    own = world.sync(leader, 1, assignments={})
    world.coordinator.resign(world.coordinator.partition_for("g"))
    world.advance(0)
    assert own.answer().error is ErrorCode.not_coordinator
    world.log.release(ErrorCode.not_leader_or_follower)
