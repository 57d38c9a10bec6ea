"""Static membership (KIP-345): members that outlive their process."""

from __future__ import annotations

import pytest

from broker.groups.state.group_messages import MemberIdentity
from broker.protocol.errors import ErrorCode


def form_static(world, *instances: str, **fields) -> dict[str, str]:
    """Bring static members to Stable; return member ids by instance."""
    waiting = {i: world.join(instance_id=i, **fields) for i in instances}
    world.advance(6_000)
    members = {i: one.answer().member_id for i, one in waiting.items()}
    leader = waiting[instances[0]].answer().leader
    ordered = sorted(members.values(), key=lambda member_id: member_id != leader)
    world.spread(ordered, 1)
    return members


def test_a_static_member_needs_no_id_first(world) -> None:
    joined = world.join(instance_id="i", requires_known_member_id=True)
    world.advance(3_000)
    assert joined.answer().error is ErrorCode.none
    assert joined.answer().member_id.startswith("i-")


def test_a_static_follower_comes_back_without_a_rebalance(world) -> None:
    old = form_static(world, "a", "b")
    answer = world.join(instance_id="b").answer()
    assert (answer.error, answer.generation) == (ErrorCode.none, 1)
    assert (answer.leader, answer.skip_assignment) == (old["a"], False)
    assert answer.member_id != old["b"]
    assert world.state == "Stable"
    assert world.heartbeat(old["a"], 1, "a") is ErrorCode.none
    synced = world.sync(answer.member_id, 1, instance_id="b").answer()
    assert synced.assignment == old["b"].encode()


def test_a_static_leader_is_told_to_skip_the_assignment(world) -> None:
    form_static(world, "a", "b")
    answer = world.join(instance_id="a", supports_skipping_assignment=True).answer()
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert len(answer.members) == 2
    assert world.state == "Stable"


def test_an_older_static_leader_is_shown_the_leader_of_before(world) -> None:
    old = form_static(world, "a", "b")
    answer = world.join(instance_id="a", supports_skipping_assignment=False).answer()
    assert (answer.leader, answer.members) == (old["a"], ())
    assert not answer.skip_assignment
    assert world.group.roster.leader == answer.member_id


def test_the_old_process_of_a_static_member_is_fenced(world) -> None:
    old = form_static(world, "a", "b")
    world.join(instance_id="b")
    fenced = ErrorCode.fenced_instance_id
    assert world.heartbeat(old["b"], 1, "b") is fenced
    assert world.sync(old["b"], 1, instance_id="b").answer().error is fenced
    assert world.join(old["b"], instance_id="b").answer().error is fenced
    (left,) = world.coordinator.leave("g", [MemberIdentity(old["b"], "b")])
    assert left.error is fenced
    with pytest.raises(Exception, match="fenced_instance_id"):
        world.commit({("t", 0): 1}, old["b"], 1, instance_id="b")
    assert world.heartbeat(old["b"], 1) is ErrorCode.unknown_member_id


def test_an_instance_nobody_runs_as_is_an_unknown_member(world) -> None:
    old = form_static(world, "a")
    unknown = ErrorCode.unknown_member_id
    assert world.heartbeat(old["a"], 1, "nobody") is unknown
    assert world.join(old["a"], instance_id="nobody").answer().error is unknown


def test_requests_of_the_old_process_that_wait_are_fenced(world) -> None:
    old = form_static(world, "a", "b")
    world.join(old["a"], instance_id="a")
    parked = world.join(old["b"], instance_id="b")
    assert parked.answered  # Both have joined: the join phase is over.
    waiting = world.sync(old["b"], 2, instance_id="b")
    again = world.join(instance_id="b")
    assert waiting.answer().error is ErrorCode.fenced_instance_id
    assert world.state == "PreparingRebalance"
    third = world.join(instance_id="b")
    assert again.answer().error is ErrorCode.fenced_instance_id
    assert not third.answered


def test_a_static_member_that_changes_the_choice_of_protocol_starts_a_rebalance(
    world, make_protocols
) -> None:
    form_static(world, "a", protocols=make_protocols("range", "sticky"))
    joined = world.join(instance_id="a", protocols=make_protocols("sticky", "range"))
    assert joined.answer().generation == 2
    assert joined.answer().protocol_name == "sticky"


def test_a_static_member_that_comes_back_before_the_assignment_starts_a_rebalance(
    world,
) -> None:
    waiting = {i: world.join(instance_id=i) for i in "ab"}
    world.advance(6_000)
    assert world.state == "CompletingRebalance"
    world.join(instance_id="b")
    assert world.state == "PreparingRebalance"
    again = world.join(waiting["a"].answer().member_id, instance_id="a")
    assert again.answer().generation == 2


def test_the_session_of_a_replaced_member_cannot_end_the_new_one(world) -> None:
    form_static(world, "a", "b", session_timeout_ms=10_000)
    world.advance(9_000)
    world.heartbeat(world.group.roster.static_member_id("a"), 1, "a")
    new = world.join(instance_id="b").answer().member_id
    world.advance(9_999)
    assert new in world.group.roster
    world.advance(1)
    assert new not in world.group.roster


def test_static_members_that_do_not_join_again_stay_until_they_do_not_sync(
    world,
) -> None:
    old = form_static(world, "a", "b", session_timeout_ms=500_000)
    rejoined = world.join(old["a"], instance_id="a", session_timeout_ms=500_000)
    world.advance(60_000)
    assert len(rejoined.answer().members) == 2
    world.sync(
        old["a"],
        2,
        instance_id="a",
        assignments=dict.fromkeys(old.values(), b"x"),
    )
    assert world.state == "Stable"
    world.advance(59_999)
    assert old["b"] in world.group.roster
    world.advance(1)
    assert old["b"] not in world.group.roster
    assert world.state == "PreparingRebalance"


def test_a_rebalance_that_no_static_member_joins_is_put_off_until_sessions_end(
    world,
) -> None:
    old = form_static(world, "a", "b", session_timeout_ms=100_000)
    rejoined = world.join(old["a"], instance_id="a", session_timeout_ms=100_000)
    world.coordinator.leave("g", [MemberIdentity("", "a")])
    assert rejoined.answer().error is ErrorCode.unknown_member_id
    world.advance(99_999)
    assert world.state == "PreparingRebalance"
    assert old["b"] in world.group.roster
    world.advance(1)
    assert world.state == "Empty"


def test_a_rebalance_that_was_put_off_ends_in_time_once_somebody_joins(world) -> None:
    old = form_static(world, "a", "b", "c", session_timeout_ms=500_000)
    world.join(old["a"], instance_id="a", session_timeout_ms=500_000)
    world.coordinator.leave("g", [MemberIdentity("", "a")])
    world.advance(70_000)
    joined = world.join(old["b"], instance_id="b", session_timeout_ms=500_000)
    world.advance(49_999)
    assert not joined.answered
    world.advance(1)
    assert {one.instance_id for one in joined.answer().members} == {"b", "c"}


def test_an_operator_removes_static_members_by_their_instance(world) -> None:
    form_static(world, "a", "b")
    left = world.coordinator.leave(
        "g", [MemberIdentity("", "b"), MemberIdentity("", "nobody")]
    )
    assert [one.error for one in left] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
    ]
    assert world.group.roster.static_member_id("b") is None
    assert world.state == "PreparingRebalance"


def test_a_replacement_that_cannot_be_stored_is_taken_back(world) -> None:
    old = form_static(world, "a", "b")
    world.log.fail_with = ErrorCode.not_enough_replicas
    answer = world.join(instance_id="b").answer()
    assert answer.error is ErrorCode.coordinator_not_available
    world.coordinator.check()
    assert world.group.roster.static_member_id("b") == old["b"]
    assert world.heartbeat(old["b"], 1, "b") is ErrorCode.none


def test_a_rebalance_overtakes_a_replacement_on_its_way_into_the_log(world) -> None:
    old = form_static(world, "a", "b")
    world.log.hold = True
    back = world.join(instance_id="b")
    assert not back.answered
    lead = world.join(old["a"], instance_id="a")
    assert back.answer().generation == lead.answer().generation == 2
    world.log.release()
    assert world.state == "CompletingRebalance"


def test_a_pending_id_with_an_instance_is_refused_as_kafka_does(world) -> None:
    pending = world.join(requires_known_member_id=True).answer().member_id
    answer = world.join(pending, instance_id="i").answer()
    assert answer.error is ErrorCode.unknown_server_error


def test_a_replacement_inherits_that_its_assignment_is_not_fetched_yet(world) -> None:
    waiting = {i: world.join(instance_id=i) for i in "ab"}
    world.advance(6_000)
    leader = waiting["a"].answer().member_id
    world.sync(leader, 1, instance_id="a", assignments={})
    new = world.join(instance_id="b").answer().member_id
    for _ in range(7):
        world.advance(8_000)
        assert world.heartbeat(new, 1, "b") is ErrorCode.none
        world.heartbeat(leader, 1, "a")
    world.advance(4_000)
    assert new not in world.group.roster
    assert world.state == "PreparingRebalance"
