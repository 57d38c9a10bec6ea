"""JoinGroup: admission, the join phase, the leader and the chosen protocol."""

from __future__ import annotations

import pytest

from broker.groups.state.group_messages import MemberIdentity
from broker.protocol.errors import ErrorCode

MAX_INT = 2**31 - 1


def test_a_dynamic_member_is_given_an_id_to_join_with(world) -> None:
    refused = world.join(requires_known_member_id=True, client_id="app").answer()
    assert (refused.error, refused.generation) == (ErrorCode.member_id_required, -1)
    assert refused.member_id.startswith("app-")
    assert world.state == "Empty"

    joined = world.join(refused.member_id, requires_known_member_id=True)
    assert not joined.answered
    assert world.state == "PreparingRebalance"
    world.advance(3_000)
    answer = joined.answer()
    assert (answer.error, answer.generation) == (ErrorCode.none, 1)
    assert answer.leader == answer.member_id == refused.member_id
    assert [one.member_id for one in answer.members] == [refused.member_id]
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert world.state == "CompletingRebalance"


@pytest.mark.parametrize("name", ["n" * 32_767, "\N{SNOWMAN}" * 10_922])
def test_an_id_given_fits_a_string_of_the_protocol(world, name: str) -> None:
    refused = world.join(client_id=name, requires_known_member_id=True).answer()
    member_id = refused.member_id
    assert 32_760 < len(member_id.encode()) <= 32_767
    assert member_id[:-37] == name[: len(member_id) - 37]


def test_an_id_nobody_comes_back_with_is_forgotten_after_the_session_timeout(
    world,
) -> None:
    refused = world.join(requires_known_member_id=True).answer()
    world.advance(9_999)
    assert refused.member_id in world.group.roster.pending
    world.advance(1)
    assert world.coordinator.describe("g") is None
    again = world.join(refused.member_id).answer()
    assert again.error is ErrorCode.unknown_member_id


def test_the_join_phase_waits_for_an_id_that_was_handed_out(world) -> None:
    (leader,) = world.form(1)
    pending = world.join(requires_known_member_id=True).answer().member_id
    rejoined = world.join(leader)
    assert not rejoined.answered
    world.join(pending)
    assert rejoined.answer().generation == 2
    assert len(rejoined.answer().members) == 2


def test_an_old_client_joins_without_an_id_of_its_own(world) -> None:
    joined = world.join(requires_known_member_id=False)
    world.advance(3_000)
    assert joined.answer().member_id.startswith("c-")


def test_the_first_rebalance_is_put_off_while_members_come(world) -> None:
    first = world.join()
    world.advance(2_000)
    second = world.join()
    world.advance(1_000)
    assert not first.answered
    world.advance(2_999)
    assert not first.answered
    world.advance(1)
    assert first.answer().generation == second.answer().generation == 1


def test_the_first_rebalance_is_put_off_no_longer_than_the_rebalance_timeout(
    world,
) -> None:
    first = world.join(rebalance_timeout_ms=7_000)
    for _ in range(7):
        world.advance(1_000)
        world.join(rebalance_timeout_ms=7_000)
    assert first.answered


def test_no_delay_means_that_the_first_member_starts_at_once(make_world) -> None:
    world = make_world(group_initial_rebalance_delay_ms=0)
    assert world.join().answer().generation == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"session_timeout_ms": 5_999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"member_id": "stranger"}, ErrorCode.unknown_member_id),
        ({"protocols": ()}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
def test_a_join_that_makes_no_sense_leaves_no_group_behind(
    world, fields, error
) -> None:
    assert world.join(**fields).answer().error is error
    assert world.coordinator.statistics().groups == 0
    assert (
        world.coordinator.next_event_ns()
        == world.config.offsets_retention_check_interval_ms * 10**6
    )


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_the_bounds_of_the_session_timeout_are_allowed(
    world, session_timeout_ms
) -> None:
    world.join(session_timeout_ms=session_timeout_ms)
    world.advance(3_000)
    assert world.state == "CompletingRebalance"


def test_a_member_that_shares_no_protocol_is_refused(world, make_protocols) -> None:
    world.form(1, protocols=make_protocols("range", "roundrobin"))
    other = world.join(protocols=make_protocols("sticky")).answer()
    assert other.error is ErrorCode.inconsistent_group_protocol
    assert other.member_id == ""
    kind = world.join(protocol_type="connect").answer()
    assert kind.error is ErrorCode.inconsistent_group_protocol
    assert world.state == "Stable"


def test_the_protocol_with_the_most_votes_among_the_common_ones_wins(
    world, make_protocols
) -> None:
    voters = [("a", "b"), ("b", "a"), ("b", "a", "c")]
    joined = [world.join(protocols=make_protocols(*names)) for names in voters]
    world.advance(6_000)
    assert {one.answer().protocol_name for one in joined} == {"b"}


def test_a_protocol_that_one_member_lacks_cannot_win(world, make_protocols) -> None:
    voters = [("b", "a"), ("b", "a"), ("a",)]
    joined = [world.join(protocols=make_protocols(*names)) for names in voters]
    world.advance(6_000)
    assert {one.answer().protocol_name for one in joined} == {"a"}


def test_only_the_leader_is_shown_the_members(world, make_protocols) -> None:
    first = world.join(protocols=make_protocols("range", topics=["x"]))
    second = world.join(protocols=make_protocols("range", topics=["y"]))
    world.advance(6_000)
    assert second.answer().members == ()
    shown = {one.member_id: one.metadata for one in first.answer().members}
    assert shown == {
        first.answer().member_id: make_protocols("range", topics=["x"])[0].metadata,
        second.answer().member_id: make_protocols("range", topics=["y"])[0].metadata,
    }


def test_an_unchanged_follower_is_told_the_generation_without_a_rebalance(
    world,
) -> None:
    leader, follower = world.form(2)
    answer = world.join(follower).answer()
    assert (answer.error, answer.generation) == (ErrorCode.none, 1)
    assert (answer.leader, answer.members) == (leader, ())
    assert world.state == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance(world) -> None:
    leader, follower = world.form(2)
    rejoined = world.join(leader)
    assert not rejoined.answered
    assert world.heartbeat(follower, 1) is ErrorCode.rebalance_in_progress
    world.join(follower)
    assert rejoined.answer().generation == 2
    assert rejoined.answer().leader == leader


def test_a_follower_with_changed_metadata_starts_a_rebalance(
    world, make_protocols
) -> None:
    """Cooperative assignors report revoked partitions in their metadata."""
    leader, follower = world.form(2)
    changed = make_protocols("range", topics=["t", "u"])
    rejoined = world.join(follower, protocols=changed)
    assert world.state == "PreparingRebalance"
    answer = world.join(leader).answer()
    assert answer.generation == rejoined.answer().generation == 2
    assert changed[0].metadata in {one.metadata for one in answer.members}


def test_a_member_that_missed_the_join_answer_is_given_it_again(world) -> None:
    first, second = world.join(), world.join()
    world.advance(6_000)
    for one in (first.answer(), second.answer()):
        assert world.join(one.member_id).answer() == one
    assert world.state == "CompletingRebalance"


def test_changed_metadata_after_the_join_phase_starts_it_again(
    world, make_protocols
) -> None:
    first, second = world.join(), world.join()
    world.advance(6_000)
    waiting = world.sync(second.answer().member_id, 1)
    world.join(first.answer().member_id, protocols=make_protocols("range", "sticky"))
    assert world.state == "PreparingRebalance"
    assert waiting.answer().error is ErrorCode.rebalance_in_progress


def test_dynamic_members_that_do_not_join_again_in_time_are_lost(world) -> None:
    leader, follower = world.form(2, session_timeout_ms=100_000)
    rejoined = world.join(leader)
    world.advance(59_999)
    assert not rejoined.answered
    world.advance(1)
    assert [one.member_id for one in rejoined.answer().members] == [leader]
    assert world.heartbeat(follower, 2) is ErrorCode.unknown_member_id


def test_another_member_leads_if_the_leader_does_not_join_again(world) -> None:
    leader, follower = world.form(2, session_timeout_ms=100_000)
    newcomer = world.join()
    rejoined = world.join(follower)
    world.advance(60_000)
    assert leader not in world.group.roster
    assert rejoined.answer().leader == newcomer.answer().leader == follower


def test_the_longest_rebalance_timeout_of_the_members_counts(world) -> None:
    leader, _ = world.form(2, session_timeout_ms=200_000)
    rejoined = world.join(
        leader, rebalance_timeout_ms=90_000, session_timeout_ms=200_000
    )
    world.advance(89_999)
    assert not rejoined.answered
    world.advance(1)
    assert rejoined.answered


def test_a_request_sent_again_replaces_the_one_that_waits(world) -> None:
    leader, _ = world.form(2)
    first = world.join(leader)
    second = world.join(leader)
    assert first.answer().error is ErrorCode.rebalance_in_progress
    assert not second.answered


def test_a_first_join_does_not_wait_for_ever(world) -> None:
    """The client may have disconnected, and only this timeout removes its member."""
    world.form(1, rebalance_timeout_ms=MAX_INT, session_timeout_ms=1_800_000)
    joined = world.join()
    world.advance(299_999)
    assert not joined.answered
    world.advance(1)
    assert joined.answer().error is ErrorCode.unknown_member_id
    assert joined.answer().member_id == ""


def test_a_full_group_takes_no_more_members(make_world) -> None:
    world = make_world(group_max_size=2)
    members = world.form(2)
    refused = world.join().answer()
    assert refused.error is ErrorCode.group_max_size_reached
    assert refused.member_id == ""
    assert world.state == "Stable"
    assert world.join(members[1]).answer().error is ErrorCode.none


def test_a_full_group_takes_no_more_members_during_a_rebalance(make_world) -> None:
    world = make_world(group_max_size=2)
    world.join()
    world.join()
    assert world.join().answer().error is ErrorCode.group_max_size_reached
    world.advance(6_000)
    assert len(world.group.roster) == 2


def test_a_group_over_a_lowered_bound_loses_the_last_to_join(make_world) -> None:
    world = make_world(group_max_size=3)
    leader, second, third = world.form(3)
    world.config = make_world(group_max_size=2).config
    world.start()
    assert world.state == "PreparingRebalance"
    world.join(leader)
    world.join(second)
    refused = world.join(third).answer()
    assert refused.error is ErrorCode.group_max_size_reached
    assert set(world.group.roster.members) == {leader, second}
    assert world.state == "CompletingRebalance"


def test_a_protocol_listed_twice_counts_once(world, make_protocols) -> None:
    world.form(1, protocols=make_protocols("range", "range"))
    joined = world.join(protocols=make_protocols("range"))
    world.join(next(iter(world.group.roster.members)))
    assert joined.answer().protocol_name == "range"


def test_another_kind_of_member_may_use_an_emptied_group(world) -> None:
    (member,) = world.form(1)
    world.coordinator.leave("g", [MemberIdentity(member)])
    world.form(1, protocol_type="connect")
    assert world.group.protocol_type == "connect"
    assert not world.group.subscribes_to("t")


def test_an_id_that_leaves_before_it_joins_leaves_no_group(world) -> None:
    refused = world.join(requires_known_member_id=True).answer()
    assert world.coordinator.statistics().groups == 1
    world.coordinator.leave("g", [MemberIdentity(refused.member_id)])
    assert world.coordinator.statistics().groups == 0
